//! `--batch`: each interval as a table or as a JSON object a line.

use super::print;
use crate::cli::Settings;
use crate::cli::args::BatchArgs;
use crate::lint;
use crate::model::{Base, Model};
use crate::report::{View, json, text};
use crate::sample::{Sample, SourceStatus};
use crate::source::Feed;
use std::io;

/// Judges and prints intervals as their samples come.
pub struct Batch<'a> {
    settings: &'a Settings,
    args: &'a BatchArgs,
    source: &'a str,
    memory: lint::RuleMemory,
    previous: Option<Sample>,
    /// The sources, as the interval before told of them.
    said: Vec<SourceStatus>,
    printed: u64,
}

impl<'a> Batch<'a> {
    /// Nothing is printed yet. `source` is the JSON's word for where the samples come from.
    pub fn new(settings: &'a Settings, args: &'a BatchArgs, source: &'a str) -> Self {
        Self {
            settings,
            args,
            source,
            memory: lint::RuleMemory::default(),
            previous: None,
            said: Vec::new(),
            printed: 0,
        }
    }

    /// Prints intervals until the feed ends or enough are printed. The first sample is only what the second is compared with.
    pub fn run(&mut self, feed: &mut dyn Feed) -> anyhow::Result<()> {
        while !self.enough() {
            let Some(sample) = feed.next()? else { break };
            if let Some(previous) = self.previous.take() {
                self.interval(&Model::new(&sample, Base::Previous(&previous)))?;
            }
            self.previous = Some(sample);
        }
        Ok(())
    }

    /// What follows is not to be compared with what came before.
    pub fn gap(&mut self) {
        self.previous = None;
        self.memory.clear();
    }

    /// Whether as many intervals as were asked for are printed.
    pub fn enough(&self) -> bool {
        self.args.count.is_some_and(|n| self.printed >= n)
    }

    fn interval(&mut self, model: &Model) -> io::Result<()> {
        let findings = lint::run(model, &mut self.memory, &self.settings.findings);
        let view = View { model, findings: &findings, source: self.source, domains: &self.settings.domains };
        if self.printed == 0 && self.args.json {
            // The text says it above each table.
            super::say_unmatched(&view);
        }
        let out = if self.args.json {
            json::line(&view)? + "\n"
        } else {
            // An empty line between two intervals.
            let gap = if self.printed == 0 { "" } else { "\n" };
            let text = text::interval(&view, &self.said);
            self.said = view.sources();
            format!("{gap}{text}")
        };
        self.printed += 1;
        print(&out)
    }
}
