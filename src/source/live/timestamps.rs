//! The time of a reading by each clock that a sample needs.

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
            mono_ns: nanoseconds(ClockId::Monotonic),
            boot_ns: nanoseconds(ClockId::Boottime),
            time_ms: wall.tv_sec * 1000 + wall.tv_nsec / 1_000_000,
        }
    }

    /// When the host was booted by the wall clock, milliseconds since the Unix epoch.
    pub(crate) fn boot_time_ms(self) -> i64 {
        self.time_ms.saturating_sub(i64::try_from(self.boot_ns / 1_000_000).unwrap_or(0))
    }
}

/// The time of a clock in nanoseconds.
pub(crate) fn nanoseconds(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
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
