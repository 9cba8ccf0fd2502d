//! `kvmtop replay` and `kvmtop demo`: a recording instead of a live host.

use super::batch::BatchPrinter;
use super::recorded_intervals::{RecordedIntervals, time_ms};
use super::{say, screen};
use crate::cli::Settings;
use crate::cli::args::{BatchArgs, DemoArgs, ReplayArgs};
use crate::ui::ScreenSource;
use anyhow::Context;
use judge::analysis::{DomainFilter, RecordingTime};
use rustix::fs::{MemfdFlags, memfd_create};
use sample::SourceId;
use session::{Cursor, Session};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// The recording that ships with kvmtop.
const DEMO: &[u8] = include_bytes!("../../assets/demo.kvmtop");

/// `kvmtop replay FILE`.
pub fn run(args: &ReplayArgs, settings: &Settings) -> anyhow::Result<u8> {
    let title = args.file.display().to_string();
    show(
        Session::open(&args.file)?,
        ScreenSource::Replay,
        title,
        args.at,
        &args.batch,
        settings,
    )
}

/// `kvmtop demo`.
pub fn demo(args: &DemoArgs, settings: &Settings) -> anyhow::Result<u8> {
    // A file in memory; it is gone when it is closed.
    let mut file = File::from(
        memfd_create("kvmtop", MemfdFlags::CLOEXEC).context("cannot make a file in memory")?,
    );
    file.write_all(DEMO)
        .context("cannot unpack the demo recording")?;
    let session = Session::from_file(file, Path::new("the demo recording"))?;
    show(
        session,
        ScreenSource::Demo,
        "of real guests".into(),
        None,
        &args.batch,
        settings,
    )
}

fn show(
    session: Session,
    source: ScreenSource,
    title: String,
    start: Option<RecordingTime>,
    batch: &BatchArgs,
    settings: &Settings,
) -> anyhow::Result<u8> {
    if let Some(damage) = session.damage() {
        say(&damage);
    }
    let range = session
        .range_ms()
        .with_context(|| format!("{title}: the recording holds no sample"))?;
    let start_ms = time_ms(range, start, "--at")?;
    let cursor = session.cursor();
    if batch.batch {
        let first = start_ms.map_or(0, |ms| cursor.index_from(ms));
        return print_all(cursor, first, batch, settings);
    }
    screen::replay(cursor, source, title, start_ms, settings)?;
    Ok(0)
}

fn print_all(
    cursor: Cursor,
    mut next: usize,
    args: &BatchArgs,
    settings: &Settings,
) -> anyhow::Result<u8> {
    let mut batch = BatchPrinter::new(settings, args, SourceId::Session.as_str())?;
    let mut intervals =
        RecordedIntervals::new(cursor, settings.findings.clone(), DomainFilter::default());
    while !batch.enough()
        && let Some((index, interval)) = intervals.first_from(next)
    {
        batch.print(&interval)?;
        next = index + 1;
    }
    Ok(0)
}
