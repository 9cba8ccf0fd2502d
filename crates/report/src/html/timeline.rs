//! What the page draws over time: series of the host, of each guest and of each vCPU, added up interval by interval,
//! and the spans of findings. Memory is bounded however long the recording is.

use super::charts::{Chart, OTHER, OwnerTracks};
use super::spans::FindingSpans;
use super::tracks::TimeAxis;
use crate::json::userspace_reason;
use judge::analysis::{DomainFilter, JudgedInterval};
use judge::model::{AccessRow, CpuShare, DomainModel, ExitRateSource, ExitRow, ExitTable, GuestId, Model, ThreadModel};
use std::collections::BTreeMap;

/// Limit of guests with time lines, and of the vCPUs of all guests together.
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
    /// What [`Self::count`] last returned.
    counts: [usize; 2],
}

/// A guest's series.
#[derive(Debug, Default)]
pub(super) struct GuestTracks {
    pub pid: Option<i32>,
    id: Option<GuestId>,
    pub name: String,
    pub charts: OwnerTracks,
    pub vcpus: BTreeMap<u32, OwnerTracks>,
}

impl TimelineBuilder {
    /// A time line of the guests that the filter selects.
    pub fn new(filter: DomainFilter) -> Self {
        Self { filter, ..Self::default() }
    }

    /// Adds an interval of known length; other intervals are skipped.
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
            add_guest(&mut guest.charts, d, (slot, seconds));
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
            self.host.chart(Chart::Cpu).add(at, parts.len(), parts);
        }
    }

    /// Joins slots until there is room for the next interval.
    fn make_room(&mut self) {
        // Series appear now and then; they need not be counted each time.
        if self.intervals % 64 == 1 {
            self.counts = self.count();
        }
        while self.guest_axis.slots.len() > TimeAxis::room(self.counts[0]) {
            self.halve_guests();
        }
        while self.vcpu_axis.slots.len() > TimeAxis::room(self.counts[1]) {
            self.halve_vcpus();
        }
    }

    /// Number of series of guests and host, and of vCPUs.
    fn count(&self) -> [usize; 2] {
        let guests = self.guests.iter().map(|g| &g.charts).chain([&self.host]);
        let vcpus = self.guests.iter().flat_map(|g| g.vcpus.values());
        [guests.map(OwnerTracks::count).sum(), vcpus.map(OwnerTracks::count).sum()]
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
        let [guests, vcpus] = self.count();
        guests * self.guest_axis.slots.len() + vcpus * self.vcpu_axis.slots.len()
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
    let (id, pid) = (Some(d.facts.id()), d.facts.pid);
    let place = match guests.iter().position(|guest| guest.id == id) {
        Some(place) => place,
        None if guests.len() >= MAX_GUESTS => return None,
        None => {
            guests.push(GuestTracks { pid, id, ..GuestTracks::default() });
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
        let cpu = charts.chart(Chart::Cpu);
        cpu.add(at, 4, cpu_parts(c));
        cpu.add_total(at, c.busy());
    }
    if let Some(wait) = d.longest_wait() {
        charts.chart(Chart::Wait).add(at, 1, [("worst vCPU", wait)]);
    }
    add_exit_rate(charts, d, d.exit_rate.0, at);
    add_wakeups(charts, d.vcpus().filter_map(wakeup).reduce(f64::max), at);
    let far = d.vcpus().fold(0_u64, |sum, t| sum.saturating_add(t.migrations.cross_node));
    add_moves(charts, d.vcpu_migrations(), far, at);
    add_exits(charts, &d.exits, GUEST_ROWS, at);
    add_accesses(charts, d.accesses.iter(), GUEST_ROWS, at);
    add_vmm_exits(charts, d, None, GUEST_ROWS, at);
    for (place, disk) in d.disks.iter().take(MAX_DEVICES).enumerate() {
        let (reads, writes) = (format!("{} reads", disk.name), format!("{} writes", disk.name));
        let most = 2 * MAX_DEVICES + place;
        charts.chart(Chart::DiskRequests).add(at, most, [(&reads, disk.read_ops), (&writes, disk.write_ops)]);
        let times = [(&reads, disk.read_mean_us), (&writes, disk.write_mean_us)];
        let measured = times.into_iter().filter_map(|(name, time)| Some((name, time?)));
        charts.chart(Chart::DiskTime).add(at, most, measured);
    }
    for nic in d.nics.iter().take(MAX_DEVICES) {
        let bytes = [(format!("{} received", nic.name), nic.rx_bytes), (format!("{} sent", nic.name), nic.tx_bytes)];
        charts.chart(Chart::Network).add(at, 2 * MAX_DEVICES, bytes);
    }
}

fn add_vcpu(charts: &mut OwnerTracks, d: &DomainModel, thread: &ThreadModel, vcpu: u32, at: (usize, f64)) {
    if let Some(c) = &thread.cpu {
        charts.chart(Chart::Cpu).add(at, 4, cpu_parts(c));
    }
    add_exit_rate(charts, d, thread.exit_rate, at);
    if let Some((_, table)) = d.vcpu_exits.iter().find(|(v, _)| *v == vcpu) {
        add_exits(charts, table, VCPU_ROWS, at);
    }
    add_accesses(charts, d.vcpu_accesses.iter().filter(|a| a.vcpu == Some(vcpu)), VCPU_ROWS, at);
    if d.exit_rate.1 != ExitRateSource::Traced {
        add_vmm_exits(charts, d, Some(vcpu), VCPU_ROWS, at);
    }
    add_wakeups(charts, wakeup(thread), at);
    add_moves(charts, thread.migrations.total, thread.migrations.cross_node, at);
}

fn wakeup(thread: &ThreadModel) -> Option<f64> {
    thread.wakeups.as_ref()?.quantile_us(0.99)
}

fn add_exit_rate(charts: &mut OwnerTracks, d: &DomainModel, rate: Option<f64>, at: (usize, f64)) {
    if let (Some(rate), ExitRateSource::Traced | ExitRateSource::Counters) = (rate, d.exit_rate.1) {
        charts.chart(Chart::Exits).add_total(at, rate);
    }
}

fn add_wakeups(charts: &mut OwnerTracks, p99: Option<f64>, at: (usize, f64)) {
    if let Some(p99) = p99 {
        charts.chart(Chart::Wakeup).add(at, 1, [("p99", p99)]);
    }
}

fn add_moves(charts: &mut OwnerTracks, all: Option<u64>, far: u64, at: (usize, f64)) {
    if let Some(all) = all {
        let moves = [("within a node", all.saturating_sub(far)), ("to another node", far)];
        charts.chart(Chart::Moves).add(at, 2, moves.map(|(name, count)| (name, count as f64 / at.1)));
    }
}

fn add_exits(charts: &mut OwnerTracks, table: &ExitTable, most: usize, at: (usize, f64)) {
    let label = |r: &ExitRow| if r.idle { format!("{} (sleep)", r.reason) } else { r.reason.clone() };
    let rates = table.rows.iter().map(|r| (label(r), r.span.count as f64 / at.1));
    charts.chart(Chart::Exits).add(at, most, rates);
}

/// Accesses by device, or by address where the address has no device.
fn add_accesses<'a>(
    charts: &mut OwnerTracks,
    rows: impl Iterator<Item = &'a AccessRow>,
    most: usize,
    at: (usize, f64),
) {
    let mut devices: Vec<(String, f64)> = Vec::new();
    for row in rows {
        let name = row.address.map_or_else(|| OTHER.to_string(), |_| row.device_or_address());
        let rate = row.span.count as f64 / at.1;
        match devices.iter_mut().find(|(n, _)| *n == name) {
            Some((_, sum)) => *sum += rate,
            None => devices.push((name, rate)),
        }
    }
    charts.chart(Chart::Devices).add(at, most, devices);
}

fn add_vmm_exits(charts: &mut OwnerTracks, d: &DomainModel, vcpu: Option<u32>, most: usize, at: (usize, f64)) {
    let rows = d.userspace.iter().filter(|(of, ..)| *of == vcpu);
    let rates = rows.map(|(_, reason, count)| (userspace_reason(*reason), *count as f64 / at.1));
    charts.chart(Chart::Vmm).add(at, most, rates);
}
