//! What the programs cost: the kernel measures their run time from time to time.
//!
//! Measuring adds two clock readings to each run, so it is on for a moment in every half minute only. The total is
//! extrapolated from those moments.

use super::programs::Attached;
use super::sys;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Readings from one measurement to the next.
const EVERY: u32 = 32;

#[derive(Debug, Default)]
pub(super) struct Cost {
    readings: u32,
    window: Option<Measurement>,
    /// Nanoseconds in programs for each nanosecond.
    rate: Option<f64>,
    total_ns: f64,
    counted_to: Option<Instant>,
    /// Events for which a program did not run, as of the last measurement.
    pub missed: u64,
}

/// A measurement under way.
#[derive(Debug)]
struct Measurement {
    _on: OwnedFd,
    since: Instant,
    ns: u64,
}

impl Cost {
    /// Ends a measurement under way.
    pub fn settle(&mut self, programs: &Attached) {
        let Some(window) = self.window.take() else { return };
        let elapsed = window.since.elapsed().as_nanos() as f64;
        let stats = programs.stats();
        self.missed = stats.misses;
        if elapsed > 0.0 {
            self.rate = Some(stats.run_ns.saturating_sub(window.ns) as f64 / elapsed);
        }
    }

    /// Nanoseconds in programs since the first call; begins a measurement where one is due.
    pub fn read(&mut self, programs: &Attached) -> Option<u64> {
        self.settle(programs);
        let now = Instant::now();
        let since = self.counted_to.replace(now).map_or(0, |then| (now - then).as_nanos());
        self.total_ns += self.rate.unwrap_or(0.0) * since as f64;
        if self.readings.is_multiple_of(EVERY) {
            let ns = programs.stats().run_ns;
            self.window = sys::enable_stats().ok().map(|on| Measurement { _on: on, since: now, ns });
        }
        self.readings = self.readings.wrapping_add(1);
        self.rate.map(|_| self.total_ns as u64)
    }
}
