//! One guest's intervals as one.

use super::{EntryPlaces, RowCount, add_rate, divide, same_or_new};
use crate::model::accesses::{self, AccessRow};
use crate::model::exits::{self, share};
use crate::model::interrupts::{self, DoorbellModel, InjectionModel};
use crate::model::{CpuShare, DiskRates, DomainModel, ExitRateSource, ExitTable, HostDiskModel, NicRates, ThreadModel};
use kvm::Space;
use kvm::thread_name::Role;
use sample::{Direction, Histogram, Migrations, MissingExtreme, OtherTask, Throttling, Timing};
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

/// Limit of access rows of one guest; further addresses are added up in one row of their kind.
const MAX_ACCESSES: usize = 65_536;
/// Limit of threads of one guest, counting vCPU threads that ended.
const MAX_THREADS: usize = 4096;
/// Limit of wakers and of pre-empting tasks of one thread; further ones are left out.
const MAX_TASKS: usize = 1024;

/// vCPU, space, address, direction.
type AccessId = (Option<u32>, Space, Option<u64>, Direction);

/// The intervals of one guest added up.
#[derive(Debug, Default)]
pub(super) struct GuestSum {
    /// All but accesses and exits to the VMM. Rates and percentages are multiplied by the seconds that they are of.
    sum: DomainModel,
    accesses: HashMap<AccessId, AccessRow>,
    userspace: BTreeMap<(Option<u32>, i32), u64>,
}

impl GuestSum {
    pub(super) fn add(&mut self, interval: DomainModel, seconds: f64, rows: &mut RowCount) {
        let DomainModel {
            facts,
            state,
            cpu,
            threads,
            exits,
            vcpu_exits,
            accesses,
            vcpu_accesses,
            userspace,
            exit_rate,
            kvm_events,
            counters,
            disks,
            host_disks,
            interrupts,
            doorbells,
            nics,
            throttling,
            node_memory,
            swap,
            memory,
            profile,
        } = interval;
        let sum = &mut self.sum;
        (sum.facts, sum.state, sum.node_memory, sum.memory) = (facts, state, node_memory, memory);
        if let Some(profile) = profile.filter(|profile| profile.is_new) {
            sum.profile = Some(profile);
        }
        add_cpu(&mut sum.cpu, cpu, seconds);
        add_threads(&mut sum.threads, threads, seconds, rows);
        let timed = exits.total_ns.is_some();
        sum.exits.add(exits);
        let mut places = EntryPlaces::new();
        for (place, (vcpu, table)) in vcpu_exits.into_iter().enumerate() {
            let new = (vcpu, ExitTable::default());
            if let Some((_, sum)) = places.same_or_new(&mut sum.vcpu_exits, place, |(v, _)| *v, new, rows) {
                sum.add(table);
            }
        }
        for row in accesses.into_iter().chain(vcpu_accesses) {
            add_access(&mut self.accesses, row, timed, rows);
        }
        for (vcpu, reason, count) in userspace {
            if let Some(sum) = same_or_room(&mut self.userspace, (vcpu, reason), rows) {
                *sum = sum.saturating_add(count);
            }
        }
        add_rate(&mut sum.exit_rate.0, exit_rate.0, seconds);
        if exit_rate.1 != ExitRateSource::Nothing {
            sum.exit_rate.1 = exit_rate.1;
        }
        for (event, count) in kvm_events {
            if let Some(sum) = same_or_room(&mut sum.kvm_events, event, rows) {
                *sum = sum.saturating_add(count);
            }
        }
        add_counters(&mut sum.counters, counters, seconds, rows);
        let disk = (|disk: &DiskRates| disk.name.clone(), |name| DiskRates { name, ..DiskRates::default() });
        add_each(&mut sum.disks, disks, disk, |sum, disk| add_disk(sum, &disk, seconds), rows);
        if let Some(now) = host_disks {
            let disk = (|disk: &HostDiskModel| disk.number, HostDiskModel::none_of);
            add_each(sum.host_disks.get_or_insert_default(), now, disk, HostDiskModel::add, rows);
        }
        if let Some(now) = interrupts {
            let kind = (InjectionModel::key, InjectionModel::none_of);
            add_each(sum.interrupts.get_or_insert_default(), now, kind, InjectionModel::add, rows);
        }
        if let Some(now) = doorbells {
            let place = (DoorbellModel::key, DoorbellModel::none_of);
            add_each(sum.doorbells.get_or_insert_default(), now, place, DoorbellModel::add, rows);
        }
        let nic = (|nic: &NicRates| nic.name.clone(), |name| NicRates { name, ..NicRates::default() });
        add_each(&mut sum.nics, nics, nic, |sum, nic| add_nic(sum, &nic, seconds), rows);
        let group = (|group: &Throttling| group.group.clone(), |group| Throttling { group, ..Throttling::default() });
        add_each(&mut sum.throttling, throttling, group, |sum, group| sum.add(&group), rows);
        if let Some((bytes, growth)) = swap {
            sum.swap = Some((bytes, sum.swap.map_or(0, |(_, sum)| sum).saturating_add(growth)));
        }
    }

    pub(super) fn finish(self, seconds: Option<f64>) -> DomainModel {
        let Self { mut sum, accesses, userspace } = self;
        finish_cpu(&mut sum.cpu, seconds);
        for thread in &mut sum.threads {
            finish_cpu(&mut thread.cpu, seconds);
            divide(&mut thread.exit_rate, seconds);
            thread.counters.values_mut().for_each(|rate| *rate /= seconds.unwrap_or(1.0));
            for tasks in [&mut thread.woken_by, &mut thread.preempted_by] {
                tasks.sort_by(|a, b| (b.ns, b.count, &a.comm, a.tid).cmp(&(a.ns, a.count, &b.comm, b.tid)));
            }
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
            row.rate = seconds.map(|s| row.span.count as f64 / s);
            row.time_percent = row.span.total_ns.zip(all_ns).and_then(|(ns, all)| share(ns, all));
            row
        };
        (sum.vcpu_accesses, sum.accesses) = accesses.into_values().map(finish).partition(|row| row.vcpu.is_some());
        accesses::order(&mut sum.vcpu_accesses);
        accesses::order(&mut sum.accesses);
        sum.userspace = userspace.into_iter().map(|((vcpu, reason), count)| (vcpu, reason, count)).collect();
        sum.userspace.sort_by_key(|&(vcpu, reason, count)| (vcpu, Reverse(count), reason));
        sum.counters.values_mut().for_each(|rate| *rate /= seconds.unwrap_or(1.0));
        divide(&mut sum.exit_rate.0, seconds);
        if sum.exits.count > 0 {
            sum.exit_rate = (seconds.map(|s| sum.exits.count as f64 / s), ExitRateSource::Traced);
        }
        sum.disks.iter_mut().for_each(|disk| finish_disk(disk, seconds.unwrap_or(1.0)));
        sum.host_disks.iter_mut().flatten().for_each(|disk| disk.finish(seconds));
        if let Some(all) = &mut sum.interrupts {
            all.iter_mut().for_each(|injection| injection.finish(seconds));
            interrupts::order(all);
        }
        if let Some(all) = &mut sum.doorbells {
            all.iter_mut().for_each(|bell| bell.finish(seconds));
            interrupts::order_doorbells(all);
        }
        sum.nics.iter_mut().for_each(|nic| finish_nic(nic, seconds.unwrap_or(1.0)));
        sum
    }
}

fn scaled(share: CpuShare, by: f64) -> CpuShare {
    let CpuShare { usr, sys, guest, wait, ran, kinds_unknown } = share;
    let (wait, ran) = (wait.map(|w| w * by), ran.map(|r| r * by));
    CpuShare { usr: usr * by, sys: sys * by, guest: guest * by, wait, ran, kinds_unknown }
}

fn add_cpu(sum: &mut Option<CpuShare>, share: Option<CpuShare>, seconds: f64) {
    if let Some(share) = share {
        sum.get_or_insert_default().add(&scaled(share, seconds));
    }
}

fn finish_cpu(sum: &mut Option<CpuShare>, seconds: Option<f64>) {
    *sum = sum.zip(seconds).map(|(sum, seconds)| scaled(sum, 1.0 / seconds));
}

/// The value of a key, or a new one if there is room for its row.
fn same_or_room<'a, K: Ord, V: Default>(map: &'a mut BTreeMap<K, V>, key: K, rows: &mut RowCount) -> Option<&'a mut V> {
    match map.entry(key) {
        Entry::Occupied(entry) => Some(entry.into_mut()),
        Entry::Vacant(entry) => rows.take().then(|| entry.insert(V::default())),
    }
}

fn add_counters(sum: &mut BTreeMap<String, f64>, counters: BTreeMap<String, f64>, seconds: f64, rows: &mut RowCount) {
    for (name, rate) in counters {
        if let Some(sum) = same_or_room(sum, name, rows) {
            *sum += rate * seconds;
        }
    }
}

/// Adds the threads of an interval. vCPU threads that ended stay; helper threads come and go by the thousand, and those
/// that ended stay in the guest's sum only.
fn add_threads(sum: &mut Vec<ThreadModel>, threads: Vec<ThreadModel>, seconds: f64, rows: &mut RowCount) {
    let id = |t: &ThreadModel| (t.tid, t.role, t.index);
    let living: HashSet<_> = threads.iter().map(id).collect();
    let mut kept = 0;
    sum.retain(|t| {
        let stays = living.contains(&id(t)) || (t.role == Role::Vcpu && kept < MAX_THREADS);
        kept += usize::from(stays);
        rows.give_back(if stays { 0 } else { 1 + t.counters.len() });
        stays
    });
    let mut places = EntryPlaces::new();
    for (place, thread) in threads.into_iter().enumerate() {
        let ThreadModel {
            tid,
            comm,
            role,
            index,
            cpu,
            place: runs_on,
            migrations,
            growth,
            wakeups,
            run_delays,
            woken_by,
            preempted_by,
            exit_rate,
            counters,
        } = thread;
        let new = ThreadModel { tid, role, index, ..ThreadModel::default() };
        let Some(sum) = places.same_or_new(sum, place, id, new, rows) else { continue };
        (sum.comm, sum.place) = (comm, runs_on);
        add_cpu(&mut sum.cpu, cpu, seconds);
        sum.migrations = Migrations { from: migrations.from.or(sum.migrations.from), ..sum.migrations };
        sum.migrations.add(&migrations);
        if let Some(growth) = growth {
            sum.growth.get_or_insert_default().add(&growth);
        }
        for (sum, more) in [(&mut sum.wakeups, wakeups), (&mut sum.run_delays, run_delays)] {
            if let Some(more) = more {
                sum.get_or_insert_default().merge(&more, MissingExtreme::Unknown);
            }
        }
        add_tasks(&mut sum.woken_by, woken_by);
        add_tasks(&mut sum.preempted_by, preempted_by);
        add_rate(&mut sum.exit_rate, exit_rate, seconds);
        add_counters(&mut sum.counters, counters, seconds, rows);
    }
}

fn add_tasks(sum: &mut Vec<OtherTask>, tasks: Vec<OtherTask>) {
    for (place, task) in tasks.into_iter().enumerate() {
        let same = |t: &OtherTask| t.tid == task.tid && t.comm == task.comm;
        if sum.len() >= MAX_TASKS && !sum.iter().any(same) {
            continue;
        }
        let new = || OtherTask { tid: task.tid, comm: task.comm.clone(), ..OtherTask::default() };
        same_or_new(sum, place, same, new).add(&task);
    }
}

/// `timed`: durations were measured. An access counts when it occurs, its time when its exit ends, so one that is under
/// way at the end of an interval has no time in it.
fn add_access(sum: &mut HashMap<AccessId, AccessRow>, mut row: AccessRow, timed: bool, rows: &mut RowCount) {
    if timed && row.span.total_ns.is_none() {
        let (count, histogram) = (row.span.count, Some(Histogram::default()));
        row.span = Timing { count, total_ns: Some(0), sum_sq: Some(0), histogram, ..Timing::default() };
    }
    let id = |address| (row.vcpu, row.space, address, row.direction);
    let fits = sum.contains_key(&id(row.address)) || (sum.len() < MAX_ACCESSES && rows.take());
    let address = row.address.filter(|_| fits);
    let entry =
        sum.entry(id(address)).or_insert_with(|| AccessRow { vcpu: row.vcpu, address, ..accesses::empty(&row) });
    accesses::merge(entry, &row, exits::missing_extreme(&row.span));
    // The latest name: the monitor may answer after the first accesses were counted.
    entry.device = row.device.filter(|_| fits).or(entry.device.take());
}

/// Adds each to the row of the same key, or to a new one if there is room for it.
fn add_each<K: Eq + Hash, T>(
    sum: &mut Vec<T>,
    now: Vec<T>,
    (key, none_of): (impl Fn(&T) -> K, impl Fn(K) -> T),
    add: impl Fn(&mut T, T),
    rows: &mut RowCount,
) {
    let mut places = EntryPlaces::new();
    for (place, more) in now.into_iter().enumerate() {
        let new = none_of(key(&more));
        if let Some(sum) = places.same_or_new(sum, place, &key, new, rows) {
            add(sum, more);
        }
    }
}

fn add_disk(sum: &mut DiskRates, disk: &DiskRates, seconds: f64) {
    let DiskRates { name: _, read_ops, write_ops, read_bytes, write_bytes, read_mean_us, write_mean_us, .. } = disk;
    sum.read_ops += read_ops * seconds;
    sum.write_ops += write_ops * seconds;
    sum.read_bytes += read_bytes * seconds;
    sum.write_bytes += write_bytes * seconds;
    // A mean counts as often as there were operations.
    add_rate(&mut sum.read_mean_us, *read_mean_us, read_ops * seconds);
    add_rate(&mut sum.write_mean_us, *write_mean_us, write_ops * seconds);
    let DiskRates { flush_ops, flush_mean_us, failed_ops, queue_depth, .. } = disk;
    add_rate(&mut sum.flush_mean_us, *flush_mean_us, flush_ops.unwrap_or(0.0) * seconds);
    add_rate(&mut sum.flush_ops, *flush_ops, seconds);
    add_rate(&mut sum.failed_ops, *failed_ops, seconds);
    add_rate(&mut sum.queue_depth, *queue_depth, seconds);
}

fn finish_disk(disk: &mut DiskRates, seconds: f64) {
    let DiskRates { name: _, read_ops, write_ops, read_bytes, write_bytes, read_mean_us, write_mean_us, .. } = disk;
    divide(read_mean_us, Some(*read_ops).filter(|n| *n > 0.0));
    divide(write_mean_us, Some(*write_ops).filter(|n| *n > 0.0));
    for rate in [read_ops, write_ops, read_bytes, write_bytes] {
        *rate /= seconds;
    }
    let DiskRates { flush_ops, flush_mean_us, failed_ops, queue_depth, .. } = disk;
    divide(flush_mean_us, flush_ops.filter(|n| *n > 0.0));
    for rate in [flush_ops, failed_ops, queue_depth].into_iter().flatten() {
        *rate /= seconds;
    }
}

fn add_nic(sum: &mut NicRates, nic: &NicRates, seconds: f64) {
    let NicRates { name: _, rx_bytes, tx_bytes, rx_packets, tx_packets, drops } = nic;
    sum.rx_bytes += rx_bytes * seconds;
    sum.tx_bytes += tx_bytes * seconds;
    sum.rx_packets += rx_packets * seconds;
    sum.tx_packets += tx_packets * seconds;
    sum.drops += drops * seconds;
}

fn finish_nic(nic: &mut NicRates, seconds: f64) {
    let NicRates { name: _, rx_bytes, tx_bytes, rx_packets, tx_packets, drops } = nic;
    for rate in [rx_bytes, tx_bytes, rx_packets, tx_packets, drops] {
        *rate /= seconds;
    }
}
