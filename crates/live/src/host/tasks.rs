//! The host's tasks outside of guests, which compete with vCPUs for CPUs.
//!
//! One round through /proc takes about two seconds, a part in each tick. A process that used CPU time is then read
//! thread by thread for as long as it does.

use crate::proc::file;
use crate::proc::paths::SystemPaths;
use crate::proc::stat::{Stat, TICK_NS};
use kvm::sanitize;
use sample::HostTask;
use std::collections::{HashMap, HashSet};

/// Length of a round through /proc.
const ROUND_NS: u64 = 2_000_000_000;
/// A round has at most this many parts.
const MAX_PARTS: u64 = 20;
/// At most this many tasks are kept, the busiest ones.
const MAX_TASKS: usize = 64;
/// At most this many threads of one busy process are read, and of all processes in one part.
const MAX_THREADS: usize = 256;
/// See `MAX_THREADS`.
const MAX_THREADS_PART: usize = 1024;
/// At most this many processes are tracked.
const MAX_PROCESSES: usize = 1 << 17;

/// The last reading of a task.
#[derive(Debug, Clone, Copy)]
struct TaskReading {
    start_ticks: u64,
    used_ticks: u64,
    at_ns: u64,
}

#[derive(Debug)]
struct TrackedProcess {
    last: TaskReading,
    threads: HashMap<i32, TaskReading>,
    found: Vec<HostTask>,
}

/// Reads the tasks of /proc in rounds.
#[derive(Debug)]
pub(crate) struct HostTasks {
    paths: SystemPaths,
    known: HashMap<i32, TrackedProcess>,
    queue: Vec<i32>,
    part: usize,
    last_ns: Option<u64>,
}

impl HostTasks {
    pub(crate) fn new(paths: SystemPaths) -> Self {
        Self { paths, known: HashMap::new(), queue: Vec::new(), part: 0, last_ns: None }
    }

    /// Continues the round through all `processes`. `skip` holds the guests and their kernel threads.
    pub(crate) fn scan(
        &mut self,
        now_ns: u64,
        processes: impl Iterator<Item = i32>,
        skip: &HashSet<i32>,
    ) -> Vec<HostTask> {
        if self.queue.is_empty() {
            self.begin_round(now_ns, processes);
        }
        let mut threads_left = MAX_THREADS_PART;
        let from = self.queue.len().saturating_sub(self.part);
        for pid in self.queue.split_off(from) {
            if skip.contains(&pid) || !self.look(pid, now_ns, &mut threads_left) {
                self.known.remove(&pid);
            }
        }
        self.last_ns = Some(now_ns);
        let mut tasks: Vec<_> = self.known.values().flat_map(|p| p.found.iter().cloned()).collect();
        let share = |t: &HostTask| t.used_ns as f64 / t.over_ns.max(1) as f64;
        tasks.sort_by(|a, b| share(b).total_cmp(&share(a)).then(a.tid.cmp(&b.tid)));
        tasks.truncate(MAX_TASKS);
        tasks
    }

    fn begin_round(&mut self, now_ns: u64, processes: impl Iterator<Item = i32>) {
        // What kvmtop itself costs is shown as its own cost, and is nothing to find about the host.
        let own = std::process::id();
        self.queue.extend(processes.filter(|pid| u32::try_from(*pid) != Ok(own)).take(MAX_PROCESSES));
        self.queue.sort_unstable();
        let queue = &self.queue;
        self.known.retain(|pid, _| queue.binary_search(pid).is_ok());
        let tick = self.last_ns.map_or(ROUND_NS, |l| now_ns.saturating_sub(l).max(1));
        let parts = (ROUND_NS / tick).clamp(1, MAX_PARTS) as usize;
        self.part = self.queue.len().div_ceil(parts);
    }

    /// Reads a process; returns whether it lives.
    fn look(&mut self, pid: i32, now_ns: u64, threads_left: &mut usize) -> bool {
        let Ok(line) = file::read_bytes(&self.paths.process(pid, "stat"), 4096) else { return false };
        let Some(stat) = Stat::parse(&line) else { return false };
        let now = TaskReading::new(&stat, now_ns);
        let process = self.known.entry(pid).or_insert_with(|| TrackedProcess {
            last: now,
            threads: HashMap::new(),
            found: Vec::new(),
        });
        let grown = process.last.until(&now);
        process.last = now;
        process.found.clear();
        let Some(grown) = grown else {
            process.threads.clear();
            return true;
        };
        if stat.threads > 1 {
            process.read_threads(&self.paths, pid, now_ns, threads_left);
        }
        // From their second reading on the threads replace the process.
        if process.found.is_empty() {
            process.found.push(task(pid, pid, &stat, grown));
        }
        true
    }
}

impl TrackedProcess {
    fn read_threads(&mut self, paths: &SystemPaths, pid: i32, now_ns: u64, left: &mut usize) {
        let dir = paths.process(pid, "task");
        let mut tids = Vec::new();
        let Ok(fd) = file::open_dir(&dir) else { return };
        let _ = file::list_numbers(&fd, |tid, _| {
            if tids.len() < MAX_THREADS {
                tids.push(tid);
            }
        });
        let mut threads = HashMap::with_capacity(tids.len());
        for tid in tids {
            if *left == 0 {
                break;
            }
            *left -= 1;
            let Ok(line) = file::read_bytes(&dir.join(tid.to_string()).join("stat"), 4096) else { continue };
            let Some(stat) = Stat::parse(&line) else { continue };
            let now = TaskReading::new(&stat, now_ns);
            if let Some(grown) = self.threads.get(&tid).and_then(|old| old.until(&now)) {
                self.found.push(task(tid, pid, &stat, grown));
            }
            threads.insert(tid, now);
        }
        self.threads = threads;
    }
}

impl TaskReading {
    fn new(stat: &Stat<'_>, at_ns: u64) -> Self {
        Self { start_ticks: stat.start_ticks, used_ticks: stat.user_ticks.saturating_add(stat.system_ticks), at_ns }
    }

    /// CPU time used from this reading to `now` and the time between them; `None` for none, or for another task with
    /// the same id.
    fn until(&self, now: &Self) -> Option<(u64, u64)> {
        let used =
            now.used_ticks.checked_sub(self.used_ticks).filter(|t| *t > 0 && now.start_ticks == self.start_ticks)?;
        Some((used.saturating_mul(TICK_NS), now.at_ns.saturating_sub(self.at_ns)))
    }
}

fn task(tid: i32, pid: i32, stat: &Stat<'_>, (used_ns, over_ns): (u64, u64)) -> HostTask {
    HostTask {
        tid,
        pid,
        comm: sanitize(&String::from_utf8_lossy(stat.comm), 64),
        kernel: stat.kernel,
        used_ns,
        over_ns,
        last_cpu: stat.cpu.unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;

    const S: u64 = 1_000_000_000;

    #[test]
    fn busy_tasks_then_their_threads() {
        let fake = FakeProc::new();
        let hog = fake.process(10, "hog").field(39, "1").field(20, "2");
        let worker = hog.thread(11, "hog-worker");
        let kworker = fake.process(12, "kworker/1:0").kernel();
        fake.process(13, "idle");
        fake.process(14, "qemu").ticks(0, 0, 0);
        let mut tasks = HostTasks::new(fake.paths());
        let skip = HashSet::from([14]);
        assert!(tasks.scan(0, 10..15, &skip).is_empty());
        let (hog, worker) = (hog.ticks(100, 0, 0), worker.ticks(100, 0, 0));
        kworker.ticks(0, 50, 0);
        fake.process(14, "qemu").ticks(900, 0, 0);
        let seen = tasks.scan(2 * S, 10..15, &skip);
        assert_eq!(
            seen.iter().map(|t| (t.tid, t.used_ns, t.over_ns)).collect::<Vec<_>>(),
            [(10, S, 2 * S), (12, S / 2, 2 * S)]
        );
        assert!(seen[1].kernel && seen[0].last_cpu == 1);
        // The fake process's own line is its main thread's.
        hog.ticks(200, 0, 0);
        worker.ticks(200, 0, 0);
        let seen = tasks.scan(4 * S, 10..15, &skip);
        assert_eq!(
            seen.iter().map(|t| (t.tid, t.pid, t.comm.as_str())).collect::<Vec<_>>(),
            [(10, 10, "hog"), (11, 10, "hog-worker")]
        );
        fake.end(10);
        assert!(tasks.scan(6 * S, 11..15, &skip).is_empty());
    }

    #[test]
    fn a_round_is_cut_into_parts() {
        let fake = FakeProc::new();
        for pid in 1..=40 {
            fake.process(pid, "x").ticks(1, 0, 0);
        }
        let mut tasks = HostTasks::new(fake.paths());
        let none = HashSet::new();
        tasks.scan(0, 1..41, &none);
        tasks.scan(S / 2, 1..41, &none);
        assert_eq!(tasks.queue.len(), 30, "four parts of half a second");
        for i in 2..5 {
            tasks.scan(i * S / 2, 1..41, &none);
        }
        assert_eq!(tasks.known.len(), 40);
    }

    #[test]
    fn a_reused_id_is_no_growth() {
        let fake = FakeProc::new();
        fake.process(10, "a").ticks(5, 0, 0);
        let mut tasks = HostTasks::new(fake.paths());
        tasks.scan(0, [10].into_iter(), &HashSet::new());
        fake.process(10, "b").ticks(50, 0, 0).start(500);
        assert!(tasks.scan(2 * S, [10].into_iter(), &HashSet::new()).is_empty());
    }
}
