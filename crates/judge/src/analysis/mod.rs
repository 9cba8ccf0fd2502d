//! What every command does with samples: intervals with their findings, the guests asked for,
//! summaries. Pure: no I/O, no clock, no thread.
//!
//! ```text
//!  Sample -> Pipeline -> JudgedInterval (Model and findings) -> DomainFilter -> screen, text, JSON
//!                            `-> SessionSummary: all intervals of a recording as one
//! ```

mod domain_filter;
mod pipeline;
mod recording_time;
mod summary;

pub use domain_filter::{DomainFilter, Pattern};
pub use pipeline::{JudgedInterval, Pipeline};
pub use recording_time::{NO_DURATION, RecordingTime, duration_or_zero, is_within};
pub use summary::SessionSummary;
