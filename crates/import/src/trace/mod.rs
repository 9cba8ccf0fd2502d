//! Reads lines of `trace-cmd report`, of ftrace's `trace` file and of `perf script`, with the kvm and sched events of
//! any kernel.

mod decode;
mod line;
mod places;

use super::cannot;
use super::covered_time::{ANOTHER_TRACE, CoveredTime, DAMAGED};
use super::files::Files;
use super::guest::{KvmEventCounts, group_threads};
use super::text::TextFile;
use decode::{TraceDecoder, vcpu_threads};
use engine::pairing::Pairing;
use kvm::exit_reason::ReasonNames;
use kvm::kernel_log::{LogKind, LogLine, MAX_OF_A_KIND};
use kvm::sanitize;
use kvm::topology::HostTopology;
use places::PlaceReader;
use sample::SourceId;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};

/// Longest line of an event.
const MAX_LINE: u64 = 64 * 1024;
/// Limit of the places of one guest at which exits are counted.
const MAX_PLACES: usize = 16;
/// Limit of the threads whose names are kept.
const MAX_NAMES: usize = 65_536;

/// Lines that are looked at to tell whether events have times.
const TOLD_LINES: usize = 1000;

/// Whether a text begins as a trace: with the heading of ftrace or trace-cmd, or with an event.
pub(super) fn begins(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start).filter(|line| !line.is_empty());
    let Some(first) = lines.next() else { return false };
    let has_heading = ["# tracer:", "cpus=", "version = "].iter().any(|heading| first.starts_with(heading));
    has_heading || line::lost(first).is_some() || line::parse(first).is_some()
}

/// Whether the events of a text have times.
fn has_times(text: &str) -> bool {
    text.lines().take(TOLD_LINES).filter_map(|line| line::parse(line.trim_start())).any(|line| line.time.is_some())
}

/// Reads a trace.
pub(super) fn read(file: &mut TextFile<'_>, files: &mut Files) -> Result<Vec<String>, String> {
    let mut reader = TraceReader::new(file.text, files.topology.topology.clone());
    read_lines(&mut reader, file.text, file.rest.take())?;
    reader.finish(files)
}

/// Reads the lines of a text, and of the rest of its file if the text does not hold all of it.
fn read_lines(reader: &mut TraceReader, text: &str, rest: Option<&mut dyn Read>) -> Result<(), String> {
    let Some(rest) = rest else {
        text.lines().for_each(|line| reader.line(line));
        return Ok(());
    };
    let (whole, begun) = text.rsplit_once('\n').unwrap_or(("", text));
    whole.lines().for_each(|line| reader.line(line));
    let mut rest = BufReader::with_capacity(1 << 20, rest);
    let mut bytes = begun.as_bytes().to_vec();
    loop {
        let read = rest.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes).map_err(cannot("read it"))?;
        reader.line(&String::from_utf8_lossy(&bytes));
        bytes.clear();
        if read == 0 {
            return Ok(());
        }
    }
}

#[derive(Debug, Default)]
struct TraceReader {
    pairing: Pairing,
    decoder: TraceDecoder,
    counts: KvmEventCounts,
    names: HashMap<i32, String>,
    covered: CoveredTime,
    lost: u64,
    gap: bool,
    /// Whether other lines came after the last event.
    apart: bool,
    places: PlaceReader,
    /// Whether the lines have times.
    timed: bool,
    /// Events of KVM that tell of a failure, or that could not be read.
    found: Vec<LogLine>,
}

impl TraceReader {
    fn new(head: &str, topology: HostTopology) -> Self {
        let mut pairing = Pairing::new(ReasonNames::new(), topology);
        let timed = has_times(head);
        // Without entries or times, exits count without durations; so they do in an excerpt that leaves entries out.
        let count = |event| head.matches(event).count();
        pairing.untimed = !timed || count("kvm_entry:") * 4 < count("kvm_exit:") * 3;
        pairing.counts_migrations = head.contains("sched_migrate_task:");
        // A nested guest's exit can be for its own hypervisor to serve.
        let mut decoder = TraceDecoder::default();
        decoder.ports_of_exits = !head.contains("kvm_pio") && !head.contains("kvm_nested_vmexit");
        decoder.wakeups = !head.contains("sched_waking:");
        Self { pairing, decoder, timed, ..Self::default() }
    }

    fn line(&mut self, line: &str) {
        let text = line.trim_start();
        if let Some(lost) = line::lost(text) {
            self.lost = self.lost.saturating_add(lost);
            self.gap = true;
            return;
        }
        let is_short = text.len() as u64 <= MAX_LINE;
        let parsed = if is_short { line::parse(text) } else { None };
        let Some(line) = parsed.filter(|line| line.time.is_some() == self.timed) else {
            self.apart = true;
            return;
        };
        let time = line.time.unwrap_or(0);
        let (kvm, last) = (line.event.starts_with("kvm_"), self.covered.last);
        let mut of_guest = kvm;
        for (name, tid) in line.event.starts_with("sched_").then(|| vcpu_threads(line.text)).into_iter().flatten() {
            // One that leaves its CPU and was not seen before has had it from the beginning.
            let began = self.covered.first.filter(|_| line.event == "sched_switch" && tid == line.tid).unwrap_or(time);
            self.pairing.runs_guest(tid, line.pid.filter(|_| tid == line.tid).unwrap_or(0), time, began);
            self.name(tid, name);
            of_guest = true;
        }
        // Filtered traces and guests that sleep have gaps of any length.
        let max_gap = if of_guest && std::mem::take(&mut self.apart) { ANOTHER_TRACE } else { DAMAGED };
        let jumps = of_guest && self.covered.at(time, max_gap);
        if std::mem::take(&mut self.gap) || jumps {
            self.pairing.gap(last.min(time), time);
        }
        if kvm {
            self.counts.add(line.tid, line.pid.unwrap_or(0), line.event, 1);
        }
        let (pairing, places) = (&mut self.pairing, &mut self.places);
        let read = self.decoder.decode(&line, |event| {
            places.event(&event, line.text);
            pairing.event(&event);
        });
        self.places.line(&line);
        // The kernel's word, and that of trace-cmd's plugin.
        let has_failed = [" failed", " FAIL"].iter().any(|word| line.text.ends_with(word));
        if line.event == "kvm_emulate_insn" && has_failed && self.found.len() < MAX_OF_A_KIND {
            let kind = LogKind::EmulationFailure;
            self.found.push(LogLine { kind, text: sanitize(text.trim(), 400), ..LogLine::default() });
        }
        if kvm && !read && self.found.len() < MAX_OF_A_KIND {
            self.found.push(LogLine { text: sanitize(text, 400), ..LogLine::default() });
        }
        if kvm {
            self.name(line.tid, line.comm);
        }
    }

    fn name(&mut self, tid: i32, name: &str) {
        if self.names.len() < MAX_NAMES && !self.names.contains_key(&tid) {
            self.names.insert(tid, name.to_owned());
        }
    }

    fn finish(mut self, files: &mut Files) -> Result<Vec<String>, String> {
        files.log.append(&mut self.found);
        if self.covered.first.is_none() {
            return Err("none of its lines holds an event of KVM or of a vCPU".into());
        }
        self.pairing.runs_until(self.covered.last);
        self.pairing.end();
        let (events, overflow) = (self.pairing.events, self.pairing.overflow.saturating_add(self.decoder.beyond));
        files.count_events(events, self.lost, overflow);
        // A trace of many threads is not held twice.
        let mut threads = std::mem::take(&mut self.pairing).snapshot();
        for thread in &mut threads {
            thread.comm = self.names.get(&thread.key.tid).map(|comm| sanitize(comm, 15)).unwrap_or_default();
            self.decoder.name(&mut thread.events.exits);
        }
        let mut notes = Vec::new();
        if self.timed {
            files.seconds.push((SourceId::Trace, self.covered.seconds()));
        } else {
            notes.push("its lines have no times, so there are no rates and no durations".to_owned());
        }
        notes.extend(self.covered.note());
        let mut guests = group_threads(threads, &self.counts, |_| None);
        let places = self.places.finish();
        for guest in &mut guests {
            let of_guest = places.iter().filter(|place| guest.threads.iter().any(|t| t.tid == place.tid));
            guest.places = of_guest.take(MAX_PLACES).cloned().collect();
        }
        files.measured.extend(guests);
        Ok(notes)
    }
}

#[cfg(test)]
mod tests;
