//! What the programs cost: the kernel measures their run time now and then.
//!
//! Measuring makes each run dearer (two readings of the clock), so it is on for a moment in every half minute only, and the
//! total is what those moments say, extended over the time between.

use super::sys;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// Readings from one measurement to the next.
const EVERY: u32 = 32;

#[derive(Debug, Default)]
pub(super) struct Cost {
    readings: u32,
    window: Option<Window>,
    /// Nanoseconds in programs for each nanosecond.
    rate: Option<f64>,
    total_ns: f64,
    counted_to: Option<Instant>,
}

/// A measurement under way.
#[derive(Debug)]
struct Window {
    _on: OwnedFd,
    since: Instant,
    ns: u64,
}

fn run_time(programs: &[OwnedFd]) -> u64 {
    programs.iter().filter_map(|p| sys::program_stats(p.as_fd())).map(|(ns, _)| ns).sum()
}

impl Cost {
    /// Ends a measurement that has begun.
    pub fn settle(&mut self, programs: &[OwnedFd]) {
        let Some(window) = self.window.take() else { return };
        let elapsed = window.since.elapsed().as_nanos() as f64;
        if elapsed > 0.0 {
            self.rate = Some(run_time(programs).saturating_sub(window.ns) as f64 / elapsed);
        }
    }

    /// Nanoseconds in programs since the first call; begins a measurement where one is due.
    pub fn read(&mut self, programs: &[OwnedFd]) -> Option<u64> {
        self.settle(programs);
        let now = Instant::now();
        let since = self.counted_to.replace(now).map_or(0, |then| (now - then).as_nanos());
        self.total_ns += self.rate.unwrap_or(0.0) * since as f64;
        if self.readings.is_multiple_of(EVERY) {
            self.window = sys::enable_stats().ok().map(|on| Window { _on: on, since: now, ns: run_time(programs) });
        }
        self.readings = self.readings.wrapping_add(1);
        self.rate.map(|_| self.total_ns as u64)
    }
}
