//! Which guest, and which of its threads, each count of an engine belongs to.
//!
//! The kernel gives the id of an ended thread to another one, at once where ids are short
//! (`pid_max`, a PID namespace) or a restore asks for it (`clone3` with `set_tid`). An engine says
//! when it first saw a thread and when that ended; /proc says when a thread started, in ticks of 10
//! ms. The lives of one id do not overlap, so the two can be matched.

use crate::proc::stat::TICK_NS;
use crate::proc::thread::LiveThread;
use engine::events::{ThreadKey, TracedThread};
use kvm::sanitize;
use kvm::thread_name::{Role, classify};
use sample::{
    DomainFacts, DomainSample, DomainState, Known, MissingExtreme, Origin, ThreadEvents,
    ThreadSample, Vmm,
};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Maximum number of access cells kept for exited threads; counts beyond go to the cells without an
/// address.
const MAX_CELLS: usize = 4096;
/// Maximum number of tasks kept in each list of exited threads.
const MAX_TASKS: usize = 32;

/// Traced threads of one process id, in order of thread id and time.
pub(crate) type Lives = BTreeMap<ThreadKey, TracedThread>;

/// Groups traced threads by process id. Threads outside of kvmtop's PID namespace have PID 0
/// (kernel/events/core.c, `perf_event_pid_type`).
pub(crate) fn by_process(threads: Vec<TracedThread>) -> BTreeMap<i32, Lives> {
    let mut by_pid: BTreeMap<i32, Lives> = BTreeMap::new();
    for thread in threads.into_iter().filter(|thread| thread.pid > 0) {
        by_pid
            .entry(thread.pid)
            .or_default()
            .insert(thread.key, thread);
    }
    by_pid
}

/// Takes out the threads first seen at or after `start_ns`. A thread that ran its guest only within
/// the 10 ms before a process of the same id started counts for the later process.
pub(crate) fn take_since(lives: &mut Lives, start_ns: u64) -> Lives {
    let (later, earlier) = std::mem::take(lives)
        .into_iter()
        .partition(|(key, _)| key.born_ns >= start_ns);
    *lives = earlier;
    later
}

/// Takes out the threads of the first process: a thread id that occurs twice belongs to a later
/// process.
pub(crate) fn take_first(lives: &mut Lives) -> Lives {
    let pairs = lives.keys().zip(lives.keys().skip(1));
    let again = pairs
        .filter(|(a, b)| a.tid == b.tid)
        .map(|(_, second)| second.born_ns)
        .min();
    let later = again
        .map(|born_ns| take_since(lives, born_ns))
        .unwrap_or_default();
    std::mem::replace(lives, later)
}

/// Takes out the life of a thread that started at `start_ns`: the life it had in an earlier
/// reading, else the first one of its id that fits. A fitting life was not seen before the thread's
/// start, and did not end within the tick of the start, where an earlier thread that made room for
/// it did.
pub(crate) fn take_of(
    lives: &mut Lives,
    thread: &mut LiveThread,
    start_ns: u64,
) -> Option<TracedThread> {
    if let Some(life) = thread.life.and_then(|key| lives.remove(&key)) {
        return Some(life);
    }
    let first = ThreadKey {
        tid: thread.tid,
        born_ns: start_ns,
    };
    let mut of_tid = lives
        .range(first..)
        .take_while(|(key, _)| key.tid == thread.tid);
    let key = *of_tid
        .find(|(_, life)| life.died_ns.is_none_or(|died| died >= start_ns + TICK_NS))?
        .0;
    thread.life = Some(key);
    lives.remove(&key)
}

/// Which threads the engine may forget, and which are left to its next reading.
#[derive(Debug, Default)]
pub(crate) struct LifeLedger {
    /// Threads that were reported with all of their events.
    pub forget: Vec<ThreadKey>,
    deferred: HashSet<ThreadKey>,
    deferred_before: HashSet<ThreadKey>,
}

impl LifeLedger {
    /// Begins a reading.
    pub fn begin(&mut self) {
        self.deferred_before = std::mem::take(&mut self.deferred);
        self.forget.clear();
    }

    /// Whether to leave a thread that /proc no longer shows to the next reading: its end came after
    /// this reading, which lacks its last events. An engine that does not see the end of a thread
    /// is waited for once.
    pub fn defers(&mut self, life: &TracedThread) -> bool {
        let defers = life.died_ns.is_none() && !self.deferred_before.contains(&life.key);
        if defers {
            self.deferred.insert(life.key);
        }
        defers
    }

    /// The same for some threads: whether it is so of one of them.
    pub fn defers_any(&mut self, lives: &Lives) -> bool {
        let mut defers = false;
        for life in lives.values() {
            defers |= self.defers(life);
        }
        defers
    }
}

/// Whether a thread did what only a vCPU does.
pub(crate) fn ran_a_vcpu(events: &ThreadEvents) -> bool {
    !events.exits.is_empty()
        || !events.accesses.is_empty()
        || events.userspace.iter().any(|cell| cell.count > 0)
}

/// Adds the events of an exited thread to the sum over the guest's exited threads.
pub(crate) fn add_exited(all: &mut ThreadEvents, exited: ThreadEvents) {
    all.merge(exited, MissingExtreme::NothingInInterval);
    all.limit(MAX_CELLS, MAX_TASKS);
}

/// Drops the extremes, which belong to the interval in which a thread exited.
pub(crate) fn drop_extremes(all: &mut ThreadEvents) {
    let timings = all
        .exits
        .iter_mut()
        .map(|c| &mut c.time)
        .chain(all.accesses.iter_mut().map(|c| &mut c.time));
    for t in timings
        .chain(all.wakeups.as_deref_mut())
        .chain(all.run_delays.as_deref_mut())
    {
        (t.min_ns, t.max_ns) = (None, None);
    }
    for cell in &mut all.accesses {
        cell.burst = None;
    }
}

/// The sample of a guest that started and ended between two ticks; `None` if the events are not a
/// guest's.
pub(crate) fn unseen_guest(pid: i32, lives: Lives) -> Option<DomainSample> {
    if !lives.values().any(|life| ran_a_vcpu(&life.events)) {
        return None;
    }
    let main = lives
        .values()
        .find(|life| life.key.tid == pid)
        .or(lives.values().next())?;
    let comm = sanitize(&main.comm, 64);
    let facts = DomainFacts {
        name: Known::new(format!("{comm}-{pid}"), Origin::Process),
        vmm: Vmm::Other(comm),
        pid: Some(pid),
        ..DomainFacts::default()
    };
    let threads = lives.into_values().map(|life| {
        let tid = life.key.tid;
        let (role, index) = match classify(&life.comm, tid == pid) {
            (role, _) if role != Role::Vcpu && ran_a_vcpu(&life.events) => (Role::Vcpu, life.vcpu),
            by_name => by_name,
        };
        ThreadSample {
            tid,
            comm: sanitize(&life.comm, 64),
            role,
            index,
            events: life.events,
            ..ThreadSample::default()
        }
    });
    Some(DomainSample {
        threads: threads.collect(),
        facts: Arc::new(facts),
        state: DomainState::Ended,
        ..DomainSample::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvm::{Isa, Space};
    use sample::{AccessCell, Direction, ExitCell, Timing};

    fn exit(code: u32, ns: &[u64]) -> ExitCell {
        let mut time = Timing::default();
        for n in ns {
            time.add(*n);
        }
        ExitCell {
            isa: Isa::Vmx,
            code,
            name: None,
            time,
            userspace_ns: Some(1),
            halted_ns: None,
            preempted_ns: Some(2),
        }
    }

    fn access(address: Option<u64>, count: u64) -> AccessCell {
        AccessCell {
            space: Space::Pio,
            address,
            direction: Direction::Read,
            time: Timing {
                count,
                ..Timing::default()
            },
            faults: 1,
            burst: None,
        }
    }

    #[test]
    fn extremes_belong_to_one_interval() {
        let mut all = ThreadEvents {
            exits: vec![exit(30, &[100, 300])],
            ..ThreadEvents::default()
        };
        add_exited(
            &mut all,
            ThreadEvents {
                exits: vec![exit(30, &[5000])],
                ..ThreadEvents::default()
            },
        );
        assert_eq!(
            (all.exits[0].time.min_ns, all.exits[0].time.max_ns),
            (Some(100), Some(5000))
        );
        drop_extremes(&mut all);
        assert_eq!(
            (all.exits[0].time.min_ns, all.exits[0].time.count),
            (None, 3)
        );
        add_exited(
            &mut all,
            ThreadEvents {
                exits: vec![exit(30, &[7])],
                ..ThreadEvents::default()
            },
        );
        assert_eq!(
            (all.exits[0].time.min_ns, all.exits[0].time.max_ns),
            (Some(7), Some(7))
        );
    }

    #[test]
    fn cells_are_bounded_and_counts_are_kept() {
        let mut all = ThreadEvents::default();
        for i in 0..2 * MAX_CELLS as u64 {
            let gone = ThreadEvents {
                accesses: vec![access(Some(i), 1)],
                ..ThreadEvents::default()
            };
            add_exited(&mut all, gone);
        }
        assert_eq!(all.accesses.len(), MAX_CELLS + 1);
        assert_eq!(
            all.accesses.iter().map(|c| c.time.count).sum::<u64>(),
            2 * MAX_CELLS as u64
        );
    }
}
