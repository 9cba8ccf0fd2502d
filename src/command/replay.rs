//! `kvmtop replay` and `kvmtop demo`: a recording instead of a live host.

use super::batch::BatchPrinter;
use super::recorded_intervals::{RecordedIntervals, time_ms};
use super::{say, screen};
use crate::cli::Settings;
use crate::cli::args::{BatchArgs, DemoArgs, ReplayArgs};
use crate::ui::ScreenSource;
use anyhow::{Context, ensure};
use judge::analysis::{DomainFilter, RecordingTime};
use rustix::fs::{MemfdFlags, memfd_create};
use sample::SourceId;
use session::{Cursor, Session};
use std::fs::File;
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::Path;

/// The recording that ships with kvmtop.
const DEMO: &[u8] = include_bytes!("../../assets/demo.kvmtop");

/// `kvmtop replay FILE`.
pub fn run(args: &ReplayArgs, settings: &Settings) -> anyhow::Result<u8> {
    let title = args.file.display().to_string();
    show(Session::open(&args.file)?, ScreenSource::Replay, title, [args.at, args.to], &args.batch, settings)
}

/// `kvmtop demo`.
pub fn demo(args: &DemoArgs, settings: &Settings) -> anyhow::Result<u8> {
    ensure!(!DEMO.is_empty(), "this build of kvmtop ships no demo recording; `kvmtop record FILE` makes one");
    // A file in memory; it is gone when it is closed.
    let mut file = File::from(memfd_create("kvmtop", MemfdFlags::CLOEXEC).context("cannot make a file in memory")?);
    file.write_all(DEMO).context("cannot unpack the demo recording")?;
    let session = Session::from_file(file, Path::new("the demo recording"))?;
    if args.batch.batch {
        say("this is a recording of real guests on another host, not this one");
    }
    show(session, ScreenSource::Demo, "of real guests".into(), [None; 2], &args.batch, settings)
}

fn show(
    session: Session,
    source: ScreenSource,
    title: String,
    times: [Option<RecordingTime>; 2],
    batch: &BatchArgs,
    settings: &Settings,
) -> anyhow::Result<u8> {
    if let Some(damage) = session.damage() {
        say(&damage);
    }
    let range = session.range_ms().with_context(|| format!("{title}: the recording holds no sample"))?;
    let (start_ms, end_ms) = (time_ms(range, times[0], "--at")?, time_ms(range, times[1], "--to")?);
    let cursor = session.cursor();
    if batch.batch {
        let from = start_ms.map_or(0, |ms| cursor.index_from(ms));
        let last = end_ms.map_or(usize::MAX, |ms| cursor.index_at(ms));
        ensure!(from <= last, "there is no interval between --from and --to");
        return print_all(cursor, from..=last, batch, settings);
    }
    screen::replay(cursor, source, title, start_ms, settings)?;
    Ok(0)
}

fn print_all(
    cursor: Cursor,
    range: RangeInclusive<usize>,
    args: &BatchArgs,
    settings: &Settings,
) -> anyhow::Result<u8> {
    let mut batch = BatchPrinter::new(settings, args, SourceId::Session.as_str());
    let mut intervals = RecordedIntervals::new(cursor, settings.findings.clone(), DomainFilter::default());
    let mut next = *range.start();
    while !batch.enough()
        && let Some((index, interval)) = intervals.first_from(next)
        && range.contains(&index)
    {
        batch.print(&interval)?;
        next = index + 1;
    }
    Ok(0)
}
