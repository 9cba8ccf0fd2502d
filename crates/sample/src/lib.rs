//! The plain data between the sources and everything that uses them: a [`Sample`] is one reading of
//! a host and its guests.
//!
//! - Every value is as the kernel, the VMM or libvirt reports it. Nothing is computed, rounded or
//!   judged here.
//! - Counters are cumulative unless their documentation names another time. A rate is the
//!   difference of two samples divided by the difference of their `mono_ns`.
//! - `None` means that no source reports the value; it never means 0.
//! - Durations are nanoseconds, sizes are bytes. Names from outside are sanitized for a terminal.
//! - Recordings store these types by the names of their fields, so that fields can be added
//!   (`docs/session-format.md`).

mod domain;
mod events;
mod figures;
mod host;
mod host_devices;
mod host_disk;
mod interrupts;
mod job;
mod merge;
mod normalise;
mod profile;
mod status;
mod stop;
mod storage;
mod timing;

pub use domain::*;
pub use events::*;
pub use figures::{Growing, MAX_FIGURE, growth};
pub use host::*;
pub use host_devices::*;
pub use host_disk::*;
pub use interrupts::*;
pub use job::*;
pub use merge::{Joining, MissingExtreme, Row, Sum, sum_of_known};
pub use normalise::{MAX_FOLDER, MAX_JOBS, calendar_ms};
pub use profile::*;
pub use status::*;
pub use stop::*;
pub use storage::*;

use figures::bounded;
use serde::{Deserialize, Serialize};

/// One reading of the host, its guests and kvmtop itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// The wall clock at `mono_ns`, milliseconds since the Unix epoch. For display only.
    pub time_ms: i64,
    /// `CLOCK_MONOTONIC` when the engine's counters were read, nanoseconds. The base of every rate.
    pub mono_ns: u64,
    /// `CLOCK_BOOTTIME` before the threads were listed, nanoseconds. A thread that started later is
    /// new in the next sample.
    pub boot_ns: u64,
    /// The host.
    pub host: HostSample,
    /// The guests in order of process id. A guest that ended since the previous sample is included
    /// once more, as `Ended`.
    pub domains: Vec<DomainSample>,
    /// The tracing engine, and the events that it lost.
    pub engine: EngineStatus,
    /// The state of each source of data.
    #[serde(deserialize_with = "status::known_sources")]
    pub sources: Vec<SourceStatus>,
    /// CPU time and memory of kvmtop itself.
    pub own: OwnCost,
}

bounded!(Sample { mono_ns, boot_ns, host, domains, engine, own } time_ms, sources);

/// Something that yields samples in order of time.
pub trait Feed {
    /// The next sample; `None` at the end.
    ///
    /// # Errors
    /// Only what ends the feed as a whole. A source that fails on the way is a `SourceStatus`
    /// inside the sample.
    fn next(&mut self) -> anyhow::Result<Option<Sample>>;
}

/// Names the words of enums, which `strum` derives.
macro_rules! words {
    ($($type:ty),*) => {
        $(impl $type {
            /// The word on screen and in JSON.
            pub fn as_str(self) -> &'static str {
                self.into()
            }
        })*
    };
}

words!(
    CodeSpace,
    Direction,
    DomainState,
    EngineKind,
    EngineLevel,
    ThreadKind,
    IrqSource,
    JobKind,
    Origin,
    SourceId,
    SourceState,
    StopReason
);

/// When the host was booted by the wall clock, milliseconds since the Unix epoch, from one instant
/// on both clocks.
pub fn booted_ms(time_ms: i64, boot_ns: u64) -> i64 {
    time_ms.saturating_sub(i64::try_from(boot_ns / 1_000_000).unwrap_or(0))
}
