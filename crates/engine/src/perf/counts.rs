//! Counts every `kvm:*` tracepoint in the kernel for each thread of a guest's process, without copying an event.
//!
//! A counting event belongs to one task, so this takes an open file for each event and thread. Their number is limited,
//! which suits a host with few guests. Work that KVM does outside a guest's process (a kernel worker, another guest's
//! interrupt) is not counted.

use super::super::tracefs::Tracefs;
use super::rings::allow_files;
use crate::events::EngineError;
use perf_event::events::Tracepoint;
use perf_event::{Builder, Counter, ReadFormat};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The most open files.
const MAX_FILES: usize = 8192;
/// The most files opened in one reading, at 15 to 75 µs each.
const MAX_NEW_FILES: usize = 1024;
/// The most threads counted in one process.
const MAX_THREADS: usize = 512;

/// A life of a thread: its id and its start, ticks after boot. Ids are used again.
type ThreadLife = (i32, u64);

/// Counters of all `kvm:*` tracepoints.
pub(super) struct Counts {
    events: Vec<(String, u64)>,
    threads: HashMap<ThreadLife, CountedThread>,
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
        let alive: HashMap<ThreadLife, i32> =
            pids.iter().flat_map(|pid| threads_of(*pid).into_iter().map(|life| (life, *pid))).collect();
        let ended = self.threads.extract_if(|life, _| !alive.contains_key(life)).map(|(_, thread)| thread).collect();
        self.end(ended);
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

    /// Opens the counters of new threads.
    fn begin(&mut self, alive: &HashMap<ThreadLife, i32>) {
        let mut room = MAX_NEW_FILES;
        self.left_out = 0;
        for (life, pid) in alive {
            if self.threads.contains_key(life) {
                continue;
            }
            if (self.threads.len() + 1) * self.events.len() > MAX_FILES {
                self.left_out += 1;
            } else if room >= self.events.len() {
                room -= self.events.len();
                let counters = self.events.iter().map(|(_, id)| counter(*id, life.0)).collect();
                self.threads.insert(*life, CountedThread { pid: *pid, counters, last: Vec::new() });
            }
        }
    }

    /// Keeps the last counts and closes the counters, on another thread because it takes the kernel long.
    fn end(&mut self, mut closing: Vec<CountedThread>) {
        for thread in &mut closing {
            thread.refresh();
            add(self.ended.entry(thread.pid).or_default(), &thread.last);
        }
        if !closing.is_empty() {
            std::thread::spawn(move || drop(closing));
        }
    }

    /// Drops the counts of processes that ended: their ids may soon be other processes'.
    pub fn forget(&mut self, pids: &[i32]) {
        self.ended.retain(|pid, _| !pids.contains(pid));
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

/// The threads of a process.
fn threads_of(pid: i32) -> Vec<ThreadLife> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let life = |entry: std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("stat")).ok()?;
        let line = String::from_utf8_lossy(&line);
        // Field 22, the 20th after the name (`proc_pid_stat(5)`).
        let start = line.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()?;
        Some((entry.file_name().to_str()?.parse().ok()?, start))
    };
    entries.flatten().filter_map(life).take(MAX_THREADS).collect()
}
