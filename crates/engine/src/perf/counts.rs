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
use std::os::unix::fs::DirEntryExt;

/// The most open files.
const MAX_FILES: usize = 8192;
/// The most files opened in one reading, at 15 to 75 µs each.
const MAX_NEW_FILES: usize = 1024;
/// The most threads counted in one process.
const MAX_THREADS: usize = 512;

/// Tells threads apart that have one id after the other. The kernel may drop the inode of a living thread from its
/// cache, so only a different start shows another thread; the start takes a file to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TaskIdentity {
    inode: u64,
    start_ticks: Option<u64>,
}

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
    identity: TaskIdentity,
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
        let mut alive = Vec::new();
        for pid in &pids {
            for (tid, inode) in tasks(*pid) {
                self.check(tid, inode);
                alive.push((*pid, tid, inode));
            }
        }
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

    /// Ends the count of a thread whose id is another thread's by now.
    fn check(&mut self, tid: i32, inode: u64) {
        let Some(thread) = self.threads.get_mut(&tid).filter(|thread| thread.identity.inode != inode) else { return };
        let now = TaskIdentity { inode, start_ticks: start_ticks(thread.pid, tid) };
        if now.start_ticks == thread.identity.start_ticks {
            thread.identity = now;
        } else if let Some(ended) = self.threads.remove(&tid) {
            self.end(vec![ended]);
        }
    }

    fn begin(&mut self, alive: &[(i32, i32, u64)]) {
        let mut room = MAX_NEW_FILES;
        self.left_out = 0;
        for &(pid, tid, inode) in alive.iter().filter(|(_, tid, _)| !self.threads.contains_key(tid)).collect::<Vec<_>>()
        {
            if (self.threads.len() + 1) * self.events.len() > MAX_FILES {
                self.left_out += 1;
            } else if room >= self.events.len() {
                room -= self.events.len();
                let counters = self.events.iter().map(|(_, id)| counter(*id, tid)).collect();
                let identity = TaskIdentity { inode, start_ticks: start_ticks(pid, tid) };
                self.threads.insert(tid, CountedThread { pid, identity, counters, last: Vec::new() });
            }
        }
    }

    /// Closes the counters of ended threads.
    fn close(&mut self, alive: &[(i32, i32, u64)]) {
        let alive: HashSet<i32> = alive.iter().map(|(_, tid, _)| *tid).collect();
        let gone: Vec<i32> = self.threads.keys().filter(|tid| !alive.contains(tid)).copied().collect();
        let closing = gone.iter().filter_map(|tid| self.threads.remove(tid)).collect();
        self.end(closing);
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

/// The threads of a process with their inodes.
fn tasks(pid: i32) -> Vec<(i32, u64)> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let task = |entry: std::fs::DirEntry| Some((entry.file_name().to_str()?.parse().ok()?, entry.ino()));
    entries.flatten().filter_map(task).take(MAX_THREADS).collect()
}

/// Start of a thread, ticks after boot: field 22 of its `stat`, the 20th behind the name (`proc_pid_stat(5)`).
fn start_ticks(pid: i32, tid: i32) -> Option<u64> {
    let line = std::fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    let line = String::from_utf8_lossy(&line);
    line.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}
