//! A recording as a source of the screen: samples by number.

use crate::Cursor;
use sample::{RecordedSamples, Sample, SourceId, SourceState, SourceStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a file that is still being written is read for further samples.
const REFRESH: Duration = Duration::from_secs(1);

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

    fn range_ms(&mut self) -> Option<(i64, i64)> {
        self.cursor.session().range_ms()
    }

    fn index_beside(&mut self, index: usize, ms: i64) -> usize {
        self.cursor.index_beside(index, ms)
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
