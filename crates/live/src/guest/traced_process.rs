//! What an engine counted for one process, and which thread's life each count belongs to.
//!
//! The kernel gives the id of an ended thread to another one, at once where ids are short (`pid_max`, a PID namespace)
//! or a restore asks for it (`clone3` with `set_tid`). An engine says when it first saw a thread and when that ended;
//! /proc says when a thread started, in ticks of 10 ms. The lives of one id do not overlap, so the two can be matched.

use crate::proc::stat::TICK_NS;
use crate::proc::thread::LiveThread;
use crate::timestamps::Timestamps;
use engine::events::{Reading, ThreadKey, TracedThread};
use std::collections::BTreeMap;

/// From ticks after boot to `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StartClock {
    /// What `CLOCK_BOOTTIME` is ahead: the time spent in suspend.
    ahead_ns: u64,
}

impl StartClock {
    pub(crate) fn new(now: Timestamps) -> Self {
        Self { ahead_ns: now.boot_ns.saturating_sub(now.mono_ns) }
    }

    /// The beginning of the tick.
    fn mono_ns(self, start_ticks: u64) -> u64 {
        start_ticks.saturating_mul(TICK_NS).saturating_sub(self.ahead_ns)
    }
}

/// The threads that an engine traced in the processes of one id.
#[derive(Debug, Default)]
pub(crate) struct TracedProcess {
    threads: BTreeMap<ThreadKey, TracedThread>,
    clock: StartClock,
}

impl TracedProcess {
    /// Takes the threads out of a reading, by process id. Threads outside of kvmtop's PID namespace have no PID here
    /// (kernel/events/core.c, `perf_event_pid_type`).
    pub(crate) fn all(reading: &mut Reading, now: Timestamps) -> BTreeMap<i32, Self> {
        let mut by_pid: BTreeMap<i32, Self> = BTreeMap::new();
        for thread in std::mem::take(&mut reading.threads).into_iter().filter(|thread| thread.pid > 0) {
            let process = by_pid.entry(thread.pid).or_default();
            process.clock = StartClock::new(now);
            process.threads.insert(thread.key, thread);
        }
        by_pid
    }

    /// Takes out what the thread did: the life that it had in an earlier reading, else its id's first life that can be
    /// its own.
    pub(crate) fn take(&mut self, thread: &mut LiveThread) -> Option<TracedThread> {
        if let Some(life) = thread.life.and_then(|key| self.threads.remove(&key)) {
            return Some(life);
        }
        let start_ns = self.clock.mono_ns(thread.start_ticks);
        let first = ThreadKey { tid: thread.tid, born_ns: 0 };
        let mut lives = self.threads.range(first..).take_while(|(key, _)| key.tid == thread.tid);
        thread.life = Some(*lives.find(|(_, life)| is_since(life, start_ns))?.0);
        self.threads.remove(&thread.life?)
    }

    /// Takes out what belongs to a later process of the same id. `start_ticks`: when the process started that has the
    /// id now; without one all have ended, and an id that occurs twice shows that there was another. A thread that ran
    /// its guest only within the tick in which the process started is taken for one of this process.
    pub(crate) fn take_later(&mut self, start_ticks: Option<u64>) -> Self {
        let later = if let Some(ticks) = start_ticks {
            let start_ns = self.clock.mono_ns(ticks);
            self.split(|life| life.key.born_ns >= start_ns)
        } else {
            let keys = self.threads.keys().zip(self.threads.keys().skip(1));
            let again = keys.filter(|(a, b)| a.tid == b.tid).map(|(_, second)| second.born_ns).min();
            self.split(|life| again.is_some_and(|born_ns| life.key.born_ns >= born_ns))
        };
        Self { threads: later, clock: self.clock }
    }

    fn split(&mut self, is_later: impl Fn(&TracedThread) -> bool) -> BTreeMap<ThreadKey, TracedThread> {
        let (later, own) = std::mem::take(&mut self.threads).into_iter().partition(|(_, life)| is_later(life));
        self.threads = own;
        later
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// All lives, in order of thread id and time.
    pub(crate) fn threads(&self) -> impl Iterator<Item = &TracedThread> {
        self.threads.values()
    }

    /// What was not taken.
    pub(crate) fn into_threads(self) -> impl Iterator<Item = TracedThread> {
        self.threads.into_values()
    }
}

/// Whether a life can be that of a thread that started within the tick that begins at `start_ns`: it was not seen
/// before, and did not end by the end of the tick, where one that made room for the thread did.
fn is_since(life: &TracedThread, start_ns: u64) -> bool {
    life.key.born_ns >= start_ns && life.died_ns.is_none_or(|died| died >= start_ns + TICK_NS)
}
