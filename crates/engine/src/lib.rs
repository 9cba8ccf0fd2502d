//! The tracing engines: each counts KVM's tracepoints on the running host, by thread.

pub mod bpf;
pub mod clock;
pub mod events;
pub mod pairing;
pub mod perf;
pub mod profile;
pub mod tracefs;

use clock::clock_ns;
use rustix::time::ClockId;

/// The clock of the counters and of the rings, nanoseconds.
fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}
