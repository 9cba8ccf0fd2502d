//! The kernel's clocks.

use rustix::time::{ClockId, clock_gettime};

/// The time of a clock that began with the boot or with this process, nanoseconds.
pub fn clock_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
