//! Many intervals as one: counts and times add, rates and percentages cover the whole time, names
//! and places are the latest.
//!
//! The first and the last sample of a recording are not enough for that: a thread or guest that
//! ended in between is in neither, the extremes of a sample belong to its interval, and counters
//! restart with each run of the recorder.

use super::accesses::AccessId;
use super::host::{CpuTimesPercent, list_tenants, order_busy, order_groups};
use super::{
    AccessRow, ByteRates, CpuModel, DiskRates, DomainModel, ExitRate, ExitRateSource, ExitTable,
    HostModel, HostTaskModel, Model, NicRates, SwapUse, TaskGroup, ThreadModel, Traced,
    UserspaceExits, accesses, cpu, domain, interrupts,
};
use kvm::thread_name::Role;
use sample::{DomainState, GuestId, Histogram, Joining, MissingExtreme, Row, Sum, Timing, sums};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// Limit of guests; further ones are left out.
const MAX_GUESTS: usize = 4096;
/// Rows of all guests together at most: threads, exit reasons, addresses. Each takes some hundred
/// bytes. Further ones are added up in one row named other, or left out.
const MAX_ROWS: usize = 1 << 20;
/// Limit of access rows of one guest, and of one guest's rows of vCPUs; further addresses are added
/// up in one row of their kind.
const MAX_ACCESSES: usize = 65_536;
/// Limit of the host's CPUs and tasks, of wakers, pre-empting tasks and counters of one thread, and
/// of a guest's counters, events and exits to the VMM; further ones are left out.
const MAX_NAMES: usize = 4096;

/// Intervals added up. They need not follow one another: what lies between two of them counts
/// nowhere.
#[derive(Debug)]
pub struct ModelSum {
    /// All but the guests. Rates and percentages are multiplied by the seconds that they are of.
    sum: Model,
    ns: u64,
    /// The guests, each with the number of its last interval and its place in it.
    guests: HashMap<GuestId, (DomainModel, u64, usize)>,
    how: Joining,
}

impl Default for ModelSum {
    fn default() -> Self {
        let how = Joining {
            missing: MissingExtreme::Unknown,
            names: MAX_NAMES,
            room: MAX_ROWS,
        };
        Self {
            sum: Model::default(),
            ns: 0,
            guests: HashMap::new(),
            how,
        }
    }
}

impl ModelSum {
    /// Adds an interval.
    pub fn add(&mut self, mut now: Model) {
        let seconds = now.interval_s.unwrap_or(0.0);
        self.ns = self.ns.saturating_add((seconds * 1e9).round() as u64);
        let number = self.sum.intervals + now.intervals;
        for (place, domain) in std::mem::take(&mut now.domains).into_iter().enumerate() {
            let id = domain.facts.id();
            if self.guests.len() < MAX_GUESTS || self.guests.contains_key(&id) {
                let guest = self.guests.entry(id).or_default();
                (guest.1, guest.2) = (number, place);
                add_guest(&mut guest.0, domain, seconds, &mut self.how);
            }
        }
        now.change(&|rate| rate * seconds);
        now.host.memory = now.host.memory.or(self.sum.host.memory.take());
        self.sum.join(now, &mut self.how);
    }

    /// Seconds of all intervals together.
    pub fn seconds(&self) -> f64 {
        self.ns as f64 / 1e9
    }

    /// The interval that all of them make; guests that ended on the way come last.
    pub fn finish(self) -> Model {
        let seconds = Some(self.seconds()).filter(|s| *s > 0.0);
        let mut model = self.sum;
        model.interval_s = seconds;
        let mut guests: Vec<_> = self.guests.into_values().collect();
        guests.sort_by_key(|(_, number, place)| (Reverse(*number), *place));
        for (guest, number, _) in guests {
            let mut guest = finish_guest(guest, seconds);
            if number < model.intervals {
                guest.state = DomainState::Ended;
            }
            model.domains.push(guest);
        }
        model.change(&|sum| sum / seconds.unwrap_or(1.0));
        for cpu in &mut model.host.cpus {
            cpu.time = cpu.time.map(CpuTimesPercent::split_unsampled);
        }
        for disk in model.host.disks.iter_mut().flatten() {
            disk.seconds = seconds;
        }
        for node in model.host.nodes.iter_mut().flatten() {
            node.seconds = seconds;
        }
        for link in model.host.links.iter_mut().flatten() {
            link.seconds = seconds;
        }
        model.host.cpus.sort_by_key(|c| c.cpu);
        order_busy(&mut model.host.tasks);
        model.host.task_groups.as_mut().map(order_groups);
        list_tenants(&mut model.host.cpus, &model.domains);
        model
    }
}

/// Adds an interval of a guest. Its rates and percentages are then multiplied by the seconds that
/// they are of.
fn add_guest(sum: &mut DomainModel, mut now: DomainModel, seconds: f64, how: &mut Joining) {
    // A mean counts as often as there were operations.
    now.disks
        .iter_mut()
        .flat_map(DiskRates::means)
        .for_each(|(mean, ops)| mean.change(&|us| us * (ops * seconds)));
    now.change(&|rate| rate * seconds);
    now.exit_rate.per_second.change(&|rate| rate * seconds);
    // An access counts when it occurs, its time when its exit ends, so one that is under way at the
    // end of an interval has no time in it.
    if now.exits.total_ns.is_some() {
        let rows = now.accesses.iter_mut().chain(&mut now.vcpu_accesses);
        for span in rows
            .map(|row| &mut row.span)
            .filter(|span| span.total_ns.is_none())
        {
            *span = Timing {
                count: span.count,
                total_ns: Some(0),
                sum_sq: Some(0),
                histogram: Some(Histogram::default()),
                ..Timing::default()
            };
        }
    }
    // vCPU threads that ended stay; helper threads come and go by the thousand, and those that
    // ended stay in the guest's sum only.
    let living: HashSet<_> = now.threads.iter().map(ThreadModel::key).collect();
    let threads = sum.threads.len();
    sum.threads
        .retain(|thread| thread.role == Role::Vcpu || living.contains(&thread.key()));
    how.room += threads - sum.threads.len();
    now.exit_rate.per_second.join(sum.exit_rate.per_second, how);
    if now.exit_rate.source == ExitRateSource::Nothing {
        now.exit_rate.source = sum.exit_rate.source;
    }
    sum.join(now, how);
}

fn finish_guest(mut sum: DomainModel, seconds: Option<f64>) -> DomainModel {
    let all_seconds = seconds.unwrap_or(1.0);
    // The operations are still counts.
    for (mean, ops) in sum.disks.iter_mut().flat_map(DiskRates::means) {
        *mean = match *mean {
            Some(us) if ops > 0.0 => Some(us / ops),
            _ => None,
        };
    }
    sum.change(&|rate| rate / all_seconds);
    sum.exit_rate.per_second.change(&|rate| rate / all_seconds);
    for thread in &mut sum.threads {
        cpu::order_tasks(&mut thread.woken_by);
        cpu::order_tasks(&mut thread.preempted_by);
    }
    sum.threads
        .sort_by_key(|t| (t.role, t.index.is_none(), t.index, t.tid));
    sum.exits = ExitTable::build(sum.exits.rows, seconds);
    sum.vcpu_exits.sort_by_key(|(vcpu, _)| *vcpu);
    for (_, table) in &mut sum.vcpu_exits {
        *table = ExitTable::build(std::mem::take(&mut table.rows), seconds);
    }
    let mut rows: Vec<_> = sum.accesses.iter_mut().collect();
    rows.extend(&mut sum.vcpu_accesses);
    for row in &mut rows {
        // Where no exit provided a time.
        if row.span.total_ns == Some(0) {
            row.span = Timing {
                count: row.span.count,
                ..Timing::default()
            };
        }
    }
    accesses::set_figures(rows, &sum.exits, seconds);
    accesses::order(&mut sum.accesses);
    accesses::order(&mut sum.vcpu_accesses);
    domain::order_userspace(&mut sum.userspace);
    if sum.exits.count > 0 {
        sum.exit_rate = ExitRate {
            per_second: seconds.map(|s| sum.exits.count as f64 / s),
            source: ExitRateSource::Traced,
        };
    }
    for disk in sum.host_disks.iter_mut().flatten() {
        disk.seconds = seconds;
    }
    if let Some(injections) = &mut sum.interrupts {
        injections.iter_mut().for_each(|i| i.seconds = seconds);
        interrupts::order(injections);
    }
    if let Some(doorbells) = &mut sum.doorbells {
        doorbells.iter_mut().for_each(|d| d.seconds = seconds);
        interrupts::order_doorbells(doorbells);
    }
    sum
}

sums!(Model {
    intervals, lost, overflow, own_cpu, late_ns, host,
} time_ms, mono_s, booted_ms, interval_s, engine, sources, own_rss, domains);

sums!(HostModel { cpus, tasks, task_groups, guests_cpu, pressure, load, disks, links, nodes, guests_disk,
    guests_net } facts, memory, guests_memory, kernel_log);

sums!(CpuModel { time, device_irq_rate } cpu, frequency_khz, power, guest_threads);

sums!(HostTaskModel { cpu_percent } task);
sums!(TaskGroup { cpu_percent } comm, count);

sums!(ByteRates { inward, outward });

sums!(SwapUse { grown } bytes);
sums!(UserspaceExits { count } vcpu, reason);

sums!(DomainModel {
    cpu, threads, exits, vcpu_exits, accesses, vcpu_accesses, userspace, kvm_events, counters,
    disks,
    process_io, host_disks, interrupts,
    doorbells, nics, throttling, pressure, swap, swap_in_rate,
} facts, state, stop, uncounted_vcpus, exit_rate, jobs, node_memory, memory, places,
    storage,
    disks_s, nics_s);

sums!(ThreadModel {
    cpu, migrations, growth, wakeups, run_delays, woken_by, preempted_by, exit_rate, counters,
} tid, comm, role, index, place);

impl<T: Sum> Sum for Traced<T> {
    fn join(&mut self, more: Self, how: &mut Joining) {
        self.of.join(more.of, how);
        self.device = more.device.or(self.device.take());
    }
}

impl<T: Row> Row for Traced<T> {
    type Key = T::Key;

    fn key(&self) -> T::Key {
        self.of.key()
    }
}

impl Row for CpuModel {
    type Key = u32;

    fn key(&self) -> Self::Key {
        self.cpu
    }

    fn fits(rows: usize, how: &mut Joining) -> bool {
        rows < how.names
    }
}

impl Row for HostTaskModel {
    type Key = (i32, i32, String);

    fn key(&self) -> Self::Key {
        (self.tid, self.pid, self.comm.clone())
    }

    fn fits(rows: usize, how: &mut Joining) -> bool {
        rows < how.names
    }
}

impl Row for TaskGroup {
    type Key = String;

    fn key(&self) -> Self::Key {
        self.comm.clone()
    }

    fn fits(rows: usize, how: &mut Joining) -> bool {
        rows < how.names
    }
}

impl Row for UserspaceExits {
    type Key = (Option<u32>, i32);

    fn key(&self) -> Self::Key {
        (self.vcpu, self.reason)
    }

    fn fits(rows: usize, how: &mut Joining) -> bool {
        rows < how.names
    }
}

impl Row for ThreadModel {
    type Key = (i32, Role, Option<u32>);

    fn key(&self) -> Self::Key {
        (self.tid, self.role, self.index)
    }
}

impl Row for DiskRates {
    type Key = String;

    fn key(&self) -> Self::Key {
        self.name.clone()
    }
}

impl Row for NicRates {
    type Key = String;

    fn key(&self) -> Self::Key {
        self.name.clone()
    }
}

impl Sum for AccessRow {
    fn join(&mut self, more: Self, _: &mut Joining) {
        self.merge(&more);
        // The latest name: the monitor may answer after the first accesses were counted.
        self.device = more.device.or(self.device.take());
    }
}

impl Row for AccessRow {
    type Key = AccessId;

    fn key(&self) -> AccessId {
        (self.vcpu, self.space, self.address, self.direction)
    }

    fn fits(rows: usize, how: &mut Joining) -> bool {
        rows < MAX_ACCESSES
            && how
                .room
                .checked_sub(1)
                .map(|left| how.room = left)
                .is_some()
    }

    fn becomes_rest(&mut self) -> bool {
        (self.device, self.address) = (None, None);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_reasons_for_exits_to_the_vmm_are_bounded() {
        let row = |reason, count| UserspaceExits {
            vcpu: None,
            reason,
            count,
        };
        let mut how = Joining {
            names: 2,
            ..Joining::with(MissingExtreme::Unknown)
        };
        let mut sum = vec![row(2, 5)];
        sum.join(vec![row(2, 1), row(6, 1), row(7, 1)], &mut how);
        assert_eq!(sum, [row(2, 6), row(6, 1)]);
    }
}
