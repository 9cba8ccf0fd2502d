//! Adds up figures: of several threads, files or tables, or of one interval after another.
//! [`sums`](crate::sums) names every field of a struct, so that a new field does not compile until
//! its sum is written.
//!
//! - Counts, faults and crossings add, saturating.
//! - Sum, squares and distribution of durations and the parts of an exit's time add. They describe
//!   every counted duration, so the sum is unknown if a side that counted durations does not know
//!   its own.
//! - Shortest and longest follow [`MissingExtreme`].
//! - Of two bursts the one with more accesses stays; a side without one changes nothing.
//! - Wake-ups, run delays and the number of migrations add; a side that did not watch them changes
//!   nothing.
//! - Other tasks add by thread id and name.
//!
//! Merging is associative and commutative, apart from the order of the cells: new cells go to the
//! end.

use super::{
    AccessCell, Burst, Direction, Doorbell, ExitCell, GuestInterrupts, Histogram, HostDisk,
    HostLink, HostNode, Injection, IrqSource, OtherTask, ThreadEvents, ThreadKind, Throttling,
    Timing, UserspaceCell, WholeDisk,
};
use kvm::{Isa, Space};
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Why a [`Timing`] with durations lacks the shortest or longest one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MissingExtreme {
    /// Nothing happened within the last interval: counters continue from sample to sample, but
    /// extremes cover only the last interval. The other side's extreme holds.
    NothingInInterval,
    /// It is unknown: the counters cover one interval. The sum's extreme is unknown as well.
    Unknown,
}

/// How figures are added.
#[derive(Debug, Clone, Copy)]
pub struct Joining {
    /// Why extremes are missing.
    pub missing: MissingExtreme,
    /// Limit of the names of a map and of the tasks of a list; further ones are left out.
    pub names: usize,
    /// The number of other rows that still fit.
    pub room: usize,
}

impl Joining {
    /// Adds without a limit what was counted elsewhere.
    pub fn with(missing: MissingExtreme) -> Self {
        Self {
            missing,
            names: usize::MAX,
            room: usize::MAX,
        }
    }
}

/// A figure, or what has figures.
pub trait Sum: Sized {
    /// Adds other figures of the same kind, where they are known.
    fn join(&mut self, more: Self, how: &mut Joining);

    /// Multiplies or divides the rates and percentages among them.
    fn change(&mut self, _by: &dyn Fn(f64) -> f64) {}
}

/// Names the figures of a struct in braces, then its other fields, of which those added last stay,
/// and after a semicolon figures that add up and are not changed.
#[macro_export]
macro_rules! sums {
    ($type:ident { $($sum:ident),* $(,)? } $($other:ident),* $(; $($fixed:ident),*)?) => {
        impl $crate::Sum for $type {
            fn join(&mut self, more: Self, how: &mut $crate::Joining) {
                let Self { $($sum,)* $($other,)* $($($fixed,)*)? } = more;
                $($crate::Sum::join(&mut self.$sum, $sum, how);)*
                $($($crate::Sum::join(&mut self.$fixed, $fixed, how);)*)?
                $(self.$other = $other;)*
            }

            fn change(&mut self, by: &dyn Fn(f64) -> f64) {
                $($crate::Sum::change(&mut self.$sum, by);)*
            }
        }
    };
}

sums!(ThreadEvents {
    exits,
    accesses,
    userspace,
    migrations,
    wakeups,
    woken_by,
    preempted_by,
    run_delays
});
sums!(AccessCell { time, faults, burst } space, address, direction);
sums!(GuestInterrupts {
    injections,
    doorbells
});

impl Sum for u64 {
    fn join(&mut self, more: Self, _: &mut Joining) {
        *self = self.saturating_add(more);
    }
}

impl Sum for i64 {
    fn join(&mut self, more: Self, _: &mut Joining) {
        *self = self.saturating_add(more);
    }
}

impl Sum for f64 {
    fn join(&mut self, more: Self, _: &mut Joining) {
        *self += more;
    }

    fn change(&mut self, by: &dyn Fn(f64) -> f64) {
        *self = by(*self);
    }
}

/// A name and its figures.
impl<K, T: Sum> Sum for (K, T) {
    fn join(&mut self, more: Self, how: &mut Joining) {
        self.0 = more.0;
        self.1.join(more.1, how);
    }
}

impl<T: Sum> Sum for Box<T> {
    fn join(&mut self, more: Self, how: &mut Joining) {
        T::join(self, *more, how);
    }
}

impl<T: Sum> Sum for Option<T> {
    fn join(&mut self, more: Self, how: &mut Joining) {
        match (self, more) {
            (Some(sum), Some(more)) => sum.join(more, how),
            (sum, more @ Some(_)) => *sum = more,
            (_, None) => {}
        }
    }

    fn change(&mut self, by: &dyn Fn(f64) -> f64) {
        self.iter_mut().for_each(|figure| figure.change(by));
    }
}

impl<K: Ord, V: Sum> Sum for BTreeMap<K, V> {
    fn join(&mut self, more: Self, how: &mut Joining) {
        for (name, more) in more {
            let is_full = self.len() >= how.names;
            match self.entry(name) {
                Entry::Occupied(mut sum) => sum.get_mut().join(more, how),
                Entry::Vacant(entry) if !is_full => drop(entry.insert(more)),
                Entry::Vacant(_) => {}
            }
        }
    }

    fn change(&mut self, by: &dyn Fn(f64) -> f64) {
        self.values_mut().for_each(|figure| figure.change(by));
    }
}

/// A row of a list.
pub trait Row: Sum {
    /// What makes two rows the same.
    type Key: Eq + Hash;

    /// What makes two rows the same.
    fn key(&self) -> Self::Key;

    /// Whether a list of `rows` rows may have another one.
    fn fits(_rows: usize, how: &mut Joining) -> bool {
        how.room
            .checked_sub(1)
            .map(|left| how.room = left)
            .is_some()
    }

    /// Makes it a part of the row of the rest, if there is such a row.
    fn becomes_rest(&mut self) -> bool {
        false
    }
}

impl Row for ExitCell {
    type Key = (Isa, u32, Option<String>);

    fn key(&self) -> Self::Key {
        // The code alone means nothing where the instruction set is unknown.
        let name = match self.isa {
            Isa::Other(_) => self.name.clone(),
            _ => None,
        };
        (self.isa, self.code, name)
    }
}

impl Row for AccessCell {
    type Key = (Space, Option<u64>, Direction);

    fn key(&self) -> Self::Key {
        (self.space, self.address, self.direction)
    }
}

impl Row for UserspaceCell {
    type Key = i32;

    fn key(&self) -> i32 {
        self.reason
    }
}

impl Row for OtherTask {
    type Key = (i32, String);

    fn key(&self) -> Self::Key {
        (self.tid, self.comm.clone())
    }

    fn fits(tasks: usize, how: &mut Joining) -> bool {
        tasks < how.names
    }
}

impl Row for HostDisk {
    type Key = (u32, u32);

    fn key(&self) -> Self::Key {
        self.number
    }
}

impl Row for WholeDisk {
    type Key = String;

    fn key(&self) -> String {
        self.name.clone()
    }
}

impl Row for HostNode {
    type Key = u32;

    fn key(&self) -> u32 {
        self.node
    }
}

impl Row for HostLink {
    type Key = String;

    fn key(&self) -> String {
        self.name.clone()
    }
}

impl Row for Injection {
    type Key = (IrqSource, Option<u32>, ThreadKind, Option<i32>);

    fn key(&self) -> Self::Key {
        (self.source, self.vcpu, self.by, self.tid)
    }
}

impl Row for Doorbell {
    type Key = (Space, u64, i32);

    fn key(&self) -> Self::Key {
        (self.space, self.address, self.tid)
    }
}

impl Row for Throttling {
    type Key = String;

    fn key(&self) -> String {
        self.group.clone()
    }
}

impl<K: Eq + Hash + Clone, T: Sum> Row for (K, T) {
    type Key = K;

    fn key(&self) -> K {
        self.0.clone()
    }
}

/// Adds each row to the one of the same key, or at the end while there is room. Lists hardly change
/// their order from one interval to the next, so the row at the same place is tried first.
impl<T: Row> Sum for Vec<T> {
    fn join(&mut self, more: Self, how: &mut Joining) {
        let mut places: Option<HashMap<T::Key, usize>> = None;
        for (place, mut row) in more.into_iter().enumerate() {
            let mut same = place_of(self, &mut places, place, &row.key());
            if same.is_none() && !T::fits(self.len(), how) {
                if !row.becomes_rest() {
                    continue;
                }
                same = place_of(self, &mut places, place, &row.key());
            }
            if let Some(same) = same.and_then(|place| self.get_mut(place)) {
                same.join(row, how);
            } else {
                if let Some(all) = &mut places {
                    all.insert(row.key(), self.len());
                }
                self.push(row);
            }
        }
    }

    fn change(&mut self, by: &dyn Fn(f64) -> f64) {
        self.iter_mut().for_each(|row| row.change(by));
    }
}

fn place_of<T: Row>(
    rows: &[T],
    places: &mut Option<HashMap<T::Key, usize>>,
    likely: usize,
    key: &T::Key,
) -> Option<usize> {
    if rows.get(likely).is_some_and(|row| row.key() == *key) {
        return Some(likely);
    }
    let places = places.get_or_insert_with(|| {
        rows.iter()
            .enumerate()
            .rev()
            .map(|(place, row)| (row.key(), place))
            .collect()
    });
    places.get(key).copied()
}

impl ThreadEvents {
    /// Adds what another thread, or another source of the same thread, counted.
    pub fn merge(&mut self, other: Self, missing: MissingExtreme) {
        self.join(other, &mut Joining::with(missing));
    }

    /// Bounds the memory of a sum that grows. Accesses beyond the first `max_accesses` cells go to
    /// the cell without an address of their kind. Of the other tasks those stay that took longest
    /// or came most often; the counts of the others go to [`OtherTask::REST`]. So no count is lost.
    /// Exit reasons, those for the VMM too, are numbers of the kernel: there are a few hundred.
    pub fn limit(&mut self, max_accesses: usize, max_tasks: usize) {
        let mut how = Joining::with(MissingExtreme::NothingInInterval);
        if self.accesses.len() > max_accesses {
            let mut beyond = self.accesses.split_off(max_accesses);
            beyond.iter_mut().for_each(|cell| cell.address = None);
            self.accesses.join(beyond, &mut how);
        }
        for tasks in [&mut self.woken_by, &mut self.preempted_by] {
            if tasks.len() > max_tasks {
                tasks.sort_by_key(|task| Reverse((task.ns, task.count)));
                let beyond = tasks.split_off(max_tasks).into_iter();
                let rest = beyond
                    .filter_map(|task| OtherTask::rest(task.count, task.ns))
                    .collect();
                tasks.join(rest, &mut how);
            }
        }
    }
}

impl Sum for ExitCell {
    fn join(&mut self, more: Self, how: &mut Joining) {
        let Self {
            isa: _,
            code: _,
            name,
            time,
            userspace_ns,
            halted_ns,
            preempted_ns,
        } = more;
        // Kernels can name a reason differently; which name stays must not depend on the order.
        self.name = match (self.name.take(), name) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let counts = (self.time.count, time.count);
        for (sum, more) in [
            (&mut self.userspace_ns, userspace_ns),
            (&mut self.halted_ns, halted_ns),
            (&mut self.preempted_ns, preempted_ns),
        ] {
            *sum = sum_of_known(counts, *sum, more, u64::saturating_add);
        }
        self.time.join(time, how);
    }
}

/// The burst with more accesses stays; of equal ones the longer.
impl Sum for Burst {
    fn join(&mut self, more: Self, _: &mut Joining) {
        *self = std::cmp::max_by_key(*self, more, |Self { count, ns }| (*count, *ns));
    }
}

impl Sum for Timing {
    fn join(&mut self, more: Self, how: &mut Joining) {
        self.merge(&more, how.missing);
    }
}

impl Timing {
    /// Adds other durations of the same kind.
    pub fn merge(&mut self, other: &Self, missing: MissingExtreme) {
        let Self {
            count,
            total_ns,
            sum_sq,
            min_ns,
            max_ns,
            histogram,
        } = other;
        let counts = (self.count, *count);
        self.total_ns = sum_of_known(counts, self.total_ns, *total_ns, u64::saturating_add);
        self.sum_sq = sum_of_known(counts, self.sum_sq, *sum_sq, u128::saturating_add);
        if missing == MissingExtreme::Unknown {
            self.min_ns = sum_of_known(counts, self.min_ns, *min_ns, u64::min);
            self.max_ns = sum_of_known(counts, self.max_ns, *max_ns, u64::max);
        } else {
            self.min_ns = [self.min_ns, *min_ns].into_iter().flatten().min();
            self.max_ns = [self.max_ns, *max_ns].into_iter().flatten().max();
        }
        self.histogram = sum_of_known(
            counts,
            self.histogram.take(),
            histogram.clone(),
            Histogram::merged,
        );
        self.count = self.count.saturating_add(*count);
    }
}

impl Histogram {
    fn merged(mut self, Self(other): Self) -> Self {
        let Self(sum) = &mut self;
        if sum.len() < other.len() {
            sum.resize(other.len(), 0);
        }
        sum.iter_mut()
            .zip(other)
            .for_each(|(a, b)| *a = a.saturating_add(b));
        self
    }
}

/// The sum of two figures that describe counted events (`counts`: how many each side counted). A
/// side that counted none need not know its figure; one that counted some and does not know its
/// figure makes the sum unknown.
pub fn sum_of_known<T>(
    counts: (u64, u64),
    a: Option<T>,
    b: Option<T>,
    add: impl FnOnce(T, T) -> T,
) -> Option<T> {
    match (a, b, counts) {
        (Some(a), Some(b), _) => Some(add(a, b)),
        (known, None, (_, 0)) | (None, known, (0, _)) => known,
        _ => None,
    }
}

#[cfg(test)]
mod tests;
