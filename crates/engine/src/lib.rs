//! The tracing engines: each counts KVM's tracepoints on the running host, by thread.

pub mod bpf;
pub mod events;
pub mod pairing;
pub mod perf;
pub mod profile;
pub mod tracefs;

use rustix::time::{ClockId, clock_gettime};

/// The time of a clock that began with the boot or with this process, nanoseconds.
pub fn clock_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// The clock of the counters and of the rings, nanoseconds.
fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}
