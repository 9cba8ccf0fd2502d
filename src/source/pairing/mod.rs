//! From single events to counters by thread: the one place that knows which exit an entry ends and who pays for it.
//!
//! A pure state machine: decoded events go in, in order of time; [`TracedThread`]s come out. The perf engine feeds it from its
//! rings, the importers from a `perf.data` or from trace lines, so a recorded file and a live host are counted alike.
//!
//! What is counted how:
//! - An exit lasts from `kvm_exit` to the next `kvm_entry` of the same thread, wherever that thread runs. It is counted when it
//!   ends. An entry without an exit and an exit followed by another exit leave nothing.
//! - The ports, addresses and MSRs seen inside it are counted each, and share its whole time evenly (one of three gets a third),
//!   so that the sum over accesses never exceeds the sum over exits. `kvm_mmio` of type 0 announces a read that a second event
//!   completes, and is no access (arch/x86/kvm/x86.c, `vcpu_mmio_read`).
//! - Where events were lost, no exit that overlaps the gap is counted: its entry may be one of another exit. Accesses seen in it
//!   keep their count, without time.
//! - On a kernel that fires no `kvm_exit`, accesses have a count and no time.
//!
//! Every table is bounded. What does not fit is counted in an `other` cell where there is one, and in [`Pairing::overflow`].

mod cells;
mod decode;
mod event;
mod thread;

#[cfg(test)]
mod tests;

pub use decode::{Decoder, EVENTS, Sample as RawSample};
pub use event::{Access, Event, Kind, Task};

use crate::kvm::exit_reason::ReasonNames;
use crate::kvm::topology::HostTopology;
use crate::source::events::TracedThread;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use thread::Thread;

/// Most threads kept at once; events of further ones are counted in [`Pairing::overflow`] alone.
pub const MAX_THREADS: usize = 65_536;

/// Accesses and userspace exits without one `kvm_exit` after which this kernel is held to fire none.
const ENOUGH_TO_TELL: u64 = 100;

/// Which kinds of events came at all: without them a part of an exit's time is unknown, not 0.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    userspace: bool,
    halted: bool,
    switches: bool,
}

/// Exit events, paired and added up by thread.
#[derive(Debug, Default)]
pub struct Pairing {
    threads: HashMap<i32, Thread, RandomState>,
    /// Threads met since this was last asked for.
    new: Vec<i32>,
    names: ReasonNames,
    topology: HostTopology,
    untimed: bool,
    counts_migrations: bool,
    exact: bool,
    /// Until when events are missing; exits that began before cannot be trusted.
    gap_until: u64,
    seen: Seen,
    exits: u64,
    served: u64,
    events: u64,
    overflow: u64,
}

impl Pairing {
    /// Begins with nothing counted. `names` are the exit reasons' names on the kernel that the events come from, `topology` the
    /// host's, for what a migration crossed; both may be empty.
    pub fn new(names: ReasonNames, topology: HostTopology) -> Self {
        Self { names, topology, ..Self::default() }
    }

    /// Counts each exit at once and without its time; entries are not needed then.
    #[must_use]
    pub fn untimed(mut self) -> Self {
        self.untimed = true;
        self
    }

    /// The source has `sched_migrate_task`: a thread that never moved has moved 0 times, not an unknown number of times.
    #[must_use]
    pub fn with_migrations(mut self) -> Self {
        self.counts_migrations = true;
        self
    }

    /// Keeps memory addresses to the byte and long durations in the spread, as perf's tables do.
    #[must_use]
    pub fn exactly(mut self) -> Self {
        self.exact = true;
        self
    }

    /// The kernel works for this thread, without an event that is to be counted: the VMM's part of its exit is over.
    pub fn in_kernel(&mut self, tid: i32, time: u64) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.in_kernel(time);
        }
    }

    /// Takes one event. Events of one thread must come in order of time.
    pub fn event(&mut self, event: &Event) {
        self.events += 1;
        match event.kind {
            Kind::Exit { .. } => self.exits += 1,
            Kind::Access(_) => self.served += 1,
            Kind::Userspace { .. } => {
                self.served += 1;
                self.seen.userspace = true;
            }
            Kind::Halted { .. } => self.seen.halted = true,
            _ => {}
        }
        let room = self.threads.len() < MAX_THREADS;
        let thread = match self.threads.get_mut(&event.tid) {
            Some(thread) => thread,
            // The scheduler's events are of interest for threads that are known to run a guest.
            None if event.kind.is_scheduling() => return,
            None if room => {
                self.new.push(event.tid);
                self.threads
                    .entry(event.tid)
                    .or_insert_with(|| Thread::new(event.pid, self.counts_migrations, self.exact))
            }
            None => {
                self.overflow += 1;
                return;
            }
        };
        let trusted = event.time >= self.gap_until;
        let fits = match event.kind {
            Kind::Exit { isa, code, vcpu } if self.untimed => thread.exit_untimed(isa, code, vcpu),
            Kind::Exit { isa, code, vcpu } => thread.exit(event.time, isa, code, vcpu, trusted),
            Kind::Entry { vcpu } => thread.entry(event.time, vcpu),
            Kind::Access(access) if self.exact => thread.access(event.time, access),
            Kind::Access(access) => thread.access(event.time, access.aligned()),
            Kind::Userspace { reason } => thread.userspace(event.time, reason),
            Kind::Halted { ns } => thread.halted(event.time, ns),
            Kind::Migrated { from, to } => thread.migrated(from, to, &self.topology),
            Kind::Waking { by } => thread.waking(event.time, by),
            Kind::SwitchOut { runnable, next } => thread.switch_out(event.time, runnable, next),
            Kind::SwitchIn => thread.switch_in(event.time),
        };
        self.overflow += u64::from(!fits);
    }

    /// Events between these two instants are missing, on some CPU. To be told before the events that follow `since`.
    pub fn gap(&mut self, since: u64, until: u64) {
        debug_assert!(since <= until);
        self.gap_until = self.gap_until.max(until);
        self.threads.values_mut().for_each(Thread::distrust);
    }

    /// No event comes any more. A crash is an exit without an entry behind it.
    pub fn end(&mut self) {
        self.overflow += self.threads.values_mut().map(|thread| u64::from(!thread.end())).sum::<u64>();
    }

    /// Gives a thread its name.
    pub fn name(&mut self, tid: i32, comm: &str) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.comm = crate::kvm::sanitize(comm, 15);
        }
    }

    /// The threads met since the call before, which have no name yet.
    pub fn take_new(&mut self) -> Vec<i32> {
        std::mem::take(&mut self.new)
    }

    /// The threads known, with their processes.
    pub fn threads(&self) -> impl Iterator<Item = (i32, i32)> {
        self.threads.iter().map(|(tid, thread)| (*tid, thread.pid))
    }

    /// The names of the threads known.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.threads.values().map(|thread| thread.comm.as_str())
    }

    /// All that was counted so far. The extremes (shortest, longest, bursts) begin anew with each call.
    pub fn snapshot(&mut self) -> HashMap<i32, TracedThread> {
        self.threads.iter_mut().map(|(tid, thread)| (*tid, thread.snapshot(&self.names, self.seen))).collect()
    }

    /// Frees what was counted for these threads.
    pub fn forget(&mut self, tids: &[i32]) {
        for tid in tids {
            self.threads.remove(tid);
        }
    }

    /// Whether `kvm_exit` fires: not known before enough was served without one.
    pub fn fires_kvm_exit(&self) -> Option<bool> {
        // At the start each thread may be in the middle of an exit whose kvm_exit was not seen.
        let enough = ENOUGH_TO_TELL.max(2 * self.threads.len() as u64);
        if self.exits > 0 { Some(true) } else { (self.served > enough).then_some(false) }
    }

    /// Events taken.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Events that found no room in a bounded table.
    pub fn overflow(&self) -> u64 {
        self.overflow
    }
}
