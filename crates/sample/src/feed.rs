//! What yields samples: a running host, or a recording.

use crate::Sample;
use std::sync::Arc;
use std::time::Duration;

/// Something that yields samples in order of time.
pub trait Feed {
    /// The next sample; `None` at the end.
    ///
    /// # Errors
    /// Only what ends the feed as a whole. A source that fails on the way is a `SourceStatus` inside the sample.
    fn next(&mut self) -> anyhow::Result<Option<Sample>>;
}

/// The samples of a recording by number, in order of time.
pub trait RecordedSamples: Send {
    /// Number of samples; may grow while a file is still being written.
    fn len(&self) -> usize;

    /// Whether the recording is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The wall-clock time of a sample, milliseconds since the epoch.
    fn time_ms(&mut self, index: usize) -> Option<i64>;

    /// The earliest and the latest time of all samples; `None` without a sample.
    fn range_ms(&mut self) -> Option<(i64, i64)>;

    /// The last sample at most `ms` milliseconds after another, or, if negative, before it. Where the clock was set
    /// back in between, it is the sample next to that point.
    fn index_beside(&mut self, index: usize, ms: i64) -> usize;

    /// The first sample at or after a time, which ends the interval that holds the time; the last when all are
    /// earlier.
    fn index_from(&mut self, time_ms: i64) -> usize;

    /// The sample from which the time of this length before a sample is read; it may be an earlier one.
    fn index_before(&mut self, index: usize, length: Duration) -> usize;

    /// Whether nothing was counted between the previous sample and this one: true for the first sample of all, and the
    /// first of each later run of the recorder.
    fn begins_run(&self, index: usize) -> bool;

    /// A sample.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged there; neighbours may still be whole.
    fn sample(&mut self, index: usize) -> anyhow::Result<Arc<Sample>>;
}
