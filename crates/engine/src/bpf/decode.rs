//! From the memory of a slot to a [`TracedThread`].

use super::layout::{
    ISA_ARM64, RawAccess, RawExit, RawOther, RawOthers, RawTiming, Slot, USERSPACE,
};
use super::snapshot::{Extremes, IntervalExtremes};
use crate::events::{ThreadKey, TracedThread, task_name};
use kvm::exit_reason::{self, ReasonNames};
use kvm::isa::Isa;
use kvm::{Space, sanitize};
use sample::{
    AccessCell, BUCKETS, Burst, Direction, ExitCell, Histogram, Migrations, MissingExtreme,
    OtherTask, ThreadEvents, Timing, UserspaceCell,
};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// `-EINTR`, the reason of an exit on a signal.
const SIGNAL: i32 = -4;

/// What the attached programs measure; the rest is `None`, not 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "any of these can be missing by itself"
)]
pub(super) struct Measured {
    /// Durations are measured.
    pub timed: bool,
    /// `kvm_userspace_exit` is watched.
    pub userspace: bool,
    /// `kvm_vcpu_wakeup` is watched.
    pub halts: bool,
    /// `sched_switch` is watched.
    pub switches: bool,
    /// `sched_waking` is watched.
    pub wakings: bool,
}

/// What decoding needs besides the memory.
pub(super) struct SlotDecoder<'a> {
    pub parts: Measured,
    pub names: &'a ReasonNames,
}

fn get(n: &AtomicU64) -> u64 {
    n.load(Relaxed)
}

fn text(name: &[AtomicU8; 16]) -> String {
    task_name(name.each_ref().map(|byte| byte.load(Relaxed)))
}

impl SlotDecoder<'_> {
    /// All of a thread, from a copy of its slot and the extremes of the interval that ends with it.
    pub fn thread(&self, slot: &Slot, interval: &IntervalExtremes) -> TracedThread {
        let vcpu = slot.vcpu.load(Relaxed).checked_sub(1);
        let wakeups = (self.parts.switches && self.parts.wakings).then(|| {
            Box::new(timing(
                true,
                &slot.wakeup,
                interval.wakeups,
                &slot.wakeup_histogram,
            ))
        });
        let events = ThreadEvents {
            exits: self.exits(slot, interval),
            accesses: self.accesses(slot, interval),
            userspace: userspace(slot),
            migrations: self.migrations(slot),
            run_delays: wakeups.clone().map(|mut all| {
                let preempted = timing(
                    true,
                    &slot.preempted,
                    interval.preempted,
                    &slot.preempted_histogram,
                );
                all.merge(&preempted, MissingExtreme::NothingInInterval);
                all
            }),
            wakeups,
            woken_by: others(&slot.woken_by),
            preempted_by: others(&slot.held_by),
        };
        TracedThread {
            key: ThreadKey {
                tid: slot.tid.load(Relaxed).cast_signed(),
                born_ns: get(&slot.born),
            },
            died_ns: Some(get(&slot.died)).filter(|ns| *ns > 0),
            pid: slot.tgid.load(Relaxed).cast_signed(),
            comm: text(&slot.comm),
            vcpu,
            ran_ns: None,
            waited_ns: None,
            events,
        }
    }

    /// Programs take cells in order, and `other` when none is left.
    fn exits(&self, slot: &Slot, interval: &IntervalExtremes) -> Vec<ExitCell> {
        let mut all = slot.exits.iter().zip(&interval.exits);
        let other = all.next_back();
        let taken = all.take_while(|(c, _)| c.used.load(Relaxed) != 0);
        let mut cells: Vec<ExitCell> = taken
            .filter_map(|(c, extremes)| self.exit(c, *extremes))
            .collect();
        let overflowed = slot.overflow.load(Relaxed) != 0;
        let other = other
            .filter(|_| overflowed)
            .and_then(|(c, extremes)| self.exit(c, *extremes));
        cells.extend(other.map(|c| ExitCell {
            name: Some("other".into()),
            ..c
        }));
        // Thousands of threads have one or two cells each, and a list begins with room for four.
        cells.shrink_to_fit();
        cells
    }

    fn accesses(&self, slot: &Slot, interval: &IntervalExtremes) -> Vec<AccessCell> {
        let used = get(&slot.accesses_used);
        let own = slot
            .accesses
            .iter()
            .zip(&slot.access_histogram)
            .zip(&interval.accesses)
            .enumerate();
        let own = own.filter(|(i, _)| used >> i & 1 != 0);
        let mut cells: Vec<AccessCell> = own
            .filter_map(|(_, ((c, histogram), interval))| self.access(c, histogram, *interval))
            .collect();
        let rests = slot
            .rests
            .iter()
            .enumerate()
            .filter(|(_, rest)| get(&rest.count) > 0);
        cells.extend(rests.map(|(kind, rest)| AccessCell {
            space: space(kind as u64),
            address: None,
            direction: direction(kind as u64),
            time: Timing {
                count: get(&rest.count),
                total_ns: Some(get(&rest.total)).filter(|ns| self.parts.timed && *ns > 0),
                ..Timing::default()
            },
            ..AccessCell::default()
        }));
        cells.shrink_to_fit();
        cells
    }

    fn exit(&self, cell: &RawExit, extremes: Extremes) -> Option<ExitCell> {
        if get(&cell.time.count) == 0 {
            return None;
        }
        let code = cell.code.load(Relaxed);
        let isa = match cell.isa.load(Relaxed) {
            ISA_ARM64 => Isa::Arm64,
            other => Isa::from_code(other),
        };
        let learnt = || {
            self.names
                .get(&(isa, exit_reason::basic(isa, code)))
                .map(|name| sanitize(name, 64))
        };
        let name = if exit_reason::name(isa, code).is_some() {
            None
        } else {
            learnt()
        };
        let timed = self.parts.timed;
        Some(ExitCell {
            isa,
            code,
            name,
            time: timing(timed, &cell.time, extremes, &cell.histogram),
            userspace_ns: (timed && self.parts.userspace).then(|| get(&cell.userspace)),
            halted_ns: (timed && self.parts.halts).then(|| get(&cell.halted)),
            preempted_ns: (timed && self.parts.switches).then(|| get(&cell.preempted)),
        })
    }

    fn access(
        &self,
        cell: &RawAccess,
        histogram: &[AtomicU64; BUCKETS],
        (extremes, longest): (Extremes, Burst),
    ) -> Option<AccessCell> {
        if get(&cell.time.count) == 0 {
            return None;
        }
        let key = get(&cell.key);
        let timed = cell.timed.load(Relaxed) != 0;
        Some(AccessCell {
            space: space(key),
            address: Some(key >> 3),
            direction: direction(key),
            time: timing(timed, &cell.time, extremes, histogram),
            faults: get(&cell.faults),
            burst: self.parts.timed.then_some(longest),
        })
    }

    fn migrations(&self, slot: &Slot) -> Migrations {
        if !self.parts.switches {
            return Migrations::default();
        }
        Migrations {
            total: Some(get(&slot.migrations)),
            cross_core: get(&slot.cross_core),
            cross_llc: get(&slot.cross_llc),
            cross_node: get(&slot.cross_node),
        }
    }
}

/// The count alone of what is not timed.
fn timing(
    timed: bool,
    t: &RawTiming,
    extremes: Extremes,
    buckets: &[AtomicU64; BUCKETS],
) -> Timing {
    if !timed {
        return Timing {
            count: get(&t.count),
            ..Timing::default()
        };
    }
    let any = extremes.max > 0;
    Timing {
        count: get(&t.count),
        total_ns: Some(get(&t.total)),
        sum_sq: Some(u128::from(get(&t.square_high)) << 64 | u128::from(get(&t.square_low))),
        min_ns: any.then_some(extremes.min),
        max_ns: any.then_some(extremes.max),
        histogram: Some(Histogram::trimmed(buckets.each_ref().map(get))),
    }
}

/// Of an access cell's key.
fn space(key: u64) -> Space {
    match key >> 1 & 3 {
        1 => Space::Pio,
        2 => Space::Mmio,
        _ => Space::Msr,
    }
}

fn direction(key: u64) -> Direction {
    if key & 1 == 0 {
        Direction::Read
    } else {
        Direction::Write
    }
}

fn userspace(slot: &Slot) -> Vec<UserspaceCell> {
    let other = slot.other_errno.load(Relaxed).cast_signed();
    let reason = |index: usize| match index {
        i if i == USERSPACE - 2 => SIGNAL,
        i if i == USERSPACE - 1 => other,
        i => i as i32,
    };
    let used = get(&slot.userspace_used);
    let cells = slot
        .userspace
        .iter()
        .enumerate()
        .filter(|(i, _)| used >> i & 1 != 0)
        .map(|(i, n)| UserspaceCell {
            reason: reason(i),
            count: get(n),
        });
    let mut cells: Vec<_> = cells.filter(|c| c.count > 0).collect();
    cells.sort_unstable_by_key(|c| c.reason);
    cells.shrink_to_fit();
    cells
}

/// In the order of their places, which stays from reading to reading; last what those counted that
/// lost theirs.
fn others(cells: &RawOthers) -> Vec<OtherTask> {
    let task = |o: &RawOther| OtherTask {
        tid: o.tid.load(Relaxed).cast_signed(),
        comm: text(&o.comm),
        count: o.count.load(Relaxed).into(),
        ns: get(&o.ns),
    };
    let rest = OtherTask::rest(get(&cells.rest.count), get(&cells.rest.total));
    let places = cells.task.iter().take_while(|o| o.count.load(Relaxed) != 0);
    let mut tasks: Vec<OtherTask> = places.map(task).chain(rest).collect();
    tasks.shrink_to_fit();
    tasks
}

/// Events that the programs ran for, as far as the cells show.
pub(super) fn handled(events: &ThreadEvents) -> u64 {
    let exits: u64 = events
        .exits
        .iter()
        .map(|c| c.time.count * (1 + u64::from(c.time.total_ns.is_some())))
        .sum();
    let accesses: u64 = events.accesses.iter().map(|c| c.time.count).sum();
    let userspace: u64 = events.userspace.iter().map(|c| c.count).sum();
    exits + accesses + userspace + 2 * events.wakeups.as_ref().map_or(0, |w| w.count)
}
