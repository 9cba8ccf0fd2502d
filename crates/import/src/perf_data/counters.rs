//! Counts the events of a `perf.data`: pairs exits and entries, and applies perf's rules. `perf kvm stat
//! report` of the same file must show the same counts.
//!
//! perf keeps one open event for each thread and table (tools/perf/builtin-kvm.c, `handle_begin_event` and
//! `handle_end_event`; tools/perf/arch/x86/util/kvm-stat.c). It drops what a thread did before its first `kvm_entry`. A
//! port or MSR access begins an event and the next entry ends it, so of several accesses in one exit the last one
//! counts. A write to memory does the same. A read of memory ends what the exit, or a write, began.
//!
//! Unlike perf, the pairing counts no exit that overlaps lost events, and an access takes the whole exit.

use super::event_reader::BatchItem;
use super::header::KernelFormats;
use crate::covered_time::{CoveredTime, DAMAGED};
use crate::guest::{KvmEventCounts, group_threads};
use engine::pairing::{EventKind, MAX_THREADS, Pairing, TracedAccess, TracedEvent};
use foldhash::fast::RandomState;
use kvm::Space;
use kvm::topology::HostTopology;
use sample::{Direction, DomainSample};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A thread of the file, and the events that perf holds open for it.
#[derive(Debug, Default)]
struct RecordedThread {
    pid: i32,
    /// Numbers of events, by the position of their names in [`KernelFormats::names`].
    counts: BTreeMap<u16, u64>,
    /// Whether it entered its guest before.
    entered: bool,
    port: Option<(u64, TracedAccess)>,
    msr: Option<(u64, TracedAccess)>,
    /// Whether perf has a memory event open: since the exit, or since a write.
    memory_open: bool,
    memory: Option<(u64, TracedAccess)>,
    /// Accesses that perf does not count because of another one in the same exit.
    uncounted: u64,
}

impl RecordedThread {
    /// Counts what this event causes.
    fn event(&mut self, event: &TracedEvent, pairing: &mut Pairing) {
        match event.kind {
            EventKind::Exit { .. } | EventKind::Access(_) if !self.entered => return,
            EventKind::Entry { .. } if !self.entered => self.entered = true,
            EventKind::Entry { .. } => {
                // Accesses count only now, so that the VMM's work after a write belongs to it.
                pairing.in_kernel(event.tid, event.time);
                let memory = self.memory.take();
                self.memory_open &= memory.is_none();
                for (seen, access) in self.port.take().into_iter().chain(self.msr.take()).chain(memory) {
                    pairing.event(&TracedEvent { time: seen, kind: EventKind::Access(access), ..*event });
                }
            }
            EventKind::Exit { .. } => (self.memory_open, self.memory) = (true, None),
            EventKind::Access(access) => {
                pairing.in_kernel(event.tid, event.time);
                let own = self.access(event, access, pairing);
                self.uncounted += u64::from(!own);
                return;
            }
            _ => {}
        }
        pairing.event(event);
    }

    /// Returns false if it replaces another access, or if no event is open for it.
    fn access(&mut self, event: &TracedEvent, access: TracedAccess, pairing: &mut Pairing) -> bool {
        let open = match (access.space, access.direction) {
            (Space::Pio, _) => &mut self.port,
            (Space::Msr, _) => &mut self.msr,
            (Space::Mmio, Direction::Write) => {
                self.memory_open = true;
                &mut self.memory
            }
            (Space::Mmio, Direction::Read) => {
                if !std::mem::take(&mut self.memory_open) {
                    return false;
                }
                // perf takes a read after a write in the same exit for the end of the write.
                let (access, own) = self.memory.take().map_or((access, true), |(_, write)| (write, false));
                pairing.event(&TracedEvent { kind: EventKind::Access(access), ..*event });
                return own;
            }
        };
        open.replace((event.time, access)).is_none()
    }
}

/// All counts so far.
#[derive(Debug, Default)]
pub(super) struct PerfDataCounters {
    pairing: Pairing,
    /// All events without perf's rules, until the first entry. Without any entry in the file these are the counts: a
    /// kernel that fires no `kvm_entry` still shows its accesses.
    unpaired: Option<Pairing>,
    threads: HashMap<i32, RecordedThread, RandomState>,
    formats: Option<Arc<KernelFormats>>,
    /// The time of the kvm events.
    pub covered: CoveredTime,
    /// Events lost.
    pub lost: u64,
}

impl PerfDataCounters {
    /// Takes the formats of the events to come.
    pub fn begin(&mut self, formats: &Arc<KernelFormats>) {
        if self.formats.is_some() {
            return;
        }
        let pairing = || {
            let names = formats.decoder.names.clone();
            let mut pairing = Pairing::new(names, HostTopology::default());
            (pairing.exact, pairing.counts_migrations) = (true, formats.migrations);
            pairing
        };
        (self.pairing, self.unpaired) = (pairing(), Some(pairing()));
        self.formats = Some(formats.clone());
    }

    /// Takes one item. Items must come in order of time.
    pub fn item(&mut self, item: &BatchItem) {
        if item.lost > 0 {
            self.lose(item.lost, item.time);
            return;
        }
        let BatchItem { tid, pid, time, cpu, kind, .. } = *item;
        let room = self.threads.len() < MAX_THREADS;
        let known = match self.threads.get_mut(&tid) {
            Some(known) => known,
            None if item.name.is_some() && room => self.threads.entry(tid).or_default(),
            // Scheduler events matter only for threads that run a guest.
            None => return,
        };
        if let Some(name) = item.name {
            self.covered.at(time, DAMAGED);
            known.pid = pid;
            *known.counts.entry(name).or_default() += 1;
        }
        let Some(kind) = kind else { return };
        let event = TracedEvent { tid, pid, time, cpu, kind };
        if let Some(unpaired) = &mut self.unpaired {
            unpaired.event(&event);
            if matches!(event.kind, EventKind::Entry { .. }) {
                self.unpaired = None;
            }
        }
        known.event(&event, &mut self.pairing);
    }

    fn lose(&mut self, count: u64, time: u64) {
        self.lost = self.lost.saturating_add(count);
        for pairing in [&mut self.pairing].into_iter().chain(&mut self.unpaired) {
            pairing.gap(self.covered.last.min(time), time);
        }
    }

    /// Accesses that perf does not count.
    pub fn uncounted(&self) -> u64 {
        self.threads.values().map(|t| t.uncounted).sum()
    }

    /// The kvm events whose formats the file has.
    pub fn enabled(&self) -> &[String] {
        self.formats.as_ref().map(|f| f.names.as_slice()).unwrap_or_default()
    }

    /// How often each kvm event came: thread, process, event, number.
    pub fn kvm_events(&self) -> impl Iterator<Item = (i32, i32, &str, u64)> {
        let counts =
            self.threads.iter().flat_map(|(tid, known)| known.counts.iter().map(move |n| (*tid, known.pid, n)));
        counts.filter_map(|(tid, pid, (at, n))| Some((tid, pid, self.enabled().get(usize::from(*at))?.as_str(), *n)))
    }

    /// The pairing that holds the counts.
    pub fn counted(&self) -> &Pairing {
        self.unpaired.as_ref().unwrap_or(&self.pairing)
    }

    /// The guests with their counts so far; `comms` has the names of threads.
    pub fn guests(&mut self, comms: &HashMap<i32, String, RandomState>) -> Vec<DomainSample> {
        let pairing = self.unpaired.as_mut().unwrap_or(&mut self.pairing);
        pairing.runs_until(self.covered.last);
        let mut threads = pairing.snapshot();
        for thread in &mut threads {
            thread.comm = comms.get(&thread.key.tid).cloned().unwrap_or_default();
        }
        let mut counts = KvmEventCounts::default();
        self.kvm_events().for_each(|(tid, pid, name, number)| counts.add(tid, pid, name, number));
        group_threads(threads, &counts, |pid| comms.get(&pid).cloned())
    }
}
