//! A recording that can be moved about in.

use crate::sample::Sample;
use std::sync::Arc;

/// Samples by their number. The screen decides when to show which; a player only fetches.
pub trait Player: Send {
    /// How many samples there are; may grow while a file is still being written.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The wall-clock time of a sample, milliseconds since the epoch.
    fn time_ms(&mut self, index: usize) -> Option<i64>;

    /// The last sample at or before a time; the first when all are later.
    fn index_at(&mut self, time_ms: i64) -> usize;

    /// The first sample at or after a time, whose interval the time is in; the last when all are earlier.
    fn index_from(&mut self, time_ms: i64) -> usize;

    /// A sample.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged there; neighbours may still be whole.
    fn sample(&mut self, index: usize) -> anyhow::Result<Arc<Sample>>;

    /// Whether the interval that ends with a sample stands on its own, with no sample before it to be compared with (a gap
    /// in the recording, a table from a file): its length in seconds, where known.
    fn stands_alone(&mut self, _index: usize) -> Option<Option<f64>> {
        None
    }

    /// Times of samples with a finding or a jump of the exit rate, in order, as far as they are known.
    fn marks(&mut self) -> Vec<i64> {
        Vec::new()
    }

    /// The nearest such sample after (or before) one.
    fn next_mark(&mut self, _from: usize, _forward: bool) -> Option<usize> {
        None
    }
}
