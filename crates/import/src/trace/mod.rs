//! Reads lines of `trace-cmd report`, of ftrace's `trace` file and of `perf script`, with the kvm
//! and sched events of any kernel.

mod decode;
mod line;
mod places;

use super::cannot;
use super::covered_time::CoveredTime;
use super::files::Files;
use super::guest::{KvmEventCounts, UNKNOWN_PID, group_threads};
use decode::{Scheduled, TraceDecoder, scheduled};
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
        for line in text.lines() {
            reader.read_line(line);
        }
        return reader.finish(files);
    };
    let mut input = BufReader::with_capacity(1 << 20, text.as_bytes().chain(rest));
    let mut bytes = Vec::new();
    loop {
        let mut limited = input.by_ref().take(MAX_LINE);
        let read = limited.read_until(b'\n', &mut bytes);
        if read.map_err(cannot("read it"))? == 0 {
            break;
        }
        reader.read_line(String::from_utf8_lossy(&bytes).trim_end());
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
    /// Events that were lost.
    lost: u64,
    /// Whether events were lost just before the next one.
    is_after_loss: bool,
    places: PlaceReader,
    /// Whether the first event has a time; lines that differ from it are left out.
    timed: bool,
}

impl TraceReader {
    fn new(head: &str, topology: HostTopology) -> Self {
        let mut pairing = Pairing::new(ReasonNames::new(), topology);
        let timed = head
            .lines()
            .find_map(line::parse)
            .is_some_and(|line| line.time.is_some());
        // Without entries or times the durations of exits are unknown: exits only count.
        pairing.untimed = !timed || !head.contains("kvm_entry:");
        pairing.counts_migrations = head.contains("sched_migrate_task:");
        Self {
            pairing,
            timed,
            ..Self::default()
        }
    }

    fn read_line(&mut self, text: &str) {
        if let Some(lost) = line::lost(text) {
            self.lost = self.lost.saturating_add(lost);
            self.is_after_loss = true;
        } else if text.len() as u64 <= MAX_LINE
            && let Some(line) = line::parse(text).filter(|line| line.time.is_some() == self.timed)
        {
            if line.event.starts_with("kvm_") {
                self.kvm_event(&line);
            } else {
                self.scheduler_event(&line);
            }
        }
    }

    /// Adds an event of a guest to the time covered. Exits that span lost events or a jump of the
    /// clock do not count.
    fn cover(&mut self, time: u64) {
        let last = self.covered.last;
        let is_jump = self.covered.add_event(time);
        if std::mem::take(&mut self.is_after_loss) || is_jump {
            self.pairing.gap(last.min(time), time);
        }
    }

    fn kvm_event(&mut self, line: &TraceLine<'_>) {
        self.cover(line.time.unwrap_or(0));
        let pid = line.pid.unwrap_or(UNKNOWN_PID);
        self.counts.add(line.tid, pid, line.event);
        if let Some(event) = self.decoder.kvm_event(line) {
            self.places.add_event(&event, line.text);
            self.pairing.event(&event);
            self.name_new(line.comm);
        }
        self.places.add_fault(line);
    }

    fn scheduler_event(&mut self, line: &TraceLine<'_>) {
        for Scheduled { comm, event } in scheduled(line) {
            if vcpu_index(comm).is_some() {
                // A new thread that leaves its CPU has run on it since the trace began.
                let mut running_since = event.time;
                if matches!(event.kind, EventKind::SwitchOut { .. }) {
                    running_since = self.covered.first.unwrap_or(event.time);
                }
                self.cover(event.time);
                self.pairing
                    .runs_guest(event.tid, event.pid, event.time, running_since);
                self.name_new(comm);
            }
            self.pairing.event(&event);
        }
    }

    /// Names the thread of the last event if the event brought it. No other thread is in `new`:
    /// this is called after each event that can add one.
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
        files.count_events(self.pairing.events, overflow);
        files.count_lost(self.lost);
        // Taken, so that a trace of many threads is not held twice.
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
        for place in self.places.finish() {
            for guest in &mut guests {
                if guest.threads.iter().any(|t| t.tid == place.tid) {
                    guest.places.push(place.clone());
                }
            }
        }
        files.measured.extend(guests);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
