//! `kvmtop record`, and the `r` key of the live screen.

use super::narrow::Narrowed;
use super::{live, print, say};
use crate::cli::Settings;
use crate::cli::args::RecordArgs;
use crate::report::{table, text};
use crate::sample::{Sample, SourceState, SourceStatus};
use crate::session::{Limits, Recorder};
use crate::source::Feed;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// `kvmtop record`.
pub fn run(args: &RecordArgs, settings: &Settings) -> anyhow::Result<u8> {
    let limits = Limits { size: args.max_size.or(settings.limits.size), age: args.max_age.or(settings.limits.age) };
    // Before anything is started: a file that cannot be written needs no engine.
    let mut recorder = Recorder::create(&args.file, limits)?;
    let live = live::start(settings);
    live::stop_on_signals(live.commands)?;
    let mut feed = Narrowed::new(live.feed, settings.domains.clone());
    let mut times: Option<(u64, u64)> = None;
    let mut samples = 0_u64;
    while let Some(sample) = feed.next()? {
        if samples == 0 {
            say(text::complaints(&sample.sources).trim_end());
        }
        recorder.append(&sample)?;
        samples += 1;
        let first = times.map_or(sample.mono_ns, |t| t.0);
        times = Some((first, sample.mono_ns));
        let passed = Duration::from_nanos(sample.mono_ns.saturating_sub(first));
        if args.duration.is_some_and(|d| passed + settings.interval / 10 >= d) {
            break;
        }
    }
    let bytes = recorder.bytes();
    recorder.close()?;
    let time = times.map_or(0.0, |(first, last)| last.saturating_sub(first) as f64 / 1e9);
    print(&format!(
        "recorded {} over {} into {}, {}\n",
        text::count(samples as usize, "sample"),
        table::seconds(time),
        args.file.display(),
        table::bytes(bytes as f64)
    ))?;
    Ok(0)
}

/// What is said to a [`Taped`] feed.
#[derive(Debug)]
pub enum Tape {
    /// Record from the next sample on.
    Start(PathBuf),
    /// Close the recording.
    Stop,
}

/// A feed that can be recorded on its way to the screen. How that goes is the source `recording` of each sample; the feed goes on
/// whatever becomes of the file.
pub struct Taped<F> {
    feed: F,
    orders: Receiver<Tape>,
    limits: Limits,
    file: Option<(Recorder, PathBuf)>,
    failed: Option<SourceStatus>,
}

impl<F> Taped<F> {
    /// Nothing is recorded yet.
    pub fn new(feed: F, orders: Receiver<Tape>, limits: Limits) -> Self {
        Self { feed, orders, limits, file: None, failed: None }
    }

    fn obey(&mut self) {
        while let Ok(order) = self.orders.try_recv() {
            self.close();
            self.failed = None;
            let Tape::Start(path) = order else { continue };
            match Recorder::create(&path, self.limits) {
                Ok(recorder) => self.file = Some((recorder, path)),
                Err(e) => self.fail(&e),
            }
        }
    }

    fn write(&mut self, sample: &Sample) {
        let Some((recorder, _)) = &mut self.file else { return };
        if let Err(e) = recorder.append(sample) {
            self.close();
            self.fail(&e);
        }
    }

    fn close(&mut self) {
        if let Some((recorder, _)) = self.file.take()
            && let Err(e) = recorder.close()
        {
            self.fail(&e);
        }
    }

    fn fail(&mut self, e: &anyhow::Error) {
        let fix = "free space or choose another folder, then press r again; what was written stays readable";
        self.failed = Some(SourceStatus::missing("recording", format!("{e:#}"), fix));
    }

    fn status(&self) -> Option<SourceStatus> {
        let Some((recorder, path)) = &self.file else { return self.failed.clone() };
        let cause = format!("into {}, {}", path.display(), table::bytes(recorder.bytes() as f64));
        Some(SourceStatus { name: "recording".into(), state: SourceState::Ok, cause: Some(cause), fix: None })
    }
}

impl<F: Feed> Feed for Taped<F> {
    fn next(&mut self) -> anyhow::Result<Option<Sample>> {
        let Some(mut sample) = self.feed.next()? else {
            self.close();
            return Ok(None);
        };
        self.obey();
        self.write(&sample);
        sample.sources.extend(self.status());
        Ok(Some(sample))
    }
}

impl<F> Drop for Taped<F> {
    fn drop(&mut self) {
        self.close();
    }
}
