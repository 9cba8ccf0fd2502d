//! Counts the events of a `perf.data`: pairs exits and entries, and applies perf's rules and times.

use super::event_formats::{KernelFormats, NO_NAME};
use super::event_reader::{BatchItem, What};
use super::perf_rules::{CountedAccess, PerfThread, Step};
use crate::covered_time::CoveredTime;
use crate::group_threads::{KvmEventCounts, group_threads};
use engine::events::TracedThread;
use engine::pairing::{EventKind, MAX_THREADS, Pairing, TracedEvent};
use foldhash::fast::RandomState;
use kvm::Space;
use kvm::topology::HostTopology;
use sample::{Direction, DomainSample, Timing};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Limit of different addresses with perf's times, over all threads.
const MAX_TIMES: usize = 262_144;

/// perf's times by thread id and address.
type PerfTimes = HashMap<(i32, Space, u64, Direction), Timing, RandomState>;

/// A thread of the file.
#[derive(Debug, Default)]
struct RecordedThread {
    pid: i32,
    rules: PerfThread,
    /// Numbers of events, by the position of their names in [`KernelFormats::names`].
    counts: Vec<u64>,
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
    /// perf's times, if they are requested.
    times: Option<PerfTimes>,
    /// Time of the first kvm event.
    pub first: Option<u64>,
    /// Time of the last kvm event.
    pub last: u64,
    /// The time between them.
    pub covered: CoveredTime,
    /// Events lost.
    pub lost: u64,
}

impl PerfDataCounters {
    /// Without any counts.
    pub fn new(perf_times: bool) -> Self {
        Self { times: perf_times.then(PerfTimes::default), ..Self::default() }
    }

    /// Takes the formats of the events to come.
    pub fn begin(&mut self, formats: &Arc<KernelFormats>) {
        if self.formats.is_some() {
            return;
        }
        let pairing = || {
            let names = formats.decoder.reason_names().clone();
            let pairing = Pairing::new(names, HostTopology::default()).exactly();
            if formats.migrations { pairing.with_migrations() } else { pairing }
        };
        (self.pairing, self.unpaired) = (pairing(), Some(pairing()));
        self.formats = Some(formats.clone());
    }

    /// Takes one item. Items must come in order of time.
    pub fn item(&mut self, item: &BatchItem) {
        if let What::Lost(count) = item.what {
            self.lose(count, item.time);
            return;
        }
        let event = item.event();
        let room = self.threads.len() < MAX_THREADS;
        let known = match self.threads.get_mut(&item.tid) {
            Some(known) => known,
            None if item.name != NO_NAME && room => self.threads.entry(item.tid).or_default(),
            // Scheduler events matter only for threads that run a guest.
            None => return,
        };
        if item.name != NO_NAME {
            self.first = Some(self.first.map_or(item.time, |first| first.min(item.time)));
            self.last = self.last.max(item.time);
            self.covered.at(item.time);
            known.pid = item.pid;
            let at = usize::from(item.name);
            if known.counts.len() <= at {
                known.counts.resize(at + 1, 0);
            }
            known.counts[at] += 1;
        }
        let Some(event) = event else { return };
        if let Some(unpaired) = &mut self.unpaired {
            unpaired.event(&event);
            if matches!(event.kind, EventKind::Entry { .. }) {
                self.unpaired = None;
            }
        }
        let (pairing, times) = (&mut self.pairing, &mut self.times);
        known.rules.event(&event, |step| match step {
            Step::Event => pairing.event(&event),
            Step::InKernel => pairing.in_kernel(event.tid, event.time),
            Step::Count(counted) => count(&event, &counted, pairing, times.as_mut()),
        });
    }

    fn lose(&mut self, count: u64, time: u64) {
        self.lost = self.lost.saturating_add(count);
        // perf pairs across gaps; with perf's times kvmtop does the same.
        if self.times.is_some() {
            return;
        }
        self.pairing.gap(self.last.min(time), time);
        if let Some(unpaired) = &mut self.unpaired {
            unpaired.gap(self.last.min(time), time);
        }
    }

    /// Whether perf's times are requested.
    pub fn as_perf(&self) -> bool {
        self.times.is_some()
    }

    /// Accesses that perf does not count.
    pub fn uncounted(&self) -> u64 {
        self.threads.values().map(|t| t.rules.uncounted).sum()
    }

    /// The kvm events whose formats the file has, and which of them came.
    pub fn kvm_events(&self) -> (&[String], BTreeSet<&str>) {
        let names = self.formats.as_ref().map(|f| f.names.as_slice()).unwrap_or_default();
        let counted = self.threads.values().flat_map(|known| names.iter().zip(&known.counts));
        (names, counted.filter(|(_, count)| **count > 0).map(|(name, _)| name.as_str()).collect())
    }

    /// The pairing that holds the counts.
    pub fn counted(&self) -> &Pairing {
        self.unpaired.as_ref().unwrap_or(&self.pairing)
    }

    /// The guests with their counts so far; `comms` has the names of threads.
    pub fn guests(&mut self, comms: &HashMap<i32, String, RandomState>) -> Vec<DomainSample> {
        let pairing = self.unpaired.as_mut().unwrap_or(&mut self.pairing);
        for (tid, _) in pairing.threads().collect::<Vec<_>>() {
            if let Some(comm) = comms.get(&tid) {
                pairing.name(tid, comm);
            }
        }
        let mut threads = pairing.snapshot();
        if let Some(times) = &self.times {
            for thread in &mut threads {
                replace_times(thread, times);
            }
        }
        let mut counts = KvmEventCounts::default();
        let names = self.formats.as_ref().map(|f| f.names.as_slice()).unwrap_or_default();
        for (tid, known) in &self.threads {
            for (name, count) in names.iter().zip(&known.counts).filter(|(_, count)| **count > 0) {
                counts.add(*tid, known.pid, name, *count);
            }
        }
        group_threads(threads, &counts, |pid| comms.get(&pid).cloned())
    }
}

fn count(event: &TracedEvent, counted: &CountedAccess, pairing: &mut Pairing, times: Option<&mut PerfTimes>) {
    let access = counted.access;
    pairing.event(&TracedEvent { time: counted.seen, kind: EventKind::Access(access), ..*event });
    if let Some(times) = times {
        let key = (event.tid, access.space, access.address, access.direction);
        if times.len() < MAX_TIMES || times.contains_key(&key) {
            times.entry(key).or_default().add_exact(counted.ns);
        }
    }
}

/// Replaces the times of the exits by perf's.
fn replace_times(thread: &mut TracedThread, times: &PerfTimes) {
    let tid = thread.key.tid;
    for cell in &mut thread.events.accesses {
        if let Some(time) = cell.address.and_then(|a| times.get(&(tid, cell.space, a, cell.direction))) {
            cell.time = time.clone();
        }
    }
}
