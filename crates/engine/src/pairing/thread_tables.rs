//! The bounded tables of one thread: its exits, its accesses, and other tasks. A cell counts the
//! events of one key: one exit reason, one address, one task. A key that finds the table full gets
//! no cell.

use super::event::Task;
use crate::events::{kernel_name, task_name};
use foldhash::fast::RandomState;
use kvm::Space;
use kvm::exit_reason::ReasonNames;
use kvm::isa::Isa;
use sample::{AccessCell, Burst, Direction, ExitCell, OtherTask, SPREAD_CLIP_NS, Timing};
use std::collections::HashMap as Map;

/// A map with a fast hash function: every event uses several of them.
type HashMap<K, V> = Map<K, V, RandomState>;

/// Limits for each thread. Kernels know about 130 exit reasons; a guest can access any number of
/// addresses.
const MAX_EXITS: usize = 512;
const MAX_ACCESSES: usize = 4096;
const MAX_TASKS: usize = 64;
/// Accesses with smaller gaps belong to one burst.
const BURST_GAP_NS: u64 = 1_000_000;

/// Which kinds of events occurred. Where a kind did not, the part of an exit's time that it shows
/// is unknown, not 0.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SeenKinds {
    pub userspace: bool,
    pub halted: bool,
    pub switches: bool,
}

/// The parts of an exit's time, nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ExitParts {
    pub userspace: u64,
    pub halted: u64,
    pub preempted: u64,
}

/// How long an exit took.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExitTime {
    pub ns: u64,
    pub parts: ExitParts,
}

/// What identifies a cell of exits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct ExitReason {
    pub isa: Isa,
    pub code: u32,
}

#[derive(Debug, Default)]
pub(super) struct ExitCounts {
    time: Timing,
    parts: ExitParts,
}

/// Exits by reason.
#[derive(Debug, Default)]
pub(super) struct Exits {
    pub cells: HashMap<ExitReason, ExitCounts>,
}

impl Exits {
    /// Counts one exit, with its time if that is known. Returns false if its reason finds no cell.
    /// `room`: whether a new reason may take a cell.
    pub fn add(
        &mut self,
        reason: ExitReason,
        time: Option<ExitTime>,
        exact: bool,
        room: bool,
    ) -> bool {
        let is_new_allowed = room && self.cells.len() < MAX_EXITS;
        if !is_new_allowed && !self.cells.contains_key(&reason) {
            return false;
        }
        let cell = self.cells.entry(reason).or_default();
        count(&mut cell.time, time.map(|time| time.ns), exact);
        if let Some(ExitTime { parts, .. }) = time {
            cell.parts.userspace += parts.userspace;
            cell.parts.halted += parts.halted;
            cell.parts.preempted += parts.preempted;
        }
        true
    }

    /// Whether exits of this reason have times.
    pub fn is_timed(&self, reason: ExitReason) -> bool {
        self.cells
            .get(&reason)
            .is_some_and(|cell| cell.time.total_ns.is_some())
    }

    /// The cells, sorted. Extremes are reset.
    pub fn take(&mut self, names: &ReasonNames, seen: SeenKinds) -> Vec<ExitCell> {
        // Most threads have few reasons: no room for more.
        let mut cells = Vec::with_capacity(self.cells.len());
        for (reason, counts) in &mut self.cells {
            cells.push(counts.take(*reason, names, seen));
        }
        cells.sort_unstable_by_key(|cell| (cell.isa, cell.code));
        cells
    }
}

impl ExitCounts {
    fn take(&mut self, reason: ExitReason, names: &ReasonNames, seen: SeenKinds) -> ExitCell {
        let ExitReason { isa, code } = reason;
        let mut cell = ExitCell {
            isa,
            code,
            name: kernel_name(names, isa, code),
            time: take_timing(&mut self.time),
            ..ExitCell::default()
        };
        if cell.time.total_ns.is_none() {
            return cell;
        }
        if seen.userspace {
            cell.userspace_ns = Some(self.parts.userspace);
        }
        if seen.halted {
            cell.halted_ns = Some(self.parts.halted);
        }
        if seen.switches {
            cell.preempted_ns = Some(self.parts.preempted);
        }
        cell
    }
}

/// Counts one event, with its time if that is known. `exact`: a long time is not clipped in the sum
/// of squares.
fn count(time: &mut Timing, ns: Option<u64>, exact: bool) {
    match ns {
        Some(ns) => time.add_clipped(ns, if exact { u64::MAX } else { SPREAD_CLIP_NS }),
        None => time.count += 1,
    }
}

/// A copy of the timing. The extremes of the original are reset.
fn take_timing(timing: &mut Timing) -> Timing {
    let copy = timing.clone();
    timing.min_ns = None;
    timing.max_ns = None;
    copy
}

/// As [`take_timing`]; `None` where nothing was counted.
pub(super) fn take_counted(timing: &mut Timing) -> Option<Box<Timing>> {
    if timing.count == 0 {
        return None;
    }
    Some(Box::new(take_timing(timing)))
}

/// What identifies a cell of accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct AccessKey {
    pub space: Space,
    /// `None`: the cell of all addresses that have no cell of their own.
    pub address: Option<u64>,
    pub direction: Direction,
}

#[derive(Debug, Default)]
pub(super) struct AccessCounts {
    time: Timing,
    faults: u64,
    /// The time of the last access.
    last: u64,
    /// The burst that the last access belongs to.
    current: Burst,
    longest: Burst,
}

/// Accesses by port, address or MSR, and direction.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    pub cells: HashMap<AccessKey, AccessCounts>,
}

impl Accesses {
    /// The key of the cell where an access counts: the wanted one, or the same without an address.
    /// `room`: whether a new address may take a cell.
    pub fn key(&self, wanted: AccessKey, room: bool) -> AccessKey {
        // The six `other` cells (three spaces, two directions) stay within the limit.
        let is_new_allowed = room && self.cells.len() < MAX_ACCESSES - 6;
        if is_new_allowed || self.cells.contains_key(&wanted) {
            wanted
        } else {
            AccessKey {
                address: None,
                ..wanted
            }
        }
    }

    /// Records bursts and faults of an access, not its count.
    pub fn record(&mut self, key: AccessKey, time: u64, fault: bool) {
        let cell = self.cells.entry(key).or_default();
        cell.faults += u64::from(fault);
        let gap_ns = time.saturating_sub(cell.last);
        if cell.current.count > 0 && gap_ns < BURST_GAP_NS {
            cell.current.count += 1;
            cell.current.ns += gap_ns;
        } else {
            cell.current = Burst { count: 1, ns: 0 };
        }
        cell.last = time;
        if cell.current.count > cell.longest.count {
            cell.longest = cell.current;
        }
    }

    /// Counts an access, with its share of the exit's time if that is known.
    pub fn add(&mut self, key: AccessKey, ns: Option<u64>, exact: bool) {
        count(&mut self.cells.entry(key).or_default().time, ns, exact);
    }

    /// The cells, sorted. Extremes and bursts are reset.
    pub fn take(&mut self) -> Vec<AccessCell> {
        let mut cells = Vec::with_capacity(self.cells.len());
        for (key, counts) in &mut self.cells {
            cells.push(AccessCell {
                space: key.space,
                address: key.address,
                direction: key.direction,
                time: take_timing(&mut counts.time),
                faults: counts.faults,
                burst: Some(std::mem::take(&mut counts.longest)),
            });
        }
        cells.sort_unstable_by_key(|cell| (cell.space, cell.address, cell.direction));
        cells
    }
}

/// Other tasks with count and time. Where the table is full, a new task takes the cell of the task
/// with the least time, which is added to `rest`.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    tasks: HashMap<i32, TaskCounts>,
    rest: TaskCounts,
}

#[derive(Debug, Default)]
struct TaskCounts {
    comm: [u8; 16],
    count: u64,
    ns: u64,
}

impl Tasks {
    /// Counts one event with this task.
    pub fn add(&mut self, task: Task, ns: u64) {
        if self.tasks.len() >= MAX_TASKS && !self.tasks.contains_key(&task.tid) {
            let least = self
                .tasks
                .iter()
                .min_by_key(|(_, counts)| (counts.ns, counts.count))
                .map(|(tid, _)| *tid);
            if let Some(removed) = least.and_then(|tid| self.tasks.remove(&tid)) {
                self.rest.count += removed.count;
                self.rest.ns = self.rest.ns.saturating_add(removed.ns);
            }
        }
        let counts = self.tasks.entry(task.tid).or_default();
        counts.comm = task.comm;
        counts.count += 1;
        counts.ns += ns;
    }

    /// Whether none was added.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// All tasks in order of thread id, then `rest` as one task.
    pub fn sorted(&self) -> Vec<OtherTask> {
        let mut tasks = Vec::with_capacity(self.tasks.len());
        for (tid, counts) in &self.tasks {
            tasks.push(OtherTask {
                tid: *tid,
                comm: task_name(counts.comm),
                count: counts.count,
                ns: counts.ns,
            });
        }
        tasks.sort_unstable_by_key(|task| task.tid);
        tasks.extend(OtherTask::rest(self.rest.count, self.rest.ns));
        tasks
    }
}
