//! The waist: one instant of a host as plain data.
//!
//! Everything here is a raw reading. Counters are cumulative, so that a rate is the difference of two samples, whatever
//! lies between them; nothing is computed and nothing is judged. What a source could not give is `None`, never 0.
//! Counts and times are as the kernel gave them, to the last nanosecond.
//! `record` writes these values, so a change of shape is a new schema version of the session format.

mod domain;
mod events;
mod host;
mod merge;
mod status;

pub use domain::*;
pub use events::*;
pub use host::*;
pub use merge::MissingExtreme;
pub(crate) use merge::sum_of_known;
pub use status::*;

use serde::{Deserialize, Serialize};

/// All that kvmtop read in one tick.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Wall clock, milliseconds since the Unix epoch; for display only.
    pub time_ms: i64,
    /// `CLOCK_MONOTONIC`, nanoseconds, at which the engine's counters were read; the base of every rate.
    pub mono_ns: u64,
    /// `CLOCK_BOOTTIME`, nanoseconds, before the threads were listed: a thread that started later is new in the next sample.
    pub boot_ns: u64,
    /// The host's counters.
    pub host: HostSample,
    /// Every guest seen, in order of PID. One that ended since the sample before is here once more, as `Ended`.
    pub domains: Vec<DomainSample>,
    /// The tracing engine at work and what it lost.
    pub engine: EngineStatus,
    /// Each source of data: at work, or what is missing.
    pub sources: Vec<SourceStatus>,
    /// What kvmtop itself has used.
    pub own: OwnCost,
}
