//! The time that a file's events cover, without jumps of its clock.

/// A longer time without an event in perf's data is a damaged time stamp, nanoseconds.
pub(super) const DAMAGED: u64 = 86_400 * SECOND;
/// The same in a text where other lines stand between: another trace was pasted below.
pub(super) const ANOTHER_TRACE: u64 = 20 * SECOND;
const SECOND: u64 = 1_000_000_000;

/// The time from the first event to the last one. Gaps do not count.
#[derive(Debug, Default)]
pub(super) struct CoveredTime {
    /// The first time of all; `None` before any event.
    pub first: Option<u64>,
    /// The last time of all.
    pub last: u64,
    /// The latest time since the last gap.
    latest: Option<u64>,
    /// The first time, or an earlier one that came later.
    earliest: u64,
    covered_ns: u64,
    /// The longest gap, nanoseconds.
    gap_ns: u64,
}

impl CoveredTime {
    /// Adds an event. A longer time without one than `max_gap` does not count; true after such a gap.
    pub fn at(&mut self, time: u64, max_gap: u64) -> bool {
        self.first = Some(self.first.map_or(time, |first| first.min(time)));
        self.last = self.last.max(time);
        let Some(latest) = self.latest else {
            (self.latest, self.earliest) = (Some(time), time);
            return false;
        };
        let (ahead, back) = (time.saturating_sub(latest), latest.saturating_sub(time));
        if ahead.max(back) > max_gap {
            self.gap_ns = self.gap_ns.max(ahead.max(back));
            (self.latest, self.earliest) = (Some(time), time);
            return true;
        }
        // Events may come slightly out of order.
        self.covered_ns = self.covered_ns.saturating_add(ahead).saturating_add(self.earliest.saturating_sub(time));
        self.latest = Some(latest.max(time));
        self.earliest = self.earliest.min(time);
        false
    }

    /// Seconds covered.
    pub fn seconds(&self) -> f64 {
        self.covered_ns as f64 / SECOND as f64
    }

    /// A sentence about gaps, if there are any.
    pub fn note(&self) -> Option<String> {
        let seconds = self.gap_ns / SECOND;
        (self.gap_ns > 0).then(|| {
            format!("its clock jumps by up to {seconds} s between two events; such gaps are not counted as time")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_of_the_clock_are_no_time() {
        const S: u64 = SECOND;
        let covered = |max_gap: u64, times: &[u64]| {
            let mut time = CoveredTime::default();
            let gaps = times.iter().filter(|t| time.at(**t, max_gap)).count();
            assert_eq!(gaps > 0, time.note().is_some());
            (time.seconds(), gaps)
        };
        assert_eq!(covered(DAMAGED, &[10 * S, 12 * S, 11 * S, 9 * S, 15 * S]), (6.0, 0));
        assert_eq!(covered(DAMAGED, &[10 * S, 12 * S, 1 << 62, 13 * S, 15 * S]), (4.0, 2));
        assert_eq!(covered(DAMAGED, &[u64::MAX, 12 * S, 15 * S]), (3.0, 1));
        assert_eq!(covered(ANOTHER_TRACE, &[10 * S, 12 * S, 496 * S, 497 * S]), (3.0, 1));
    }
}
