//! Cuts a trace into intervals, for time lines: what had been counted at the end of each.

use super::decode::TraceDecoder;
use crate::covered_time::MAX_BACKOFF;
use crate::guest::sample_at;
use engine::events::TracedThread;
use sample::{DomainSample, EngineStatus, Sample, SourceId, SourceStatus, ThreadSample};
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

    /// The last reading, unless the clock jumped.
    pub(super) fn end(&mut self, last: u64, threads: &[TracedThread]) {
        let last = last.max(self.taken.last().map_or(0, |(time, _)| *time));
        if !self.is_over && self.first.is_some_and(|first| last > first) {
            self.take(last, threads.to_vec());
        }
    }

    /// The samples at the ends of the intervals, after a first sample without guests. Which threads belong to a guest
    /// is known at the end: `guests`. Their times use the trace's clock, which on most hosts counts from the boot.
    pub(super) fn samples(self, guests: &[DomainSample], decoder: &TraceDecoder) -> Vec<Sample> {
        let begin = self.first.map(|first| sample_of(first, Vec::new()));
        let at_end = |(time, threads): (u64, Vec<TracedThread>)| {
            let mut events: HashMap<i32, _> = threads.into_iter().map(|t| (t.key.tid, t.events)).collect();
            let of_guest = |guest: &DomainSample| {
                let threads = guest.threads.iter().filter_map(|thread| {
                    let mut events = events.remove(&thread.tid)?;
                    decoder.name(&mut events.exits);
                    Some(ThreadSample { events, ..thread.clone() })
                });
                let (facts, threads) = (guest.facts.clone(), threads.collect());
                DomainSample { facts, threads, ..DomainSample::default() }
            };
            sample_of(time, guests.iter().map(of_guest).collect())
        };
        begin.into_iter().chain(self.taken.into_iter().map(at_end)).collect()
    }
}

fn sample_of(time: u64, guests: Vec<DomainSample>) -> Sample {
    let mut sample = sample_at(time, SourceStatus::ok(SourceId::Trace), guests, EngineStatus::default());
    sample.normalise();
    sample
}
