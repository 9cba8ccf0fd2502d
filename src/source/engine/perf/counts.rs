//! Counts every `kvm:*` tracepoint in the kernel for each thread of a guest's process, without copying an event.
//!
//! A counting event belongs to one task, so this takes an open file for each event and thread. Their number is limited,
//! which suits a host with few guests. Work that KVM does outside a guest's process (a kernel worker, another guest's
//! interrupt) is not counted.

use super::super::tracefs::Tracefs;
use super::rings::allow_files;
use crate::source::events::EngineError;
use perf_event::events::Tracepoint;
use perf_event::{Builder, Counter, ReadFormat};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The most open files.
const MAX_FILES: usize = 8192;
/// The most files opened in one reading, at 15 to 75 µs each.
const MAX_NEW_FILES: usize = 1024;
/// The most threads counted in one process.
const MAX_THREADS: usize = 512;

/// Counters of all `kvm:*` tracepoints.
pub(super) struct Counts {
    events: Vec<(String, u64)>,
    threads: HashMap<i32, CountedThread>,
    /// Counts of threads that ended.
    ended: HashMap<i32, Vec<u64>>,
    left_out: usize,
}

struct CountedThread {
    pid: i32,
    counters: Vec<Option<Counter>>,
    last: Vec<u64>,
}

impl Counts {
    /// Finds the events; the first reading opens the threads' counters.
    pub fn open(tracefs: &Tracefs) -> Result<Self, EngineError> {
        let names = tracefs.events("kvm")?;
        let events = names.into_iter().map(|name| tracefs.id("kvm", &name).map(|id| (name, id)));
        let events = events.collect::<Result<_, _>>()?;
        allow_files(2 * MAX_FILES);
        Ok(Self { events, threads: HashMap::new(), ended: HashMap::new(), left_out: 0 })
    }

    /// The counts of these processes; opens counters for their new threads.
    pub fn read(&mut self, pids: impl Iterator<Item = i32>) -> HashMap<i32, BTreeMap<String, u64>> {
        let pids: HashSet<i32> = pids.collect();
        let alive: Vec<(i32, i32)> =
            pids.iter().flat_map(|pid| tasks(*pid).into_iter().map(move |tid| (*pid, tid))).collect();
        self.close(&alive);
        self.begin(&alive);
        self.ended.retain(|pid, _| pids.contains(pid));
        let mut sums = self.ended.clone();
        for thread in self.threads.values_mut() {
            thread.refresh();
            add(sums.entry(thread.pid).or_default(), &thread.last);
        }
        let named = |counts: Vec<u64>| {
            let counted = self.events.iter().zip(counts).filter(|(_, count)| *count > 0);
            counted.map(|((name, _), count)| (name.clone(), count)).collect()
        };
        sums.into_iter().map(|(pid, counts)| (pid, named(counts))).collect()
    }

    fn begin(&mut self, alive: &[(i32, i32)]) {
        let mut room = MAX_NEW_FILES;
        self.left_out = 0;
        for &(pid, tid) in alive.iter().filter(|(_, tid)| !self.threads.contains_key(tid)).collect::<Vec<_>>() {
            if (self.threads.len() + 1) * self.events.len() > MAX_FILES {
                self.left_out += 1;
            } else if room >= self.events.len() {
                room -= self.events.len();
                let counters = self.events.iter().map(|(_, id)| counter(*id, tid)).collect();
                self.threads.insert(tid, CountedThread { pid, counters, last: Vec::new() });
            }
        }
    }

    /// Closes the counters of ended threads, on another thread because it takes the kernel long.
    fn close(&mut self, alive: &[(i32, i32)]) {
        let alive: HashSet<i32> = alive.iter().map(|(_, tid)| *tid).collect();
        let gone: Vec<i32> = self.threads.keys().filter(|tid| !alive.contains(tid)).copied().collect();
        let mut closing: Vec<CountedThread> = gone.iter().filter_map(|tid| self.threads.remove(tid)).collect();
        for thread in &mut closing {
            thread.refresh();
            add(self.ended.entry(thread.pid).or_default(), &thread.last);
        }
        if !closing.is_empty() {
            std::thread::spawn(move || drop(closing));
        }
    }

    /// The threads that are not counted, if any.
    pub fn gap(&self) -> Option<EngineError> {
        (self.left_out > 0).then(|| EngineError {
            cause: format!(
                "kvm events of {} threads are not counted: the limit is {MAX_FILES} counters",
                self.left_out
            ),
            fix: "select fewer guests with --domain, or use --engine bpf".into(),
        })
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        let closing = std::mem::take(&mut self.threads);
        if !closing.is_empty() {
            std::thread::spawn(move || drop(closing));
        }
    }
}

impl CountedThread {
    fn refresh(&mut self) {
        self.last.resize(self.counters.len(), 0);
        for (counter, last) in self.counters.iter_mut().zip(&mut self.last) {
            if let Some(count) = counter.as_mut().and_then(|counter| counter.read().ok()) {
                *last = count;
            }
        }
    }
}

fn add(sums: &mut Vec<u64>, counts: &[u64]) {
    sums.resize(counts.len().max(sums.len()), 0);
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum += count;
    }
}

/// `None` for a thread that ended meanwhile, or an event that this kernel cannot count.
fn counter(id: u64, tid: i32) -> Option<Counter> {
    Builder::new(Tracepoint::with_id(id))
        .observe_pid(tid)
        .any_cpu()
        .exclude_kernel(false)
        .exclude_hv(false)
        .read_format(ReadFormat::empty())
        .enabled(true)
        .build()
        .ok()
}

fn tasks(pid: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(MAX_THREADS).collect()
}
