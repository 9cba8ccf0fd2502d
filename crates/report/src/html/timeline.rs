//! What the page draws over time: series of the host and of each guest, added up interval by
//! interval, and the spans of findings. Memory is bounded however long the recording is.
//!
//! The time axis consists of slots of one or more intervals. An owner (the host or a guest) has
//! charts, a chart has lines, and a line's track has a cell for each slot.

use super::charts::{Chart, OTHER, OwnerTracks};
use super::spans::FindingSpans;
use super::tracks::{Moment, TimeAxis};
use crate::text::exit_name;
use judge::analysis::{DomainFilter, JudgedInterval};
use judge::model::{DomainModel, GuestId};
use std::collections::BTreeMap;

/// Limit of guests with time lines.
const MAX_GUESTS: usize = 256;
/// Exit reasons or devices of a guest that the page draws; the others are added up.
const MAX_LINES: usize = 6;
/// Disks of a guest, two series each.
const MAX_DISKS: usize = 16;

/// Adds up intervals as they come.
#[derive(Debug, Default)]
pub struct TimelineBuilder {
    filter: DomainFilter,
    pub(super) axis: TimeAxis,
    pub(super) host: OwnerTracks,
    pub(super) guests: Vec<FollowedGuest>,
    pub(super) spans: FindingSpans,
    /// Intervals added.
    pub(super) intervals: u64,
    /// Whether there were more guests than are followed.
    pub(super) is_cut: bool,
}

/// A guest with time lines.
#[derive(Debug)]
pub(super) struct FollowedGuest {
    pub pid: Option<i32>,
    id: GuestId,
    pub name: String,
    /// Its index in the report's domains, once the guests are linked.
    pub domain: Option<usize>,
    pub tracks: OwnerTracks,
}

impl TimelineBuilder {
    /// A time line of the guests that the filter selects.
    pub fn new(filter: DomainFilter) -> Self {
        Self {
            filter,
            ..Self::default()
        }
    }

    /// Adds an interval of known length; other intervals are skipped.
    pub fn add(&mut self, interval: &JudgedInterval) {
        let JudgedInterval { model, report } = interval;
        let Some(seconds) = model.interval_s.filter(|s| *s > 0.0) else {
            return;
        };
        self.intervals += 1;
        let slot = self.axis.add(model.time_ms, seconds);
        let moment = Moment { slot, seconds };
        if let Some(t) = model.host.total() {
            let parts = [
                ("guest", t.guest),
                ("usr", t.usr),
                ("sys", t.sys),
                ("irq", t.irq + t.softirq),
                ("steal", t.steal),
                ("iowait", t.iowait),
            ];
            self.host.chart(Chart::Cpu).add(moment, parts);
        }
        for d in &model.domains {
            if !self.filter.matches(&d.facts) {
                continue;
            }
            match followed(&mut self.guests, d) {
                Some(guest) => add_guest(&mut guest.tracks, d, moment),
                None => self.is_cut = true,
            }
        }
        let findings = report.findings.iter();
        let findings = findings.filter(|finding| self.filter.has_finding(model, finding));
        self.spans.add(findings, model.time_ms);
        let room = TimeAxis::room(self.owners().map(|owner| owner.count()).sum());
        while self.axis.slots.len() > room {
            self.halve();
        }
    }

    /// The charts of the host and of each guest.
    fn owners(&mut self) -> impl Iterator<Item = &mut OwnerTracks> {
        let guests = self.guests.iter_mut().map(|guest| &mut guest.tracks);
        std::iter::once(&mut self.host).chain(guests)
    }

    /// Halves the number of slots.
    pub(super) fn halve(&mut self) {
        self.axis.halve();
        self.owners().for_each(OwnerTracks::halve);
    }

    /// Keeps the lines that are drawn, and adds up the others.
    pub(super) fn keep_largest(&mut self) {
        self.owners()
            .for_each(|owner| owner.keep_largest(MAX_LINES));
    }
}

/// This guest in `guests`; `None` if there are too many guests.
fn followed<'g>(
    guests: &'g mut Vec<FollowedGuest>,
    d: &DomainModel,
) -> Option<&'g mut FollowedGuest> {
    let id = d.facts.id();
    let index = guests
        .iter()
        .position(|guest| guest.id == id)
        .unwrap_or(guests.len());
    if index == guests.len() {
        if index == MAX_GUESTS {
            return None;
        }
        guests.push(FollowedGuest {
            pid: d.facts.pid,
            id,
            name: String::new(),
            domain: None,
            tracks: OwnerTracks::default(),
        });
    }
    d.name().clone_into(&mut guests[index].name);
    guests.get_mut(index)
}

/// Accesses per second: by device, by address where that has no device, and in one sum where the
/// address is not known.
fn accesses_per_second(d: &DomainModel, seconds: f64) -> BTreeMap<String, f64> {
    let mut devices: BTreeMap<String, f64> = BTreeMap::new();
    for row in &d.accesses {
        let name = if row.address.is_some() {
            row.device_or_address()
        } else {
            OTHER.to_string()
        };
        *devices.entry(name).or_default() += row.span.count as f64 / seconds;
    }
    devices
}

/// Adds an interval to the charts of a guest.
fn add_guest(charts: &mut OwnerTracks, d: &DomainModel, moment: Moment) {
    let seconds = moment.seconds;
    if let Some(c) = d.cpu {
        let wait = c.wait.map(|wait| ("wait", wait));
        charts.chart(Chart::Cpu).add(
            moment,
            [("guest", c.guest), ("usr", c.usr), ("sys", c.sys)]
                .into_iter()
                .chain(wait),
        );
    }
    if let Some(p99) = d
        .vcpus()
        .filter_map(|t| t.wakeups.as_ref()?.quantile_us(0.99))
        .reduce(f64::max)
    {
        charts.chart(Chart::Wakeup).add(moment, [("p99", p99)]);
    }
    if let Some(moves) = d.vcpu_migrations() {
        charts
            .chart(Chart::Moves)
            .add(moment, [("moves", moves as f64 / seconds)]);
    }
    let exits = charts.chart(Chart::Exits);
    if d.exits.rows.is_empty() {
        exits.add(moment, d.exit_rate.per_second.map(|rate| ("all", rate)));
    } else {
        exits.add(
            moment,
            d.exits
                .rows
                .iter()
                .map(|r| (exit_name(&r.reason, r.idle), r.span.count as f64 / seconds)),
        );
    }
    charts
        .chart(Chart::Devices)
        .add(moment, accesses_per_second(d, seconds));
    charts
        .chart(Chart::Wait)
        .add(moment, d.worst_wait().map(|(_, wait)| ("worst vCPU", wait)));
    for disk in d.disks.iter().take(MAX_DISKS) {
        for (kind, time) in [("reads", disk.read_mean_us), ("writes", disk.write_mean_us)] {
            charts.chart(Chart::DiskTime).add(
                moment,
                time.map(|time| (format!("{} {kind}", disk.name), time)),
            );
        }
    }
}
