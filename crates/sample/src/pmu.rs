//! What a CPU's performance counters (its PMU) counted of a vCPU thread.

use super::figures::growing;
use serde::{Deserialize, Serialize};

/// The counts of a vCPU thread, cumulative since somebody asked for them (`--engine-detail counters`, the view of
/// latencies).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PmuCounters {
    /// In the guest.
    pub guest: PmuCounts,
    /// Outside it: in KVM and the VMM.
    pub host: PmuCounts,
}

growing!(PmuCounters { guest, host });

/// Counts of events that shared the CPU's counters, so that their ratios are true. An event that the CPU lacks is
/// `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PmuCounts {
    /// CPU cycles.
    pub cycles: Option<u64>,
    /// Instructions that completed.
    pub instructions: Option<u64>,
    /// Reads that missed the last-level cache.
    pub llc_misses: Option<u64>,
    /// Time that the thread ran.
    pub enabled_ns: u64,
    /// The part of it in which the events were counted: with more events than the CPU has counters, they take turns.
    pub running_ns: u64,
}

growing!(PmuCounts { cycles, instructions, llc_misses, enabled_ns, running_ns });

impl PmuCounts {
    /// Instructions per cycle.
    pub fn ipc(&self) -> Option<f64> {
        let cycles = self.cycles.filter(|cycles| *cycles > 0)?;
        Some(self.instructions? as f64 / cycles as f64)
    }

    /// A count as it would be had it been counted all the time; `None` if it never was.
    pub fn scaled(&self, count: Option<u64>) -> Option<f64> {
        // A thread that did not run did nothing.
        let counted = self.counted_percent().unwrap_or(100.0);
        Some(count? as f64 * 100.0 / counted).filter(|_| counted > 0.0)
    }

    /// The part of the thread's time in which its events were counted, percent; `None` if it did not run.
    pub fn counted_percent(&self) -> Option<f64> {
        (self.enabled_ns > 0).then(|| 100.0 * self.running_ns.min(self.enabled_ns) as f64 / self.enabled_ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Growing;

    #[test]
    fn counts_that_took_turns_are_scaled_and_their_ratio_is_not() {
        let before = PmuCounts { cycles: Some(500), enabled_ns: 100, running_ns: 50, ..PmuCounts::default() };
        let now = PmuCounts {
            cycles: Some(1_500),
            instructions: Some(2_000),
            llc_misses: None,
            enabled_ns: 500,
            running_ns: 150,
        };
        let grown = now.since(Some(&PmuCounts { instructions: Some(0), ..before }));
        assert_eq!((grown.ipc(), grown.counted_percent()), (Some(2.0), Some(25.0)));
        assert_eq!((grown.scaled(grown.cycles), grown.scaled(grown.llc_misses)), (Some(4_000.0), None));
        let unscheduled = PmuCounts { cycles: Some(0), instructions: Some(0), running_ns: 0, ..now };
        assert_eq!((unscheduled.ipc(), unscheduled.scaled(unscheduled.cycles)), (None, None));
        let asleep = PmuCounts { cycles: Some(0), ..PmuCounts::default() };
        assert_eq!((asleep.counted_percent(), asleep.scaled(asleep.cycles)), (None, Some(0.0)));
    }
}
