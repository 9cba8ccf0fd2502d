//! Cuts a trace into intervals, for time lines: what had been counted at the end of each.

use super::TraceReader;
use crate::covered_time::MAX_BACKOFF;
use crate::group_threads::group_threads;
use crate::guest::sample_at;
use engine::events::TracedThread;
use sample::{DomainSample, EngineStatus, Sample, SourceId, SourceStatus, ThreadEvents, ThreadSample};
use std::collections::HashMap;

/// Limits of the readings kept and of the threads in all of them: beyond, every other reading is dropped, and intervals
/// become twice as long.
const MAX_READINGS: usize = 1200;
const MAX_THREADS: usize = 100_000;

/// Readings of the counters at the ends of intervals.
#[derive(Debug)]
pub(super) struct Readings {
    every_ns: u64,
    first: Option<u64>,
    end: u64,
    taken: Vec<(u64, Vec<TracedThread>)>,
    threads: usize,
    /// Set when the clock jumps: no more readings.
    is_over: bool,
}

impl Readings {
    pub(super) fn new(every_s: f64) -> Self {
        let every_ns = ((every_s * 1e9) as u64).max(1_000_000);
        Self { every_ns, first: None, end: 0, taken: Vec::new(), threads: 0, is_over: false }
    }

    /// Called before an event of this time is counted; `count` gives what was counted so far.
    pub(super) fn before(&mut self, time: u64, mut count: impl FnMut() -> Vec<TracedThread>) {
        if self.first.is_none() {
            (self.first, self.end) = (Some(time), time.saturating_add(self.every_ns));
        }
        self.is_over |= time.saturating_sub(self.end) > MAX_BACKOFF;
        if self.is_over || time < self.end {
            return;
        }
        let threads = count();
        self.take(self.end, threads.clone());
        let empty = (time - self.end) / self.every_ns;
        if empty > 0 {
            // Nothing happened. Without an interval for it, the next events would be spread over it.
            self.take(self.end.saturating_add(empty * self.every_ns), threads);
        }
        self.end = self.end.saturating_add((empty + 1).saturating_mul(self.every_ns));
    }

    fn take(&mut self, time: u64, threads: Vec<TracedThread>) {
        self.threads += threads.len();
        self.taken.push((time, threads));
        if self.taken.len() > MAX_READINGS || self.threads > MAX_THREADS && self.taken.len() > 2 {
            let mut place = 0;
            self.taken.retain(|_| {
                place += 1;
                place % 2 == 0
            });
            self.threads = self.taken.iter().map(|(_, threads)| threads.len()).sum();
            self.every_ns = self.every_ns.saturating_mul(2);
        }
    }
}

impl TraceReader {
    /// The samples at the ends of the intervals, after a first sample without guests; empty for a trace without times.
    /// Their times use the trace's clock, which on most hosts counts from the boot.
    pub(super) fn samples(mut self) -> Vec<Sample> {
        let cut = std::mem::take(&mut self.cut);
        self.event(&cut);
        let Some(mut readings) = self.readings.take() else { return Vec::new() };
        let Some(first) = readings.first.filter(|_| self.timed) else { return Vec::new() };
        let last = self.last.max(readings.taken.last().map_or(0, |(time, _)| *time));
        for (tid, comm) in &self.names {
            self.pairing.name(*tid, comm);
        }
        self.pairing.end();
        let all = self.pairing.snapshot();
        if !readings.is_over && last > first {
            readings.take(last, all.clone());
        }
        // Which threads belong to a guest is known at the end.
        let guests = group_threads(all, &self.counts, |_| None);
        let mut samples = Vec::new();
        for (time, threads) in std::iter::once((first, Vec::new())).chain(readings.taken) {
            let mut events: HashMap<i32, ThreadEvents> =
                threads.into_iter().map(|t| (t.key.tid, self.named(t.events))).collect();
            let of_guest = |guest: &DomainSample| {
                let threads = guest.threads.iter();
                let threads =
                    threads.filter_map(|t| Some(ThreadSample { events: events.remove(&t.tid)?, ..t.clone() }));
                let (facts, threads) = (guest.facts.clone(), threads.collect());
                DomainSample { facts, threads, ..DomainSample::default() }
            };
            let guests = guests.iter().filter(|_| time > first).map(of_guest).collect();
            let mut sample = sample_at(time, SourceStatus::ok(SourceId::Trace), guests, EngineStatus::default());
            sample.normalise();
            samples.push(sample);
        }
        samples
    }
}
