//! Reads a `perf.data` of `perf kvm stat record`, or of any `perf record` with kvm tracepoints: of
//! any age and machine, written to a file or a pipe, compressed or not. It is read as a stream,
//! whatever its size.
//!
//! `perf kvm stat report` of the same file shows the same counts. Unlike in perf, an exit that
//! overlaps lost events does not count, and an access takes the time of its whole exit.

mod events;
mod header;
mod records;

use crate::covered_time::CoveredTime;
use crate::files::Files;
use crate::guest::{KvmEventCounts, group_threads};
use engine::pairing::{EventKind, MAX_THREADS, Pairing, TracedAccess, TracedEvent};
use events::{EventReader, PerfEvent, PerfEventKind};
use foldhash::fast::RandomState;
use header::KernelFormats;
use kvm::Space;
use kvm::topology::HostTopology;
use sample::{Direction, SourceId};
use std::collections::{HashMap, HashSet};
use std::fs::File;

/// The most accesses that are kept until their exit ends.
const MAX_WAITING: usize = 1024;
/// How to record what is missing.
const RECORD: &str = "record with 'perf kvm stat record -p PID sleep 10' while the guest runs";

/// The counts so far.
#[derive(Default)]
struct PerfDataCounters {
    pairing: Pairing,
    /// Threads that entered a guest.
    entered: HashSet<i32, RandomState>,
    /// Accesses of each thread whose exits have not ended yet.
    waiting: HashMap<i32, Vec<TracedEvent>, RandomState>,
    /// How often each kvm event came.
    counts: KvmEventCounts,
    /// The time of the kvm events.
    covered: CoveredTime,
    lost: u64,
}

/// Reads a whole file from its beginning.
pub(crate) fn read(file: File, files: &mut Files) -> Result<(), String> {
    let mut reader = EventReader::open(file)?;
    reader.count()?;
    let EventReader {
        records,
        mut counters,
        comms,
        samples,
        broken,
        ..
    } = reader;
    if counters.covered.first.is_none() {
        return Err(format!(
            "it holds no kvm event: no guest ran where and while perf recorded; {RECORD}"
        ));
    }
    if let Some(damage) = records.damaged {
        files.note(&format!("{damage}; the events before it are used"));
    }
    if broken > 0 {
        files.note(&format!(
            "{broken} of its samples cannot be read and are left out"
        ));
    }
    counters.add_notes(files);
    files.cover(&counters.covered);
    files.count_events(samples, counters.pairing.overflow);
    files.count_lost(counters.lost);
    counters.pairing.runs_until(counters.covered.last);
    let mut threads = counters.pairing.snapshot();
    for thread in &mut threads {
        thread.comm = comms.get(&thread.key.tid).cloned().unwrap_or_default();
    }
    files
        .measured
        .extend(group_threads(threads, &counters.counts));
    files.types.insert(SourceId::PerfData);
    Ok(())
}

impl PerfDataCounters {
    /// Takes the formats of the events to come.
    fn begin(&mut self, formats: &KernelFormats) {
        self.pairing = Pairing::new(formats.decoder.names.clone(), HostTopology::default());
        self.pairing.exact = true;
        self.pairing.counts_migrations = formats.migrations;
    }

    /// Takes one event. Events must come in order of time.
    fn event(&mut self, event: &PerfEvent, formats: &KernelFormats) {
        let PerfEvent { time, kind } = *event;
        match kind {
            PerfEventKind::Lost(count) => {
                self.lost = self.lost.saturating_add(count);
                if count > 0 {
                    self.pairing.gap(self.covered.last.min(time), time);
                }
            }
            PerfEventKind::Kvm { id, tid, pid } => {
                self.covered.add_event(time);
                self.counts
                    .add(tid, pid, formats.names.get(&id).map_or("", String::as_str));
            }
            PerfEventKind::Traced(event) => self.traced(event),
        }
    }

    /// Takes an event of a thread. As in perf, what a thread does before its first entry does not
    /// count, and an access counts when its exit ends. Only a read of emulated memory counts at
    /// once: the kernel reports it when the value is there.
    fn traced(&mut self, event: TracedEvent) {
        let tid = event.tid;
        match event.kind {
            EventKind::Entry { .. } if self.entered.len() < MAX_THREADS => {
                self.entered.insert(tid);
            }
            EventKind::Exit { .. } | EventKind::Access(_) if !self.entered.contains(&tid) => return,
            _ => {}
        }
        let waiting = self.waiting.entry(tid).or_default();
        match event.kind {
            EventKind::Access(access) if !is_memory_read(&access) => {
                if waiting.len() < MAX_WAITING {
                    waiting.push(event);
                }
                return;
            }
            EventKind::Exit { .. } => waiting.clear(),
            EventKind::Entry { .. } => {
                for access in waiting.drain(..) {
                    self.pairing.event(&access);
                }
            }
            _ => {}
        }
        self.pairing.event(&event);
    }

    /// Says what the counts lack.
    fn add_notes(&self, files: &mut Files) {
        if !self.counts.has("kvm_exit") || !self.counts.has("kvm_entry") {
            files.note(&format!(
                "no table of exits: kvm:kvm_exit or kvm:kvm_entry did not come; {RECORD}"
            ));
        }
        if self.lost > 0 {
            files.note(&format!(
                "{} events were lost while it was recorded; exits around the gaps are left out",
                self.lost
            ));
        }
    }
}

/// Whether an access is a read of emulated memory, whose event comes with what it returned.
fn is_memory_read(access: &TracedAccess) -> bool {
    access.space == Space::Mmio && access.direction == Direction::Read
}
