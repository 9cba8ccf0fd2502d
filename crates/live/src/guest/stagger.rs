//! Spreads the guests' rare readings over time, so that they do not all fall due in one tick.

/// A delay by process id: up to 8 s, in steps of 250 ms.
pub(crate) fn stagger(pid: i32) -> u64 {
    u64::from(pid.unsigned_abs() % 32) * 250_000_000
}

/// When a rare reading is due: after pauses that double up to the longest.
#[derive(Debug)]
pub(crate) struct GrowingPause {
    /// Monotonic nanoseconds.
    due: u64,
    /// The next pause, nanoseconds.
    pause: u64,
    /// The longest one, nanoseconds.
    longest: u64,
}

impl GrowingPause {
    /// Due at once, then after `first_ns`.
    pub(crate) fn new(first_ns: u64, longest_ns: u64) -> Self {
        Self { due: 0, pause: first_ns.max(1), longest: longest_ns }
    }

    /// Whether the reading is due; if so, sets the time of the next one.
    pub(crate) fn take(&mut self, now_ns: u64, pid: i32) -> bool {
        let due = now_ns >= self.due;
        if due {
            self.due = now_ns + self.pause + stagger(pid) / (self.longest / self.pause).max(1);
            self.pause = self.longest.min(2 * self.pause);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut pause = GrowingPause::new(1, 8);
        let due: Vec<u64> = (0..40).filter(|now| pause.take(*now, 0)).collect();
        assert_eq!(due, [0, 1, 3, 7, 15, 23, 31, 39]);
    }
}
