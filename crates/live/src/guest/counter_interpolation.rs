//! Counters that another thread reads on its own schedule, interpolated to the time of the samples.
//!
//! libvirt answers on its own thread, so a reading is older than the tick by up to the time between two readings. Used
//! as the tick's own it would shift rates by that time, and a tick without a new reading would show no activity. So the
//! counters are shown as of a little more than one reading ago, where there is a reading on either side, and grow
//! evenly between the two: nothing is added and nothing lost.

use crate::metadata::source::{CounterReading, NamedCounters};
use std::collections::VecDeque;
use std::sync::Arc;

/// Readings kept: what is shown lies between two of them, and the newest may be more than one ahead.
const MAX_READINGS: usize = 4;
/// A reading this many times older than the pause between two is stale: its source stopped or hangs, and nothing is
/// shown of it.
const STALE_PERIODS: u64 = 4;

/// The last readings of a guest's counters.
#[derive(Debug, Default)]
pub(crate) struct CounterInterpolation {
    readings: VecDeque<Arc<CounterReading>>,
}

impl CounterInterpolation {
    /// Adds a reading, if it is new.
    pub(crate) fn take(&mut self, reading: &Arc<CounterReading>) {
        if self.readings.back().is_some_and(|last| last.at_ns >= reading.at_ns) {
            return;
        }
        if self.readings.len() == MAX_READINGS {
            self.readings.pop_front();
        }
        self.readings.push_back(reading.clone());
    }

    /// Forgets every reading: nobody reads the counters any more.
    pub(crate) fn clear(&mut self) {
        self.readings.clear();
    }

    /// The counters as they were 1.25 pauses before `now_ns`; empty before there is a reading that old, and once the
    /// newest is stale. Until a late reading comes, they do not change.
    pub(crate) fn at(&self, now_ns: u64) -> CounterReading {
        let is_stale = |r: &CounterReading| now_ns.saturating_sub(r.at_ns) > r.every_ns.saturating_mul(STALE_PERIODS);
        let Some(newest) = self.readings.back().filter(|r| !is_stale(r)) else { return CounterReading::default() };
        let at_ns = now_ns.saturating_sub(newest.every_ns / 4 * 5);
        let later = self.readings.iter().position(|r| r.at_ns >= at_ns);
        let before = later.unwrap_or(self.readings.len()).checked_sub(1).and_then(|i| self.readings.get(i));
        match (before, later.and_then(|i| self.readings.get(i))) {
            (None, _) => CounterReading::default(),
            (Some(_), None) => CounterReading::clone(newest),
            (Some(before), Some(after)) => between(before, after, at_ns),
        }
    }
}

fn between(before: &CounterReading, after: &CounterReading, at_ns: u64) -> CounterReading {
    let (part, whole) = (at_ns.saturating_sub(before.at_ns), after.at_ns.saturating_sub(before.at_ns).max(1));
    let grown = |before: &NamedCounters, after: &NamedCounters| -> NamedCounters {
        let at = |name: &String, b: u64| match before.get(name) {
            Some(a) if *a <= b => a + (u128::from(b - a) * u128::from(part) / u128::from(whole)) as u64,
            // New, or restarted from zero.
            _ => b,
        };
        after.iter().map(|(name, b)| (name.clone(), at(name, *b))).collect()
    };
    let none = NamedCounters::new();
    let vcpus = after.vcpus.iter().map(|(n, c)| (*n, grown(before.vcpus.get(n).unwrap_or(&none), c))).collect();
    CounterReading { at_ns, every_ns: after.every_ns, vm: grown(&before.vm, &after.vm), vcpus }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn reading(at_ns: u64, exits: u64) -> Arc<CounterReading> {
        let counters = NamedCounters::from([("exits".to_string(), exits)]);
        Arc::new(CounterReading { at_ns, every_ns: S, vm: counters.clone(), vcpus: [(0, counters)].into() })
    }

    /// A guest that exits 1,000 times a second, read at uneven times and shown at even ones: the rate is even.
    #[test]
    fn uneven_readings_give_an_even_rate() {
        let mut r = CounterInterpolation::default();
        let mut shown = Vec::new();
        let mut jitter = [0, 30, 90, 10, 60, 20, 80].iter().cycle();
        let mut next = S / 10;
        for tick in 1..40u64 {
            while next <= tick * S / 2 {
                r.take(&reading(next, next / 1_000_000));
                next += S + jitter.next().unwrap() * 1_000_000;
            }
            shown.extend(r.at(tick * S / 2).vcpus.get(&0).map(|c| c["exits"]));
        }
        assert!(shown.len() > 30, "{shown:?}");
        let steps: Vec<u64> = shown.windows(2).map(|w| w[1] - w[0]).collect();
        assert!(steps.iter().all(|s| (499..=501).contains(s)), "{steps:?}");
    }

    #[test]
    fn before_the_first_reading_nothing_is_known_and_a_late_one_stands_still() {
        let mut r = CounterInterpolation::default();
        assert_eq!(r.at(9 * S), CounterReading::default());
        r.take(&reading(10 * S, 5));
        assert!(r.at(11 * S).vm.is_empty());
        r.take(&reading(11 * S, 9));
        r.take(&reading(11 * S, 7));
        assert_eq!(r.at(11 * S + 3 * S / 4).vm["exits"], 7);
        assert_eq!(r.at(15 * S).vm["exits"], 9);
        assert!(r.at(15 * S + 1).vm.is_empty(), "a source that stopped shows nothing");
        r.clear();
        r.take(&reading(60 * S, 90_000));
        assert!(r.at(60 * S + S / 2).vm.is_empty(), "what happened meanwhile belongs to no interval");
    }

    #[test]
    fn counters_that_begin_again_are_taken_as_they_are() {
        let mut r = CounterInterpolation::default();
        r.take(&reading(S, 1000));
        r.take(&reading(2 * S, 40));
        assert_eq!(r.at(2 * S + 3 * S / 4).vm["exits"], 40);
    }
}
