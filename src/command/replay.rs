//! `kvmtop replay` and `kvmtop demo`: a recording instead of a live host.

use super::batch::Batch;
use super::{say, screen};
use crate::analysis::RecordingTime;
use crate::cli::Settings;
use crate::cli::args::{BatchArgs, DemoArgs, ReplayArgs};
use crate::sample::EngineKind;
use crate::session::{self, Cursor, Recorder, Session};
use crate::source::Feed;
use crate::source::import::PerfDataFeed;
use crate::source::session::SessionFeed;
use crate::ui::ScreenSource;
use anyhow::{Context, bail, ensure};
use jiff::tz::TimeZone;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;

/// The recording that ships with kvmtop.
const DEMO: &[u8] = include_bytes!("../../assets/demo.kvmtop");
/// The intervals that a perf.data file is cut into, seconds.
const INTERVAL_S: f64 = 1.0;

/// `kvmtop replay FILE`.
pub fn run(args: &ReplayArgs, settings: &Settings) -> anyhow::Result<u8> {
    let session = open(&args.file)?;
    let title = args.file.display().to_string();
    show(session, ScreenSource::Replay, title, args.at.as_ref(), &args.batch, settings)
}

/// `kvmtop demo`.
pub fn demo(args: &DemoArgs, settings: &Settings) -> anyhow::Result<u8> {
    ensure!(!DEMO.is_empty(), "this build of kvmtop ships no demo recording; `kvmtop record FILE` makes one");
    let mut file = nameless()?;
    file.write_all(DEMO).context("cannot unpack the demo recording")?;
    let session = Session::from_file(file, Path::new("the demo recording"))?;
    if args.batch.batch || args.batch.json {
        say("this is a recording of real guests on another host, not this one");
    }
    show(session, ScreenSource::Demo, "of real guests".into(), None, &args.batch, settings)
}

/// A session, or a perf.data file cut into samples.
pub fn open(path: &Path) -> anyhow::Result<Session> {
    let name = path.display();
    let mut head = [0; 8];
    let mut file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    let n = if file.metadata()?.is_file() {
        file.read(&mut head).with_context(|| format!("cannot read {name}"))?
    } else {
        0
    };
    if session::looks_like(&head[..n]) || n < head.len() {
        return Session::open(path);
    }
    if !matches!(&head, b"PERFILE2" | b"2ELIFREP") {
        bail!(
            "cannot replay {name}: it is neither a session of `kvmtop record` nor a perf.data of `perf kvm stat record`"
        );
    }
    let mut feed = PerfDataFeed::open(path, INTERVAL_S, false)?;
    let file = nameless()?;
    let mut recorder = Recorder::into_file(file.try_clone()?, path);
    while let Some(sample) = feed.next()? {
        recorder.append(&sample)?;
    }
    recorder.close()?;
    Session::from_file(file, path)
}

/// A file without a name, gone when it is closed.
fn nameless() -> anyhow::Result<File> {
    use rustix::fs::{MemfdFlags, memfd_create};
    let fd = memfd_create("kvmtop", MemfdFlags::CLOEXEC).context("cannot make a file in memory")?;
    let mut file = File::from(fd);
    file.rewind()?;
    Ok(file)
}

fn show(
    session: Session,
    source: ScreenSource,
    title: String,
    at: Option<&RecordingTime>,
    batch: &BatchArgs,
    settings: &Settings,
) -> anyhow::Result<u8> {
    if let Some(damage) = session.damage() {
        say(&damage);
    }
    let Some(range) = session.range_ms() else {
        bail!("{title}: the recording holds no sample");
    };
    let start_ms = at.map(|at| at.within(range, &TimeZone::system())).transpose()?;
    let mut cursor = session.cursor();
    if batch.batch || batch.json {
        let from = start_ms.map_or(0, |ms| cursor.index_at(ms));
        return print_all(cursor, from, batch, settings);
    }
    screen::replay(cursor, source, title, start_ms, settings)?;
    Ok(0)
}

fn print_all(mut cursor: Cursor, from: usize, args: &BatchArgs, settings: &Settings) -> anyhow::Result<u8> {
    let of_perf = cursor.at(from)?.engine.kind == EngineKind::File;
    let mut feed = SessionFeed::new(cursor, from);
    let mut batch = Batch::new(settings, args, if of_perf { "perf.data" } else { "session" });
    while !feed.is_done() && !batch.enough() {
        batch.restart();
        batch.run(&mut Run { feed: &mut feed, begun: false })?;
    }
    Ok(0)
}

/// The samples up to the next gap.
struct Run<'a> {
    feed: &'a mut SessionFeed,
    begun: bool,
}

impl Feed for Run<'_> {
    fn next(&mut self) -> anyhow::Result<Option<crate::sample::Sample>> {
        if self.begun && self.feed.at_gap() {
            return Ok(None);
        }
        self.begun = true;
        self.feed.next()
    }
}
