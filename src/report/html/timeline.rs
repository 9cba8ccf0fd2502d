//! What the page draws over time: series of the host, of each guest and of each vCPU, added up interval by interval,
//! and the spans of findings. Memory is bounded however long the recording is.

use super::charts::{Chart, OwnerTracks};
use super::spans::FindingSpans;
use super::tracks::TimeAxis;
use crate::analysis::{DomainFilter, JudgedInterval};
use crate::model::{AccessRow, CpuShare, DomainModel, ExitRateSource, ExitTable, Model, ThreadModel};
use crate::report::json::userspace_reason;
use std::collections::BTreeMap;

/// Guests with time lines at most, and their vCPUs together.
const MAX_GUESTS: usize = 256;
const MAX_VCPUS: usize = 1024;
/// Exit reasons or devices of a guest that are followed, and of a vCPU.
const GUEST_ROWS: usize = 32;
const VCPU_ROWS: usize = 12;
/// How many of them the page draws.
const GUEST_LINES: usize = 6;
const VCPU_LINES: usize = 4;
/// Disks or network interfaces of a guest, two series each.
const MAX_DEVICES: usize = 16;

/// Adds up intervals as they come.
#[derive(Debug, Default)]
pub struct TimelineBuilder {
    filter: DomainFilter,
    pub(super) guest_axis: TimeAxis,
    pub(super) vcpu_axis: TimeAxis,
    pub(super) host: OwnerTracks,
    pub(super) guests: Vec<GuestTracks>,
    pub(super) spans: FindingSpans,
    /// Intervals added.
    pub(super) intervals: u64,
    /// Whether there were more guests or vCPUs than are followed.
    pub(super) is_cut: bool,
    vcpus: usize,
    /// Number of series of guests and host, and of vCPUs, as last counted.
    counts: [usize; 2],
}

/// A guest's series.
#[derive(Debug, Default)]
pub(super) struct GuestTracks {
    pub pid: Option<i32>,
    start_ticks: u64,
    pub name: String,
    pub charts: OwnerTracks,
    pub vcpus: BTreeMap<u32, OwnerTracks>,
}

impl TimelineBuilder {
    /// A time line of the guests that the filter selects.
    pub fn new(filter: DomainFilter) -> Self {
        Self { filter, ..Self::default() }
    }

    /// Adds an interval of known length; others have no place in time.
    pub fn add(&mut self, interval: &JudgedInterval) {
        let JudgedInterval { model, report } = interval;
        let Some(seconds) = model.interval_s.filter(|s| *s > 0.0) else { return };
        self.intervals += 1;
        let slot = self.guest_axis.add(model.time_ms, seconds);
        let vcpu_slot = self.vcpu_axis.add(model.time_ms, seconds);
        self.add_host(model, (slot, seconds));
        for d in model.domains.iter().filter(|d| self.filter.matches(&d.facts)) {
            let Some(guest) = followed(&mut self.guests, d) else {
                self.is_cut = true;
                continue;
            };
            let at = (slot, seconds);
            add_guest(&mut guest.charts, d, at);
            add_exits(&mut guest.charts, &d.exits, GUEST_ROWS, at);
            add_accesses(&mut guest.charts, d.accesses.iter(), GUEST_ROWS, at);
            add_vmm_exits(&mut guest.charts, d, None, GUEST_ROWS, at);
            for thread in d.vcpus() {
                let Some(vcpu) = thread.index else { continue };
                if !guest.vcpus.contains_key(&vcpu) {
                    if self.vcpus >= MAX_VCPUS {
                        self.is_cut = true;
                        continue;
                    }
                    self.vcpus += 1;
                }
                add_vcpu(guest.vcpus.entry(vcpu).or_default(), d, thread, vcpu, (vcpu_slot, seconds));
            }
        }
        self.spans.add(self.filter.findings(model, report), model.time_ms);
        self.make_room();
    }

    fn add_host(&mut self, model: &Model, at: (usize, f64)) {
        if let Some(t) = model.host.total() {
            let parts = [
                ("guest", t.guest),
                ("usr", t.usr),
                ("sys", t.sys),
                ("irq", t.irq + t.softirq),
                ("steal", t.steal),
                ("iowait", t.iowait),
            ];
            self.host.add(Chart::Cpu, at, parts.len(), parts);
        }
    }

    /// Joins slots until there is room for the next interval.
    fn make_room(&mut self) {
        // Series appear now and then; they need not be counted each time.
        if self.intervals % 64 == 1 {
            let vcpus = self.guests.iter().flat_map(|g| g.vcpus.values());
            self.counts = [
                self.host.count() + self.guests.iter().map(|g| g.charts.count()).sum::<usize>(),
                vcpus.map(OwnerTracks::count).sum(),
            ];
        }
        while self.guest_axis.slots.len() > TimeAxis::room(self.counts[0]) {
            self.halve_guests();
        }
        while self.vcpu_axis.slots.len() > TimeAxis::room(self.counts[1]) {
            self.halve_vcpus();
        }
    }

    /// Joins neighbouring slots of the host's and the guests' series.
    pub(super) fn halve_guests(&mut self) {
        let sizes = self.guest_axis.halve();
        self.host.join(&sizes);
        self.guests.iter_mut().for_each(|g| g.charts.join(&sizes));
    }

    /// The same of the vCPUs' series.
    pub(super) fn halve_vcpus(&mut self) {
        let sizes = self.vcpu_axis.halve();
        self.guests.iter_mut().flat_map(|g| g.vcpus.values_mut()).for_each(|v| v.join(&sizes));
    }

    /// Values of all series together.
    pub(super) fn values(&self) -> usize {
        let of_guests = self.host.count() + self.guests.iter().map(|g| g.charts.count()).sum::<usize>();
        let of_vcpus: usize = self.guests.iter().flat_map(|g| g.vcpus.values()).map(OwnerTracks::count).sum();
        of_guests * self.guest_axis.slots.len() + of_vcpus * self.vcpu_axis.slots.len()
    }

    /// Keeps what is drawn.
    pub(super) fn settle(&mut self) {
        self.host.settle(GUEST_LINES);
        for guest in &mut self.guests {
            guest.charts.settle(GUEST_LINES);
            guest.vcpus.values_mut().for_each(|v| v.settle(VCPU_LINES));
        }
    }
}

/// The series of this guest; `None` if there are too many guests.
fn followed<'g>(guests: &'g mut Vec<GuestTracks>, d: &DomainModel) -> Option<&'g mut GuestTracks> {
    let (pid, start_ticks) = (d.facts.pid, d.facts.start_ticks);
    let same = |g: &GuestTracks| g.pid == pid && g.start_ticks == start_ticks && (pid.is_some() || g.name == d.name());
    let place = match guests.iter().position(same) {
        Some(place) => place,
        None if guests.len() >= MAX_GUESTS => return None,
        None => {
            guests.push(GuestTracks { pid, start_ticks, ..GuestTracks::default() });
            guests.len() - 1
        }
    };
    let guest = &mut guests[place];
    if guest.name != d.name() {
        guest.name = d.name().to_string();
    }
    Some(guest)
}

fn cpu_parts(c: &CpuShare) -> impl Iterator<Item = (&'static str, f64)> + use<> {
    let known = [("guest", c.guest), ("usr", c.usr), ("sys", c.sys)];
    known.into_iter().chain(c.wait.map(|wait| ("wait", wait)))
}

fn add_guest(charts: &mut OwnerTracks, d: &DomainModel, at: (usize, f64)) {
    if let Some(c) = &d.cpu {
        charts.add(Chart::Cpu, at, 4, cpu_parts(c));
        charts.add_total(Chart::Cpu, at, c.busy());
    }
    if let Some(wait) = d.longest_wait() {
        charts.add(Chart::Wait, at, 1, [("worst vCPU", wait)]);
    }
    if let (Some(rate), ExitRateSource::Traced | ExitRateSource::Counters) = d.exit_rate {
        charts.add_total(Chart::Exits, at, rate);
    }
    if let Some(p99) = d.vcpus().filter_map(wakeup).reduce(f64::max) {
        charts.add(Chart::Wakeup, at, 1, [("p99", p99)]);
    }
    if let Some(all) = d.vcpu_migrations() {
        let far = d.vcpus().fold(0_u64, |sum, t| sum.saturating_add(t.migrations.cross_node));
        add_moves(charts, all, far, at);
    }
    let named = |name: &str, of: &str| format!("{name} {of}");
    for (place, disk) in d.disks.iter().take(MAX_DEVICES).enumerate() {
        let (reads, writes) = (named(&disk.name, "reads"), named(&disk.name, "writes"));
        let most = 2 * MAX_DEVICES + place;
        charts.add(Chart::DiskRequests, at, most, [(reads.as_str(), disk.read_ops), (&writes, disk.write_ops)]);
        let times = disk.read_mean_us.map(|t| (reads.as_str(), t)).into_iter();
        charts.add(Chart::DiskTime, at, most, times.chain(disk.write_mean_us.map(|t| (writes.as_str(), t))));
    }
    for nic in d.nics.iter().take(MAX_DEVICES) {
        let (received, sent) = (named(&nic.name, "received"), named(&nic.name, "sent"));
        let values = [(received.as_str(), nic.rx_bytes), (&sent, nic.tx_bytes)];
        charts.add(Chart::Network, at, 2 * MAX_DEVICES, values);
    }
}

fn add_vcpu(charts: &mut OwnerTracks, d: &DomainModel, thread: &ThreadModel, vcpu: u32, at: (usize, f64)) {
    if let Some(c) = &thread.cpu {
        charts.add(Chart::Cpu, at, 4, cpu_parts(c));
    }
    if let (Some(rate), ExitRateSource::Traced | ExitRateSource::Counters) = (thread.exit_rate, d.exit_rate.1) {
        charts.add_total(Chart::Exits, at, rate);
    }
    if let Some((_, table)) = d.vcpu_exits.iter().find(|(v, _)| *v == vcpu) {
        add_exits(charts, table, VCPU_ROWS, at);
    }
    add_accesses(charts, d.vcpu_accesses.iter().filter(|a| a.vcpu == Some(vcpu)), VCPU_ROWS, at);
    if d.exit_rate.1 != ExitRateSource::Traced {
        add_vmm_exits(charts, d, Some(vcpu), VCPU_ROWS, at);
    }
    if let Some(p99) = wakeup(thread) {
        charts.add(Chart::Wakeup, at, 1, [("p99", p99)]);
    }
    if let Some(all) = thread.migrations.total {
        add_moves(charts, all, thread.migrations.cross_node, at);
    }
}

fn wakeup(thread: &ThreadModel) -> Option<f64> {
    thread.wakeups.as_ref()?.quantile_us(0.99)
}

fn add_moves(charts: &mut OwnerTracks, all: u64, far: u64, at: (usize, f64)) {
    let rate = |moves: u64| moves as f64 / at.1;
    let near = all.saturating_sub(far);
    charts.add(Chart::Moves, at, 2, [("within a node", rate(near)), ("to another node", rate(far))]);
}

fn add_exits(charts: &mut OwnerTracks, table: &ExitTable, most: usize, at: (usize, f64)) {
    let label = |r: &crate::model::ExitRow| if r.idle { format!("{} (sleep)", r.reason) } else { r.reason.clone() };
    let rows: Vec<_> = table.rows.iter().map(|r| (label(r), r.span.count as f64 / at.1)).collect();
    charts.add(Chart::Exits, at, most, rows.iter().map(|(name, rate)| (name.as_str(), *rate)));
}

/// Accesses by device; those of an address without a device by its address.
fn add_accesses<'a>(
    charts: &mut OwnerTracks,
    rows: impl Iterator<Item = &'a AccessRow>,
    most: usize,
    at: (usize, f64),
) {
    let mut devices: Vec<(String, f64)> = Vec::new();
    for row in rows {
        let name = match row.address {
            Some(_) => row.device_or_address(),
            None => super::charts::OTHER.to_string(),
        };
        let rate = row.span.count as f64 / at.1;
        match devices.iter_mut().find(|(n, _)| *n == name) {
            Some((_, sum)) => *sum += rate,
            None => devices.push((name, rate)),
        }
    }
    charts.add(Chart::Devices, at, most, devices.iter().map(|(name, rate)| (name.as_str(), *rate)));
}

fn add_vmm_exits(charts: &mut OwnerTracks, d: &DomainModel, vcpu: Option<u32>, most: usize, at: (usize, f64)) {
    let rows: Vec<_> = d
        .userspace
        .iter()
        .filter(|(of, ..)| *of == vcpu)
        .map(|(_, reason, count)| (userspace_reason(*reason), *count as f64 / at.1))
        .collect();
    charts.add(Chart::VmmExits, at, most, rows.iter().map(|(name, rate)| (name.as_str(), *rate)));
}
