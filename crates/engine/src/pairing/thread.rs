//! The state and the counts of one vCPU thread.

use super::event::{LeftFor, Task, TracedAccess};
use super::thread_tables::{AccessKey, Accesses, ExitParts, Exits, SeenKinds, Tasks, take_counted};
use crate::events::{ThreadKey, TracedThread};
use kvm::Space;
use kvm::exit_reason::ReasonNames;
use kvm::isa::Isa;
use kvm::topology::HostTopology;
use sample::{Migrations, ThreadEvents, Timing, UserspaceCell};
use std::collections::BTreeMap;

/// Limit of the accesses that share an exit's time; an emulated string instruction can make many.
/// Further ones count without time.
const MAX_SHARING: usize = 64;
/// Limit of the reasons of exits that the VMM served.
const MAX_USERSPACE: usize = 128;

/// An exit whose entry has not come yet.
#[derive(Debug, Clone, Copy)]
struct OpenExit {
    isa: Isa,
    code: u32,
    since: u64,
    /// Whether no event was lost since.
    trusted: bool,
    parts: ExitParts,
    /// When the VMM took over, as long as it works.
    user_since: Option<u64>,
    /// When the VMM took the vCPU out of KVM.
    ended: Option<u64>,
    /// Nanoseconds in halt since then.
    halted_after: u64,
    /// Nanoseconds before that in which the thread was stopped.
    stopped: u64,
}

impl OpenExit {
    /// Its duration if the vCPU enters the guest now.
    fn duration(&self, now: u64) -> u64 {
        let end = self.ended.unwrap_or(now);
        end.saturating_sub(self.since).saturating_sub(self.stopped) + self.halted_after
    }

    /// The thread was stopped from `since` until now: not by what it does for the guest.
    fn stop(&mut self, since: u64, now: u64) {
        if self.ended.is_some() {
            return;
        }
        let ns = now.saturating_sub(since.max(self.since));
        self.stopped += ns;
        self.user_since = self.user_since.map(|user| user + ns);
    }
}

/// Whether the VMM does not serve this exit but stops the vCPU: a signal (-4), a debugger (4), a
/// shutdown (8), a failed entry (9), an internal error (17), a system event (24). `ENDS_EXIT` in
/// bpf/layout.h is the same.
const fn ends_exit(reason: i32) -> bool {
    matches!(reason, -4 | 4 | 8 | 9 | 17 | 24)
}

/// What the scheduler did with a thread.
#[derive(Debug, Default)]
struct SchedulerCounts {
    /// Whether it was switched in or out at least once, so that preemptions are known.
    seen: bool,
    woken_at: Option<u64>,
    preempted: Option<(u64, Task)>,
    /// When it was stopped, as long as it is.
    stopped_at: Option<u64>,
    running_since: Option<u64>,
    /// Time on a CPU; `None` after a gap.
    ran_ns: Option<u64>,
    /// How often it left a CPU, and how often of these nobody saw it begin to run.
    left: u64,
    unseen: u64,
    /// Whether it slept, so that its waits begin with a waking.
    slept: bool,
    wakeups: Timing,
    run_delays: Timing,
    woken_by: Tasks,
    preempted_by: Tasks,
}

impl SchedulerCounts {
    /// Time on a CPU; `None` where more than one in fifty of its beginnings is missing.
    fn ran_ns(&self) -> Option<u64> {
        if self.seen && self.unseen * 50 <= self.left {
            self.ran_ns
        } else {
            None
        }
    }

    /// Counts the time on a CPU that ends here.
    fn ran(&mut self, until: u64) {
        if let Some(since) = self.running_since.take()
            && let Some(ran) = &mut self.ran_ns
        {
            *ran += until.saturating_sub(since);
        }
    }

    /// Time runnable without a CPU; `None` where no waking was traced of a thread that slept.
    fn waited_ns(&self) -> Option<u64> {
        if self.seen && (!self.slept || !self.woken_by.is_empty()) {
            Some(self.run_delays.total_ns.unwrap_or(0))
        } else {
            None
        }
    }
}

/// One thread that runs a guest.
#[derive(Debug, Default)]
pub(super) struct PairedThread {
    /// Sums of squares without the clip.
    exact: bool,
    pub pid: i32,
    /// The time of its first event, and of its end.
    pub born: u64,
    pub died: Option<u64>,
    pub comm: String,
    vcpu: Option<u32>,
    open: Option<OpenExit>,
    /// The accesses of the open exit.
    sharing: Vec<AccessKey>,
    exits: Exits,
    accesses: Accesses,
    /// Exits that the VMM served, by reason.
    userspace: BTreeMap<i32, u64>,
    migrations: Migrations,
    /// When it began to run, before an event of the scheduler; `None` after a gap.
    since: Option<u64>,
    /// `None` before an event of the scheduler.
    scheduler: Option<Box<SchedulerCounts>>,
}

impl PairedThread {
    /// `since`: when it began to run, if it runs.
    pub fn new(pid: i32, born: u64, since: u64, counts_migrations: bool, exact: bool) -> Self {
        let migrations = Migrations {
            total: if counts_migrations { Some(0) } else { None },
            ..Migrations::default()
        };
        Self {
            exact,
            pid,
            born,
            migrations,
            since: Some(since),
            ..Self::default()
        }
    }

    fn scheduler(&mut self) -> &mut SchedulerCounts {
        self.scheduler.get_or_insert_with(|| {
            Box::new(SchedulerCounts {
                running_since: self.since,
                ran_ns: self.since.map(|_| 0),
                ..SchedulerCounts::default()
            })
        })
    }

    pub fn exit(&mut self, time: u64, isa: Isa, code: u32, vcpu: Option<u32>, trusted: bool) {
        self.vcpu = vcpu.or(self.vcpu);
        self.count_accesses(None);
        self.open = Some(OpenExit {
            isa,
            code,
            since: time,
            trusted,
            parts: ExitParts::default(),
            user_since: None,
            ended: None,
            halted_after: 0,
            stopped: 0,
        });
    }

    /// `room`: whether a new reason may take a cell; also below.
    pub fn exit_untimed(&mut self, isa: Isa, code: u32, vcpu: Option<u32>, room: bool) -> bool {
        self.vcpu = vcpu.or(self.vcpu);
        self.exits.add((isa, code), None, self.exact, room)
    }

    pub fn entry(&mut self, time: u64, vcpu: Option<u32>, room: bool) -> bool {
        self.vcpu = vcpu.or(self.vcpu);
        self.leave_userspace(time, 0);
        let Some(open) = self
            .open
            .take()
            .filter(|open| open.trusted && open.since <= time)
        else {
            self.count_accesses(None);
            return true;
        };
        let ns = open.duration(time);
        self.count_accesses(Some(ns));
        self.exits.add(
            (open.isa, open.code),
            Some((ns, open.parts)),
            self.exact,
            room,
        )
    }

    /// Ends the thread's events. An exit without an entry counts, unless the reason has times,
    /// whose mean it would distort.
    pub fn end(&mut self, room: bool) -> bool {
        let last = self
            .open
            .take()
            .filter(|open| !self.exits.is_timed((open.isa, open.code)));
        self.count_accesses(None);
        last.is_none_or(|open| {
            self.exits
                .add((open.isa, open.code), None, self.exact, room)
        })
    }

    /// How many addresses and reasons have a cell.
    pub fn cells(&self) -> usize {
        self.accesses.0.len() + self.exits.0.len()
    }

    /// `room`: whether a new address may take a cell. The lowest two bits of a memory address are
    /// cleared, as in `AccessCell`.
    pub fn access(&mut self, time: u64, access: TracedAccess, room: bool) -> bool {
        self.leave_userspace(time, 0);
        let address = if self.exact || access.space != Space::Mmio {
            access.address
        } else {
            access.address & !3
        };
        let (key, own) = self
            .accesses
            .key((access.space, Some(address), access.direction), room);
        self.accesses.seen(key, time, access.fault);
        if self.open.is_some_and(|open| open.trusted) && self.sharing.len() < MAX_SHARING {
            self.sharing.push(key);
        } else {
            self.accesses.add(key, None, self.exact);
        }
        own
    }

    pub fn userspace(&mut self, time: u64, reason: i32) -> bool {
        if ends_exit(reason) {
            self.leave_userspace(time, 0);
        }
        if let Some(open) = &mut self.open
            && open.ended.is_none()
        {
            if ends_exit(reason) {
                open.ended = Some(time);
            } else {
                open.user_since.get_or_insert(time);
            }
        }
        let fits = self.userspace.len() < MAX_USERSPACE || self.userspace.contains_key(&reason);
        if fits {
            *self.userspace.entry(reason).or_default() += 1;
        }
        fits
    }

    pub fn halted(&mut self, time: u64, ns: u64) {
        self.leave_userspace(time, ns);
        if let Some(open) = &mut self.open {
            let halted = ns.min(time.saturating_sub(open.ended.unwrap_or(open.since)));
            open.parts.halted += halted;
            if open.ended.is_some() {
                open.halted_after += halted;
            }
        }
    }

    /// The VMM's part of the exit ends with the first event of the kernel, which slept for `ns`
    /// before it.
    pub fn leave_userspace(&mut self, time: u64, ns: u64) {
        if let Some(open) = &mut self.open
            && let Some(since) = open.user_since.take()
        {
            open.parts.userspace += time.saturating_sub(since).saturating_sub(ns);
        }
    }

    /// Counts the accesses of the exit that ended. Without its duration only their number counts.
    fn count_accesses(&mut self, ns: Option<u64>) {
        let sharers = self.sharing.len() as u64;
        for (i, key) in self.sharing.drain(..).enumerate() {
            // The first one gets the remainder.
            let share = ns.map(|ns| ns / sharers + if i == 0 { ns % sharers } else { 0 });
            self.accesses.add(key, share, self.exact);
        }
    }

    /// Events were lost, perhaps the end of the open exit.
    pub fn distrust(&mut self) {
        if let Some(open) = &mut self.open {
            open.trusted = false;
        }
        self.count_accesses(None);
        self.since = None;
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.woken_at = None;
            scheduler.preempted = None;
            scheduler.ran_ns = None;
            scheduler.stopped_at = None;
        }
    }

    /// Counts the time on a CPU up to now of a thread that still runs.
    pub fn runs_until(&mut self, now: u64) {
        if let Some(scheduler) = &mut self.scheduler {
            let running = scheduler.running_since.is_some();
            scheduler.ran(now);
            if running {
                scheduler.running_since = Some(now);
            }
        }
    }

    pub fn migrated(&mut self, from: u32, to: u32, topology: &HostTopology) {
        let m = &mut self.migrations;
        *m.total.get_or_insert(0) += 1;
        let known = topology.cpu(from).is_some() && topology.cpu(to).is_some();
        m.cross_core += u64::from(known && !topology.same_core(from, to));
        m.cross_llc += u64::from(topology.same_llc(from, to) == Some(false));
        m.cross_node += u64::from(topology.same_node(from, to) == Some(false));
    }

    pub fn waking(&mut self, time: u64, by: Task) {
        let scheduler = self.scheduler();
        scheduler.woken_at = Some(time);
        scheduler.woken_by.add(by, 0);
    }

    pub fn switch_out(&mut self, time: u64, to: LeftFor, next: Task) {
        let scheduler = self.scheduler();
        scheduler.seen = true;
        scheduler.left += 1;
        scheduler.slept |= to != LeftFor::Waiting;
        scheduler.unseen += u64::from(scheduler.running_since.is_none());
        scheduler.ran(time);
        scheduler.woken_at = None;
        scheduler.preempted = if to == LeftFor::Waiting {
            Some((time, next))
        } else {
            None
        };
        scheduler.stopped_at = if to == LeftFor::Stopped {
            Some(time)
        } else {
            None
        };
    }

    pub fn switch_in(&mut self, time: u64) {
        let scheduler = self.scheduler();
        scheduler.seen = true;
        scheduler.running_since = Some(time);
        if let Some(since) = scheduler.woken_at.take() {
            let ns = time.saturating_sub(since);
            scheduler.wakeups.add(ns);
            scheduler.run_delays.add(ns);
        }
        let stopped_at = scheduler.stopped_at.take();
        let preempted = scheduler.preempted.take();
        if let Some(since) = stopped_at
            && let Some(open) = &mut self.open
        {
            open.stop(since, time);
        }
        let Some((since, by)) = preempted else { return };
        let scheduler = self.scheduler();
        let ns = time.saturating_sub(since);
        scheduler.preempted_by.add(by, ns);
        scheduler.run_delays.add(ns);
        if let Some(open) = &mut self.open
            && open.ended.is_none()
        {
            open.parts.preempted += ns.min(time.saturating_sub(open.since));
            // The VMM did not run meanwhile.
            open.user_since = open.user_since.map(|user| user + ns);
        }
    }

    pub fn snapshot(&mut self, tid: i32, names: &ReasonNames, seen: SeenKinds) -> TracedThread {
        let none = &mut SchedulerCounts::default();
        let scheduler = self.scheduler.as_deref_mut().unwrap_or(none);
        let mut accesses = self.accesses.take();
        // Accesses of an exit that is still open count here. They get their time when it ends.
        for key in &self.sharing {
            if let Some(cell) = accesses
                .iter_mut()
                .find(|cell| (cell.space, cell.address, cell.direction) == *key)
            {
                cell.time.count += 1;
            }
        }
        let userspace = self
            .userspace
            .iter()
            .map(|(&reason, &count)| UserspaceCell { reason, count })
            .collect();
        TracedThread {
            key: ThreadKey {
                tid,
                born_ns: self.born,
            },
            died_ns: self.died,
            pid: self.pid,
            comm: self.comm.clone(),
            vcpu: self.vcpu,
            ran_ns: scheduler.ran_ns(),
            waited_ns: scheduler.waited_ns(),
            events: ThreadEvents {
                exits: self.exits.take(
                    names,
                    SeenKinds {
                        switches: scheduler.seen,
                        ..seen
                    },
                ),
                accesses,
                userspace,
                migrations: self.migrations,
                wakeups: take_counted(&mut scheduler.wakeups),
                woken_by: scheduler.woken_by.all(),
                preempted_by: scheduler.preempted_by.all(),
                run_delays: take_counted(&mut scheduler.run_delays),
            },
        }
    }
}
