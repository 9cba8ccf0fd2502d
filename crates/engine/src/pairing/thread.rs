//! The state and the counts of one vCPU thread.

use super::event::{LeftFor, Task, TracedAccess};
use super::thread_tables::{
    AccessKey, Accesses, ExitParts, ExitReason, ExitTime, Exits, SeenKinds, Tasks, take_counted,
};
use crate::events::{ThreadKey, TracedThread};
use kvm::Space;
use kvm::exit_reason::ReasonNames;
use kvm::topology::HostTopology;
use sample::{Migrations, ThreadEvents, Timing, UserspaceCell};
use std::collections::BTreeMap;

/// Limit of the accesses that share an exit's time; an emulated string instruction can make many.
/// Further accesses of the exit count without time.
const MAX_SHARING: usize = 64;
/// Limit of the reasons of exits that the VMM served.
const MAX_USERSPACE: usize = 128;

/// An exit whose entry has not come yet.
#[derive(Debug, Clone, Copy, Default)]
struct OpenExit {
    reason: ExitReason,
    began: u64,
    /// Whether no event was lost since it began.
    trusted: bool,
    parts: ExitParts,
    /// When the VMM began to work for this exit, while it does.
    user_since: Option<u64>,
    /// When the VMM took the vCPU out of KVM.
    ended_at: Option<u64>,
    /// Time in halt after `ended_at`.
    halted_after_ns: u64,
    /// Time in which the thread was stopped, before `ended_at`.
    stopped_ns: u64,
}

impl OpenExit {
    /// How long the exit took if the vCPU enters the guest now.
    fn duration(&self, now: u64) -> u64 {
        let until = self.ended_at.unwrap_or(now);
        let ns = until
            .saturating_sub(self.began)
            .saturating_sub(self.stopped_ns);
        ns + self.halted_after_ns
    }

    /// Takes the time from `since` until now out of the exit: the thread was stopped and did
    /// nothing for the guest.
    fn exclude_stop(&mut self, since: u64, now: u64) {
        if self.ended_at.is_some() {
            return;
        }
        let ns = now.saturating_sub(since.max(self.began));
        self.stopped_ns += ns;
        self.postpone_userspace(ns);
    }

    /// If the VMM works for this exit, it did not run for `ns`: so its time begins that much later.
    fn postpone_userspace(&mut self, ns: u64) {
        self.user_since = self.user_since.map(|since| since + ns);
    }
}

/// Whether the VMM does not serve this exit but stops the vCPU: a signal (-4), a debugger (4), a
/// shutdown (8), a failed entry (9), an internal error (17), a system event (24). `ENDS_EXIT` in
/// bpf/layout.h is the same.
const fn ends_exit(reason: i32) -> bool {
    matches!(reason, -4 | 4 | 8 | 9 | 17 | 24)
}

/// When a thread was preempted, and the task that took its pCPU.
#[derive(Debug)]
struct Preemption {
    since: u64,
    by: Task,
}

/// What the scheduler did with a thread.
#[derive(Debug, Default)]
struct SchedulerCounts {
    /// Whether the thread was switched in or out at least once, so that preemptions are known.
    seen_switch: bool,
    woken_at: Option<u64>,
    preempted: Option<Preemption>,
    /// When SIGSTOP or a debugger stopped the thread, while it is stopped.
    stopped_at: Option<u64>,
    running_since: Option<u64>,
    /// Time on a CPU; `None` after a gap.
    ran_ns: Option<u64>,
    /// How often the thread left a CPU.
    departures: u64,
    /// How often the thread left a CPU without an event that said when it had begun to run.
    unseen_starts: u64,
    /// Whether the thread ever slept: some of its waits then begin with a waking.
    slept: bool,
    wakeups: Timing,
    run_delays: Timing,
    woken_by: Tasks,
    preempted_by: Tasks,
}

impl SchedulerCounts {
    /// Time on a CPU; `None` where more than one in fifty starts of a run was not seen.
    fn trusted_ran_ns(&self) -> Option<u64> {
        if self.seen_switch && self.unseen_starts * 50 <= self.departures {
            self.ran_ns
        } else {
            None
        }
    }

    /// Counts the time on a CPU that ends here.
    fn end_run(&mut self, until: u64) {
        if let Some(since) = self.running_since.take()
            && let Some(ran) = &mut self.ran_ns
        {
            *ran += until.saturating_sub(since);
        }
    }

    /// Time runnable without a CPU; `None` for a thread that slept and whose wakings are not
    /// traced: the waits after them are missing.
    fn waited_ns(&self) -> Option<u64> {
        if self.seen_switch && (!self.slept || !self.woken_by.is_empty()) {
            Some(self.run_delays.total_ns.unwrap_or(0))
        } else {
            None
        }
    }
}

/// One thread that runs a guest.
#[derive(Debug, Default)]
pub(super) struct PairedThread {
    /// As [`Pairing::exact`](super::Pairing::exact).
    exact: bool,
    pub pid: i32,
    /// The time of its first event.
    pub born: u64,
    /// The time of its end.
    pub died: Option<u64>,
    pub comm: String,
    vcpu: Option<u32>,
    open: Option<OpenExit>,
    /// The accesses of the open exit, which will share its time.
    sharing: Vec<AccessKey>,
    exits: Exits,
    accesses: Accesses,
    /// Exits that the VMM served, by reason.
    userspace: BTreeMap<i32, u64>,
    migrations: Migrations,
    /// When the thread began to run, for [`SchedulerCounts::running_since`]; `None` after a gap.
    runs_since: Option<u64>,
    /// `None` before the thread's first event of the scheduler.
    scheduler: Option<Box<SchedulerCounts>>,
}

impl PairedThread {
    /// `runs_since`: when the thread began to run, if it runs.
    pub fn new(pid: i32, born: u64, runs_since: u64, counts_migrations: bool, exact: bool) -> Self {
        let migrations = Migrations {
            total: if counts_migrations { Some(0) } else { None },
            ..Migrations::default()
        };
        Self {
            exact,
            pid,
            born,
            migrations,
            runs_since: Some(runs_since),
            ..Self::default()
        }
    }

    fn scheduler(&mut self) -> &mut SchedulerCounts {
        self.scheduler.get_or_insert_with(|| {
            Box::new(SchedulerCounts {
                running_since: self.runs_since,
                ran_ns: self.runs_since.map(|_| 0),
                ..SchedulerCounts::default()
            })
        })
    }

    /// Begins an exit. An exit that is still open never got its entry and does not count.
    pub fn exit(&mut self, time: u64, reason: ExitReason, vcpu: Option<u32>, trusted: bool) {
        self.vcpu = vcpu.or(self.vcpu);
        self.count_accesses(None);
        self.open = Some(OpenExit {
            reason,
            began: time,
            trusted,
            ..OpenExit::default()
        });
    }

    /// Counts an exit without its time. This and the functions below return false if what they
    /// count finds no cell. `room`: whether a new reason may take a cell.
    pub fn exit_untimed(&mut self, reason: ExitReason, vcpu: Option<u32>, room: bool) -> bool {
        self.vcpu = vcpu.or(self.vcpu);
        self.exits.add(reason, None, self.exact, room)
    }

    /// Counts the open exit, which ends here, unless events were lost within it.
    pub fn entry(&mut self, time: u64, vcpu: Option<u32>, room: bool) -> bool {
        self.vcpu = vcpu.or(self.vcpu);
        self.leave_userspace(time, 0);
        let Some(open) = self
            .open
            .take()
            .filter(|open| open.trusted && open.began <= time)
        else {
            self.count_accesses(None);
            return true;
        };
        let ns = open.duration(time);
        self.count_accesses(Some(ns));
        let time = ExitTime {
            ns,
            parts: open.parts,
        };
        self.exits.add(open.reason, Some(time), self.exact, room)
    }

    /// Ends the thread's events. An exit without an entry counts, unless its reason has times: it
    /// would distort their mean.
    pub fn end(&mut self, room: bool) -> bool {
        self.count_accesses(None);
        match self.open.take() {
            Some(open) if !self.exits.is_timed(open.reason) => {
                self.exits.add(open.reason, None, self.exact, room)
            }
            _ => true,
        }
    }

    /// How many addresses and reasons have a cell.
    pub fn cell_count(&self) -> usize {
        self.accesses.cells.len() + self.exits.cells.len()
    }

    /// Counts an access when the open exit ends, or now if there is none. `room`: whether a new
    /// address may take a cell. The lowest two bits of a memory address are cleared, as in
    /// `AccessCell`.
    pub fn access(&mut self, time: u64, access: TracedAccess, room: bool) -> bool {
        self.leave_userspace(time, 0);
        let address = if self.exact || access.space != Space::Mmio {
            access.address
        } else {
            access.address & !3
        };
        let wanted = AccessKey {
            space: access.space,
            address: Some(address),
            direction: access.direction,
        };
        let key = self.accesses.key(wanted, room);
        self.accesses.record(key, time, access.fault);
        if self.open.is_some_and(|open| open.trusted) && self.sharing.len() < MAX_SHARING {
            self.sharing.push(key);
        } else {
            self.accesses.add(key, None, self.exact);
        }
        key == wanted
    }

    /// KVM passes the exit on to the VMM.
    pub fn userspace(&mut self, time: u64, reason: i32) -> bool {
        let ends = ends_exit(reason);
        if ends {
            self.leave_userspace(time, 0);
        }
        if let Some(open) = &mut self.open
            && open.ended_at.is_none()
        {
            if ends {
                open.ended_at = Some(time);
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

    /// The vCPU slept or polled in the kernel for `ns` until now.
    pub fn halted(&mut self, time: u64, ns: u64) {
        self.leave_userspace(time, ns);
        if let Some(open) = &mut self.open {
            let halted_ns = ns.min(time.saturating_sub(open.ended_at.unwrap_or(open.began)));
            open.parts.halted += halted_ns;
            if open.ended_at.is_some() {
                open.halted_after_ns += halted_ns;
            }
        }
    }

    /// The VMM's part of the exit ends with the first event of the kernel after it. `slept_ns`: how
    /// long the thread slept in the kernel before that event.
    fn leave_userspace(&mut self, time: u64, slept_ns: u64) {
        if let Some(open) = &mut self.open
            && let Some(since) = open.user_since.take()
        {
            open.parts.userspace += time.saturating_sub(since).saturating_sub(slept_ns);
        }
    }

    /// Counts the accesses of the exit that ended. Without its duration only their number counts.
    fn count_accesses(&mut self, exit_ns: Option<u64>) {
        let sharers = self.sharing.len() as u64;
        for (i, key) in self.sharing.drain(..).enumerate() {
            let share = exit_ns.map(|ns| {
                // The first one gets the remainder.
                let remainder = if i == 0 { ns % sharers } else { 0 };
                ns / sharers + remainder
            });
            self.accesses.add(key, share, self.exact);
        }
    }

    /// Events were lost, perhaps the end of the open exit.
    pub fn distrust(&mut self) {
        if let Some(open) = &mut self.open {
            open.trusted = false;
        }
        self.count_accesses(None);
        self.runs_since = None;
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
            let is_running = scheduler.running_since.is_some();
            scheduler.end_run(now);
            if is_running {
                scheduler.running_since = Some(now);
            }
        }
    }

    pub fn migrated(&mut self, from: u32, to: u32, topology: &HostTopology) {
        let migrations = &mut self.migrations;
        *migrations.total.get_or_insert(0) += 1;
        let known = topology.cpu(from).is_some() && topology.cpu(to).is_some();
        migrations.cross_core += u64::from(known && !topology.same_core(from, to));
        migrations.cross_llc += u64::from(topology.same_llc(from, to) == Some(false));
        migrations.cross_node += u64::from(topology.same_node(from, to) == Some(false));
    }

    pub fn waking(&mut self, time: u64, by: Task) {
        let scheduler = self.scheduler();
        scheduler.woken_at = Some(time);
        scheduler.woken_by.add(by, 0);
    }

    pub fn switch_out(&mut self, time: u64, to: LeftFor, next: Task) {
        let scheduler = self.scheduler();
        scheduler.seen_switch = true;
        scheduler.departures += 1;
        scheduler.slept |= to != LeftFor::Waiting;
        scheduler.unseen_starts += u64::from(scheduler.running_since.is_none());
        scheduler.end_run(time);
        scheduler.woken_at = None;
        scheduler.preempted = if to == LeftFor::Waiting {
            Some(Preemption {
                since: time,
                by: next,
            })
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
        scheduler.seen_switch = true;
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
            open.exclude_stop(since, time);
        }
        let Some(Preemption { since, by }) = preempted else {
            return;
        };
        let scheduler = self.scheduler();
        let ns = time.saturating_sub(since);
        scheduler.preempted_by.add(by, ns);
        scheduler.run_delays.add(ns);
        if let Some(open) = &mut self.open
            && open.ended_at.is_none()
        {
            open.parts.preempted += ns.min(time.saturating_sub(open.began));
            open.postpone_userspace(ns);
        }
    }

    pub fn snapshot(&mut self, tid: i32, names: &ReasonNames, seen: SeenKinds) -> TracedThread {
        let none = &mut SchedulerCounts::default();
        let scheduler = self.scheduler.as_deref_mut().unwrap_or(none);
        let mut accesses = self.accesses.take();
        // Accesses of an exit that is still open count here. They get their time when it ends.
        for key in &self.sharing {
            if let Some(cell) = accesses.iter_mut().find(|cell| {
                cell.space == key.space
                    && cell.address == key.address
                    && cell.direction == key.direction
            }) {
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
            ran_ns: scheduler.trusted_ran_ns(),
            waited_ns: scheduler.waited_ns(),
            events: ThreadEvents {
                exits: self.exits.take(
                    names,
                    SeenKinds {
                        switches: scheduler.seen_switch,
                        ..seen
                    },
                ),
                accesses,
                userspace,
                migrations: self.migrations,
                wakeups: take_counted(&mut scheduler.wakeups),
                woken_by: scheduler.woken_by.sorted(),
                preempted_by: scheduler.preempted_by.sorted(),
                run_delays: take_counted(&mut scheduler.run_delays),
            },
        }
    }
}
