//! The threads of a process.
//!
//! If the CPU clock of a process did not move, none of its threads ran, and none is read.

use super::file::{self, FileError};
use super::read_context::ReadContext;
use super::thread::LiveThread;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

/// At most this many threads of one process are read.
const MAX_THREADS: usize = 16_384;
/// The threads are listed at least every 10 to 20 ticks, even without a sign of a change.
const RELIST_TICKS: u32 = 10;

/// The CPU time of a process with all of its threads, ended ones too, nanoseconds: the sum of their
/// `schedstat` times (`thread_group_cputime` in kernel/sched/cputime.c) for one system call.
#[allow(unsafe_code, reason = "rustix has no clock_getcpuclockid")]
fn clock_of(pid: i32) -> Option<u64> {
    let mut id = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both calls write one value each, into variables of the right type that are valid for
    // writes.
    let failed = unsafe {
        libc::clock_getcpuclockid(pid, &raw mut id) != 0
            || libc::clock_gettime(id, &raw mut time) != 0
    };
    if failed {
        return None;
    }
    Some(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

/// The threads of one process.
#[derive(Debug)]
pub(crate) struct Threads {
    /// Process id.
    pub pid: i32,
    /// By thread id.
    pub living: BTreeMap<i32, LiveThread>,
    /// Threads that the last reading found gone.
    pub gone: Vec<LiveThread>,
    /// The folder /proc/PID/task.
    task: OwnedFd,
    /// See [`clock_of`]: as last read.
    clock: Option<u64>,
    /// The links of the folder as last read.
    links: i64,
    /// The tick in which the folder was last listed.
    listed_tick: u32,
    /// Why the threads could not be read just now; that does not end them.
    pub failure: Option<FileError>,
}

/// Removes the entries that `fits` accepts from a map and returns them.
pub(crate) fn take_where<K: Ord + Copy, V>(
    map: &mut BTreeMap<K, V>,
    mut fits: impl FnMut(&K, &mut V) -> bool,
) -> Vec<V> {
    let keys: Vec<K> = map
        .iter_mut()
        .filter_map(|(k, v)| if fits(k, v) { Some(*k) } else { None })
        .collect();
    keys.iter().filter_map(|k| map.remove(k)).collect()
}

/// Whether a process or a thread still lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// It lives.
    Alive,
    /// It has ended; a zombie that waits to be reaped has ended, too.
    Ended,
}

impl Threads {
    /// Opens a process and reads its threads.
    pub fn open(pid: i32, reader: &mut ReadContext) -> Result<Self, FileError> {
        let task = file::open_dir(&reader.paths.process(pid, "task"))?;
        let mut threads = Self {
            pid,
            living: BTreeMap::new(),
            gone: Vec::new(),
            task,
            clock: None,
            links: 0,
            listed_tick: 0,
            failure: None,
        };
        match (threads.read(reader), threads.failure) {
            (Liveness::Alive, Some(why)) if threads.living.is_empty() => Err(why),
            (Liveness::Alive, _) => Ok(threads),
            (Liveness::Ended, _) => Err(FileError::Gone),
        }
    }

    /// Start of the process, ticks after boot.
    pub fn start_ticks(&self) -> u64 {
        self.living.get(&self.pid).map_or(0, |t| t.start_ticks)
    }

    /// Reads all threads, including new ones; moves ended ones to `gone`.
    pub fn read(&mut self, reader: &mut ReadContext) -> Liveness {
        self.gone.clear();
        let count_before = self.living.len();
        let task = self.task.as_fd();
        // Spread by PID, so that not all processes are listed in the same tick.
        let listing_is_due = reader.tick.wrapping_sub(self.listed_tick)
            >= RELIST_TICKS + self.pid.unsigned_abs() % RELIST_TICKS;
        // The clock is read before the threads: what runs meanwhile then shows at the next reading.
        let clock = if reader.paths.real {
            clock_of(self.pid)
        } else {
            None
        };
        let stood_still =
            clock.is_some() && clock == self.clock && !self.living.values().any(LiveThread::runs);
        self.clock = clock;
        if stood_still && !listing_is_due {
            for thread in self.living.values_mut() {
                thread.read_affinity(false, reader);
            }
            return Liveness::Alive;
        }
        self.gone.extend(take_where(&mut self.living, |_, t| {
            t.read(task, reader) == Err(FileError::Gone)
        }));
        // The folder has a link for each thread (fs/proc/base.c, `proc_task_getattr`), so one
        // system call shows whether there are new threads. If a new thread replaced an ended one,
        // the number of links is the same, but the number of known threads has fallen.
        let links =
            rustix::fs::fstat(&self.task).map_or(0, |s| i64::try_from(s.st_nlink).unwrap_or(0));
        let links_changed = links != self.links || links < 2;
        let threads_changed = self.living.len() != count_before || count_before == 0;
        if links_changed || threads_changed || listing_is_due {
            self.links = links;
            self.listed_tick = reader.tick;
            self.failure = None;
            match self.list(reader) {
                Ok(()) => {}
                Err(FileError::Gone) => self
                    .gone
                    .extend(std::mem::take(&mut self.living).into_values()),
                Err(why) => self.failure = Some(why),
            }
        }
        match self.living.get(&self.pid) {
            None if self.failure.is_some() => Liveness::Alive,
            None => Liveness::Ended,
            // The leader may end before the other threads. When it is the last thread, the process
            // has ended and waits to be reaped.
            Some(leader) if matches!(leader.state, b'Z' | b'X') && self.living.len() == 1 => {
                Liveness::Ended
            }
            Some(_) => Liveness::Alive,
        }
    }

    /// Whether a signal or a debugger stopped the process (fs/proc/array.c, `task_state_array`).
    pub fn is_stopped(&self) -> bool {
        self.living
            .get(&self.pid)
            .is_some_and(|leader| matches!(leader.state, b'T' | b't'))
    }

    /// Adds a thread that another source named, unless it has ended.
    pub fn look_for(&mut self, tid: i32, reader: &mut ReadContext) -> Liveness {
        if self.living.contains_key(&tid) {
            return Liveness::Alive;
        }
        match LiveThread::open(self.task.as_fd(), tid, reader) {
            Ok(t) => {
                self.living.insert(tid, t);
            }
            Err(FileError::Gone) => return Liveness::Ended,
            Err(why) => self.failure = Some(why),
        }
        Liveness::Alive
    }

    /// Lists the folder: adds new threads, and moves threads that the folder lacks to `gone`.
    fn list(&mut self, reader: &mut ReadContext) -> Result<(), FileError> {
        let mut tids = Vec::with_capacity(self.living.len() + 8);
        file::list_numbers(&self.task, |tid, _| tids.push(tid))?;
        tids.sort_unstable();
        tids.truncate(MAX_THREADS);
        self.gone.extend(take_where(&mut self.living, |tid, _| {
            tids.binary_search(tid).is_err()
        }));
        for tid in tids {
            self.look_for(tid, reader);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::paths::SystemPaths;
    use crate::tests::fake_proc::FakeProc;

    fn reader(fake: &FakeProc) -> ReadContext {
        let mut r = ReadContext::new(&fake.paths());
        r.begin(0, 100);
        r
    }

    #[test]
    fn times_places_and_switches() {
        let fake = FakeProc::new();
        let p = fake.process(10, "qemu");
        let t = p
            .thread(11, "CPU 0/KVM")
            .ticks(300, 20, 250)
            .field(39, "3")
            .field(40, "5")
            .field(41, "1")
            .file(
                "sched",
                "se.nr_migrations : 4\nnr_voluntary_switches : 9\nnr_involuntary_switches : 2\n",
            );
        t.schedstat(3_200_000_001, 77, 12);
        let mut r = reader(&fake);
        let threads = Threads::open(10, &mut r).unwrap();
        let vcpu = &threads.living[&11];
        let times = vcpu.times.unwrap();
        assert_eq!(
            (times.user_ns, times.system_ns, times.guest_ns),
            (3_000_000_000, 200_000_000, 2_500_000_000)
        );
        assert_eq!(
            (times.run_ns, times.wait_ns),
            (Some(3_200_000_001), Some(77))
        );
        assert_eq!(
            (times.voluntary, times.involuntary, vcpu.migrations),
            (Some(9), Some(2), Some(4))
        );
        assert_eq!((vcpu.place.cpu, vcpu.place.policy), (Some(3), Some(1)));
        assert_eq!(
            threads.living[&10].times.unwrap().voluntary,
            None,
            "a file that is not there is no zero"
        );
    }

    #[test]
    fn a_thread_that_did_not_run_is_not_read_again() {
        let fake = FakeProc::new();
        let p = fake.process(10, "qemu").ticks(1, 0, 0);
        p.schedstat(10_000_000, 0, 1);
        let mut r = reader(&fake);
        let mut threads = Threads::open(10, &mut r).unwrap();
        let p = p.ticks(2, 0, 0);
        r.begin(0, 100);
        threads.read(&mut r);
        assert_eq!(threads.living[&10].times.unwrap().user_ns, 10_000_000);
        p.schedstat(20_000_000, 0, 2);
        r.begin(0, 0);
        threads.read(&mut r);
        assert_eq!(threads.living[&10].times.unwrap().user_ns, 20_000_000);
        assert_eq!(threads.living[&10].migrations, None, "beyond the budget");
        // A running thread is read in each tick.
        p.ticks(3, 0, 0).state('R').schedstat(30_000_000, 0, 3);
        threads.read(&mut r);
        fake.process(10, "qemu").ticks(4, 0, 0);
        threads.read(&mut r);
        assert_eq!(threads.living[&10].times.unwrap().user_ns, 40_000_000);
    }

    #[test]
    fn a_process_that_sleeps_is_not_read_until_it_runs() {
        use std::io::Write as _;
        let mut command = std::process::Command::new("sh");
        command.args([
            "-c",
            "read x; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; read x",
        ]);
        let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id().cast_signed();
        let settled = || {
            while std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .unwrap()
                .split(' ')
                .nth(2)
                != Some("S")
            {
                std::thread::yield_now();
            }
        };
        settled();
        let mut r = ReadContext::new(&SystemPaths::default());
        r.begin(0, 100);
        let mut threads = Threads::open(pid, &mut r).unwrap();
        let asleep = threads.living[&pid].times.unwrap();
        // It shows the last reading.
        threads
            .living
            .get_mut(&pid)
            .unwrap()
            .times
            .as_mut()
            .unwrap()
            .wait_ns = Some(u64::MAX);
        r.begin(0, 100);
        assert_eq!(threads.read(&mut r), Liveness::Alive);
        assert_eq!(threads.living[&pid].times.unwrap().wait_ns, Some(u64::MAX));
        child.stdin.as_ref().unwrap().write_all(b"go\n").unwrap();
        while clock_of(pid) == threads.clock {
            std::thread::yield_now();
        }
        settled();
        r.begin(0, 100);
        assert_eq!(threads.read(&mut r), Liveness::Alive);
        let ran = threads.living[&pid].times.unwrap();
        assert!(
            ran.run_ns > asleep.run_ns && ran.wait_ns < Some(u64::MAX),
            "{asleep:?} {ran:?}"
        );
        assert_eq!(ran.run_ns, clock_of(pid), "a process of one thread");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(clock_of(pid), None);
        assert_eq!(threads.read(&mut r), Liveness::Ended);
    }

    #[test]
    fn threads_come_and_go() {
        let fake = FakeProc::new();
        let p = fake.process(10, "qemu");
        p.thread(11, "worker");
        let mut r = reader(&fake);
        let mut threads = Threads::open(10, &mut r).unwrap();
        p.thread(12, "worker");
        fake.end_thread(10, 11);
        for _ in 0..=2 * RELIST_TICKS {
            r.begin(0, 100);
            assert_eq!(threads.read(&mut r), Liveness::Alive);
        }
        assert_eq!(threads.living.keys().copied().collect::<Vec<_>>(), [10, 12]);
        fake.end(10);
        for _ in 0..=2 * RELIST_TICKS {
            r.begin(0, 100);
            threads.read(&mut r);
        }
        assert_eq!(threads.read(&mut r), Liveness::Ended);
    }

    #[test]
    fn a_zombie_has_ended_but_a_dead_leader_with_threads_has_not() {
        let fake = FakeProc::new();
        let p = fake.process(10, "qemu").state('Z');
        let mut r = reader(&fake);
        assert_eq!(
            Threads::open(10, &mut r).map(|t| t.pid),
            Err(FileError::Gone)
        );
        p.thread(11, "CPU 0/KVM");
        assert!(Threads::open(10, &mut r).is_ok());
    }

    #[test]
    fn hostile_names_are_made_harmless() {
        let fake = FakeProc::new();
        fake.process(10, "a) R\n\u{1b}[31m(b");
        let mut r = reader(&fake);
        let threads = Threads::open(10, &mut r).unwrap();
        assert_eq!(threads.living[&10].comm, "a) R (b");
    }

    #[test]
    fn without_schedstat_there_is_no_wait() {
        let fake = FakeProc::new();
        fake.process(10, "qemu").ticks(5, 5, 0);
        std::fs::remove_file(fake.paths().proc.join("10/task/10/schedstat")).unwrap();
        let mut r = reader(&fake);
        let threads = Threads::open(10, &mut r).unwrap();
        let times = threads.living[&10].times.unwrap();
        assert_eq!(
            (times.user_ns, times.run_ns, times.wait_ns),
            (50_000_000, None, None)
        );
    }
}
