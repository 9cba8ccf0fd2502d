//! `--batch`: each interval as a table or as one JSON object per line.

use super::print;
use crate::analysis::{JudgedInterval, Pipeline};
use crate::cli::Settings;
use crate::cli::args::BatchArgs;
use crate::lint::{InputKind, Options};
use crate::report::{View, json, text};
use crate::sample::SourceStatus;
use crate::source::Feed;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Judges and prints intervals as their samples come.
pub struct BatchPrinter<'a> {
    settings: &'a Settings,
    args: &'a BatchArgs,
    source: &'a str,
    pipeline: Pipeline,
    /// The sources as the text of the interval before showed them.
    shown: Vec<SourceStatus>,
    /// Whether no sample came yet.
    is_empty: bool,
    printed: u64,
    /// Intervals that end before this time are judged, not printed.
    from_ms: Option<i64>,
}

impl<'a> BatchPrinter<'a> {
    /// Nothing is printed yet. `source` is JSON's word for where the samples come from.
    pub fn new(settings: &'a Settings, args: &'a BatchArgs, source: &'a str) -> Self {
        let pipeline = Pipeline::new(settings.findings.clone());
        Self { settings, args, source, pipeline, shown: Vec::new(), is_empty: true, printed: 0, from_ms: None }
    }

    /// The same for a recording, from a time on: what comes before is judged, because findings depend on it.
    pub fn of_recording(settings: &'a Settings, args: &'a BatchArgs, source: &'a str, from_ms: Option<i64>) -> Self {
        let options = Options { input: InputKind::Recording, ..settings.findings.clone() };
        Self { pipeline: Pipeline::new(options), from_ms, ..Self::new(settings, args, source) }
    }

    /// How far before the first interval samples have to come.
    pub fn look_back(&self) -> Duration {
        self.pipeline.look_back()
    }

    /// Prints intervals until the feed ends or enough are printed. The first sample is only the base of the first
    /// interval.
    pub fn run(&mut self, feed: &mut dyn Feed) -> anyhow::Result<()> {
        while !self.enough() {
            let Some(sample) = feed.next()? else { break };
            self.is_empty = false;
            let is_early = self.from_ms.is_some_and(|from| sample.time_ms < from);
            if let Some(interval) = self.pipeline.next(Arc::new(sample)).filter(|_| !is_early) {
                self.print(&interval)?;
            }
        }
        Ok(())
    }

    /// The next sample does not continue what came before.
    pub fn restart(&mut self) {
        self.pipeline.restart();
    }

    /// Whether no sample came yet.
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Whether the number of intervals that the user asked for is printed.
    pub fn enough(&self) -> bool {
        self.args.count.is_some_and(|n| self.printed >= n)
    }

    fn print(&mut self, interval: &JudgedInterval) -> io::Result<()> {
        let JudgedInterval { model, report } = interval;
        let view = View { model, findings: report, source: self.source, domains: &self.settings.domains };
        if self.printed == 0 && self.args.json {
            // Text has it above each table.
            super::say_unmatched(&view);
        }
        let out = if self.args.json {
            json::line(&view)? + "\n"
        } else {
            // An empty line between two intervals.
            let separator = if self.printed == 0 { "" } else { "\n" };
            let text = text::interval(&view, &self.shown);
            self.shown = view.sources();
            format!("{separator}{text}")
        };
        self.printed += 1;
        print(&out)
    }
}
