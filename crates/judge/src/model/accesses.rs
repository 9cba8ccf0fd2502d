//! Ports, addresses and MSRs touched, each with the device that owns it.

use super::earlier::GuestPair;
use super::exits::share;
use super::{ExitKind, ExitTable, total};
use kvm::device_map::{self, DeviceMap};
use kvm::{Space, msr};
use sample::{
    AccessCell, Burst, Direction, DomainFacts, EngineKind, Joining, MissingExtreme, Origin, Sum as _, Timing, growth,
};
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

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
    /// Percent of the time in all exits of the domain; for a file, percent of the time in its table.
    pub time_percent: Option<f64>,
    /// The whole time of these exits, nanoseconds. It is longer than `span` for ports in tables of perf.
    pub exit_ns: Option<u64>,
    /// The vCPUs' own time in these exits, percent of one CPU: without the time that they slept, or that another task
    /// had their CPU, as in other exits of the reason.
    pub cpu_percent: Option<f64>,
    /// Accesses that faulted in the guest.
    pub faults: u64,
    /// The longest run with gaps below 1 ms.
    pub burst: Option<Burst>,
}

/// vCPU, space, address, direction.
pub(super) type AccessId = (Option<u32>, Space, Option<u64>, Direction);

impl AccessRow {
    pub(super) fn id(&self) -> AccessId {
        (self.vcpu, self.space, self.address, self.direction)
    }

    /// Adds accesses to the same address.
    pub(super) fn merge(&mut self, row: &Self, missing: MissingExtreme) {
        self.span.merge(&row.span, missing);
        self.faults = self.faults.saturating_add(row.faults);
        self.burst.join(row.burst, &mut Joining::with(missing));
    }

    /// Mean time of the exits, microseconds.
    pub fn mean_us(&self) -> Option<f64> {
        self.exit_ns.filter(|_| self.span.count > 0).map(|ns| ns as f64 / self.span.count as f64 / 1e3)
    }

    /// The device's name, if it is known.
    pub fn device_name(&self) -> Option<&str> {
        self.device.as_ref().map(|d| d.name.as_str())
    }

    /// The address as an admin writes it: `0x608`; `other` for the overflow cell.
    pub fn address_text(&self) -> String {
        self.address.map_or_else(|| "other".to_string(), |a| format!("{a:#x}"))
    }

    /// The device; without one, space and address.
    pub fn device_or_address(&self) -> String {
        let address = || format!("{} {}", self.space.as_str(), self.address_text());
        self.device_name().map_or_else(address, ToString::to_string)
    }
}

/// A device with all its addresses, read and written.
#[derive(Debug, Clone, PartialEq)]
pub struct HotDevice {
    /// Its name, or its address if it has no name.
    pub name: String,
    /// Accesses per second.
    pub rate: Option<f64>,
}

impl HotDevice {
    /// The device whose accesses took the most time, or else were most.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a AccessRow>) -> Option<Self> {
        let mut devices: HashMap<String, (u64, u64, Option<f64>)> = HashMap::new();
        for row in rows {
            let sum = devices.entry(row.device_or_address()).or_default();
            sum.0 = sum.0.saturating_add(row.span.total_ns.unwrap_or(0));
            sum.1 = sum.1.saturating_add(row.span.count);
            sum.2 = sum.2.map_or(row.rate, |all| Some(all + row.rate.unwrap_or(0.0)));
        }
        let worst = devices.into_iter().max_by(|(a, x), (b, y)| (x.0, x.1).cmp(&(y.0, y.1)).then_with(|| b.cmp(a)))?;
        Some(Self { name: worst.0, rate: worst.1.2 })
    }
}

/// The domain's rows and the rows of each vCPU, each with most time first.
pub(crate) fn rows(pair: &GuestPair<'_>, exits: &ExitTable, kind: EngineKind) -> (Vec<AccessRow>, Vec<AccessRow>) {
    let mut rows: BTreeMap<AccessId, AccessRow> = BTreeMap::new();
    let key = |cell: &AccessCell| (cell.space, cell.address, cell.direction);
    for (vcpu, cell, before) in pair.cells(|events| &events.accesses, key) {
        let row = AccessRow {
            space: cell.space,
            address: cell.address,
            direction: cell.direction,
            span: cell.time.since(before.map(|b| &b.time)),
            faults: growth(cell.faults, before.map(|b| b.faults)),
            burst: cell.burst,
            ..AccessRow::default()
        };
        for vcpu in [None].into_iter().chain(vcpu.map(Some)).filter(|_| row.span.count > 0) {
            let row = AccessRow { vcpu, ..row.clone() };
            match rows.entry(row.id()) {
                Entry::Occupied(mut sum) => sum.get_mut().merge(&row, MissingExtreme::Unknown),
                Entry::Vacant(entry) => drop(entry.insert(row)),
            }
        }
    }
    set_figures(rows.values_mut().collect(), exits, pair.interval.seconds, kind == EngineKind::File);
    let owners = Owners::of(&pair.now.facts);
    for r in rows.values_mut() {
        r.device = r.address.and_then(|a| owners.name(r.space, a));
    }
    let (mut vcpus, mut all): (Vec<_>, Vec<_>) = rows.into_values().partition(|row| row.vcpu.is_some());
    order(&mut vcpus);
    order(&mut all);
    (all, vcpus)
}

/// The exits in which accesses occur. Of two lists the first that there are exits of.
fn exits_of(space: Space) -> [&'static [ExitKind]; 2] {
    match space {
        Space::Pio => [&[ExitKind::Io], &[]],
        Space::Mmio => [&[ExitKind::EptMisconfig, ExitKind::ApicAccess], &[ExitKind::MemoryFault]],
        Space::Msr => [&[ExitKind::Msr], &[]],
    }
}

/// Computes rates, shares and times of all rows of a guest from its exits.
pub(super) fn set_figures(mut rows: Vec<&mut AccessRow>, exits: &ExitTable, seconds: Option<f64>, is_file: bool) {
    for space in [Space::Pio, Space::Mmio, Space::Msr] {
        let of_kinds = |kinds: &[ExitKind]| {
            let these = exits.rows.iter().filter(|row| kinds.iter().any(|kind| kind.matches(row)));
            these.fold((0_u64, 0_u64, 0_u64), |(count, ns, own), row| {
                let (all, of_vcpu) = (row.span.total_ns.unwrap_or(0), row.own_ns().unwrap_or(0));
                (count.saturating_add(row.span.count), ns.saturating_add(all), own.saturating_add(of_vcpu))
            })
        };
        let (exit_count, exit_ns, own_ns) =
            exits_of(space).into_iter().map(of_kinds).find(|(count, ..)| *count > 0).unwrap_or_default();
        let own = if exit_ns > 0 { own_ns as f64 / exit_ns as f64 } else { 1.0 };
        let sums = || rows.iter().filter(|r| r.space == space && r.vcpu.is_none()).map(|r| &r.span);
        let (count, ns) = (total(sums().map(|s| s.count)), total(sums().filter_map(|s| s.total_ns)));
        // perf measures an access to a port from kvm_pio to kvm_entry (kvm-stat-x86.c), which leaves out the way from
        // kvm_exit.
        let longer = (exit_ns as f64 / exit_count as f64) / (ns as f64 / count as f64);
        let is_short = is_file && space == Space::Pio && exit_count >= count && longer.is_finite();
        let longer = if is_short { longer.max(1.0) } else { 1.0 };
        let base = if is_file { Some(ns) } else { exits.total_ns };
        for row in rows.iter_mut().filter(|r| r.space == space) {
            row.rate = seconds.map(|s| row.span.count as f64 / s);
            row.time_percent = row.span.total_ns.zip(base).and_then(|(ns, all)| share(ns, all));
            row.exit_ns = row.span.total_ns.map(|ns| (ns as f64 * longer) as u64);
            row.cpu_percent = row.exit_ns.zip(seconds).map(|(ns, s)| ns as f64 * own / (s * 1e7));
        }
    }
}

/// By time, then by count, largest first.
pub(super) fn order(rows: &mut [AccessRow]) {
    rows.sort_by_key(|r| (Reverse((r.span.total_ns, r.span.count)), r.space, r.address, r.direction, r.vcpu));
}

/// The devices of a guest by address: its own memory tree, or else the fixed devices of its machine type.
pub(super) struct Owners<'a> {
    known: Option<(&'a DeviceMap, Origin)>,
    built_in: DeviceMap,
}

impl<'a> Owners<'a> {
    pub(super) fn of(facts: &'a DomainFacts) -> Self {
        let known = facts.devices.as_ref().map(|m| (&*m.value, m.from));
        let of_command = || facts.command.as_ref()?.arch();
        let arch = facts.xml.as_ref().and_then(|x| x.value.arch.as_deref()).or_else(of_command);
        let machine = facts.machine.as_ref().map(|m| m.value.as_str());
        // A pasted map can be an excerpt. The map of a running guest is complete: a hole in it belongs to no device.
        let whole = known.is_some_and(|(_, from)| from != Origin::File);
        let built_in =
            if whole { DeviceMap::default() } else { device_map::builtin(facts.vmm.as_str(), machine, arch) };
        Self { known, built_in }
    }

    pub(super) fn name(&self, space: Space, address: u64) -> Option<DeviceName> {
        if space == Space::Msr {
            let name = msr::name(u32::try_from(address).ok()?)?.into_owned();
            return Some(DeviceName { name, friendly: None, from: Origin::BuiltIn, in_kernel: true, base: address });
        }
        let known = self.known.and_then(|(map, from)| Some((map.lookup(space, address)?, from)));
        let (region, from) = known.or_else(|| Some((self.built_in.lookup(space, address)?, Origin::BuiltIn)))?;
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
