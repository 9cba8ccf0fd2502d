//! The tracing engines: each counts KVM's tracepoints on the running host, by thread.

pub mod bpf;
pub mod perf;
pub mod tracefs;

/// `CLOCK_MONOTONIC`, the clock of the counters and of the rings, nanoseconds.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
