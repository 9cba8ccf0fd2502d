//! What kvmtop itself costs, and what time it is.

use super::file::read_text;
use super::places::Places;
use crate::sample::OwnCost;
use rustix::time::{ClockId, clock_gettime};

/// One instant by the clocks that a sample needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Instant {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub mono_ns: u64,
    /// `CLOCK_BOOTTIME`, nanoseconds.
    pub boot_ns: u64,
    /// Wall clock, milliseconds since the Unix epoch.
    pub time_ms: i64,
}

impl Instant {
    /// Now.
    pub fn now() -> Self {
        let wall = clock_gettime(ClockId::Realtime);
        Self {
            mono_ns: nanoseconds(ClockId::Monotonic),
            boot_ns: nanoseconds(ClockId::Boottime),
            time_ms: wall.tv_sec * 1000 + wall.tv_nsec / 1_000_000,
        }
    }
}

fn nanoseconds(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}

/// CPU time and resident memory of this process.
pub(crate) fn cost(places: &Places) -> OwnCost {
    let pages = read_text(&places.proc.join("self/statm"), 256)
        .ok()
        .and_then(|t| t.split_whitespace().nth(1)?.parse::<u64>().ok())
        .unwrap_or(0);
    OwnCost { cpu_ns: nanoseconds(ClockId::ProcessCPUTime), rss_bytes: pages * rustix::param::page_size() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cost_is_some() {
        let cost = cost(&Places::default());
        assert!(cost.cpu_ns > 0 && cost.rss_bytes > 100_000);
        let (a, b) = (Instant::now(), Instant::now());
        assert!(a.mono_ns <= b.mono_ns && b.boot_ns >= b.mono_ns && a.time_ms > 1_600_000_000_000);
    }
}
