//! From the memory of a slot to a [`TracedThread`].

use super::layout::{ISA_ARM64, RawAccess, RawExit, RawOthers, RawTiming, Slot, USERSPACE};
use super::snapshot::{AccessExtremes, Extremes, IntervalExtremes};
use crate::events::{ThreadKey, TracedThread, kernel_name, task_name};
use kvm::Space;
use kvm::exit_reason::ReasonNames;
use kvm::isa::Isa;
use sample::{
    AccessCell, BUCKETS, Direction, ExitCell, Histogram, Migrations, MissingExtreme, OtherTask,
    ThreadEvents, Timing, UserspaceCell,
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
        let wakeups = if self.parts.switches && self.parts.wakings {
            let wakeups = timing(true, &slot.wakeup, interval.wakeups, &slot.wakeup_histogram);
            Some(Box::new(wakeups))
        } else {
            None
        };
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
        if slot.overflow.load(Relaxed) != 0
            && let Some((c, extremes)) = other
            && let Some(other) = self.exit(c, *extremes)
        {
            cells.push(ExitCell {
                name: Some("other".into()),
                ..other
            });
        }
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
        let timed = self.parts.timed;
        let mut exit = ExitCell {
            isa,
            code,
            name: kernel_name(self.names, isa, code),
            time: timing(timed, &cell.time, extremes, &cell.histogram),
            ..ExitCell::default()
        };
        if timed && self.parts.userspace {
            exit.userspace_ns = Some(get(&cell.userspace));
        }
        if timed && self.parts.halts {
            exit.halted_ns = Some(get(&cell.halted));
        }
        if timed && self.parts.switches {
            exit.preempted_ns = Some(get(&cell.preempted));
        }
        Some(exit)
    }

    fn access(
        &self,
        cell: &RawAccess,
        histogram: &[AtomicU64; BUCKETS],
        interval: AccessExtremes,
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
            time: timing(timed, &cell.time, interval.time, histogram),
            faults: get(&cell.faults),
            burst: if self.parts.timed {
                Some(interval.burst)
            } else {
                None
            },
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
    let mut timing = Timing {
        count: get(&t.count),
        total_ns: Some(get(&t.total)),
        sum_sq: Some(u128::from(get(&t.square_high)) << 64 | u128::from(get(&t.square_low))),
        histogram: Some(Histogram::trimmed(buckets.each_ref().map(get))),
        ..Timing::default()
    };
    if extremes.max > 0 {
        timing.min_ns = Some(extremes.min);
        timing.max_ns = Some(extremes.max);
    }
    timing
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
    let used = get(&slot.userspace_used);
    let mut cells = Vec::new();
    for (i, count) in slot.userspace.iter().enumerate() {
        let count = get(count);
        if used >> i & 1 == 0 || count == 0 {
            continue;
        }
        cells.push(UserspaceCell {
            reason: match i {
                i if i == USERSPACE - 2 => SIGNAL,
                i if i == USERSPACE - 1 => other,
                i => i as i32,
            },
            count,
        });
    }
    cells.sort_unstable_by_key(|c| c.reason);
    cells.shrink_to_fit();
    cells
}

/// In the order of their places, which stays from reading to reading; last what those counted that
/// lost theirs.
fn others(cells: &RawOthers) -> Vec<OtherTask> {
    let mut tasks = Vec::new();
    for other in &cells.task {
        let count = other.count.load(Relaxed);
        if count == 0 {
            break;
        }
        tasks.push(OtherTask {
            tid: other.tid.load(Relaxed).cast_signed(),
            comm: text(&other.comm),
            count: count.into(),
            ns: get(&other.ns),
        });
    }
    tasks.extend(OtherTask::rest(
        get(&cells.rest.count),
        get(&cells.rest.total),
    ));
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
