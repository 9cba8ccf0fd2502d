//! What the page draws over time: series of the host, of each guest and of each vCPU, added up interval by interval,
//! and the spans of findings. Memory is bounded however long the recording is.

use super::charts::{Chart, OTHER, OwnerTracks};
use super::spans::FindingSpans;
use super::tracks::TimeAxis;
use crate::text::exit_name;
use judge::analysis::{DomainFilter, JudgedInterval};
use judge::model::{DomainModel, ExitRateSource, GuestId, ThreadModel, jobs};
use kvm::userspace_exit;
use std::collections::BTreeMap;

/// Limit of guests with time lines, and of the vCPUs of all guests together.
const MAX_GUESTS: usize = 256;
const MAX_VCPUS: usize = 1024;
/// Exit reasons or devices of a guest that the page draws, and of a vCPU.
const GUEST_LINES: usize = 6;
const VCPU_LINES: usize = 4;
/// Disks or network interfaces of a guest, two series each.
const MAX_DEVICES: usize = 16;
/// Slots below which thinning does not go.
const MIN_SLOTS: usize = 64;
/// Slots that the series of vCPUs are thinned to before the series of guests are thinned.
const FEW_SLOTS: usize = 256;

/// Adds up intervals as they come.
#[derive(Debug, Default)]
pub struct TimelineBuilder {
    filter: DomainFilter,
    /// The series of each guest by its place in `guests`, and of the host (`None`).
    pub(super) whole: Layer<Option<usize>>,
    /// The series of each vCPU: the place of its guest, and its number.
    pub(super) vcpus: Layer<(usize, u32)>,
    pub(super) guests: Vec<FollowedGuest>,
    pub(super) spans: FindingSpans,
    /// Intervals added.
    pub(super) intervals: u64,
    /// Whether there were more guests or vCPUs than are followed.
    pub(super) is_cut: bool,
}

/// A guest with time lines.
#[derive(Debug)]
pub(super) struct FollowedGuest {
    pub pid: Option<i32>,
    id: GuestId,
    pub name: String,
    /// Its place in the report's domains.
    pub domain: Option<usize>,
}

/// Series that share a time axis.
#[derive(Debug, Default)]
pub(super) struct Layer<K> {
    pub axis: TimeAxis,
    pub owners: BTreeMap<K, OwnerTracks>,
}

impl<K> Layer<K> {
    /// Joins neighbouring slots.
    pub fn halve(&mut self) {
        self.axis.halve();
        self.owners.values_mut().for_each(OwnerTracks::halve);
    }

    /// Joins slots until there is room for the next interval.
    fn make_room(&mut self) {
        let room = TimeAxis::room(self.owners.values().map(OwnerTracks::count).sum());
        while self.axis.slots.len() > room {
            self.halve();
        }
    }
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
        let at = (self.whole.axis.add(model.time_ms, seconds), seconds);
        let vcpu_at = (self.vcpus.axis.add(model.time_ms, seconds), seconds);
        let host = self.whole.owners.entry(None).or_default();
        if let Some(t) = model.host.total() {
            let host_time = [("irq", t.irq + t.softirq), ("steal", t.steal), ("iowait", t.iowait)];
            let parts = [("guest", t.guest), ("usr", t.usr), ("sys", t.sys)].into_iter().chain(host_time);
            host.chart(Chart::Cpu).add(at, parts);
        }
        for d in model.domains.iter().filter(|d| self.filter.matches(&d.facts)) {
            let Some(place) = followed(&mut self.guests, d) else {
                self.is_cut = true;
                continue;
            };
            let charts = self.whole.owners.entry(Some(place)).or_default();
            add_events(charts, d, None, at);
            add_devices(charts, d, at);
            for thread in d.vcpus() {
                let Some(vcpu) = thread.index else { continue };
                if self.vcpus.owners.len() >= MAX_VCPUS && !self.vcpus.owners.contains_key(&(place, vcpu)) {
                    self.is_cut = true;
                    continue;
                }
                add_events(self.vcpus.owners.entry((place, vcpu)).or_default(), d, Some(thread), vcpu_at);
            }
        }
        self.spans.add(self.filter.findings(model, report).into_iter(), model.time_ms);
        self.whole.make_room();
        self.vcpus.make_room();
    }

    /// Keeps what is drawn.
    pub(super) fn settle(&mut self) {
        self.whole.owners.values_mut().for_each(|owner| owner.settle(GUEST_LINES));
        self.vcpus.owners.values_mut().for_each(|owner| owner.settle(VCPU_LINES));
    }

    /// Joins slots of vCPUs or of guests; false when nothing is left to join.
    pub(super) fn thin(&mut self) -> bool {
        let (guests, vcpus) = (self.whole.axis.slots.len(), self.vcpus.axis.slots.len());
        if vcpus > FEW_SLOTS || (vcpus > MIN_SLOTS && guests <= FEW_SLOTS) {
            self.vcpus.halve();
        } else if guests > MIN_SLOTS {
            self.whole.halve();
        } else {
            return false;
        }
        true
    }
}

/// The place of this guest; `None` if there are too many guests.
fn followed(guests: &mut Vec<FollowedGuest>, d: &DomainModel) -> Option<usize> {
    let id = d.facts.id();
    let place = guests.iter().position(|guest| guest.id == id).unwrap_or(guests.len());
    if place == guests.len() {
        if place == MAX_GUESTS {
            return None;
        }
        guests.push(FollowedGuest { pid: d.facts.pid, id, name: String::new(), domain: None });
    }
    d.name().clone_into(&mut guests[place].name);
    Some(place)
}

/// Adds CPU time, exits and accesses of a guest, or of one of its vCPUs.
fn add_events(charts: &mut OwnerTracks, d: &DomainModel, thread: Option<&ThreadModel>, at: (usize, f64)) {
    let seconds = at.1;
    let vcpu = thread.and_then(|t| t.index);
    let threads: Vec<&ThreadModel> = thread.map_or_else(|| d.vcpus().collect(), |t| vec![t]);
    if let Some(c) = thread.map_or(d.cpu, |t| t.cpu) {
        let wait = c.wait.map(|wait| ("wait", wait));
        charts.chart(Chart::Cpu).add(at, [("guest", c.guest), ("usr", c.usr), ("sys", c.sys)].into_iter().chain(wait));
    }
    let rate = thread.map_or(d.exit_rate.0, |t| t.exit_rate);
    if let (Some(rate), ExitRateSource::Traced | ExitRateSource::Counters) = (rate, d.exit_rate.1) {
        charts.chart(Chart::Exits).add_total(at, rate);
    }
    if let Some(p99) = threads.iter().filter_map(|t| t.wakeups.as_ref()?.quantile_us(0.99)).reduce(f64::max) {
        charts.chart(Chart::Wakeup).add(at, [("p99", p99)]);
    }
    if let Some(all) = threads.iter().filter_map(|t| t.migrations.total).reduce(u64::saturating_add) {
        let far = threads.iter().fold(0_u64, |sum, t| sum.saturating_add(t.migrations.cross_node));
        let near = all.saturating_sub(far) as f64 / seconds;
        charts.chart(Chart::Moves).add(at, [("within a node", near), ("to another node", far as f64 / seconds)]);
    }
    let exits = match vcpu {
        Some(vcpu) => d.vcpu_exits.iter().find(|(of, _)| *of == vcpu).map(|(_, table)| table),
        None => Some(&d.exits),
    };
    if let Some(table) = exits {
        let rates = table.rows.iter().map(|r| (exit_name(&r.reason, r.idle), r.span.count as f64 / seconds));
        charts.chart(Chart::Exits).add(at, rates);
    }
    // By device, or by address where the address has no device.
    let mut devices: BTreeMap<String, f64> = BTreeMap::new();
    let accesses = if vcpu.is_some() { &d.vcpu_accesses } else { &d.accesses };
    for row in accesses.iter().filter(|row| row.vcpu == vcpu) {
        let name = if row.address.is_some() { row.device_or_address() } else { OTHER.to_string() };
        *devices.entry(name).or_default() += row.span.count as f64 / seconds;
    }
    charts.chart(Chart::Devices).add(at, devices);
    if vcpu.is_none() || d.exit_rate.1 != ExitRateSource::Traced {
        let rows = d.userspace.iter().filter(|(of, ..)| *of == vcpu);
        let rates = rows.map(|(_, reason, count)| (userspace_exit::display(*reason), *count as f64 / seconds));
        charts.chart(Chart::Vmm).add(at, rates);
    }
}

/// Adds what only a whole guest has.
fn add_devices(charts: &mut OwnerTracks, d: &DomainModel, at: (usize, f64)) {
    if let Some(cpu) = d.cpu {
        charts.chart(Chart::Cpu).add_total(at, cpu.busy());
    }
    charts.chart(Chart::Wait).add(at, d.longest_wait().map(|wait| ("worst vCPU", wait)));
    for disk in d.disks.iter().take(MAX_DEVICES) {
        let both = [("reads", disk.read_ops, disk.read_mean_us), ("writes", disk.write_ops, disk.write_mean_us)];
        for (kind, requests, time) in both {
            let name = format!("{} {kind}", disk.name);
            charts.chart(Chart::DiskTime).add(at, time.map(|time| (&name, time)));
            charts.chart(Chart::DiskRequests).add(at, [(name, requests)]);
        }
    }
    for job in &d.jobs {
        let name = format!("{} {}", job.kind.as_str(), job.name);
        charts.chart(Chart::Jobs).add(at, jobs::progress(job).map(|percent| (name.trim_end(), percent)));
    }
    for nic in d.nics.iter().take(MAX_DEVICES) {
        let bytes = [(format!("{} received", nic.name), nic.rx_bytes), (format!("{} sent", nic.name), nic.tx_bytes)];
        charts.chart(Chart::Network).add(at, bytes);
    }
}
