//! The time that a file's events cover, without jumps of its clock.

/// A longer time without an event is a jump: it shows a damaged time stamp. Nanoseconds.
const MAX_PAUSE: u64 = 86_400 * SECOND;
const SECOND: u64 = 1_000_000_000;

/// The time from the first event to the last one. Jumps do not count.
#[derive(Debug, Default)]
pub(super) struct CoveredTime {
    /// The smallest time of all, even a damaged one; `None` before any event.
    pub first: Option<u64>,
    /// The largest time of all, even a damaged one.
    pub last: u64,
    /// The largest time since the last jump.
    latest_since_jump: Option<u64>,
    covered_ns: u64,
    /// Number of jumps.
    pub jumps: u64,
}

impl CoveredTime {
    /// Adds the time of an event; returns whether the clock jumped to it.
    pub fn add_event(&mut self, time: u64) -> bool {
        self.first = Some(self.first.map_or(time, |first| first.min(time)));
        self.last = self.last.max(time);
        let latest = self.latest_since_jump.unwrap_or(time);
        let is_jump = time.abs_diff(latest) > MAX_PAUSE;
        if is_jump {
            self.jumps += 1;
            self.latest_since_jump = Some(time);
        } else {
            // Events may come slightly out of order: an earlier time adds nothing.
            self.latest_since_jump = Some(latest.max(time));
            self.covered_ns = self.covered_ns.saturating_add(time.saturating_sub(latest));
        }
        is_jump
    }

    /// Seconds covered.
    pub fn seconds(&self) -> f64 {
        self.covered_ns as f64 / SECOND as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_of_the_clock_are_no_time() {
        const S: u64 = SECOND;
        let covered = |times: &[u64]| {
            let mut time = CoveredTime::default();
            let jumps = times.iter().filter(|t| time.add_event(**t)).count();
            assert_eq!(jumps as u64, time.jumps);
            (time.seconds(), jumps)
        };
        assert_eq!(covered(&[10 * S, 12 * S, 11 * S, 15 * S]), (5.0, 0));
        assert_eq!(
            covered(&[10 * S, 12 * S, 1 << 62, 13 * S, 15 * S]),
            (4.0, 2)
        );
        assert_eq!(covered(&[u64::MAX, 12 * S, 15 * S]), (3.0, 1));
    }
}
