//! `report` and `diff`: files instead of a live host.

use super::html_file;
use super::{FAILED, columns, print, report_session, say, say_unmatched, view};
use crate::cli::Settings;
use crate::cli::args::{DiffArgs, InputArgs, ReportArgs};
use ::report::html::{TimelineBuilder, page};
use ::report::{View, diff, diff_text, json, text};
use import::{DescriptionFiles, ImportOptions, Imported};
use judge::analysis::{JudgedInterval, Pipeline};
use judge::model::Base;
use judge::{figures, lint};
use sample::SourceId;
use std::path::{Path, PathBuf};

/// Files read, joined and judged.
pub struct JudgedInput {
    pub interval: JudgedInterval,
    pub source: &'static str,
    /// Whether a file could not be used; the others were used.
    pub damaged: bool,
}

impl JudgedInput {
    pub fn view<'a>(&'a self, settings: &'a Settings) -> View<'a> {
        view(&self.interval, self.source, settings)
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
        print(&text::report(&view, columns()))?;
    }
    Ok(status(read.damaged))
}

/// `kvmtop report --html`: writes the page of these inputs to a file.
pub fn html(
    inputs: &[PathBuf],
    reading: &InputArgs,
    file: &Path,
    settings: &Settings,
) -> anyhow::Result<u8> {
    let mut timeline = TimelineBuilder::new(settings.domains.clone());
    let read = read(inputs, reading, settings, Some(&mut timeline))?;
    let view = read.view(settings);
    let names: Vec<_> = inputs
        .iter()
        .map(|i| i.file_name().unwrap_or(i.as_os_str()).to_string_lossy())
        .collect();
    let page = page(&view, timeline, &names.join(", "))?;
    html_file::write(file, page.html.as_bytes())?;
    say_unmatched(&view);
    say(&format!(
        "wrote {} ({})",
        file.display(),
        figures::bytes(page.html.len() as u64)
    ));
    page.notes.iter().for_each(|note| say(note));
    Ok(status(read.damaged))
}

/// `kvmtop diff`.
pub fn diff(args: &DiffArgs, settings: &Settings) -> anyhow::Result<u8> {
    let [of_before, of_after] = [
        InputArgs {
            from: None,
            ..args.reading.clone()
        },
        InputArgs {
            to: None,
            ..args.reading.clone()
        },
    ];
    let before = read(
        std::slice::from_ref(&args.before),
        &of_before,
        settings,
        None,
    )?;
    let after = read(std::slice::from_ref(&args.after), &of_after, settings, None)?;
    for (side, input) in [("before", &before), ("after", &after)] {
        input
            .interval
            .report
            .notes
            .iter()
            .for_each(|note| say(&format!("{side}: {note}")));
        let recording = input
            .interval
            .model
            .sources
            .iter()
            .filter(|s| s.id == SourceId::Session);
        recording.for_each(|s| say(&format!("{side}: {}", s.sentence())));
    }
    let diff = diff::compare(&before.view(settings), &after.view(settings));
    if args.reading.json {
        print(&(json::text(&diff)? + "\n"))?;
    } else {
        print(&diff_text::text(&diff, columns()))?;
    }
    Ok(status(before.damaged || after.damaged))
}

pub fn status(damaged: bool) -> u8 {
    if damaged { FAILED } else { 0 }
}

/// Reads and judges these inputs; all intervals of a session go to the time line as well.
pub fn read(
    inputs: &[PathBuf],
    reading: &InputArgs,
    settings: &Settings,
    timeline: Option<&mut TimelineBuilder>,
) -> anyhow::Result<JudgedInput> {
    let options = ImportOptions {
        duration_s: reading.duration.map(|d| d.as_secs_f64()),
        vcpus: reading.vcpus,
    };
    if let Some((session, others)) = report_session::find(inputs)? {
        let (descriptions, damaged) = describe(&others, &options);
        let interval = report_session::read(&session, reading, &descriptions, settings, timeline)?;
        return Ok(JudgedInput {
            interval,
            source: "session",
            damaged,
        });
    }
    anyhow::ensure!(
        !reading.has_time(),
        "--at, --from and --to need a session of kvmtop: other files hold no series of intervals"
    );
    let Imported {
        sample,
        interval_s,
        source,
        errors,
        notes,
    } = import::load(inputs, &options);
    errors.iter().for_each(|error| say(&error.to_string()));
    if sample.sources.is_empty() {
        notes.iter().for_each(|note| say(note));
        anyhow::bail!("nothing to report: none of the inputs could be read");
    }
    let options = lint::Options {
        input: lint::InputKind::File,
        ..settings.findings.clone()
    };
    let mut interval = Pipeline::new(options).judge(&sample, Base::Whole(interval_s));
    interval.report.notes = notes;
    Ok(JudgedInput {
        interval,
        source,
        damaged: !errors.is_empty(),
    })
}

/// Reads the files that describe the guests and the host of a session; also returns whether one of
/// them could not be used.
fn describe(others: &[PathBuf], options: &ImportOptions) -> (DescriptionFiles, bool) {
    if others.is_empty() {
        return (DescriptionFiles::default(), false);
    }
    let imported = import::load(others, options);
    imported
        .errors
        .iter()
        .for_each(|error| say(&error.to_string()));
    let damaged = !imported.errors.is_empty();
    let (descriptions, measured) = DescriptionFiles::new(imported);
    for name in &measured {
        say(&format!(
            "figures of '{name}' in other files are ignored: the session has its own; `kvmtop \
                diff` compares them"
        ));
    }
    (descriptions, damaged || !measured.is_empty())
}
