//! A recording as a source of the screen: samples by number.

use crate::Cursor;
use sample::{RecordedSamples, Sample, SourceId, SourceState, SourceStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a file that is still being written is read for further samples.
const REFRESH: Duration = Duration::from_secs(1);

/// Adds facts from elsewhere to a sample.
type DescribeSample<'a> = Box<dyn FnMut(&mut Sample) + Send + 'a>;

/// The samples of a recording by number. What is damaged in the file is a source of each sample.
pub struct SessionSamples<'a> {
    cursor: Cursor,
    refreshed: Instant,
    /// Adds facts from other files to a sample.
    describe: Option<DescribeSample<'a>>,
}

impl<'a> SessionSamples<'a> {
    /// Reads through this cursor.
    pub fn new(cursor: Cursor) -> Self {
        Self { cursor, refreshed: Instant::now(), describe: None }
    }

    /// Adds facts about the guests from elsewhere to each sample.
    #[must_use]
    pub fn described_by(self, describe: impl FnMut(&mut Sample) + Send + 'a) -> Self {
        Self { describe: Some(Box::new(describe)), ..self }
    }

    /// The sample of this number, or the first one after it that is not damaged, with its number.
    pub fn readable_from(&mut self, index: usize) -> Option<(usize, Arc<Sample>)> {
        let (index, mut sample) = self.cursor.readable_from(index)?;
        self.describe(&mut sample);
        Some((index, sample))
    }

    /// What of the recording cannot be read, as far as it is known.
    pub fn damage(&self) -> Option<SourceStatus> {
        let damage = self.cursor.session().damage()?;
        Some(SourceStatus { id: SourceId::Session, state: SourceState::Degraded, cause: Some(damage), fix: None })
    }

    fn describe(&mut self, sample: &mut Arc<Sample>) {
        if let Some(describe) = &mut self.describe {
            describe(Arc::make_mut(sample));
        }
    }
}

impl RecordedSamples for SessionSamples<'_> {
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
        self.describe(&mut sample);
        if let Some(damage) = self.damage() {
            Arc::make_mut(&mut sample).sources.push(damage);
        }
        Ok(sample)
    }
}
