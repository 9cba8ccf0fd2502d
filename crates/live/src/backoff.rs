//! Growing pauses between attempts.

use std::time::Duration;

/// Pauses that double up to a maximum.
#[derive(Debug, Default)]
pub(crate) struct Backoff(Option<Duration>);

impl Backoff {
    /// Returns the pause before the next attempt, from the initial to the longest one.
    pub fn next(&mut self, (initial, max): (Duration, Duration)) -> Duration {
        *self
            .0
            .insert(self.0.map_or(initial, |last| (2 * last).min(max)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum() {
        let mut backoff = Backoff::default();
        let range = (Duration::from_secs(1), Duration::from_secs(8));
        let pauses: Vec<u64> = (0..6).map(|_| backoff.next(range).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 8, 8]);
    }
}
