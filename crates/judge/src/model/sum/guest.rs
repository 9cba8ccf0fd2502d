//! One guest's intervals as one.

use super::{Room, add_each, both};
use crate::model::accesses::{self, AccessId, AccessRow};
use crate::model::cpu::order_tasks;
use crate::model::domain::userspace_rows;
use crate::model::exits::missing_extreme;
use crate::model::rates::Rate;
use crate::model::{CpuShare, DiskRates, DomainModel, ExitRateSource, ExitTable, ThreadModel, Traced, interrupts};
use kvm::thread_name::Role;
use sample::{Growing, Histogram, Migrations, MissingExtreme, OtherTask, Timing};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

/// Limit of access rows of one guest; further addresses are added up in one row of their kind.
const MAX_ACCESSES: usize = 65_536;
/// Limit of threads of one guest, counting vCPU threads that ended.
const MAX_THREADS: usize = 4096;
/// Limit of wakers, of pre-empting tasks and of counters of one thread; further ones are left out.
const MAX_TASKS: usize = 1024;

/// The intervals of one guest added up.
#[derive(Debug, Default)]
pub(super) struct GuestSum {
    /// All but accesses and exits to the VMM. Rates and percentages are multiplied by the seconds that they are of.
    sum: DomainModel,
    accesses: HashMap<AccessId, AccessRow>,
    userspace: BTreeMap<(Option<u32>, i32), u64>,
}

impl GuestSum {
    pub(super) fn add(&mut self, mut now: DomainModel, seconds: f64, room: &mut Room) {
        let old = std::mem::take(&mut self.sum);
        // A mean counts as often as there were operations.
        now.disks.iter_mut().flat_map(DiskRates::means).for_each(|(mean, ops)| mean.change(&|us| us * (ops * seconds)));
        change_rates(&mut now, &|rate| rate * seconds);
        cpu_shares(&mut now).for_each(|share| *share = share.scaled(seconds));
        let timed = now.exits.total_ns.is_some();
        for row in now.accesses.into_iter().chain(now.vcpu_accesses) {
            add_access(&mut self.accesses, row, timed, room);
        }
        let add_count = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        let userspace = now.userspace.into_iter().map(|(vcpu, reason, count)| ((vcpu, reason), count));
        self.userspace = add_map(std::mem::take(&mut self.userspace), userspace, add_count, room);
        let add_disk = |sum: &mut DiskRates, mut more: DiskRates| {
            sum.add(&more);
            sum.means().into_iter().zip(more.means()).for_each(|((sum, _), (more, _))| sum.add(more));
        };
        self.sum = DomainModel {
            facts: now.facts,
            state: now.state,
            cpu: both(old.cpu, now.cpu, CpuShare::plus),
            threads: add_threads(old.threads, now.threads, room),
            exits: old.exits.plus(now.exits),
            vcpu_exits: add_each(old.vcpu_exits, now.vcpu_exits, |(vcpu, _)| *vcpu, add_exits, room),
            accesses: Vec::new(),
            vcpu_accesses: Vec::new(),
            userspace: Vec::new(),
            exit_rate: (
                both(old.exit_rate.0, now.exit_rate.0, |a, b| a + b),
                if now.exit_rate.1 == ExitRateSource::Nothing { old.exit_rate.1 } else { now.exit_rate.1 },
            ),
            kvm_events: add_map(old.kvm_events, now.kvm_events, add_count, room),
            counters: add_map(old.counters, now.counters, |sum, more| *sum += more, room),
            disks: add_each(old.disks, now.disks, |disk| disk.name.clone(), add_disk, room),
            host_disks: add_traced(old.host_disks, now.host_disks, |disk| disk.number, room),
            interrupts: add_traced(old.interrupts, now.interrupts, interrupts::key_of_injection, room),
            doorbells: add_traced(old.doorbells, now.doorbells, interrupts::key_of_doorbell, room),
            nics: add_each(old.nics, now.nics, |nic| nic.name.clone(), |sum, more| sum.add(&more), room),
            throttling: add_each(old.throttling, now.throttling, |g| g.group.clone(), |sum, more| sum.add(&more), room),
            node_memory: now.node_memory,
            swap: match (old.swap, now.swap) {
                (Some((_, sum)), Some((bytes, growth))) => Some((bytes, sum.saturating_add(growth))),
                (old, now) => now.or(old),
            },
            memory: now.memory,
            profile: now.profile.filter(|profile| profile.is_new).or(old.profile),
        };
    }

    pub(super) fn finish(self, seconds: Option<f64>) -> DomainModel {
        let Self { mut sum, accesses, userspace } = self;
        let all_seconds = seconds.unwrap_or(1.0);
        // The operations are still counts.
        for (mean, ops) in sum.disks.iter_mut().flat_map(DiskRates::means) {
            *mean = mean.filter(|_| ops > 0.0).map(|us| us / ops);
        }
        change_rates(&mut sum, &|rate| rate / all_seconds);
        cpu_shares(&mut sum).for_each(|share| *share = share.scaled(1.0 / all_seconds));
        for thread in &mut sum.threads {
            order_tasks(&mut thread.woken_by);
            order_tasks(&mut thread.preempted_by);
        }
        sum.threads.sort_by_key(|t| (t.role, t.index.is_none(), t.index, t.tid));
        sum.exits = ExitTable::build(sum.exits.rows, seconds);
        sum.vcpu_exits.sort_by_key(|(vcpu, _)| *vcpu);
        for (_, table) in &mut sum.vcpu_exits {
            *table = ExitTable::build(std::mem::take(&mut table.rows), seconds);
        }
        let all_ns = sum.exits.total_ns;
        let finish = |mut row: AccessRow| {
            if row.span.total_ns == Some(0) {
                // No exit provided a time.
                row.span = Timing { count: row.span.count, ..Timing::default() };
            }
            row.set_shares(seconds, all_ns);
            row
        };
        (sum.accesses, sum.vcpu_accesses) = accesses::split(accesses.into_values().map(finish));
        sum.userspace = userspace_rows(userspace);
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
}

/// Multiplies or divides the rates of a guest, apart from shares of CPU time.
fn change_rates(guest: &mut DomainModel, by: &dyn Fn(f64) -> f64) {
    guest.exit_rate.0.change(by);
    guest.disks.iter_mut().for_each(|disk| disk.change(by));
    guest.nics.iter_mut().for_each(|nic| nic.change(by));
    guest.threads.iter_mut().for_each(|thread| thread.exit_rate.change(by));
    let threads = guest.threads.iter_mut().map(|thread| &mut thread.counters);
    threads.chain([&mut guest.counters]).flat_map(BTreeMap::values_mut).for_each(|rate| rate.change(by));
}

fn cpu_shares(guest: &mut DomainModel) -> impl Iterator<Item = &mut CpuShare> {
    guest.cpu.iter_mut().chain(guest.threads.iter_mut().filter_map(|thread| thread.cpu.as_mut()))
}

/// Adds each value to that of the same key, or as a new one if there is room for its row.
fn add_map<K: Ord, V>(
    mut sum: BTreeMap<K, V>,
    now: impl IntoIterator<Item = (K, V)>,
    add: impl Fn(&mut V, V),
    room: &mut Room,
) -> BTreeMap<K, V> {
    for (key, more) in now {
        match sum.entry(key) {
            Entry::Occupied(mut same) => add(same.get_mut(), more),
            Entry::Vacant(entry) if room.take() => drop(entry.insert(more)),
            Entry::Vacant(_) => {}
        }
    }
    sum
}

fn add_exits((_, sum): &mut (u32, ExitTable), (_, more): (u32, ExitTable)) {
    *sum = std::mem::take(sum).plus(more);
}

/// Adds the threads of an interval. vCPU threads that ended stay; helper threads come and go by the thousand, and those
/// that ended stay in the guest's sum only.
fn add_threads(mut sum: Vec<ThreadModel>, threads: Vec<ThreadModel>, room: &mut Room) -> Vec<ThreadModel> {
    let id = |t: &ThreadModel| (t.tid, t.role, t.index);
    let living: HashSet<_> = threads.iter().map(id).collect();
    let mut kept = 0;
    sum.retain(|t| {
        let stays = living.contains(&id(t)) || (t.role == Role::Vcpu && kept < MAX_THREADS);
        kept += usize::from(stays);
        room.0 += usize::from(!stays);
        stays
    });
    add_each(sum, threads, id, add_thread, room)
}

fn add_thread(sum: &mut ThreadModel, more: ThreadModel) {
    let old = std::mem::take(sum);
    let add_times = |mut sum: Box<Timing>, more: Box<Timing>| {
        sum.merge(&more, MissingExtreme::Unknown);
        sum
    };
    let mut migrations = old.migrations;
    migrations.merge(&more.migrations, MissingExtreme::Unknown);
    let mut room = Room(MAX_TASKS.saturating_sub(old.counters.len()));
    *sum = ThreadModel {
        tid: more.tid,
        comm: more.comm,
        role: more.role,
        index: more.index,
        cpu: both(old.cpu, more.cpu, CpuShare::plus),
        place: more.place,
        migrations: Migrations { from: more.migrations.from.or(old.migrations.from), ..migrations },
        growth: both(old.growth, more.growth, |mut sum, more| {
            sum.add(&more);
            sum
        }),
        wakeups: both(old.wakeups, more.wakeups, add_times),
        run_delays: both(old.run_delays, more.run_delays, add_times),
        woken_by: add_tasks(old.woken_by, more.woken_by),
        preempted_by: add_tasks(old.preempted_by, more.preempted_by),
        exit_rate: both(old.exit_rate, more.exit_rate, |a, b| a + b),
        counters: add_map(old.counters, more.counters, |sum, more| *sum += more, &mut room),
    };
}

fn add_tasks(mut sum: Vec<OtherTask>, tasks: Vec<OtherTask>) -> Vec<OtherTask> {
    for task in tasks {
        if let Some(same) = sum.iter_mut().find(|t| t.tid == task.tid && t.comm == task.comm) {
            same.add(&task);
        } else if sum.len() < MAX_TASKS {
            sum.push(task);
        }
    }
    sum
}

fn add_traced<T: Growing, K: Eq + Hash>(
    sum: Option<Vec<Traced<T>>>,
    now: Option<Vec<Traced<T>>>,
    key: fn(&T) -> K,
    room: &mut Room,
) -> Option<Vec<Traced<T>>> {
    let Some(now) = now else { return sum };
    let add = |sum: &mut Traced<T>, more: Traced<T>| {
        sum.of.merge(&more.of, MissingExtreme::Unknown);
        sum.device = more.device.or(sum.device.take());
    };
    Some(add_each(sum.unwrap_or_default(), now, |traced| key(&traced.of), add, room))
}

/// `timed`: durations were measured. An access counts when it occurs, its time when its exit ends, so one that is under
/// way at the end of an interval has no time in it.
fn add_access(sum: &mut HashMap<AccessId, AccessRow>, mut row: AccessRow, timed: bool, room: &mut Room) {
    if timed && row.span.total_ns.is_none() {
        let (count, histogram) = (row.span.count, Some(Histogram::default()));
        row.span = Timing { count, total_ns: Some(0), sum_sq: Some(0), histogram, ..Timing::default() };
    }
    if !sum.contains_key(&row.id()) && (sum.len() >= MAX_ACCESSES || !room.take()) {
        (row.address, row.device) = (None, None);
    }
    match sum.get_mut(&row.id()) {
        Some(same) => {
            same.merge(&row, missing_extreme(&row.span));
            // The latest name: the monitor may answer after the first accesses were counted.
            same.device = row.device.or(same.device.take());
        }
        None => drop(sum.insert(row.id(), row)),
    }
}
