//! `report` and `diff`: files instead of a live host.

use super::progress_line::ReadingLine;
use super::{FAILED, print, report_session, say, say_unmatched};
use crate::cli::Settings;
use crate::cli::args::{DiffArgs, InputArgs, ReportArgs};
use ::report::html::TimelineBuilder;
use ::report::{View, diff, diff_text, json, text};
use import::{DescriptionFiles, ImportOptions, Imported};
use judge::analysis::{JudgedInterval, Pipeline};
use judge::lint;
use sample::SourceId;
use std::path::PathBuf;

/// Files read, joined and judged.
pub(super) struct JudgedInput {
    pub interval: JudgedInterval,
    pub source: &'static str,
    /// Whether a file could not be used; the others were used.
    pub damaged: bool,
}

impl JudgedInput {
    pub fn view<'a>(&'a self, settings: &'a Settings) -> View<'a> {
        View {
            model: &self.interval.model,
            findings: &self.interval.report,
            source: self.source,
            domains: &settings.domains,
        }
    }
}

/// `kvmtop report`.
pub fn report(args: &ReportArgs, settings: &Settings) -> anyhow::Result<u8> {
    let read = read(&args.inputs, &args.reading, settings, None)?;
    let view = read.view(settings);
    if args.reading.json {
        say_unmatched(&view);
        print(&(json::line(&view)? + "\n"))?;
    } else {
        print(&text::report(&view))?;
    }
    Ok(status(read.damaged))
}

/// `kvmtop diff`.
pub fn diff(args: &DiffArgs, settings: &Settings) -> anyhow::Result<u8> {
    let before = read(std::slice::from_ref(&args.before), &args.reading, settings, None)?;
    let after = read(std::slice::from_ref(&args.after), &args.reading, settings, None)?;
    for (side, input) in [("before", &before), ("after", &after)] {
        let recording = input.interval.model.sources.iter().filter(|s| s.id == SourceId::Session);
        recording.for_each(|s| say(&format!("{side}: {}", s.sentence())));
    }
    let diff = diff::compare(&before.view(settings), &after.view(settings));
    if args.reading.json {
        print(&(json::text(&diff)? + "\n"))?;
    } else {
        print(&diff_text::text(&diff))?;
    }
    Ok(status(before.damaged || after.damaged))
}

pub(super) fn status(damaged: bool) -> u8 {
    if damaged { FAILED } else { 0 }
}

/// Reads and judges these inputs; all intervals of a session go to the time line as well.
pub(super) fn read(
    inputs: &[PathBuf],
    reading: &InputArgs,
    settings: &Settings,
    timeline: Option<&mut TimelineBuilder>,
) -> anyhow::Result<JudgedInput> {
    let options = ImportOptions {
        duration_s: reading.duration.map(|d| d.as_secs_f64()),
        vcpus: reading.vcpus,
        perf_times: reading.perf_times,
    };
    if let Some((session, others)) = report_session::find(inputs)? {
        let (mut descriptions, damaged) = describe(&others, &options);
        let interval = report_session::read(&session, reading.at, &mut descriptions, settings, timeline)?;
        return Ok(JudgedInput { interval, source: "session", damaged });
    }
    anyhow::ensure!(reading.at.is_none(), "--at needs a session of kvmtop: other files hold no series of intervals");
    let reading = ReadingLine::new(inputs);
    let Imported { sample, base, source, errors, notes } = import::load(inputs, &options);
    drop(reading);
    errors.iter().map(ToString::to_string).chain(notes).for_each(|text| say(&text));
    anyhow::ensure!(!sample.sources.is_empty(), "nothing to report: none of the inputs could be read");
    let options = lint::Options { input: lint::InputKind::File, ..settings.findings.clone() };
    let _judging = ReadingLine::new(inputs);
    let interval = Pipeline::new(options).whole(&sample, base);
    Ok(JudgedInput { interval, source, damaged: !errors.is_empty() })
}

/// Reads the files that describe the guests and the host of a session; also returns whether one of them could not be
/// used.
fn describe(others: &[PathBuf], options: &ImportOptions) -> (DescriptionFiles, bool) {
    if others.is_empty() {
        return (DescriptionFiles::default(), false);
    }
    let imported = import::load(others, options);
    imported.errors.iter().for_each(|error| say(&error.to_string()));
    let damaged = !imported.errors.is_empty();
    let (descriptions, measured) = DescriptionFiles::new(imported);
    for name in &measured {
        say(&format!(
            "figures of '{name}' in other files are ignored: the session has its own; `kvmtop diff` compares them"
        ));
    }
    (descriptions, damaged || !measured.is_empty())
}
