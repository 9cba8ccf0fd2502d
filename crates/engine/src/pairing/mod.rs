//! Pairs exits with entries and adds up single events by thread.
//!
//! A pure state machine: it takes decoded events in order of time and returns [`TracedThread`]s.
//! The perf engine feeds it from its rings, the importers from a `perf.data` or from trace lines,
//! so a recorded file and a live host are counted in the same way.
//!
//! Rules:
//! - An exit lasts from `kvm_exit` to the next `kvm_entry` of the same thread, wherever that thread
//!   runs. It counts at that entry. An entry without an exit, and an exit followed by another exit,
//!   do not count.
//! - The VMM can take the vCPU out of KVM in the middle of an exit, for hours: a signal ends
//!   `KVM_RUN`, as when a guest is paused. The exit then lasts until the vCPU is taken out; only
//!   time in halt afterwards is added. Time in which SIGSTOP stops the thread is not part of the
//!   exit.
//! - Each port, address or MSR accessed within an exit counts. The accesses share the exit's time
//!   evenly (one of three gets a third), so the sum over accesses never exceeds the sum over exits.
//!   `kvm_mmio` of type 0 announces a read that a second event completes; it is not an access
//!   (arch/x86/kvm/x86.c, `vcpu_mmio_read`).
//! - An exit that overlaps a gap of lost events does not count, because its entry can belong to
//!   another exit. Its accesses keep their count, without time.
//! - On a kernel that fires no `kvm_exit`, accesses have a count and no time.
//!
//! Every table is bounded. Events without room count in an `other` cell where there is one, and in
//! [`Pairing::overflow`].

mod decode;
mod event;
mod thread;
mod thread_tables;

#[cfg(test)]
mod tests;

pub use decode::{EVENTS, EventDecoder, RawSample};
pub use event::{EventKind, LeftFor, Task, TracedAccess, TracedEvent};

use crate::events::{ThreadKey, TracedThread, fires_kvm_exit};
use foldhash::fast::RandomState;
use kvm::exit_reason::ReasonNames;
use kvm::topology::HostTopology;
use std::collections::HashMap;
use thread::PairedThread;
use thread_tables::{ExitReason, SeenKinds};

/// Limit of threads. Events of further threads count in [`Pairing::overflow`] only.
pub const MAX_THREADS: usize = 65_536;

/// Limit of the cells of addresses of all threads together; each takes some hundred bytes. Further
/// addresses count in the `other` cells of their threads.
const MAX_CELLS: usize = 1 << 18;

/// Further cells that only exit reasons may take: some for each of [`MAX_THREADS`], or all of a
/// kernel's for a thousand threads. Exits of further reasons count in [`Pairing::overflow`] only.
const MAX_REASONS: usize = 1 << 17;

/// Exit events, paired and added up by thread.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct Pairing {
    threads: HashMap<i32, PairedThread, RandomState>,
    /// Threads that are new since this list was emptied. They still lack names.
    pub new: Vec<i32>,
    names: ReasonNames,
    topology: HostTopology,
    /// Threads end with [`EventKind::Ended`], or when their id turns up in another process: later
    /// events belong to another thread with the same id. For a live host, which reuses ids; not for
    /// a recording, which names its threads by their ids.
    pub separates_lives: bool,
    /// Threads that ended and whose ids other threads may have, until they are forgotten.
    ended: HashMap<ThreadKey, PairedThread, RandomState>,
    /// The number of cells of addresses and of exit reasons of all threads.
    cells: usize,
    /// Count each exit immediately and without its time: it then needs no entry.
    pub untimed: bool,
    /// The source has `sched_migrate_task`: a thread without such an event moved 0 times, not an
    /// unknown number of times.
    pub counts_migrations: bool,
    /// Keep memory addresses exact to the byte and do not clip long durations in the sum of
    /// squares, as in perf's tables.
    pub exact: bool,
    /// End of the last gap of lost events. Exits that began before it do not count.
    gap_until: u64,
    seen: SeenKinds,
    /// The number of `kvm_exit` events.
    exits: u64,
    /// The number of accesses and of exits to the VMM: if they come without `kvm_exit`, the kernel
    /// fires none.
    served: u64,
    /// Number of events taken.
    pub events: u64,
    /// Events without room in a bounded table.
    pub overflow: u64,
}

impl Pairing {
    /// Without any counts. `names` are the names of exit reasons on the kernel that fired the
    /// events. `topology` describes the host, to find what a migration crossed. Both can be empty.
    pub fn new(names: ReasonNames, topology: HostTopology) -> Self {
        Self {
            names,
            topology,
            ..Self::default()
        }
    }

    /// Takes one event. Events of one thread must come in order of time.
    pub fn event(&mut self, event: &TracedEvent) {
        self.count_kind(&event.kind);
        if self.separates_lives
            && self.has_ended(event)
            && let Some(mut thread) = self.threads.remove(&event.tid)
        {
            thread.died = Some(event.time);
            let key = ThreadKey {
                tid: event.tid,
                born_ns: thread.born,
            };
            self.ended.insert(key, thread);
        }
        let thread = match self.threads.get_mut(&event.tid) {
            Some(thread) => thread,
            // Scheduler events matter only for threads that run a guest.
            None if event.kind.is_scheduling() => return,
            None => {
                self.runs_guest(event.tid, event.pid, event.time, event.time);
                let Some(thread) = self.threads.get_mut(&event.tid) else {
                    self.overflow += 1;
                    return;
                };
                thread
            }
        };
        let trusted = event.time >= self.gap_until;
        let room_for_reason = self.cells < MAX_CELLS + MAX_REASONS;
        let room_for_address = self.cells < MAX_CELLS;
        let before = thread.cell_count();
        let mut fits = true;
        match event.kind {
            EventKind::Exit { isa, code, vcpu } => {
                let reason = ExitReason { isa, code };
                if self.untimed {
                    fits = thread.exit_untimed(reason, vcpu, room_for_reason);
                } else {
                    thread.exit(event.time, reason, vcpu, trusted);
                }
            }
            EventKind::Entry { vcpu } => fits = thread.entry(event.time, vcpu, room_for_reason),
            EventKind::Access(access) => {
                fits = thread.access(event.time, access, room_for_address);
            }
            EventKind::Userspace { reason } => fits = thread.userspace(event.time, reason),
            EventKind::Halted { ns } => thread.halted(event.time, ns),
            EventKind::Migrated { from, to } => thread.migrated(from, to, &self.topology),
            EventKind::Waking { by } => thread.waking(event.time, by),
            EventKind::SwitchOut { to, next } => thread.switch_out(event.time, to, next),
            EventKind::SwitchIn => thread.switch_in(event.time),
            EventKind::Ended => {}
        }
        self.cells += thread.cell_count() - before;
        self.overflow += u64::from(!fits);
    }

    fn count_kind(&mut self, kind: &EventKind) {
        self.events += 1;
        match kind {
            EventKind::Exit { .. } => self.exits += 1,
            EventKind::Access(_) => self.served += 1,
            EventKind::Userspace { .. } => {
                self.served += 1;
                self.seen.userspace = true;
            }
            EventKind::Halted { .. } => self.seen.halted = true,
            _ => {}
        }
    }

    /// A thread runs a guest: its scheduler events count from now on, if there is room for it.
    /// `since`: when the thread began to run on its CPU, if it has one now.
    pub fn runs_guest(&mut self, tid: i32, pid: i32, time: u64, since: u64) {
        if !self.threads.contains_key(&tid) && self.threads.len() + self.ended.len() < MAX_THREADS {
            self.new.push(tid);
            self.threads.insert(
                tid,
                PairedThread::new(pid, time, since, self.counts_migrations, self.exact),
            );
        }
    }

    /// Whether the known thread of this id is gone: it ends, or the id is now in another process.
    fn has_ended(&self, event: &TracedEvent) -> bool {
        let Some(thread) = self.threads.get(&event.tid) else {
            return false;
        };
        // A scheduler event may have the process of another thread: of the one that ran.
        let says_process = thread.pid > 0 && event.pid > 0 && !event.kind.is_scheduling();
        event.kind == EventKind::Ended || (says_process && thread.pid != event.pid)
    }

    /// Events between these two times are missing on some CPU. Must be called before the events
    /// after `since`.
    pub fn gap(&mut self, since: u64, until: u64) {
        debug_assert!(since <= until);
        self.gap_until = self.gap_until.max(until);
        self.threads.values_mut().for_each(PairedThread::distrust);
    }

    /// Counts the time on a CPU up to now of all threads that still run.
    pub fn runs_until(&mut self, now: u64) {
        self.threads
            .values_mut()
            .for_each(|thread| thread.runs_until(now));
    }

    /// Ends the events. Counts exits that are still open: after a crash, no entry follows.
    pub fn end(&mut self) {
        for thread in self.threads.values_mut() {
            let before = thread.cell_count();
            let fits = thread.end(self.cells < MAX_CELLS + MAX_REASONS);
            self.cells += thread.cell_count() - before;
            self.overflow += u64::from(!fits);
        }
    }

    /// Sets the name of a thread.
    pub fn name(&mut self, tid: i32, comm: &str) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.comm = kvm::sanitize(comm, 15);
        }
    }

    /// All counts so far. The extremes (shortest, longest, bursts) are those since the last call.
    pub fn snapshot(&mut self) -> Vec<TracedThread> {
        let living = self.threads.iter_mut().map(|(tid, thread)| (*tid, thread));
        let ended = self.ended.iter_mut().map(|(key, thread)| (key.tid, thread));
        living
            .chain(ended)
            .map(|(tid, thread)| thread.snapshot(tid, &self.names, self.seen))
            .collect()
    }

    /// Removes these threads and their counts.
    pub fn forget(&mut self, threads: &[ThreadKey]) {
        for key in threads {
            let mut gone = self.ended.remove(key);
            if gone.is_none()
                && self
                    .threads
                    .get(&key.tid)
                    .is_some_and(|t| t.born == key.born_ns)
            {
                gone = self.threads.remove(&key.tid);
            }
            if let Some(thread) = gone {
                self.cells = self.cells.saturating_sub(thread.cell_count());
            }
        }
        self.ended.shrink_to(2 * self.ended.len());
        self.threads.shrink_to(2 * self.threads.len());
    }

    /// Whether `kvm_exit` fires; `None` until enough other events came without one.
    pub fn fires_kvm_exit(&self) -> Option<bool> {
        fires_kvm_exit(self.exits > 0, self.served, self.threads.len())
    }
}
