//! Reads lines of `trace-cmd report`, of ftrace's `trace` file and of `perf script`, with the kvm
//! and sched events of any kernel.

mod decode;
mod line;
mod places;

use super::cannot;
use super::covered_time::CoveredTime;
use super::files::Files;
use super::guest::{KvmEventCounts, group_threads};
use decode::{TraceDecoder, scheduled};
use engine::pairing::{EventKind, Pairing};
use kvm::exit_reason::ReasonNames;
use kvm::thread_name::vcpu_index;
use kvm::topology::HostTopology;
use line::TraceLine;
use places::PlaceReader;
use std::io::{BufRead, BufReader, Read};

/// Longest line of an event.
const MAX_LINE: u64 = 64 * 1024;

/// Whether a text begins as a trace: with the heading of ftrace or trace-cmd, or with an event.
pub(super) fn begins(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    let begins = [
        "# tracer:",
        "cpus=",
        "version = ",
        "kvm_exit: reason ",
        "kvm_entry: vcpu ",
        "CPU:",
    ];
    begins.iter().any(|begin| first.starts_with(begin))
        || line::parse(first).is_some_and(|line| line.time.is_some())
}

/// Reads a trace. `rest` is what `text` lacks of a file that is too large.
pub(super) fn read(
    text: &str,
    rest: Option<&mut dyn Read>,
    files: &mut Files,
) -> Result<(), String> {
    let mut reader = TraceReader::new(text, files.host.topology.clone());
    let Some(rest) = rest else {
        text.lines().for_each(|line| reader.line(line));
        return reader.finish(files);
    };
    let mut rest = BufReader::with_capacity(1 << 20, text.as_bytes().chain(rest));
    let mut bytes = Vec::new();
    while rest
        .by_ref()
        .take(MAX_LINE)
        .read_until(b'\n', &mut bytes)
        .map_err(cannot("read it"))?
        > 0
    {
        reader.line(String::from_utf8_lossy(&bytes).trim_end());
        bytes.clear();
    }
    reader.finish(files)
}

#[derive(Debug, Default)]
struct TraceReader {
    pairing: Pairing,
    decoder: TraceDecoder,
    counts: KvmEventCounts,
    covered: CoveredTime,
    lost: u64,
    gap: bool,
    places: PlaceReader,
    /// Whether the lines have times.
    timed: bool,
}

impl TraceReader {
    fn new(head: &str, topology: HostTopology) -> Self {
        let mut pairing = Pairing::new(ReasonNames::new(), topology);
        let timed = head
            .lines()
            .find_map(line::parse)
            .is_some_and(|line| line.time.is_some());
        // Without entries or times, exits count without durations.
        pairing.untimed = !timed || !head.contains("kvm_entry:");
        pairing.counts_migrations = head.contains("sched_migrate_task:");
        Self {
            pairing,
            timed,
            ..Self::default()
        }
    }

    fn line(&mut self, line: &str) {
        if let Some(lost) = line::lost(line) {
            self.lost = self.lost.saturating_add(lost);
            self.gap = true;
        } else if line.len() as u64 <= MAX_LINE
            && let Some(line) = line::parse(line).filter(|line| line.time.is_some() == self.timed)
        {
            if line.event.starts_with("kvm_") {
                self.kvm_event(&line);
            } else {
                self.scheduler_event(&line);
            }
        }
    }

    /// Counts the time of an event of a guest.
    fn at(&mut self, time: u64) {
        let last = self.covered.last;
        let jumps = self.covered.at(time);
        if std::mem::take(&mut self.gap) || jumps {
            self.pairing.gap(last.min(time), time);
        }
    }

    fn kvm_event(&mut self, line: &TraceLine<'_>) {
        self.at(line.time.unwrap_or(0));
        self.counts.add(line.tid, line.pid.unwrap_or(0), line.event);
        if let Some(event) = self.decoder.kvm_event(line) {
            self.places.event(&event, line.text);
            self.pairing.event(&event);
            self.name_new(line.comm);
        }
        self.places.line(line);
    }

    fn scheduler_event(&mut self, line: &TraceLine<'_>) {
        for (name, event) in scheduled(line) {
            if vcpu_index(name).is_some() {
                // One that leaves its CPU and was not seen before has had it from the beginning.
                let first = self.covered.first.unwrap_or(event.time);
                let since = if matches!(event.kind, EventKind::SwitchOut { .. }) {
                    first
                } else {
                    event.time
                };
                self.at(event.time);
                self.pairing.runs_guest(event.tid, 0, event.time, since);
                self.name_new(name);
            }
            self.pairing.event(&event);
        }
    }

    /// Names the thread that was new in the last event.
    fn name_new(&mut self, comm: &str) {
        if let Some(tid) = self.pairing.new.pop() {
            self.pairing.name(tid, comm);
        }
    }

    fn finish(mut self, files: &mut Files) -> Result<(), String> {
        if self.covered.first.is_none() {
            return Err("none of its lines holds an event of KVM or of a vCPU".into());
        }
        self.pairing.runs_until(self.covered.last);
        self.pairing.end();
        let overflow = self.pairing.overflow.saturating_add(self.decoder.beyond);
        files.count_events(self.pairing.events, self.lost, overflow);
        // A trace of many threads is not held twice.
        let mut threads = std::mem::take(&mut self.pairing).snapshot();
        for thread in &mut threads {
            self.decoder.name(&mut thread.events.exits);
        }
        if self.timed {
            files.cover(&self.covered);
        } else {
            files.note("its lines have no times, so there are no rates and no durations");
        }
        let mut guests = group_threads(threads, &self.counts);
        let places = self.places.finish();
        for guest in &mut guests {
            let of_guest = places
                .iter()
                .filter(|place| guest.threads.iter().any(|t| t.tid == place.tid));
            guest.places = of_guest.cloned().collect();
        }
        files.measured.extend(guests);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
