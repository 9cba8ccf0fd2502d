//! `--batch`: each interval as a table or as one JSON object per line.

use super::{print, view};
use crate::cli::Settings;
use crate::cli::args::{BatchArgs, CsvForm};
use crate::ui::{AppState, ColumnId, csv};
use ::report::{json, text};
use judge::analysis::{JudgedInterval, Pipeline};
use sample::{Feed, GuestId, SourceStatus};
use std::sync::Arc;

/// Judges and prints intervals as their samples come.
pub struct BatchPrinter<'a> {
    settings: &'a Settings,
    args: &'a BatchArgs,
    source: &'a str,
    pipeline: Pipeline,
    /// The sources as printed with the previous interval.
    shown: Vec<SourceStatus>,
    printed: u64,
    /// The columns of `--csv`.
    columns: Vec<ColumnId>,
    /// The guests of wide lines; `None` before their head is printed.
    guests: Option<Vec<GuestId>>,
}

/// The columns of `--csv` where none are named.
const USUAL_COLUMNS: [&str; 13] = [
    "name", "cpu", "wait", "exits", "mem", "swap", "disk", "iops", "disk_us", "net", "drops",
    "state", "problem",
];

impl<'a> BatchPrinter<'a> {
    /// Nothing is printed yet. `source` is JSON's word for where the samples come from.
    ///
    /// # Errors
    /// A column that there is not.
    pub fn new(
        settings: &'a Settings,
        args: &'a BatchArgs,
        source: &'a str,
    ) -> anyhow::Result<Self> {
        let pipeline = Pipeline::new(settings.findings.clone());
        let named = args.columns.iter().map(String::as_str);
        let columns = if args.columns.is_empty() {
            csv::columns(USUAL_COLUMNS)
        } else {
            csv::columns(named)
        };
        Ok(Self {
            columns: columns.map_err(anyhow::Error::msg)?,
            settings,
            args,
            source,
            pipeline,
            shown: Vec::new(),
            printed: 0,
            guests: None,
        })
    }

    /// Prints intervals until the feed ends or enough are printed. The first sample is only the
    /// base of the first interval. Returns whether there was one.
    pub fn run(&mut self, feed: &mut dyn Feed) -> anyhow::Result<bool> {
        let mut has_sample = false;
        while !self.enough() {
            let Some(sample) = feed.next()? else { break };
            has_sample = true;
            if let Some(interval) = self.pipeline.next(Arc::new(sample)) {
                self.print(&interval)?;
            }
        }
        Ok(has_sample)
    }

    /// Whether the number of intervals that the user asked for is printed.
    pub fn enough(&self) -> bool {
        self.args.count.is_some_and(|n| self.printed >= n)
    }

    /// Prints an interval.
    pub fn print(&mut self, interval: &JudgedInterval) -> anyhow::Result<()> {
        let view = view(interval, self.source, self.settings);
        if self.printed == 0 && self.args.json {
            // Text has it above each table.
            super::say_unmatched(&view);
        }
        let out = if let Some(form) = self.args.csv {
            self.csv(interval, form)
        } else if self.args.json {
            json::line(&view)? + "\n"
        } else {
            // An empty line between two intervals.
            let separator = if self.printed == 0 { "" } else { "\n" };
            let text = text::interval(&view, &self.shown, super::columns());
            self.shown = view.sources();
            format!("{separator}{text}")
        };
        self.printed += 1;
        Ok(print(&out)?)
    }

    /// The interval as comma-separated values.
    fn csv(&mut self, interval: &JudgedInterval, form: CsvForm) -> String {
        let mut shown = interval.clone();
        shown.keep_only(&self.settings.domains);
        let mut state = AppState::default();
        state.absorb(shown.into());
        match form {
            CsvForm::Long => csv::guest_lines(&state, &self.columns, self.printed == 0),
            CsvForm::Wide => csv::wide_line(&state, &self.columns, &mut self.guests),
        }
    }
}
