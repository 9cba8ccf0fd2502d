//! The time of a reading by each clock that a sample needs.

use crate::proc::stat::TICK_NS;
use engine::clock_ns;
use rustix::time::{ClockId, clock_gettime};

/// One instant on each clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub mono_ns: u64,
    /// `CLOCK_BOOTTIME`, nanoseconds.
    pub boot_ns: u64,
    /// Wall clock, milliseconds since the Unix epoch.
    pub time_ms: i64,
}

impl Timestamps {
    /// Now.
    pub fn now() -> Self {
        let wall = clock_gettime(ClockId::Realtime);
        Self {
            mono_ns: clock_ns(ClockId::Monotonic),
            boot_ns: clock_ns(ClockId::Boottime),
            time_ms: wall.tv_sec * 1000 + wall.tv_nsec / 1_000_000,
        }
    }

    /// `CLOCK_MONOTONIC` at a start time in ticks after boot: boot time less the time spent in
    /// suspend.
    pub(crate) fn mono_ns_of(self, start_ticks: u64) -> u64 {
        start_ticks
            .saturating_mul(TICK_NS)
            .saturating_sub(self.boot_ns.saturating_sub(self.mono_ns))
    }

    /// The wall clock at another instant of the monotonic one, before this.
    pub(crate) fn time_ms_at(self, mono_ns: u64) -> i64 {
        let before_ms = self.mono_ns.saturating_sub(mono_ns) / 1_000_000;
        self.time_ms.saturating_sub_unsigned(before_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_forward() {
        let (a, b) = (Timestamps::now(), Timestamps::now());
        assert!(a.mono_ns <= b.mono_ns && b.boot_ns >= b.mono_ns && a.time_ms > 1_600_000_000_000);
    }
}
