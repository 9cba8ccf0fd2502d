//! One thread of a process: CPU time, waiting, placement, switches, read through files kept open.
//!
//! `schedstat` is read first, as it costs a quarter of `stat`: a thread that got no CPU since the
//! last reading has unchanged figures. `sched` (switches and migrations) is read for threads that
//! ran, within a budget per tick.

use super::file::{self, FileError, read_kept};
use super::paths::SystemPaths;
use super::read_context::ReadContext;
use super::stat::{SchedStat, Stat, TICK_NS, count};
use engine::events::ThreadKey;
use kvm::{CpuSet, sanitize};
use sample::{Placement, ThreadTimes};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Ticks between two readings of the affinity of a thread that does not run.
const AFFINITY_TICKS: u32 = 4;
/// Longest thread name in characters: `TASK_COMM_LEN` is 16, kernel threads may show up to 63.
const MAX_COMM: usize = 64;

/// A running thread.
#[derive(Debug, Default)]
pub(crate) struct LiveThread {
    /// Thread id.
    pub tid: i32,
    /// Start, ticks after boot.
    pub start_ticks: u64,
    /// Name, sanitised.
    pub comm: String,
    /// Times; `None` until read.
    pub times: Option<ThreadTimes>,
    /// Where the thread runs.
    pub place: Placement,
    /// Migrations between CPUs as of its last run: since its start, or since the first reading
    /// after a tick without one. `None` where unknown.
    pub migrations: Option<u64>,
    /// The letter of its state when last read; `?` before.
    pub state: u8,
    stat: Option<OwnedFd>,
    schedstat: Option<OwnedFd>,
    sched: Option<OwnedFd>,
    /// The line `schedstat` as last read.
    last_schedstat: Option<SchedStat>,
    /// `se.nr_migrations` where the count begins; `None` after a tick without a reading.
    pub first_migrations: Option<u64>,
    /// The key by which the engine knows this thread, once it has fired an event.
    pub life: Option<ThreadKey>,
}

impl LiveThread {
    pub fn open(
        task: BorrowedFd<'_>,
        tid: i32,
        reader: &mut ReadContext,
    ) -> Result<Self, FileError> {
        let mut thread = Self {
            tid,
            state: b'?',
            first_migrations: Some(0),
            ..Self::default()
        };
        thread.read(task, reader)?;
        Ok(thread)
    }

    /// Reads the files that may have changed.
    pub fn read(
        &mut self,
        task: BorrowedFd<'_>,
        reader: &mut ReadContext,
    ) -> Result<(), FileError> {
        let schedstat = match read_kept(
            task,
            (self.tid, "schedstat"),
            &mut self.schedstat,
            reader.keep_below,
            &mut reader.buf,
        ) {
            Ok(line) => SchedStat::parse(line),
            Err(FileError::Gone) if self.times.is_some() && self.last_schedstat.is_some() => {
                return Err(FileError::Gone);
            }
            Err(_) => None,
        };
        let ran = schedstat.is_none() || schedstat != self.last_schedstat || self.runs();
        if ran {
            // If `stat` cannot be read, the times are unknown: those of the last reading would look
            // like a thread at rest.
            self.read_stat(task, schedstat, reader)
                .inspect_err(|_| self.times = None)?;
            self.read_switches(task, reader);
        }
        self.last_schedstat = schedstat;
        self.read_affinity(ran, reader);
        Ok(())
    }

    /// A thread that was running at the last reading may still be on the same CPU: the kernel
    /// updates its clocks only at the scheduler's tick, which a `nohz_full` CPU does not take.
    pub fn runs(&self) -> bool {
        self.state == b'R'
    }

    fn read_stat(
        &mut self,
        task: BorrowedFd<'_>,
        schedstat: Option<SchedStat>,
        reader: &mut ReadContext,
    ) -> Result<(), FileError> {
        let line = read_kept(
            task,
            (self.tid, "stat"),
            &mut self.stat,
            reader.keep_below,
            &mut reader.buf,
        )?;
        let stat = Stat::parse(line).ok_or(FileError::Gone)?;
        // A file that is not kept open may belong to a later thread with the same id by now.
        if self.state != b'?' && self.start_ticks != stat.start_ticks {
            return Err(FileError::Gone);
        }
        self.start_ticks = stat.start_ticks;
        if self.comm.as_bytes() != stat.comm {
            self.comm = sanitize(&String::from_utf8_lossy(stat.comm), MAX_COMM);
        }
        self.state = stat.state;
        self.times = Some(ThreadTimes {
            user_ns: stat.user_ticks.saturating_mul(TICK_NS),
            system_ns: stat.system_ticks.saturating_mul(TICK_NS),
            guest_ns: stat.guest_ticks.saturating_mul(TICK_NS),
            run_ns: schedstat.map(|s| s.run_ns),
            wait_ns: schedstat.map(|s| s.wait_ns),
            ..ThreadTimes::default()
        });
        self.place.cpu = stat.cpu;
        self.place.policy = stat.policy;
        Ok(())
    }

    fn read_switches(&mut self, task: BorrowedFd<'_>, reader: &mut ReadContext) {
        self.migrations = None;
        let first = self.first_migrations.take();
        let Some(budget_left) = reader.sched_budget.checked_sub(1) else {
            return;
        };
        reader.sched_budget = budget_left;
        // Some kernels before 6.15 lack the file (without `CONFIG_SCHED_DEBUG`).
        let text = read_kept(
            task,
            (self.tid, "sched"),
            &mut self.sched,
            reader.keep_below,
            &mut reader.buf,
        );
        let Ok(text) = text.map(String::from_utf8_lossy) else {
            return;
        };
        // Switches and migrations (kernel/sched/debug.c, `proc_sched_show_task`).
        let migrations = count(&text, "se.nr_migrations");
        self.first_migrations = first.or(migrations);
        self.migrations = migrations
            .zip(self.first_migrations)
            .map(|(now, first)| now.saturating_sub(first));
        if let Some(times) = &mut self.times {
            times.voluntary = count(&text, "nr_voluntary_switches");
            times.involuntary = count(&text, "nr_involuntary_switches");
        }
    }

    /// Reads the affinity; of a thread that does not run, every [`AFFINITY_TICKS`] ticks only.
    pub fn read_affinity(&mut self, runs: bool, reader: &ReadContext) {
        let turn = reader.tick.wrapping_add(self.tid.unsigned_abs());
        if !runs && !turn.is_multiple_of(AFFINITY_TICKS) && self.place.affinity.is_some() {
            return;
        }
        let set = if reader.paths.real {
            affinity_of(self.tid)
        } else {
            None
        };
        if self.place.affinity.as_deref() != set.as_ref() {
            self.place.affinity = set.map(Arc::new);
        }
    }
}

/// When a process was started, ticks after boot.
pub(crate) fn start_of(paths: &SystemPaths, pid: i32) -> Option<u64> {
    let line = file::read_bytes(&paths.process(pid, "stat"), 4096).ok()?;
    Some(Stat::parse(&line)?.start_ticks)
}

/// The CPUs that a thread may run on. This system call costs a twentieth of reading `status`.
#[allow(
    unsafe_code,
    reason = "rustix's sched_getaffinity knows 1024 CPUs at most"
)]
fn affinity_of(tid: i32) -> Option<CpuSet> {
    let mut words = [0_u64; kvm::cpu_set::MAX_CPUS as usize / 64];
    // SAFETY: the kernel writes at most the size given into the array, which is valid for writes
    // and 8-byte aligned as sched_getaffinity(2) asks; it reads nothing from it.
    let written = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            tid,
            size_of_val(&words),
            words.as_mut_ptr(),
        )
    };
    // The call returns how many bytes the kernel wrote: as many as its CPUs need.
    let used_words = usize::try_from(written)
        .ok()
        .filter(|n| *n > 0)?
        .div_ceil(8);
    Some(CpuSet::of_words(words.get(..used_words)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_affinity_is_that_of_the_library() {
        let mine = affinity_of(0).unwrap();
        let other = rustix::thread::sched_getaffinity(None).unwrap();
        assert_eq!(mine.len() as u32, other.count());
    }
}
