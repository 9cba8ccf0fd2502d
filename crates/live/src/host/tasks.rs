//! The host's tasks outside of guests, which compete with vCPUs for CPUs.
//!
//! All processes are read about every two seconds; one that used CPU time is then read thread by thread for as long as
//! it does.

use crate::proc::file;
use crate::proc::paths::SystemPaths;
use crate::proc::stat::{Stat, TICK_NS};
use kvm::sanitize;
use sample::HostTask;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Time between two readings.
const PERIOD_NS: u64 = 1_900_000_000;
/// At most this many tasks are kept, the busiest ones.
const MAX_TASKS: usize = 64;
/// At most this many threads of one busy process are read, and of all processes together.
const MAX_THREADS: usize = 256;
/// See `MAX_THREADS`.
const MAX_ALL_THREADS: usize = 2048;
/// At most this many processes are tracked.
const MAX_PROCESSES: usize = 1 << 17;

/// What a task had used at a reading.
#[derive(Debug, Clone, Copy)]
struct TaskReading {
    start_ticks: u64,
    used_ticks: u64,
    at_ns: u64,
}

/// The last reading of a process, and of its threads if it was busy.
#[derive(Debug)]
struct TrackedProcess {
    last: TaskReading,
    threads: HashMap<i32, TaskReading>,
}

/// Reads the tasks of /proc.
#[derive(Debug)]
pub(crate) struct HostTasks {
    paths: SystemPaths,
    known: HashMap<i32, TrackedProcess>,
    tasks: Vec<HostTask>,
    due_ns: u64,
}

impl HostTasks {
    pub(crate) fn new(paths: SystemPaths) -> Self {
        Self { paths, known: HashMap::new(), tasks: Vec::new(), due_ns: 0 }
    }

    /// The busy tasks among all `processes`, as last read. `skip` holds the guests and their kernel threads.
    pub(crate) fn scan(
        &mut self,
        now_ns: u64,
        processes: impl Iterator<Item = i32>,
        skip: &HashSet<i32>,
    ) -> Vec<HostTask> {
        if now_ns >= self.due_ns {
            self.due_ns = now_ns + PERIOD_NS;
            // What kvmtop itself costs is shown as its own cost, and is nothing to find about the host.
            let own = std::process::id().cast_signed();
            let mut before = std::mem::take(&mut self.known);
            self.tasks.clear();
            let mut threads_left = MAX_ALL_THREADS;
            for pid in processes.filter(|pid| *pid != own && !skip.contains(pid)).take(MAX_PROCESSES) {
                self.look(pid, before.remove(&pid), now_ns, &mut threads_left);
            }
            let share = |t: &HostTask| t.used_ns as f64 / t.over_ns.max(1) as f64;
            self.tasks.sort_by(|a, b| share(b).total_cmp(&share(a)).then(a.tid.cmp(&b.tid)));
            self.tasks.truncate(MAX_TASKS);
        }
        self.tasks.clone()
    }

    fn look(&mut self, pid: i32, before: Option<TrackedProcess>, now_ns: u64, threads_left: &mut usize) {
        let Some((now, task, threads)) = read(&self.paths.process(pid, "stat"), (pid, pid), now_ns) else { return };
        let mut process = TrackedProcess { last: now, threads: HashMap::new() };
        if let Some(before) = before
            && let Some(task) = now.since(&before.last, task)
        {
            let found = self.tasks.len();
            if threads > 1 {
                process.threads = self.read_threads(pid, &before.threads, now_ns, threads_left);
            }
            // From their second reading on the threads replace the process.
            if self.tasks.len() == found {
                self.tasks.push(task);
            }
        }
        self.known.insert(pid, process);
    }

    fn read_threads(
        &mut self,
        pid: i32,
        before: &HashMap<i32, TaskReading>,
        now_ns: u64,
        left: &mut usize,
    ) -> HashMap<i32, TaskReading> {
        let dir = self.paths.process(pid, "task");
        let mut tids = file::numbers_in(&dir);
        tids.truncate(MAX_THREADS.min(*left));
        *left -= tids.len();
        let mut threads = HashMap::with_capacity(tids.len());
        for tid in tids {
            let path = dir.join(tid.to_string()).join("stat");
            let Some((now, task, _)) = read(&path, (tid, pid), now_ns) else { continue };
            self.tasks.extend(before.get(&tid).and_then(|before| now.since(before, task)));
            threads.insert(tid, now);
        }
        threads
    }
}

impl TaskReading {
    /// The task with what it used since an earlier reading; `None` for nothing, or for another task with the same id.
    fn since(&self, before: &Self, task: HostTask) -> Option<HostTask> {
        let used = self.used_ticks.checked_sub(before.used_ticks);
        let used = used.filter(|ticks| *ticks > 0 && self.start_ticks == before.start_ticks)?;
        let over_ns = self.at_ns.saturating_sub(before.at_ns);
        Some(HostTask { used_ns: used.saturating_mul(TICK_NS), over_ns, ..task })
    }
}

/// Reads a task: what it used, how it is shown, and how many threads its process has.
fn read(stat: &Path, (tid, pid): (i32, i32), at_ns: u64) -> Option<(TaskReading, HostTask, u64)> {
    let line = file::read_bytes(stat, 4096).ok()?;
    let stat = Stat::parse(&line)?;
    let used_ticks = stat.user_ticks.saturating_add(stat.system_ticks);
    let task = HostTask {
        tid,
        pid,
        comm: sanitize(&String::from_utf8_lossy(stat.comm), 64),
        kernel: stat.kernel,
        used_ns: 0,
        over_ns: 0,
        last_cpu: stat.cpu.unwrap_or(0),
    };
    Some((TaskReading { start_ticks: stat.start_ticks, used_ticks, at_ns }, task, stat.threads))
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
    fn tasks_are_read_every_two_seconds() {
        let fake = FakeProc::new();
        fake.process(10, "x").ticks(1, 0, 0);
        let mut tasks = HostTasks::new(fake.paths());
        let mut scan = |at_ns| tasks.scan(at_ns, [10].into_iter(), &HashSet::new()).len();
        assert_eq!(scan(0), 0);
        fake.process(10, "x").ticks(5, 0, 0);
        assert_eq!([S, 2 * S, 3 * S, 4 * S].map(&mut scan), [0, 1, 1, 0]);
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
