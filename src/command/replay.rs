//! `kvmtop replay` and `kvmtop demo`: a recording instead of a live host.

use super::batch::Batch;
use super::player::Recording;
use super::say;
use crate::cli::Settings;
use crate::cli::args::{BatchArgs, DemoArgs, ReplayArgs};
use crate::cli::values::At;
use crate::sample::EngineKind;
use crate::session::{self, Cursor, Recorder, Session};
use crate::source::Feed;
use crate::source::import::PerfDataFeed;
use crate::source::session::SessionFeed;
use crate::ui::{self, ScreenSource, UiOptions};
use anyhow::{Context, bail, ensure};
use jiff::Timestamp;
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
    while let Some(mut sample) = feed.next()? {
        recorder.lend(&mut sample)?;
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
    at: Option<&At>,
    batch: &BatchArgs,
    settings: &Settings,
) -> anyhow::Result<u8> {
    if let Some(damage) = session.damage() {
        say(&damage);
    }
    let Some(range) = session.range_ms() else {
        bail!("{title}: the recording holds no sample");
    };
    let start_ms = at.map(|at| resolve(at, range, &TimeZone::system())).transpose()?;
    let mut cursor = session.cursor();
    if batch.batch || batch.json {
        let from = start_ms.map_or(0, |ms| cursor.index_at(ms));
        return print_all(cursor, from, batch, settings);
    }
    let options = UiOptions {
        ascii: settings.look.ascii,
        no_color: !settings.look.color,
        source,
        title,
        interval_s: settings.interval.as_secs_f64(),
        lint: settings.findings.clone(),
        domains: settings.domains.clone(),
        start_ms,
    };
    ui::replay(Box::new(Recording::new(cursor, settings.domains.clone(), &settings.findings)), options)?;
    Ok(0)
}

fn print_all(mut cursor: Cursor, from: usize, args: &BatchArgs, settings: &Settings) -> anyhow::Result<u8> {
    let of_perf = cursor.at(from)?.engine.kind == EngineKind::File;
    let mut feed = SessionFeed::new(cursor, from);
    let mut batch = Batch::new(settings, args, if of_perf { "perf.data" } else { "session" });
    while !feed.is_done() && !batch.enough() {
        batch.gap();
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

/// The instant that `--at` means in a recording of this range, milliseconds since the epoch.
pub fn resolve(at: &At, range: (i64, i64), zone: &TimeZone) -> anyhow::Result<i64> {
    let told =
        |ms: i64| Timestamp::from_millisecond(ms).map(|t| t.to_zoned(zone.clone()).strftime("%F %T").to_string());
    let wanted = at.time_ms(range, zone).context("--at: the calendar has no such time")?;
    // To the second, as a user types it.
    if wanted + 999 < range.0 || wanted > range.1 {
        bail!(
            "--at: {} is outside of the recording, which lasts from {} to {}",
            told(wanted)?,
            told(range.0)?,
            told(range.1)?
        );
    }
    Ok(wanted.clamp(range.0, range.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::values;

    /// 2026-11-21T22:00:00.500Z, for four hours.
    const RANGE: (i64, i64) = (1_795_298_400_500, 1_795_298_400_500 + 4 * 3_600_000);

    #[test]
    fn times_of_a_recording() {
        let at = |t: &str| resolve(&values::at(t).unwrap(), RANGE, &TimeZone::UTC).map(|ms| (ms - RANGE.0) / 1000);
        assert_eq!(at("22:00").unwrap(), 0);
        let late = (RANGE.0 + 40_000, RANGE.1);
        let begun = resolve(&values::at("22:00").unwrap(), late, &TimeZone::UTC).unwrap();
        assert_eq!(begun, late.0, "the minute in which the recording begins");
        assert!(resolve(&values::at("22:00:10").unwrap(), late, &TimeZone::UTC).is_err());
        assert_eq!(at("22:30:01").unwrap(), 1800);
        assert_eq!(at("01:00:01").unwrap(), 3 * 3600);
        assert_eq!(at("+10m").unwrap(), 600);
        assert_eq!(at("-5m").unwrap(), 4 * 3600 - 300);
        assert_eq!(at("2026-11-21T23:00:01").unwrap(), 3600);
        assert_eq!(at("2026-11-22T00:00:01Z").unwrap(), 7200);
        let said = at("21:00").unwrap_err().to_string();
        assert!(said.contains("2026-11-22 21:00:00 is outside of the recording"), "{said}");
        assert!(at("+5h").is_err() && at("-5h").is_err());
    }
}
