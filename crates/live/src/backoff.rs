//! Growing pauses between attempts.

use std::time::Duration;

/// Pauses that double up to a maximum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    initial: Duration,
    pause: Duration,
    max: Duration,
}

impl Backoff {
    pub(crate) const fn new(initial: Duration, max: Duration) -> Self {
        Self { initial, pause: initial, max }
    }

    /// Returns the pause before the next attempt.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (2 * pause).min(self.max);
        pause
    }

    /// Begins again with the initial pause.
    pub(crate) fn reset(&mut self) {
        self.pause = self.initial;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(8));
        let pauses: Vec<u64> = (0..6).map(|_| backoff.next().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 8, 8]);
        backoff.reset();
        assert_eq!(backoff.next().as_secs(), 1);
    }
}
