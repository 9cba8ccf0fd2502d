//! A recording as a source: one after the other for text, by number for the screen.

use super::{Feed, RecordedSamples};
use crate::sample::{Sample, SourceId, SourceState, SourceStatus};
use crate::session::Cursor;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a file that is still being written is read for further samples.
const REFRESH: Duration = Duration::from_secs(1);

/// The samples of a recording, one after the other.
pub struct SessionFeed {
    cursor: Cursor,
    next: usize,
}

impl SessionFeed {
    /// Begins at a sample; the one before it comes first, as the base of the first interval.
    pub fn new(cursor: Cursor, from: usize) -> Self {
        let next = if from > 0 && !cursor.begins_run(from) { from - 1 } else { from };
        Self { cursor, next }
    }

    /// Whether the next sample is the first after a gap, and so has no base for an interval. Damaged samples are a gap.
    pub fn at_gap(&mut self) -> bool {
        self.next = self.cursor.readable_from(self.next).map_or(self.cursor.len(), |(index, _)| index);
        self.cursor.begins_run(self.next)
    }

    /// Whether all samples were read.
    pub fn is_done(&self) -> bool {
        self.next >= self.cursor.len()
    }
}

impl Feed for SessionFeed {
    fn next(&mut self) -> anyhow::Result<Option<Sample>> {
        let found = self.cursor.readable_from(self.next);
        self.next = found.as_ref().map_or(self.cursor.len(), |(index, _)| index + 1);
        Ok(found.map(|(_, sample)| Arc::unwrap_or_clone(sample)))
    }
}

/// The samples of a recording by number. What is damaged in the file is a source of each sample.
pub struct SessionSamples {
    cursor: Cursor,
    refreshed: Instant,
}

impl SessionSamples {
    /// Reads through this cursor.
    pub fn new(cursor: Cursor) -> Self {
        Self { cursor, refreshed: Instant::now() }
    }
}

impl RecordedSamples for SessionSamples {
    fn len(&self) -> usize {
        self.cursor.len()
    }

    fn time_ms(&mut self, index: usize) -> Option<i64> {
        self.cursor.time_ms(index)
    }

    fn index_at(&mut self, time_ms: i64) -> usize {
        self.cursor.index_at(time_ms)
    }

    fn index_from(&mut self, time_ms: i64) -> usize {
        self.cursor.index_from(time_ms)
    }

    fn index_before(&mut self, index: usize, length: Duration) -> usize {
        self.cursor.index_before(index, length)
    }

    fn begins_run(&self, index: usize) -> bool {
        self.cursor.begins_run(index)
    }

    fn sample(&mut self, index: usize) -> anyhow::Result<Arc<Sample>> {
        if index + 1 >= self.cursor.len() && self.refreshed.elapsed() > REFRESH {
            self.refreshed = Instant::now();
            self.cursor.refresh();
        }
        let mut sample = self.cursor.at(index)?;
        if let Some(damage) = self.cursor.session().damage() {
            let state = SourceState::Degraded;
            let status = SourceStatus { id: SourceId::Session, state, cause: Some(damage), fix: None };
            Arc::make_mut(&mut sample).sources.push(status);
        }
        Ok(sample)
    }
}
