//! Many intervals as one: counts and times add, rates and percentages become those of the whole time, names and places
//! are the latest.
//!
//! The first and the last sample of a recording are not enough for that: a thread or guest that ended in between is in
//! neither, the extremes of a sample are those of its own interval, and counters restart with each run of the
//! recorder. [`sums`] names every field of a struct, so that a new one does not compile before its sum is written.

use super::accesses::AccessId;
use super::exits::missing_extreme;
use super::host::list_tenants;
use super::{
    AccessRow, CpuModel, CpuShare, DiskRates, DomainModel, DoorbellModel, ExitRateSource, ExitTable, HostDiskModel,
    HostModel, HostTaskModel, InjectionModel, Model, NicRates, ThreadModel, Traced, accesses, cpu, domain, interrupts,
};
use kvm::Space;
use kvm::thread_name::Role;
use sample::{
    DomainState, Growing, GuestId, Histogram, Injector, IrqSource, Migrations, MissingExtreme, OtherTask, ThreadTimes,
    Throttling, Timing,
};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

/// Limit of guests; further ones are left out.
const MAX_GUESTS: usize = 4096;
/// Rows of all guests together at most: threads, exit reasons, addresses, counters. Each takes some hundred bytes. What
/// has no row of its own is added up in one named other, or left out.
const MAX_ROWS: usize = 1 << 20;
/// Limit of access rows of one guest, and of one guest's rows of vCPUs; further addresses are added up in one row of
/// their kind.
const MAX_ACCESSES: usize = 65_536;
/// Limit of tasks of the host; further ones are left out.
const MAX_TASKS: usize = 4096;
/// Limit of wakers, of pre-empting tasks and of counters of one thread; further ones are left out.
const MAX_NAMES: usize = 1024;
/// A list this long is searched from its begin; a longer one by its entries' keys.
const SHORT: usize = 64;

/// Intervals added up. They need not follow one another: what lies between two of them counts nowhere.
#[derive(Debug, Default)]
pub struct ModelSum {
    /// All but the guests. Rates and percentages are multiplied by the seconds that they are of.
    sum: Model,
    ns: u64,
    guests: HashMap<GuestId, DomainModel>,
    room: Room,
    /// The guests of the last interval, in its order.
    latest: Vec<GuestId>,
    /// The guests that ended, in the order of their end.
    ended: Vec<GuestId>,
}

impl ModelSum {
    /// Adds an interval.
    pub fn add(&mut self, mut now: Model) {
        let seconds = now.interval_s.unwrap_or(0.0);
        self.ns = self.ns.saturating_add((seconds * 1e9).round() as u64);
        let before = std::mem::take(&mut self.latest);
        for domain in std::mem::take(&mut now.domains) {
            let id = domain.facts.id();
            if self.guests.len() < MAX_GUESTS || self.guests.contains_key(&id) {
                self.latest.push(id.clone());
                add_guest(self.guests.entry(id).or_default(), domain, seconds, &mut self.room);
            }
        }
        let latest: HashSet<&GuestId> = self.latest.iter().collect();
        self.ended.extend(before.into_iter().filter(|id| !latest.contains(id)));
        self.ended.retain(|id| !latest.contains(id));
        now.change(&|rate| rate * seconds);
        self.sum.add(now, &mut self.room);
    }

    /// Seconds of all intervals together.
    pub fn seconds(&self) -> f64 {
        self.ns as f64 / 1e9
    }

    /// The interval that all of them make; guests that ended on the way come last.
    pub fn finish(mut self) -> Model {
        let seconds = Some(self.seconds()).filter(|s| *s > 0.0);
        let mut model = self.sum;
        model.interval_s = seconds;
        let guests = self.latest.iter().chain(&self.ended).filter_map(|id| self.guests.remove(id));
        model.domains = guests.map(|guest| finish_guest(guest, seconds)).collect();
        model.domains.iter_mut().skip(self.latest.len()).for_each(|guest| guest.state = DomainState::Ended);
        // A CPU can be offline for a part of the time: its percentages are those of the time that it was online.
        let times: Vec<_> = model.host.cpus.iter_mut().map(|cpu| cpu.time.take()).collect();
        model.change(&|sum| sum / seconds.unwrap_or(1.0));
        for (cpu, time) in model.host.cpus.iter_mut().zip(times) {
            cpu.time = time.filter(|t| t.total() > 0.0).map(|t| t.scale(100.0 / t.total()).split_unsampled());
        }
        model.host.cpus.sort_by_key(|c| c.cpu);
        model.host.tasks.sort_by(|a, b| b.cpu_percent.total_cmp(&a.cpu_percent).then(a.tid.cmp(&b.tid)));
        list_tenants(&mut model.host.cpus, &model.domains);
        model
    }
}

/// Adds an interval of a guest. Its rates and percentages are then multiplied by the seconds that they are of.
fn add_guest(sum: &mut DomainModel, mut now: DomainModel, seconds: f64, room: &mut Room) {
    // A mean counts as often as there were operations.
    now.disks.iter_mut().flat_map(DiskRates::means).for_each(|(mean, ops)| mean.change(&|us| us * (ops * seconds)));
    now.change(&|rate| rate * seconds);
    cpu_shares(&mut now).for_each(|share| *share = share.scaled(seconds));
    // An access counts when it occurs, its time when its exit ends, so one that is under way at the end of an interval
    // has no time in it.
    if now.exits.total_ns.is_some() {
        let rows = now.accesses.iter_mut().chain(&mut now.vcpu_accesses);
        for span in rows.map(|row| &mut row.span).filter(|span| span.total_ns.is_none()) {
            let (count, histogram) = (span.count, Some(Histogram::default()));
            *span = Timing { count, total_ns: Some(0), sum_sq: Some(0), histogram, ..Timing::default() };
        }
    }
    // vCPU threads that ended stay; helper threads come and go by the thousand, and those that ended stay in the
    // guest's sum only.
    let living: HashSet<_> = now.threads.iter().map(ThreadModel::key).collect();
    let threads = sum.threads.len();
    sum.threads.retain(|thread| thread.role == Role::Vcpu || living.contains(&thread.key()));
    room.0 += threads - sum.threads.len();
    now.profile = now.profile.filter(|profile| profile.is_new).or(sum.profile.take());
    if now.exit_rate.1 == ExitRateSource::Nothing {
        now.exit_rate.1 = sum.exit_rate.1;
    }
    sum.add(now, room);
}

fn finish_guest(mut sum: DomainModel, seconds: Option<f64>) -> DomainModel {
    let all_seconds = seconds.unwrap_or(1.0);
    // The operations are still counts.
    for (mean, ops) in sum.disks.iter_mut().flat_map(DiskRates::means) {
        *mean = mean.filter(|_| ops > 0.0).map(|us| us / ops);
    }
    sum.change(&|rate| rate / all_seconds);
    cpu_shares(&mut sum).for_each(|share| *share = share.scaled(1.0 / all_seconds));
    for thread in &mut sum.threads {
        cpu::order_tasks(&mut thread.woken_by);
        cpu::order_tasks(&mut thread.preempted_by);
    }
    sum.threads.sort_by_key(|t| (t.role, t.index.is_none(), t.index, t.tid));
    sum.exits = ExitTable::build(sum.exits.rows, seconds);
    sum.vcpu_exits.sort_by_key(|(vcpu, _)| *vcpu);
    for (_, table) in &mut sum.vcpu_exits {
        *table = ExitTable::build(std::mem::take(&mut table.rows), seconds);
    }
    for rows in [&mut sum.accesses, &mut sum.vcpu_accesses] {
        for row in rows.iter_mut() {
            if row.span.total_ns == Some(0) {
                // No exit provided a time.
                row.span = Timing { count: row.span.count, ..Timing::default() };
            }
            row.set_shares(seconds, sum.exits.total_ns);
        }
        accesses::order(rows);
    }
    domain::order_userspace(&mut sum.userspace);
    if sum.exits.count > 0 {
        sum.exit_rate = (seconds.map(|s| sum.exits.count as f64 / s), ExitRateSource::Traced);
    }
    sum.host_disks.iter_mut().flatten().for_each(|disk| disk.seconds = seconds);
    sum.interrupts.iter_mut().flatten().for_each(|injection| injection.seconds = seconds);
    sum.doorbells.iter_mut().flatten().for_each(|bell| bell.seconds = seconds);
    sum.interrupts.as_deref_mut().map(interrupts::order);
    sum.doorbells.as_deref_mut().map(interrupts::order_doorbells);
    sum
}

fn cpu_shares(guest: &mut DomainModel) -> impl Iterator<Item = &mut CpuShare> {
    guest.cpu.iter_mut().chain(guest.threads.iter_mut().filter_map(|thread| thread.cpu.as_mut()))
}

/// The number of rows that still fit.
#[derive(Debug)]
pub(super) struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(MAX_ROWS)
    }
}

impl Room {
    /// Takes room for a row; false if all room is taken.
    fn take(&mut self) -> bool {
        self.0.checked_sub(1).map(|left| self.0 = left).is_some()
    }
}

/// A figure, or what has figures.
pub(super) trait Sum: Sized {
    /// Adds the figures of a later interval, where they are known.
    fn add(&mut self, more: Self, room: &mut Room);

    /// Multiplies or divides the rates and percentages, apart from shares of CPU time.
    fn change(&mut self, _by: &dyn Fn(f64) -> f64) {}
}

/// Names the figures of a struct in braces, and then its other fields, of which the latest stay.
macro_rules! sums {
    ($type:ident { $($sum:ident),* $(,)? } $($latest:ident),*) => {
        impl $crate::model::sum::Sum for $type {
            fn add(&mut self, more: Self, room: &mut $crate::model::sum::Room) {
                let Self { $($sum,)* $($latest,)* } = more;
                $($crate::model::sum::Sum::add(&mut self.$sum, $sum, room);)*
                $(self.$latest = $latest;)*
            }

            fn change(&mut self, by: &dyn Fn(f64) -> f64) {
                $($crate::model::sum::Sum::change(&mut self.$sum, by);)*
            }
        }
    };
}

pub(super) use sums;

sums!(Model {
    intervals, lost, overflow, own_cpu, host,
} time_ms, mono_s, booted_ms, interval_s, engine, sources, own_rss, domains);

sums!(HostModel { cpus, tasks } facts, memory, kernel_log);

sums!(CpuModel { time, device_irq_rate, timer_irq_rate } cpu, frequency_khz, guest_threads);

sums!(HostTaskModel { cpu_percent } tid, pid, comm, kernel, last_cpu);

sums!(DomainModel {
    cpu, threads, exits, vcpu_exits, accesses, vcpu_accesses, userspace, exit_rate, kvm_events, counters, disks,
    host_disks, interrupts, doorbells, nics, throttling, swap,
} facts, state, node_memory, memory, profile);

sums!(ThreadModel {
    cpu, migrations, growth, wakeups, run_delays, woken_by, preempted_by, exit_rate, counters,
} tid, comm, role, index, place);

impl Sum for f64 {
    fn add(&mut self, more: Self, _: &mut Room) {
        *self += more;
    }

    fn change(&mut self, by: &dyn Fn(f64) -> f64) {
        *self = by(*self);
    }
}

impl<T: Sum> Sum for Option<T> {
    fn add(&mut self, more: Self, room: &mut Room) {
        match (self, more) {
            (Some(sum), Some(more)) => sum.add(more, room),
            (sum, more @ Some(_)) => *sum = more,
            (_, None) => {}
        }
    }

    fn change(&mut self, by: &dyn Fn(f64) -> f64) {
        self.iter_mut().for_each(|figure| figure.change(by));
    }
}

impl<K: Ord, V: Sum> Sum for BTreeMap<K, V> {
    fn add(&mut self, more: Self, room: &mut Room) {
        for (name, more) in more {
            let is_full = self.len() >= MAX_NAMES;
            match self.entry(name) {
                Entry::Occupied(mut sum) => sum.get_mut().add(more, room),
                Entry::Vacant(entry) if !is_full => drop(entry.insert(more)),
                Entry::Vacant(_) => {}
            }
        }
    }

    fn change(&mut self, by: &dyn Fn(f64) -> f64) {
        self.values_mut().for_each(|figure| figure.change(by));
    }
}

/// Implements [`Sum`] for figures that no time changes.
macro_rules! counts {
    ($($type:ty: |$sum:ident, $more:ident| $add:expr;)*) => {
        $(impl Sum for $type {
            fn add(&mut self, $more: Self, _: &mut Room) {
                let $sum = self;
                $add;
            }
        })*
    };
}

counts! {
    u64: |sum, more| Growing::merge(sum, &more, MissingExtreme::Unknown);
    Box<Timing>: |sum, more| sum.merge(&more, MissingExtreme::Unknown);
    CpuShare: |sum, more| *sum = sum.plus(more);
    ThreadTimes: |sum, more| sum.add(&more);
    OtherTask: |sum, more| sum.add(&more);
    Throttling: |sum, more| sum.add(&more);
    Migrations: |sum, more| {
        let from = more.from.or(sum.from);
        sum.merge(&more, MissingExtreme::Unknown);
        sum.from = from;
    };
    ExitTable: |sum, more| *sum = std::mem::take(sum).plus(more);
    (u32, ExitTable): |sum, more| sum.1 = std::mem::take(&mut sum.1).plus(more.1);
    (Option<u32>, i32, u64): |sum, more| sum.2 = sum.2.saturating_add(more.2);
    // Memory in swap and its growth.
    (u64, i64): |sum, more| *sum = (more.0, sum.1.saturating_add(more.1));
    AccessRow: |sum, more| {
        sum.merge(&more, missing_extreme(&more.span));
        // The latest name: the monitor may answer after the first accesses were counted.
        sum.device = more.device.or(sum.device.take());
    };
}

impl Sum for (Option<f64>, ExitRateSource) {
    fn add(&mut self, more: Self, room: &mut Room) {
        self.0.add(more.0, room);
        self.1 = more.1;
    }

    fn change(&mut self, by: &dyn Fn(f64) -> f64) {
        self.0.change(by);
    }
}

impl<T: Growing> Sum for Traced<T> {
    fn add(&mut self, more: Self, _: &mut Room) {
        self.of.merge(&more.of, MissingExtreme::Unknown);
        self.device = more.device.or(self.device.take());
    }
}

/// A row of a list.
trait Row: Sum {
    type Key: Eq + Hash;

    /// What makes two rows the same.
    fn key(&self) -> Self::Key;

    /// Whether a list of `rows` rows may have another one.
    fn fits(_rows: usize, room: &mut Room) -> bool {
        room.take()
    }

    /// Makes it a part of the row of all that have no row of their own, if there is such a row.
    fn becomes_rest(&mut self) -> bool {
        false
    }
}

/// Names what makes rows of a type the same, and the limit of a list of them that takes no room.
macro_rules! rows {
    ($($type:ty: $key:ty = |$row:ident| $of:expr $(, at most $most:ident)?;)*) => {
        $(impl Row for $type {
            type Key = $key;

            fn key(&self) -> $key {
                let $row = self;
                $of
            }

            $(fn fits(rows: usize, _: &mut Room) -> bool {
                rows < $most
            })?
        })*
    };
}

rows! {
    CpuModel: u32 = |cpu| cpu.cpu;
    HostTaskModel: (i32, i32, String) = |task| (task.tid, task.pid, task.comm.clone()), at most MAX_TASKS;
    ThreadModel: (i32, Role, Option<u32>) = |thread| (thread.tid, thread.role, thread.index);
    OtherTask: (i32, String) = |task| (task.tid, task.comm.clone()), at most MAX_NAMES;
    (u32, ExitTable): u32 = |table| table.0;
    (Option<u32>, i32, u64): (Option<u32>, i32) = |row| (row.0, row.1);
    DiskRates: String = |disk| disk.name.clone();
    NicRates: String = |nic| nic.name.clone();
    HostDiskModel: (u32, u32) = |disk| disk.number;
    InjectionModel: (IrqSource, u32, Injector, Option<i32>) = |injection| interrupts::key_of_injection(injection);
    DoorbellModel: (Space, u64, i32) = |bell| interrupts::key_of_doorbell(bell);
    Throttling: String = |limit| limit.group.clone();
}

impl Row for AccessRow {
    type Key = AccessId;

    fn key(&self) -> AccessId {
        self.id()
    }

    fn fits(rows: usize, room: &mut Room) -> bool {
        rows < MAX_ACCESSES && room.take()
    }

    fn becomes_rest(&mut self) -> bool {
        self.device = None;
        self.address.take().is_some()
    }
}

/// Adds each row to the one of the same key, or at the end while there is room. Lists hardly change their order from one
/// interval to the next, so the row at the same place is tried first.
impl<T: Row> Sum for Vec<T> {
    fn add(&mut self, more: Self, room: &mut Room) {
        let mut places: Option<HashMap<T::Key, usize>> = None;
        for (place, mut row) in more.into_iter().enumerate() {
            let mut same = place_of(self, &mut places, place, &row.key());
            if same.is_none() && !T::fits(self.len(), room) {
                if !row.becomes_rest() {
                    continue;
                }
                same = place_of(self, &mut places, place, &row.key());
            }
            if let Some(same) = same.and_then(|place| self.get_mut(place)) {
                same.add(row, room);
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
        Some(likely)
    } else if rows.len() <= SHORT {
        rows.iter().position(|row| row.key() == *key)
    } else {
        let all = || rows.iter().enumerate().rev().map(|(place, row)| (row.key(), place)).collect();
        places.get_or_insert_with(all).get(key).copied()
    }
}
