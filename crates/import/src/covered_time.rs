//! The time that a file's events cover, without jumps of its clock.

/// A longer time without an event is a gap: a damaged time stamp, or two recordings in one file. Nanoseconds.
const MAX_GAP: u64 = 86_400 * 1_000_000_000;

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
    /// Adds an event.
    pub fn at(&mut self, time: u64) {
        self.first = Some(self.first.map_or(time, |first| first.min(time)));
        self.last = self.last.max(time);
        let Some(latest) = self.latest else {
            (self.latest, self.earliest) = (Some(time), time);
            return;
        };
        let (ahead, back) = (time.saturating_sub(latest), latest.saturating_sub(time));
        if ahead.max(back) > MAX_GAP {
            self.gap_ns = self.gap_ns.max(ahead.max(back));
            (self.latest, self.earliest) = (Some(time), time);
            return;
        }
        // Events may come slightly out of order.
        self.covered_ns = self.covered_ns.saturating_add(ahead).saturating_add(self.earliest.saturating_sub(time));
        self.latest = Some(latest.max(time));
        self.earliest = self.earliest.min(time);
    }

    /// Seconds covered.
    pub fn seconds(&self) -> f64 {
        self.covered_ns as f64 / 1e9
    }

    /// A sentence about gaps, if there are any.
    pub fn note(&self) -> Option<String> {
        let days = self.gap_ns as f64 / MAX_GAP as f64;
        (self.gap_ns > 0).then(|| {
            format!("its clock jumps by up to {days:.0} days between two events; such gaps are not counted as time")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_of_the_clock_are_no_time() {
        const S: u64 = 1_000_000_000;
        let covered = |times: &[u64]| {
            let mut time = CoveredTime::default();
            times.iter().for_each(|t| time.at(*t));
            (time.seconds(), time.note().is_some())
        };
        assert_eq!(covered(&[10 * S, 12 * S, 11 * S, 9 * S, 15 * S]), (6.0, false));
        assert_eq!(covered(&[10 * S, 12 * S, 1 << 62, 13 * S, 15 * S]), (4.0, true));
        assert_eq!(covered(&[u64::MAX, 12 * S, 15 * S]), (3.0, true));
    }
}
