//! What yields samples.

use crate::Sample;

/// Something that yields samples in order of time.
pub trait Feed {
    /// The next sample; `None` at the end.
    ///
    /// # Errors
    /// Only what ends the feed as a whole. A source that fails on the way is a `SourceStatus` inside the sample.
    fn next(&mut self) -> anyhow::Result<Option<Sample>>;
}
