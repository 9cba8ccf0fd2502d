//! Ports, addresses and MSRs touched, each with the device that owns it.

use super::earlier::GuestPair;
use super::exits::{missing_extreme, share};
use super::{ExitKind, ExitRow, ExitTable, total};
use kvm::device_map::{self, DeviceMap};
use kvm::{Space, msr};
use sample::{
    AccessCell, Burst, Direction, DomainFacts, Joining, Origin, Row as _, Sum as _, Timing, growth,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The owner of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceName {
    /// The device as `info mtree` names it ([`device_map::device_of`]), or the MSR's name.
    pub name: String,
    /// The name in plain words, where there is one.
    pub friendly: Option<String>,
    /// The source of the name.
    pub from: Origin,
    /// Whether KVM emulates it in the kernel.
    pub in_kernel: bool,
    /// First address of the region; for an MSR the MSR itself.
    pub base: u64,
}

/// Accesses to one address in one direction within an interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AccessRow {
    /// Port, memory or MSR.
    pub space: Space,
    /// The address; `None`: all addresses without room in the engine's table.
    pub address: Option<u64>,
    /// Read or write.
    pub direction: Direction,
    /// Its device.
    pub device: Option<DeviceName>,
    /// The vCPU; `None` for the domain's sum.
    pub vcpu: Option<u32>,
    /// The exits that held the accesses.
    pub span: Timing,
    /// Per second.
    pub rate: Option<f64>,
    /// Percent of the time in all exits of the domain; without them, of all accesses of its space.
    pub time_percent: Option<f64>,
    /// The vCPUs' own time in these exits, percent of one CPU: without the time that they slept, or
    /// that another task had their CPU, as in other exits of the reason.
    pub cpu_percent: Option<f64>,
    /// Accesses that faulted in the guest.
    pub faults: u64,
    /// The longest run with gaps below 1 ms.
    pub burst: Option<Burst>,
}

/// vCPU, space, address, direction.
pub(super) type AccessId = (Option<u32>, Space, Option<u64>, Direction);

impl AccessRow {
    /// Adds accesses to the same address.
    pub(super) fn merge(&mut self, row: &Self) {
        let missing = missing_extreme(&row.span);
        self.span.merge(&row.span, missing);
        self.faults = self.faults.saturating_add(row.faults);
        self.burst.join(row.burst, &mut Joining::with(missing));
    }

    /// The device's name, if it is known.
    pub fn device_name(&self) -> Option<&str> {
        self.device.as_ref().map(|d| d.name.as_str())
    }

    /// The address as an admin writes it: `0x608`; `other` for the overflow cell.
    pub fn address_text(&self) -> String {
        self.address
            .map_or_else(|| "other".to_string(), |a| format!("{a:#x}"))
    }

    /// The device; without one, space and address.
    pub fn device_or_address(&self) -> String {
        match self.device_name() {
            Some(name) => name.to_string(),
            None => format!("{} {}", self.space.as_str(), self.address_text()),
        }
    }
}

/// The domain's rows and the rows of each vCPU, each with most time first.
pub(crate) fn rows(pair: &GuestPair<'_>, exits: &ExitTable) -> (Vec<AccessRow>, Vec<AccessRow>) {
    let mut rows: BTreeMap<AccessId, AccessRow> = BTreeMap::new();
    let cells = pair.cells(
        |events| &events.accesses,
        |cell: &AccessCell| (cell.space, cell.address, cell.direction),
    );
    for (vcpu, cell, before) in cells {
        let row = AccessRow {
            space: cell.space,
            address: cell.address,
            direction: cell.direction,
            span: cell.time.since(before.map(|b| &b.time)),
            faults: growth(cell.faults, before.map(|b| b.faults)),
            burst: cell.burst,
            ..AccessRow::default()
        };
        if row.span.count == 0 {
            continue;
        }
        for vcpu in [None].into_iter().chain(vcpu.map(Some)) {
            let row = AccessRow {
                vcpu,
                ..row.clone()
            };
            rows.entry(row.key())
                .and_modify(|sum| sum.merge(&row))
                .or_insert(row);
        }
    }
    set_figures(rows.values_mut().collect(), exits, pair.interval.seconds);
    let owners = Owners::of(&pair.now.facts);
    for r in rows.values_mut() {
        r.device = r.address.and_then(|a| owners.name(r.space, a));
    }
    let (mut vcpus, mut all): (Vec<_>, Vec<_>) =
        rows.into_values().partition(|row| row.vcpu.is_some());
    order(&mut vcpus);
    order(&mut all);
    (all, vcpus)
}

/// The exits in which accesses occur.
fn exits_of(space: Space) -> &'static [ExitKind] {
    match space {
        Space::Pio => &[ExitKind::Io],
        Space::Mmio => &[
            ExitKind::EptMisconfig,
            ExitKind::ApicAccess,
            ExitKind::MemoryFault,
        ],
        Space::Msr => &[ExitKind::Msr],
    }
}

/// Computes rates, shares and times of all rows of a guest from its exits.
pub(super) fn set_figures(mut rows: Vec<&mut AccessRow>, exits: &ExitTable, seconds: Option<f64>) {
    for space in [Space::Pio, Space::Mmio, Space::Msr] {
        let kinds = exits_of(space);
        let mut these: Vec<&ExitRow> = exits.rows.iter().collect();
        these.retain(|row| kinds.iter().any(|kind| kind.matches(row)));
        let exit_ns = total(these.iter().filter_map(|row| row.span.total_ns));
        let own_ns = total(these.iter().filter_map(|row| row.own_ns()));
        let own = if exit_ns > 0 {
            own_ns as f64 / exit_ns as f64
        } else {
            1.0
        };
        let of_table = rows
            .iter()
            .filter(|r| r.space == space && r.vcpu.is_none())
            .filter_map(|r| r.span.total_ns);
        let base = exits.total_ns.unwrap_or_else(|| total(of_table));
        for row in rows.iter_mut().filter(|r| r.space == space) {
            row.rate = seconds.map(|s| row.span.count as f64 / s);
            row.time_percent = share(row.span.total_ns, base);
            row.cpu_percent = row
                .span
                .total_ns
                .zip(seconds)
                .map(|(ns, s)| ns as f64 * own / (s * 1e7));
        }
    }
}

/// By time, then by count, largest first.
pub(super) fn order(rows: &mut [AccessRow]) {
    rows.sort_by_key(|r| {
        (
            Reverse((r.span.total_ns, r.span.count)),
            r.space,
            r.address,
            r.direction,
            r.vcpu,
        )
    });
}

/// The devices of a guest by address: its own memory tree, or else the fixed devices of its machine
/// type.
pub(super) struct Owners<'a> {
    known: Option<(&'a DeviceMap, Origin)>,
    built_in: DeviceMap,
}

impl<'a> Owners<'a> {
    pub(super) fn of(facts: &'a DomainFacts) -> Self {
        let known = facts.devices.as_ref().map(|m| (&*m.value, m.from));
        let arch = facts.xml.as_ref().and_then(|x| x.value.arch.as_deref());
        let arch = arch.or_else(|| facts.command.as_ref()?.arch());
        let machine = facts.machine.as_ref().map(|m| m.value.as_str());
        let built_in = match known {
            // A pasted map can be an excerpt. The map of a running guest is complete: a hole
            // belongs to no device.
            Some((_, from)) if from != Origin::File => DeviceMap::default(),
            _ => device_map::builtin(facts.vmm.as_str(), machine, arch),
        };
        Self { known, built_in }
    }

    pub(super) fn name(&self, space: Space, address: u64) -> Option<DeviceName> {
        if space == Space::Msr {
            let name = msr::name(u32::try_from(address).ok()?)?.into_owned();
            return Some(DeviceName {
                name,
                friendly: None,
                from: Origin::BuiltIn,
                in_kernel: true,
                base: address,
            });
        }
        let known = self
            .known
            .and_then(|(map, from)| Some((map.lookup(space, address)?, from)));
        let (region, from) =
            known.or_else(|| Some((self.built_in.lookup(space, address)?, Origin::BuiltIn)))?;
        let name = device_map::device_of(&region.name);
        let friendly = device_map::friendly_at(name, address.saturating_sub(region.base));
        Some(DeviceName {
            name: name.to_string(),
            friendly: Some(friendly.to_string()).filter(|f| f != name),
            from,
            in_kernel: region.kernel,
            base: region.base,
        })
    }
}
