//! The costs of a guest's exits, by the device or cause behind them.

use super::{Amount, Cost, CostKind, parts};
use crate::lint::{ExitKind, port_factor};
use crate::model::{AccessRow, DomainModel, ExitRow};
use kvm::{Space, device_map};
use sample::Timing;
use std::collections::BTreeMap;

/// Devices by the beginning of their names, after `kvm-` of those that the kernel emulates.
const DEVICES: &[(CostKind, &[&str])] = &[
    (CostKind::Clocks, &["hpet", "rtc", "cmos", "acpi-tmr", "pit", "pl031", "boot-timer"]),
    (CostKind::Serial, &["serial", "pl011", "isa-debugcon"]),
    (CostKind::Disks, &["ide", "piix-bmdma", "bmdma", "ahci", "nvme", "fdc", "lsi", "megasas", "mptsas", "pvscsi"]),
    (CostKind::Display, &["vga", "qxl", "cirrus", "vbe", "edid", "bochs dispi interface", "qemu extended regs"]),
    (CostKind::Virtio, &["virtio"]),
    (CostKind::Apic, &["apic-msi", "icc-apic-container", "ioapic", "pic", "elcr", "gic"]),
];

/// Exits by their cause. The first match counts.
#[rustfmt::skip]
const CAUSES: &[(CostKind, &[ExitKind])] = &[
    (CostKind::Ports, &[ExitKind::Io]),
    (CostKind::DeviceMemory, &[ExitKind::EptMisconfig]),
    (CostKind::Msrs, &[ExitKind::Msr]),
    (CostKind::MemoryFaults, &[ExitKind::MemoryFault]),
    (CostKind::HostInterrupts, &[ExitKind::HostInterrupt]),
    (CostKind::Spinning, &[ExitKind::Pause]),
    (CostKind::Cpuid, &[ExitKind::Cpuid]),
    (CostKind::Timer, &[ExitKind::PreemptionTimer]),
    (CostKind::Apic, &[
        ExitKind::InterruptWindow, ExitKind::TprBelowThreshold, ExitKind::ApicAccess, ExitKind::ApicWrite,
        ExitKind::EoiInduced, ExitKind::Avic,
    ]),
    (CostKind::Hypercalls, &[ExitKind::Hypercall]),
    (CostKind::Nested, &[ExitKind::Nested]),
];

/// The owner of an access: the kind of its cost, the device that names it if that is the cost itself, and its part.
struct Owner {
    kind: CostKind,
    device: Option<String>,
    part: String,
}

impl Owner {
    fn of(row: &AccessRow) -> Self {
        let plain = |kind, part: &str| Self { kind, device: None, part: part.into() };
        let name = row.device_name();
        match (row.space, row.address, name) {
            (Space::Msr, Some(msr), _) => {
                let kind = match msr {
                    // HV_TIME_REF_COUNT: a clock that is read by an exit.
                    0x4000_0020 => CostKind::Clocks,
                    // TSC deadline, the local APIC's timer registers, Hyper-V's timers and their end of message.
                    0x6e0 | 0x832 | 0x838 | 0x839 | 0x83e | 0x4000_0084 | 0x4000_00b0..=0x4000_00b7 => CostKind::Timer,
                    0x1b | 0x800..=0x8ff | 0x4000_0070..=0x4000_0072 => CostKind::Apic,
                    _ => CostKind::Msrs,
                };
                let address = row.address_text();
                let part = name.unwrap_or(&address);
                plain(kind, part.strip_prefix("IA32_").unwrap_or(part))
            }
            (Space::Msr, None, _) => plain(CostKind::Msrs, "other"),
            (_, _, Some(name)) => {
                let part = name.strip_prefix("kvm-").unwrap_or(name);
                match DEVICES.iter().find(|(_, begins)| begins.iter().any(|begin| part.starts_with(begin))) {
                    Some((kind, _)) => plain(*kind, part),
                    None => {
                        let device = Some(device_map::friendly(name).to_owned());
                        Self { kind: CostKind::Device, device, part: part.into() }
                    }
                }
            }
            (Space::Mmio, Some(0xfee0_0000..0xfef0_0000), _) => plain(CostKind::Apic, "local APIC"),
            (Space::Mmio, ..) => plain(CostKind::DeviceMemory, &row.address_text()),
            (Space::Pio, ..) => plain(CostKind::Ports, &row.address_text()),
        }
    }

    /// The exits in which such an access occurs, the likeliest first.
    fn exits(&self, space: Space) -> &'static [ExitKind] {
        match space {
            Space::Pio => &[ExitKind::Io],
            Space::Msr => &[ExitKind::Msr],
            Space::Mmio if self.kind == CostKind::Apic => {
                &[ExitKind::ApicAccess, ExitKind::MemoryFault, ExitKind::EptMisconfig]
            }
            Space::Mmio => &[ExitKind::EptMisconfig, ExitKind::MemoryFault],
        }
    }
}

/// The exits of one reason, and what no access accounts for yet.
struct Unclaimed<'a> {
    row: &'a ExitRow,
    left: f64,
    /// The part of its time in which the vCPU neither slept nor waited for a CPU.
    own: f64,
}

impl<'a> Unclaimed<'a> {
    fn new(row: &'a ExitRow, measure: Measure) -> Option<Self> {
        let left = measure(&row.span).filter(|all| *all > 0.0 && !row.idle)?;
        // Counts have no such parts.
        let elsewhere = row.halted_ns.unwrap_or(0).saturating_add(row.preempted_ns.unwrap_or(0)) as f64;
        let own = row.span.total_ns.map_or(1.0, |ns| (1.0 - elsewhere / ns.max(1) as f64).max(0.0));
        Some(Self { row, left, own })
    }

    /// Takes up to `due` of what is left: how much, and how much of that is its own time.
    fn claim(&mut self, due: f64) -> (f64, f64) {
        let taken = due.min(self.left);
        self.left -= taken;
        (taken, taken * self.own)
    }
}

/// What is added up: the nanoseconds of exits, or their number.
type Measure = fn(&Timing) -> Option<f64>;

fn nanoseconds(span: &Timing) -> Option<f64> {
    span.total_ns.map(|ns| ns as f64)
}

/// Costs by kind and device, each with its parts.
#[derive(Default)]
struct Ledger(BTreeMap<(CostKind, Option<String>), BTreeMap<String, f64>>);

impl Ledger {
    fn add(&mut self, owner: Owner, size: f64) {
        *self.0.entry((owner.kind, owner.device)).or_default().entry(owner.part).or_default() += size;
    }

    /// `unit`: how much of what was added is 1 in the amount.
    fn costs(self, unit: f64, amount: fn(f64) -> Amount) -> Vec<Cost> {
        let cost = |((kind, device), sizes): ((CostKind, Option<String>), BTreeMap<String, f64>)| {
            let amount = amount(sizes.values().sum::<f64>() / unit);
            let of_cpu = if let Amount::OfCpu(percent) = amount { percent } else { 0.0 };
            let named = sizes.into_iter().filter(|(name, _)| device.is_none() && !name.is_empty());
            let sizes = named.map(|(name, size)| (name, size / unit));
            let cost = Cost::new(kind, amount, of_cpu, parts(sizes));
            Cost { name: device.unwrap_or(cost.name), ..cost }
        };
        self.0.into_iter().map(cost).collect()
    }
}

/// The costs of a guest's exits by time; where exits have no times, by rate.
pub(super) fn costs(domain: &DomainModel, seconds: f64) -> Vec<Cost> {
    let timed = ledger(domain, nanoseconds, port_factor(domain));
    if !timed.0.is_empty() {
        return timed.costs(seconds * 1e7, Amount::OfCpu);
    }
    let counted = ledger(domain, |span| Some(span.count as f64), 1.0);
    if !counted.0.is_empty() {
        return counted.costs(seconds, Amount::PerSecond);
    }
    by_counters(domain).costs(1.0, Amount::PerSecond)
}

fn ledger(domain: &DomainModel, measure: Measure, of_ports: f64) -> Ledger {
    let mut exits: Vec<Unclaimed<'_>> =
        domain.exits.rows.iter().filter_map(|row| Unclaimed::new(row, measure)).collect();
    let mut ledger = Ledger::default();
    for row in &domain.accesses {
        let Some(mut due) = measure(&row.span).filter(|size| *size > 0.0) else { continue };
        let owner = Owner::of(row);
        due *= if row.space == Space::Pio { of_ports } else { 1.0 };
        if exits.is_empty() && domain.exits.count == 0 {
            // The kernel fires no kvm_exit, or a file has the accesses alone.
            ledger.add(owner, due);
            continue;
        }
        let kinds = owner.exits(row.space);
        let expected = kinds.iter().flat_map(|kind| (0..exits.len()).filter(|at| kind.matches(exits[*at].row)));
        let mut order: Vec<usize> = expected.collect();
        if order.is_empty() {
            // Not the codes of this instruction set.
            order = (0..exits.len()).collect();
        }
        let mut own = 0.0;
        for at in order {
            let (taken, of_vcpu) = exits[at].claim(due);
            (due, own) = (due - taken, own + of_vcpu);
        }
        ledger.add(owner, own);
    }
    for exit in exits {
        let cause = CAUSES.iter().find(|(_, kinds)| kinds.iter().any(|kind| kind.matches(exit.row)));
        let kind = cause.map_or(CostKind::OtherExits, |(kind, _)| *kind);
        // The name of most causes says all.
        let part = if matches!(kind, CostKind::Apic | CostKind::OtherExits) { exit.row.reason.as_str() } else { "" };
        ledger.add(Owner { kind, device: None, part: part.into() }, exit.left * exit.own);
    }
    ledger.0.retain(|_, sizes| {
        sizes.retain(|_, size| *size > 0.0);
        !sizes.is_empty()
    });
    ledger
}

/// Exits per second by KVM's own statistics.
fn by_counters(domain: &DomainModel) -> Ledger {
    let mut ledger = Ledger::default();
    let counters = [
        (CostKind::Ports, "io_exits"),
        (CostKind::DeviceMemory, "mmio_exits"),
        (CostKind::DeviceMemory, "mmio_exit_user"),
        (CostKind::HostInterrupts, "irq_exits"),
    ];
    let known = counters.into_iter().filter_map(|(kind, name)| Some((kind, *domain.counters.get(name)?)));
    for (kind, rate) in known.filter(|(_, rate)| *rate > 0.0) {
        ledger.add(Owner { kind, device: None, part: String::new() }, rate);
    }
    ledger
}
