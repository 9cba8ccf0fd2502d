//! The host's tasks outside of guests, which compete with vCPUs for CPUs.
//!
//! All processes are read about every two seconds and grouped by name. A process that used CPU time
//! is then read thread by thread for as long as it does.

use crate::proc::file;
use crate::proc::paths::SystemPaths;
use crate::proc::stat::{Stat, TICK_NS};
use kvm::sanitize;
use sample::{HostTask, HostTaskGroup, MAX_TASK_GROUPS};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// Time between two readings.
const PERIOD_NS: u64 = 1_900_000_000;
/// Time between the first two readings: the first interval of a second already has names.
const FIRST_PERIOD_NS: u64 = 450_000_000;
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
    started_ns: Option<u64>,
    used_ns: u64,
}

/// A process, or a thread of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct TaskKey {
    pid: i32,
    /// `None`: the whole process.
    tid: Option<i32>,
}

/// A reading of all processes.
struct Scan {
    /// What the scan before read.
    before: HashMap<TaskKey, TaskReading>,
    /// Time since the scan before; 0 for the first one.
    over_ns: u64,
    /// When the youngest process of the scan before was started. A process that was not listed then
    /// and is not older is new.
    youngest_ns: Option<u64>,
    /// How many threads may still be read, of all processes together.
    threads_left: usize,
    /// The processes that used CPU time since the scan before.
    busy: Vec<HostTask>,
}

/// Reads the tasks of /proc.
#[derive(Debug, Default)]
pub(crate) struct HostTasks {
    paths: SystemPaths,
    /// The last reading of each process, and of each thread of a busy process.
    known: HashMap<TaskKey, TaskReading>,
    /// The busiest tasks: processes, or threads in place of their process.
    tasks: Vec<HostTask>,
    /// All processes that used CPU time; `None` before the second reading.
    busy: Option<Vec<HostTask>>,
    scanned_ns: Option<u64>,
    due_ns: u64,
}

impl HostTasks {
    pub fn new(paths: SystemPaths) -> Self {
        Self {
            paths,
            ..Self::default()
        }
    }

    /// The busy tasks and groups among all `processes`, as last read. `skip` holds the guests and
    /// their kernel threads, also those that have become guests since.
    pub fn scan(
        &mut self,
        now_ns: u64,
        processes: impl Iterator<Item = i32>,
        skip: &HashSet<i32>,
    ) -> (Vec<HostTask>, Option<Vec<HostTaskGroup>>) {
        if now_ns >= self.due_ns {
            let over_ns = self.scanned_ns.map(|before| now_ns.saturating_sub(before));
            self.scanned_ns = Some(now_ns);
            self.due_ns = now_ns
                + if over_ns.is_some() {
                    PERIOD_NS
                } else {
                    FIRST_PERIOD_NS
                };
            let before = std::mem::take(&mut self.known);
            let processes_before = before.iter().filter(|(key, _)| key.tid.is_none());
            let mut scan = Scan {
                youngest_ns: processes_before
                    .filter_map(|(_, reading)| reading.started_ns)
                    .max(),
                before,
                over_ns: over_ns.unwrap_or(0),
                threads_left: MAX_ALL_THREADS,
                busy: Vec::new(),
            };
            self.tasks.clear();
            for pid in processes.take(MAX_PROCESSES) {
                self.read_process(pid, skip, &mut scan);
            }
            self.tasks.sort_by_key(|t| (Reverse(t.used_ns), t.tid));
            self.tasks.truncate(MAX_TASKS);
            self.busy = over_ns.map(|_| scan.busy);
        }
        let unskipped = self.tasks.iter().filter(|task| !skip.contains(&task.pid));
        let tasks = unskipped.cloned().collect();
        let busy = self.busy.as_ref();
        let groups = busy.map(|busy| groups(busy.iter().filter(|task| !skip.contains(&task.pid))));
        (tasks, groups)
    }

    fn read_process(&mut self, pid: i32, skip: &HashSet<i32>, scan: &mut Scan) {
        let stat = self.paths.process(pid, "stat");
        let Some((process, thread_count)) = read_task(&stat, pid, pid) else {
            return;
        };
        let before = self.remember(&process, None, scan);
        let is_new = scan.youngest_ns.is_some() && process.started_ns >= scan.youngest_ns;
        let at_birth = TaskReading {
            started_ns: process.started_ns,
            used_ns: 0,
        };
        let grows_from = if before.is_none() && is_new {
            Some(at_birth)
        } else {
            before
        };
        // Guests are read too: a process that is no guest any more then has an earlier reading.
        if skip.contains(&pid) {
            return;
        }
        let Some(task) = grows_from.and_then(|reading| grown(process, reading, scan.over_ns))
        else {
            return;
        };
        scan.busy.push(task.clone());
        // kvmtop itself belongs to the groups, which show the host's load, but not to the tasks,
        // which show what disturbs guests.
        if pid == std::process::id().cast_signed() {
            return;
        }
        let count_before = self.tasks.len();
        if before.is_some() && thread_count > 1 {
            self.read_threads(&task, scan);
        }
        // Threads that were read twice stand in place of their process.
        if self.tasks.len() == count_before {
            self.tasks.push(task);
        }
    }

    fn read_threads(&mut self, process: &HostTask, scan: &mut Scan) {
        let pid = process.pid;
        let dir = self.paths.process(pid, "task");
        let mut tids = file::numbers_in(&dir);
        tids.truncate(MAX_THREADS.min(scan.threads_left));
        scan.threads_left -= tids.len();
        for tid in tids {
            let path = dir.join(tid.to_string()).join("stat");
            let Some((thread, _)) = read_task(&path, tid, pid) else {
                continue;
            };
            let before = self.remember(&thread, Some(tid), scan);
            let Some(mut task) = before.and_then(|before| grown(thread, before, scan.over_ns))
            else {
                continue;
            };
            if task.comm != process.comm {
                task.process.clone_from(&process.comm);
            }
            task.started_ns = process.started_ns;
            self.tasks.push(task);
        }
    }

    /// Keeps a reading of a process, or of its thread `tid`; returns the reading of the scan
    /// before.
    fn remember(&mut self, task: &HostTask, tid: Option<i32>, scan: &Scan) -> Option<TaskReading> {
        let key = TaskKey { pid: task.pid, tid };
        let reading = TaskReading {
            started_ns: task.started_ns,
            used_ns: task.used_ns,
        };
        self.known.insert(key, reading);
        scan.before.get(&key).copied()
    }
}

/// The processes by name, the busiest first. Kernel threads have a CPU or a job after a slash:
/// `kworker/3:1-events`.
fn groups<'a>(processes: impl Iterator<Item = &'a HostTask>) -> Vec<HostTaskGroup> {
    let mut by_name: BTreeMap<&str, HostTaskGroup> = BTreeMap::new();
    for task in processes {
        let mut comm = task.comm.as_str();
        if let Some((name, _)) = comm.split_once('/')
            && task.kernel
        {
            comm = name;
        }
        let group = by_name.entry(comm).or_default();
        comm.clone_into(&mut group.comm);
        group.over_ns = task.over_ns;
        group.used_ns = group.used_ns.saturating_add(task.used_ns);
        group.count += 1;
    }
    let mut groups: Vec<HostTaskGroup> = by_name.into_values().collect();
    // The sort is stable: groups with equal times stay in order of name.
    groups.sort_by_key(|group| Reverse(group.used_ns));
    groups.truncate(MAX_TASK_GROUPS);
    groups
}

/// The task with what it used since an earlier reading; `None` for nothing, or for another task
/// with the same id.
fn grown(mut task: HostTask, before: TaskReading, over_ns: u64) -> Option<HostTask> {
    task.used_ns = task.used_ns.checked_sub(before.used_ns)?;
    task.over_ns = over_ns;
    let is_same = task.started_ns == before.started_ns;
    if is_same && task.used_ns > 0 {
        Some(task)
    } else {
        None
    }
}

/// Reads a task with all that it has used, and how many threads its process has.
fn read_task(stat: &Path, tid: i32, pid: i32) -> Option<(HostTask, u64)> {
    let line = file::read_bytes(stat, 4096).ok()?;
    let stat = Stat::parse(&line)?;
    let used_ticks = stat.user_ticks.saturating_add(stat.system_ticks);
    let task = HostTask {
        tid,
        pid,
        comm: sanitize(&String::from_utf8_lossy(stat.comm), 64),
        process: String::new(),
        kernel: stat.kernel,
        used_ns: used_ticks.saturating_mul(TICK_NS),
        over_ns: 0,
        last_cpu: stat.cpu.unwrap_or(0),
        started_ns: Some(stat.start_ticks.saturating_mul(TICK_NS)),
    };
    Some((task, stat.threads))
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
        assert_eq!(tasks.scan(0, 10..15, &skip), (vec![], None));
        let (hog, worker) = (hog.ticks(100, 0, 0), worker.ticks(100, 0, 0));
        kworker.ticks(0, 50, 0);
        fake.process(14, "qemu").ticks(900, 0, 0);
        let (seen, groups) = tasks.scan(2 * S, 10..15, &skip);
        assert_eq!(
            seen.iter()
                .map(|t| (t.tid, t.used_ns, t.over_ns))
                .collect::<Vec<_>>(),
            [(10, S, 2 * S), (12, S / 2, 2 * S)]
        );
        assert!(seen[1].kernel && seen[0].last_cpu == 1);
        assert_eq!(
            groups,
            Some(vec![group("hog", S, 1), group("kworker", S / 2, 1)])
        );
        // The fake process's own line is its main thread's.
        hog.ticks(200, 0, 0);
        worker.ticks(200, 0, 0);
        let (seen, groups) = tasks.scan(4 * S, 10..15, &skip);
        assert_eq!(
            seen.iter()
                .map(|t| (t.tid, t.pid, t.comm.as_str()))
                .collect::<Vec<_>>(),
            [(10, 10, "hog"), (11, 10, "hog-worker")]
        );
        assert_eq!(
            seen.iter().map(|t| t.process.as_str()).collect::<Vec<_>>(),
            ["", "hog"]
        );
        assert_eq!(
            groups,
            Some(vec![group("hog", S, 1)]),
            "a process has the time of all its threads"
        );
        fake.end(10);
        assert_eq!(
            tasks.scan(6 * S, 11..15, &skip),
            (vec![], Some(vec![])),
            "measured, and nothing was busy"
        );
    }

    fn group(comm: &str, used_ns: u64, count: u64) -> HostTaskGroup {
        HostTaskGroup {
            comm: comm.into(),
            used_ns,
            over_ns: 2 * S,
            count,
        }
    }

    #[test]
    fn groups_have_all_processes_and_not_the_busiest_ones_only() {
        let fake = FakeProc::new();
        let own = std::process::id().cast_signed();
        let many = own + 1..own + 201;
        let all = || many.clone().chain([10, own]);
        let use_ticks = |small, big, mine| {
            for pid in many.clone() {
                fake.process(pid, "cc1").ticks(small, 0, 0);
            }
            fake.process(10, "a) \x1b[31mb\u{202e} c\n")
                .ticks(0, big, 0);
            fake.process(own, "kvmtop").ticks(mine, 0, 0);
        };
        use_ticks(7, 7, 7);
        let mut tasks = HostTasks::new(fake.paths());
        tasks.scan(0, all(), &HashSet::new());
        use_ticks(8, 107, 10);
        let (seen, groups) = tasks.scan(2 * S, all(), &HashSet::new());
        let strange = kvm::sanitize("a) \x1b[31mb\u{202e} c\n", 64);
        assert!(strange.starts_with("a) b") && !strange.contains('\n'));
        let wanted = [
            group("cc1", 2 * S, 200),
            group(&strange, S, 1),
            group("kvmtop", 30_000_000, 1),
        ];
        assert_eq!(
            groups.as_deref(),
            Some(&wanted[..]),
            "kvmtop uses CPU time as others do"
        );
        assert_eq!((seen.len(), seen[0].pid), (MAX_TASKS, 10));
        assert!(
            seen.iter().all(|task| task.pid != own),
            "and is nothing to find"
        );
    }

    #[test]
    fn a_process_that_began_after_the_last_scan_counts_whole() {
        let fake = FakeProc::new();
        fake.process(10, "old").start(500);
        fake.process(11, "guest").start(700).ticks(9000, 0, 0);
        let mut tasks = HostTasks::new(fake.paths());
        tasks.scan(0, 10..12, &HashSet::from([11]));
        // Not listed before, but older than a process that was.
        fake.process(12, "hidden").start(600).ticks(9000, 0, 0);
        fake.process(13, "rustc").start(700).ticks(50, 0, 0);
        fake.process(11, "guest").ticks(9001, 0, 0);
        let (seen, groups) = tasks.scan(2 * S, 10..14, &HashSet::new());
        assert_eq!(
            groups,
            Some(vec![
                group("rustc", S / 2, 1),
                group("guest", 10_000_000, 1)
            ])
        );
        assert_eq!(
            seen.iter().map(|task| task.pid).collect::<Vec<_>>(),
            [13, 11]
        );
    }

    #[test]
    fn tasks_are_read_every_two_seconds_and_sooner_at_first() {
        let fake = FakeProc::new();
        fake.process(10, "x").ticks(1, 0, 0);
        let mut tasks = HostTasks::new(fake.paths());
        let mut scan = |at_ns| tasks.scan(at_ns, [10].into_iter(), &HashSet::new()).0.len();
        assert_eq!(scan(0), 0);
        fake.process(10, "x").ticks(5, 0, 0);
        assert_eq!(
            [S / 10, S, 2 * S, 3 * S, 4 * S].map(&mut scan),
            [0, 1, 1, 0, 0]
        );
    }

    #[test]
    fn a_process_that_becomes_a_guest_is_a_task_no_longer() {
        let fake = FakeProc::new();
        fake.process(10, "old").start(500);
        let mut tasks = HostTasks::new(fake.paths());
        tasks.scan(0, [10].into_iter(), &HashSet::new());
        fake.process(11, "qemu").start(700).ticks(50, 0, 0);
        let (seen, groups) = tasks.scan(2 * S, 10..12, &HashSet::new());
        assert_eq!(
            (seen.len(), groups),
            (1, Some(vec![group("qemu", S / 2, 1)]))
        );
        // Nothing is read again for another second.
        assert_eq!(
            tasks.scan(3 * S, 10..12, &HashSet::from([11])),
            (vec![], Some(vec![]))
        );
    }

    #[test]
    fn a_reused_id_is_no_growth() {
        let fake = FakeProc::new();
        fake.process(10, "a").ticks(5, 0, 0);
        let mut tasks = HostTasks::new(fake.paths());
        tasks.scan(0, [10].into_iter(), &HashSet::new());
        fake.process(10, "b").ticks(50, 0, 0).start(500);
        assert_eq!(
            tasks.scan(2 * S, [10].into_iter(), &HashSet::new()),
            (vec![], Some(vec![]))
        );
    }
}
