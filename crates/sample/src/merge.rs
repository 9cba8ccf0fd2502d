//! Adds up event counters: of several threads, of several files or of several tables. This is the only merge of
//! [`ThreadEvents`] and of what it is made of.
//!
//! Structs are taken apart without `..`, so that a new field does not compile until its merge is written.
//!
//! - Counts, faults and crossings add, saturating.
//! - Sum, squares and distribution of durations and the parts of an exit's time add. They describe every counted
//!   duration, so the sum is unknown if a side that counted durations does not know its own.
//! - Shortest and longest follow [`MissingExtreme`].
//! - Of two bursts the one with more accesses stays; a side without one changes nothing.
//! - Wake-ups, run delays and the number of migrations add; a side that did not watch them changes nothing.
//! - The pCPU before the last migration is unknown if both sides moved, because nothing orders their moves.
//! - Other tasks add by thread id and name.
//!
//! Merging is associative and commutative, apart from the order of the cells: new cells go to the end.

use super::{AccessCell, Burst, ExitCell, Growing as _, Histogram, Migrations, OtherTask, ThreadEvents, Timing};
use kvm::Isa;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;

/// Why a [`Timing`] with durations lacks the shortest or longest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingExtreme {
    /// Nothing happened within the last interval: counters continue from sample to sample, but extremes cover only the
    /// last interval. The other side's extreme holds.
    NothingInInterval,
    /// It is unknown: the counters cover one interval. The sum's extreme is unknown as well.
    Unknown,
}

impl ThreadEvents {
    /// Adds what another thread, or another source of the same thread, counted.
    pub fn merge(&mut self, other: Self, missing: MissingExtreme) {
        let Self { exits, accesses, userspace, migrations, wakeups, woken_by, preempted_by, run_delays } = other;
        merge_cells(&mut self.exits, exits, ExitCell::key, |sum, cell| sum.merge(cell, missing));
        merge_cells(&mut self.accesses, accesses, AccessCell::key, |sum, cell| sum.merge(cell, missing));
        merge_cells(&mut self.userspace, userspace, |cell| cell.reason, |sum, cell| sum.add(&cell));
        self.migrations.join(&migrations, missing);
        for (sum, more) in [(&mut self.wakeups, wakeups), (&mut self.run_delays, run_delays)] {
            match (sum, more) {
                (Some(sum), Some(more)) => sum.merge(&more, missing),
                (sum, more @ Some(_)) => *sum = more,
                (_, None) => {}
            }
        }
        merge_cells(&mut self.woken_by, woken_by, OtherTask::key, |sum, task| sum.add(&task));
        merge_cells(&mut self.preempted_by, preempted_by, OtherTask::key, |sum, task| sum.add(&task));
    }

    /// Bounds the memory of a sum that grows. Accesses beyond the first `max_accesses` cells go to the cell without an
    /// address of their kind. Of the other tasks those stay that took longest or came most often; the counts of the
    /// others go to [`OtherTask::REST`]. So no count is lost. Exit reasons, those for the VMM too, are numbers of the
    /// kernel: there are a few hundred.
    pub fn limit(&mut self, max_accesses: usize, max_tasks: usize) {
        if self.accesses.len() > max_accesses {
            let mut beyond = self.accesses.split_off(max_accesses);
            beyond.iter_mut().for_each(|cell| cell.address = None);
            merge_cells(&mut self.accesses, beyond, AccessCell::key, |sum, cell| {
                sum.merge(cell, MissingExtreme::NothingInInterval);
            });
        }
        for tasks in [&mut self.woken_by, &mut self.preempted_by] {
            if tasks.len() > max_tasks {
                tasks.sort_by_key(|task| Reverse((task.ns, task.count)));
                let beyond = tasks.split_off(max_tasks);
                let sums = beyond.iter().map(|task| (task.count, task.ns));
                let (count, ns) = sums
                    .fold((0, 0), |all: (u64, u64), one| (all.0.saturating_add(one.0), all.1.saturating_add(one.1)));
                let rest = OtherTask::rest(count, ns).into_iter().collect();
                merge_cells(tasks, rest, OtherTask::key, |sum, task| sum.add(&task));
            }
        }
    }
}

impl ExitCell {
    /// What makes two cells the same reason. The code alone means nothing where the instruction set is unknown.
    fn key(&self) -> (Isa, u32, Option<String>) {
        let name = if matches!(self.isa, Isa::Other(_)) { self.name.clone() } else { None };
        (self.isa, self.code, name)
    }

    /// Adds a cell of the same reason.
    fn merge(&mut self, other: Self, missing: MissingExtreme) {
        let Self { isa: _, code: _, name, time, userspace_ns, halted_ns, preempted_ns } = other;
        // Kernels can name a reason differently; which name stays must not depend on the order.
        self.name = match (self.name.take(), name) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let counts = (self.time.count, time.count);
        let part = |sum: &mut Option<u64>, more| *sum = sum_of_known(counts, *sum, more, u64::saturating_add);
        part(&mut self.userspace_ns, userspace_ns);
        part(&mut self.halted_ns, halted_ns);
        part(&mut self.preempted_ns, preempted_ns);
        self.time.merge(&time, missing);
    }
}

impl AccessCell {
    fn key(&self) -> (kvm::Space, Option<u64>, super::Direction) {
        (self.space, self.address, self.direction)
    }

    /// Adds a cell of the same address.
    fn merge(&mut self, other: Self, missing: MissingExtreme) {
        let Self { space: _, address: _, direction: _, time, faults, burst } = other;
        self.time.merge(&time, missing);
        self.faults = self.faults.saturating_add(faults);
        self.burst = Burst::longest(self.burst, burst);
    }
}

impl Migrations {
    /// Adds those of another thread.
    fn join(&mut self, other: &Self, missing: MissingExtreme) {
        let moved = |m: &Self| Self { total: m.total.filter(|n| *n > 0), ..*m } != Self::default();
        let from = match (moved(self), moved(other)) {
            (true, true) => None,
            (true, false) => self.from,
            (false, _) => other.from,
        };
        self.merge(other, missing);
        self.from = from;
    }
}

impl OtherTask {
    fn key(&self) -> (i32, String) {
        (self.tid, self.comm.clone())
    }
}

impl Burst {
    /// The burst with more accesses; of equal ones the longer.
    pub fn longest(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        a.into_iter().chain(b).max_by_key(|Self { count, ns }| (*count, *ns))
    }
}

impl Timing {
    /// Adds other durations of the same kind.
    pub fn merge(&mut self, other: &Self, missing: MissingExtreme) {
        let Self { count, total_ns, sum_sq, min_ns, max_ns, histogram } = other;
        let counts = (self.count, *count);
        self.total_ns = sum_of_known(counts, self.total_ns, *total_ns, u64::saturating_add);
        self.sum_sq = sum_of_known(counts, self.sum_sq, *sum_sq, u128::saturating_add);
        let extreme = |a: Option<u64>, b: Option<u64>, pick: fn(u64, u64) -> u64| match (a, b, missing) {
            (Some(a), Some(b), _) => Some(pick(a, b)),
            (a, b, MissingExtreme::NothingInInterval) => a.or(b),
            (a, b, MissingExtreme::Unknown) => sum_of_known(counts, a, b, pick),
        };
        self.min_ns = extreme(self.min_ns, *min_ns, u64::min);
        self.max_ns = extreme(self.max_ns, *max_ns, u64::max);
        self.histogram = sum_of_known(counts, self.histogram.take(), histogram.clone(), Histogram::merged);
        self.count = self.count.saturating_add(*count);
    }
}

impl Histogram {
    fn merged(mut self, Self(other): Self) -> Self {
        let Self(sum) = &mut self;
        if sum.len() < other.len() {
            sum.resize(other.len(), 0);
        }
        sum.iter_mut().zip(other).for_each(|(a, b)| *a = a.saturating_add(b));
        self
    }
}

/// The sum of two figures that describe counted events (`counts`: how many each side counted). A side that counted none
/// need not know its figure; one that counted some and does not know its figure makes the sum unknown.
pub fn sum_of_known<T>(counts: (u64, u64), a: Option<T>, b: Option<T>, add: impl FnOnce(T, T) -> T) -> Option<T> {
    match (a, b, counts) {
        (Some(a), Some(b), _) => Some(add(a, b)),
        (known, None, (_, 0)) | (None, known, (0, _)) => known,
        _ => None,
    }
}

/// Adds each cell to the one of the same key; cells of new keys go to the end.
fn merge_cells<T, K: Eq + Hash>(sum: &mut Vec<T>, more: Vec<T>, key: impl Fn(&T) -> K, add: impl Fn(&mut T, T)) {
    if more.is_empty() {
        return;
    }
    let mut places: HashMap<K, usize> = sum.iter().enumerate().map(|(place, cell)| (key(cell), place)).collect();
    for cell in more {
        match places.get(&key(&cell)).and_then(|place| sum.get_mut(*place)) {
            Some(same) => add(same, cell),
            None => {
                places.insert(key(&cell), sum.len());
                sum.push(cell);
            }
        }
    }
}

#[cfg(test)]
mod tests;
