//! From the memory of a slot to a [`TracedThread`].

use super::layout::{ISA_ARM64, RawAccess, RawExit, RawOthers, RawTiming, Slot, USERSPACE};
use super::snapshot::{AccessExtremes, Extremes, IntervalExtremes, OTHER_EXIT};
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
/// The cells of exits to the VMM that are not numbered by `KVM_EXIT_*`: on a signal, and with any
/// other error.
const SIGNAL_CELL: usize = USERSPACE - 2;
const ERROR_CELL: usize = USERSPACE - 1;

/// What the attached programs measure. What they do not measure is `None` in a [`TracedThread`],
/// not 0.
#[derive(Debug, Default)]
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

/// What decoding a slot needs besides its memory.
#[derive(Debug)]
pub(super) struct SlotDecoder {
    /// What the attached programs measure.
    pub measured: Measured,
    /// The names of exit reasons on this kernel.
    pub names: ReasonNames,
}

/// The thread that has a slot.
pub(super) fn key_of(slot: &Slot) -> ThreadKey {
    ThreadKey {
        tid: slot.tid.load(Relaxed).cast_signed(),
        born_ns: get(&slot.born),
    }
}

fn get(n: &AtomicU64) -> u64 {
    n.load(Relaxed)
}

fn text(name: &[AtomicU8; 16]) -> String {
    task_name(name.each_ref().map(|byte| byte.load(Relaxed)))
}

impl SlotDecoder {
    /// A thread with its counters, from a copy of its slot and the extremes of the interval that
    /// ends with the copy.
    pub fn thread(&self, slot: &Slot, interval: &IntervalExtremes) -> TracedThread {
        let vcpu = slot.vcpu.load(Relaxed).checked_sub(1);
        let wakeups = if self.measured.switches && self.measured.wakings {
            let wakeups = timing(true, &slot.wakeup, interval.wakeups, &slot.wakeup_histogram);
            Some(Box::new(wakeups))
        } else {
            None
        };
        // A thread waits for a CPU after it was woken and after it was preempted.
        let run_delays = wakeups.clone().map(|mut delays| {
            let preempted = timing(
                true,
                &slot.preempted,
                interval.preempted,
                &slot.preempted_histogram,
            );
            delays.merge(&preempted, MissingExtreme::NothingInInterval);
            delays
        });
        let events = ThreadEvents {
            exits: self.exits(slot, interval),
            accesses: self.accesses(slot, interval),
            userspace: userspace(slot),
            migrations: self.migrations(slot),
            run_delays,
            wakeups,
            woken_by: other_tasks(&slot.woken_by),
            preempted_by: other_tasks(&slot.held_by),
        };
        TracedThread {
            key: key_of(slot),
            died_ns: Some(get(&slot.died)).filter(|ns| *ns > 0),
            pid: slot.tgid.load(Relaxed).cast_signed(),
            comm: text(&slot.comm),
            vcpu,
            ran_ns: None,
            waited_ns: None,
            events,
        }
    }

    /// Exits by reason. Programs take cells in order; once all are taken, further reasons count in
    /// the last cell, `other`.
    fn exits(&self, slot: &Slot, interval: &IntervalExtremes) -> Vec<ExitCell> {
        let mut cells = Vec::new();
        for (cell, extremes) in slot.exits.iter().zip(&interval.exits).take(OTHER_EXIT) {
            if cell.used.load(Relaxed) == 0 {
                break;
            }
            cells.extend(self.exit(cell, *extremes));
        }
        if slot.overflow.load(Relaxed) != 0
            && let Some(other) = self.exit(&slot.exits[OTHER_EXIT], interval.exits[OTHER_EXIT])
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
        let mut cells = Vec::new();
        for (i, cell) in slot.accesses.iter().enumerate() {
            if used >> i & 1 != 0 {
                let histogram = &slot.access_histogram[i];
                cells.extend(self.access(cell, histogram, interval.accesses[i]));
            }
        }
        for (kind, rest) in slot.rests.iter().enumerate() {
            let count = get(&rest.count);
            if count == 0 {
                continue;
            }
            cells.push(AccessCell {
                space: space(kind as u64),
                address: None,
                direction: direction(kind as u64),
                time: Timing {
                    count,
                    total_ns: Some(get(&rest.total)).filter(|ns| self.measured.timed && *ns > 0),
                    ..Timing::default()
                },
                ..AccessCell::default()
            });
        }
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
        let timed = self.measured.timed;
        let mut exit = ExitCell {
            isa,
            code,
            name: kernel_name(&self.names, isa, code),
            time: timing(timed, &cell.time, extremes, &cell.histogram),
            ..ExitCell::default()
        };
        if timed && self.measured.userspace {
            exit.userspace_ns = Some(get(&cell.userspace));
        }
        if timed && self.measured.halts {
            exit.halted_ns = Some(get(&cell.halted));
        }
        if timed && self.measured.switches {
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
            burst: if self.measured.timed {
                Some(interval.burst)
            } else {
                None
            },
        })
    }

    fn migrations(&self, slot: &Slot) -> Migrations {
        if !self.measured.switches {
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

/// The timing of a cell; its count alone if it is not timed.
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

/// The space that is accessed. The key of an access cell is `address << 3 | space << 1 | write`; a
/// kind of accesses is a key without an address.
fn space(key: u64) -> Space {
    match key >> 1 & 3 {
        1 => Space::Pio,
        2 => Space::Mmio,
        _ => Space::Msr,
    }
}

/// See [`space`].
fn direction(key: u64) -> Direction {
    if key & 1 == 0 {
        Direction::Read
    } else {
        Direction::Write
    }
}

fn userspace(slot: &Slot) -> Vec<UserspaceCell> {
    let used = get(&slot.userspace_used);
    let mut cells = Vec::new();
    for (i, count) in slot.userspace.iter().enumerate() {
        let count = get(count);
        if used >> i & 1 == 0 || count == 0 {
            continue;
        }
        cells.push(UserspaceCell {
            reason: match i {
                SIGNAL_CELL => SIGNAL,
                ERROR_CELL => slot.other_errno.load(Relaxed).cast_signed(),
                _ => i as i32,
            },
            count,
        });
    }
    cells.sort_unstable_by_key(|c| c.reason);
    cells.shrink_to_fit();
    cells
}

/// The tasks in the order of their cells, which stays from reading to reading. The last one stands
/// for all tasks that have lost their cells.
fn other_tasks(cells: &RawOthers) -> Vec<OtherTask> {
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

/// The number of events that the programs ran for, as far as the cells show. A timed exit counts
/// twice, as its entry was an event too, and so does a wake-up: it is a waking and a switch.
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
