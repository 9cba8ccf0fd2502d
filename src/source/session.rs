//! Recordings as feeds: one that plays a session, and one that records what passes through it.

use super::Feed;
use crate::sample::{Sample, SourceId, SourceStatus};
use crate::session::{Cursor, Limits, Recorder};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;

/// Plays the samples of a recording.
#[derive(Debug)]
pub struct SessionFeed {
    cursor: Cursor,
    next: usize,
}

impl SessionFeed {
    /// Begins at a sample; the one before comes first, for the interval to be compared with.
    pub fn new(cursor: Cursor, from: usize) -> Self {
        let next = if from > 0 && !cursor.begins_run(from) { from - 1 } else { from };
        Self { cursor, next }
    }

    /// Whether the next sample is the first after a gap and is not to be compared with the one before.
    pub fn at_gap(&self) -> bool {
        self.cursor.begins_run(self.next)
    }

    /// Whether all samples were played.
    pub fn is_done(&self) -> bool {
        self.next >= self.cursor.len()
    }
}

impl Feed for SessionFeed {
    fn next(&mut self) -> anyhow::Result<Option<Sample>> {
        if self.is_done() {
            return Ok(None);
        }
        let sample = self.cursor.at(self.next)?;
        self.next += 1;
        Ok(Some(std::sync::Arc::unwrap_or_clone(sample)))
    }
}

/// What a screen asks of a [`Taped`] feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tape {
    /// Record from now on into this file.
    Start(PathBuf),
    /// Close the recording.
    Stop,
}

/// Leaves of a sample what is to be recorded.
type Narrow = Box<dyn Fn(&Sample) -> Option<Sample> + Send>;

/// Records the samples that pass, and says in each how that goes, by a source called `recording`. A disk that is full or a file
/// that cannot be had stops nothing but the recording.
pub struct Taped<F> {
    feed: F,
    narrow: Narrow,
    asked: Receiver<Tape>,
    limits: Limits,
    recorder: Option<Recorder>,
    failed: Option<String>,
}

impl<F> Taped<F> {
    /// Passes samples on, and records from the first [`Tape::Start`].
    pub fn new(feed: F, asked: Receiver<Tape>, limits: Limits) -> Self {
        Self { feed, narrow: Box::new(|_| None), asked, limits, recorder: None, failed: None }
    }

    /// Records only what `narrow` leaves of a sample; all of it passes on.
    #[must_use]
    pub fn of(self, narrow: impl Fn(&Sample) -> Option<Sample> + Send + 'static) -> Self {
        Self { narrow: Box::new(narrow), ..self }
    }

    fn obey(&mut self, tape: Tape) {
        self.failed = None;
        // Dropping a recorder closes its file.
        self.recorder = None;
        if let Tape::Start(path) = tape {
            match Recorder::create(&path, self.limits) {
                Ok(recorder) => self.recorder = Some(recorder),
                Err(e) => self.failed = Some(format!("{e:#}")),
            }
        }
    }

    fn status(&self) -> Option<SourceStatus> {
        let fix = "nothing more is recorded until there is room; r ends the recording";
        match (&self.recorder, &self.failed) {
            (Some(_), Some(why)) => Some(SourceStatus::degraded(SourceId::Recording, why, fix)),
            (Some(_), None) => Some(SourceStatus::ok(SourceId::Recording)),
            (None, Some(why)) => {
                Some(SourceStatus::missing(SourceId::Recording, why, "start kvmtop in a folder that you may write to"))
            }
            (None, None) => None,
        }
    }
}

impl<F: Feed> Feed for Taped<F> {
    fn next(&mut self) -> anyhow::Result<Option<Sample>> {
        let sample = self.feed.next()?;
        while let Ok(tape) = self.asked.try_recv() {
            self.obey(tape);
        }
        let Some(mut sample) = sample else {
            self.recorder = None;
            return Ok(None);
        };
        if let Some(recorder) = &mut self.recorder {
            let done = match (self.narrow)(&sample) {
                Some(mut part) => recorder.lend(&mut part),
                None => recorder.lend(&mut sample),
            };
            self.failed = done.err().map(|e| format!("{e:#}"));
        }
        sample.sources.extend(self.status());
        Ok(Some(sample))
    }
}
