//! `report --html`: one page of a recording or of other files.

use super::html_file::{self, STDOUT};
use super::progress_line::ReadingLine;
use super::{report, say, say_unmatched};
use crate::cli::Settings;
use crate::cli::args::InputArgs;
use ::report::html::{TimelineBuilder, page};
use anyhow::Context as _;
use import::PerfDataFeed;
use judge::analysis::Pipeline;
use judge::figures;
use sample::Feed as _;
use sample::SourceId;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The intervals that a perf.data file is cut into, seconds.
const INTERVAL_S: f64 = 1.0;

/// Writes the page of these inputs to a file, or to the standard output.
pub fn write(inputs: &[PathBuf], reading: &InputArgs, file: &Path, settings: &Settings) -> anyhow::Result<u8> {
    html_file::check(file)?;
    let mut timeline = TimelineBuilder::new(settings.domains.clone());
    let read = report::read(inputs, reading, settings, Some(&mut timeline))?;
    let progress = ReadingLine::new(inputs);
    for path in inputs {
        // The report said of a file that cannot be used.
        if read.source == SourceId::PerfData.as_str()
            && let Ok(mut feed) = PerfDataFeed::open(path, INTERVAL_S, reading.perf_times)
        {
            let mut pipeline = Pipeline::new(settings.findings.clone());
            while let Some(sample) = feed.next().with_context(|| format!("{}: its time lines", path.display()))? {
                if let Some(interval) = pipeline.next(Arc::new(sample)) {
                    timeline.add(&interval);
                }
            }
        }
    }
    let view = read.view(settings);
    let names: Vec<_> = inputs.iter().map(|i| i.file_name().unwrap_or(i.as_os_str()).to_string_lossy()).collect();
    let page = page(&view, timeline, &names.join(", "))?;
    html_file::write(file, page.html.as_bytes())?;
    drop(progress);
    say_unmatched(&view);
    if file != Path::new(STDOUT) {
        let path = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
        say(&format!("wrote {} ({})", path.display(), figures::bytes(page.html.len() as u64)));
    }
    page.notes.iter().for_each(|note| say(note));
    Ok(report::status(read.damaged))
}
