//! The bounded tables of one thread: exits, accesses, exits to the VMM, other tasks.

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

/// Which kinds of events occurred. Without them a part of an exit's time is unknown, not 0.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SeenKinds {
    pub userspace: bool,
    pub halted: bool,
    pub switches: bool,
}

/// The parts of an exit's time, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ExitParts {
    pub userspace: u64,
    pub halted: u64,
    pub preempted: u64,
}

#[derive(Debug, Default)]
pub(super) struct ExitCounts {
    time: Timing,
    parts: ExitParts,
}

/// Exits by reason.
#[derive(Debug, Default)]
pub(super) struct Exits(pub HashMap<(Isa, u32), ExitCounts>);

impl Exits {
    /// Counts one exit, with its time if that is known. Returns false if its reason finds no cell.
    /// `room`: whether a new reason may take a cell.
    pub fn add(
        &mut self,
        reason: (Isa, u32),
        timed: Option<(u64, ExitParts)>,
        exact: bool,
        room: bool,
    ) -> bool {
        if !(room && self.0.len() < MAX_EXITS || self.0.contains_key(&reason)) {
            return false;
        }
        let exit = self.0.entry(reason).or_default();
        count(&mut exit.time, timed.map(|(ns, _)| ns), exact);
        if let Some((_, parts)) = timed {
            exit.parts.userspace += parts.userspace;
            exit.parts.halted += parts.halted;
            exit.parts.preempted += parts.preempted;
        }
        true
    }

    /// Whether exits of this reason have times.
    pub fn is_timed(&self, reason: (Isa, u32)) -> bool {
        self.0
            .get(&reason)
            .is_some_and(|exit| exit.time.total_ns.is_some())
    }

    /// The cells, sorted. Extremes are reset.
    pub fn take(&mut self, names: &ReasonNames, seen: SeenKinds) -> Vec<ExitCell> {
        // Most threads have few reasons: no room for more.
        let mut cells = Vec::with_capacity(self.0.len());
        cells.extend(
            self.0
                .iter_mut()
                .map(|((isa, code), exit)| exit.take(*isa, *code, names, seen)),
        );
        cells.sort_unstable_by_key(|cell| (cell.isa, cell.code));
        cells
    }
}

impl ExitCounts {
    fn take(&mut self, isa: Isa, code: u32, names: &ReasonNames, seen: SeenKinds) -> ExitCell {
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

/// What identifies an access cell. `None`: the cell of all addresses without room.
pub(super) type AccessKey = (Space, Option<u64>, Direction);

#[derive(Debug, Default)]
pub(super) struct AccessCounts {
    time: Timing,
    faults: u64,
    last: u64,
    run: Burst,
    longest: Burst,
}

/// Ports, addresses and MSRs.
#[derive(Debug, Default)]
pub(super) struct Accesses(pub HashMap<AccessKey, AccessCounts>);

impl Accesses {
    /// The cell of an access, and whether it is the address's own one. `room`: there may be a new
    /// one.
    pub fn key(&self, own: AccessKey, room: bool) -> (AccessKey, bool) {
        // The six `other` cells (three spaces, two directions) stay within the limit.
        if room && self.0.len() < MAX_ACCESSES - 6 || self.0.contains_key(&own) {
            (own, true)
        } else {
            ((own.0, None, own.2), false)
        }
    }

    /// Records bursts and faults of an access, not its count.
    pub fn seen(&mut self, key: AccessKey, time: u64, fault: bool) {
        let state = self.0.entry(key).or_default();
        state.faults += u64::from(fault);
        if state.run.count > 0 && time.saturating_sub(state.last) < BURST_GAP_NS {
            state.run.count += 1;
            state.run.ns += time.saturating_sub(state.last);
        } else {
            state.run = Burst { count: 1, ns: 0 };
        }
        state.last = time;
        if state.run.count > state.longest.count {
            state.longest = state.run;
        }
    }

    /// Counts an access, with its share of the exit's time if that is known.
    pub fn add(&mut self, key: AccessKey, ns: Option<u64>, exact: bool) {
        count(&mut self.0.entry(key).or_default().time, ns, exact);
    }

    /// The cells, sorted. Extremes and bursts are reset.
    pub fn take(&mut self) -> Vec<AccessCell> {
        let mut cells: Vec<AccessCell> = self
            .0
            .iter_mut()
            .map(|(&(space, address, direction), state)| AccessCell {
                space,
                address,
                direction,
                time: take_timing(&mut state.time),
                faults: state.faults,
                burst: Some(std::mem::take(&mut state.longest)),
            })
            .collect();
        cells.sort_unstable_by_key(|cell| (cell.space, cell.address, cell.direction));
        cells
    }
}

/// Other tasks with count and time. A full table adds its least important task to the rest.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    tasks: HashMap<i32, TaskCounts>,
    rest: TaskCounts,
}

#[derive(Debug, Clone, Copy, Default)]
struct TaskCounts {
    comm: [u8; 16],
    count: u64,
    ns: u64,
}

impl Tasks {
    /// Counts one event with this task.
    pub fn add(&mut self, task: Task, ns: u64) {
        if self.tasks.len() >= MAX_TASKS && !self.tasks.contains_key(&task.tid) {
            let rarest = self
                .tasks
                .iter()
                .min_by_key(|(_, counts)| (counts.ns, counts.count))
                .map(|(tid, _)| *tid);
            if let Some(rarest) = rarest.and_then(|tid| self.tasks.remove(&tid)) {
                self.rest.count += rarest.count;
                self.rest.ns = self.rest.ns.saturating_add(rarest.ns);
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

    /// All tasks in order of thread id, then the rest.
    pub fn all(&self) -> Vec<OtherTask> {
        let mut all = Vec::with_capacity(self.tasks.len());
        for (tid, counts) in &self.tasks {
            all.push(OtherTask {
                tid: *tid,
                comm: task_name(counts.comm),
                count: counts.count,
                ns: counts.ns,
            });
        }
        all.sort_unstable_by_key(|task| task.tid);
        all.extend(OtherTask::rest(self.rest.count, self.rest.ns));
        all
    }
}
