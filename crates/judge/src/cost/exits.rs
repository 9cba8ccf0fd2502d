//! The costs of a guest's exits, by device or cause.

use super::{Cost, CostKind, Unit, parts};
use crate::model::{AccessRow, DomainModel, ExitKind, ExitRow};
use kvm::{Space, device_map};
use std::collections::BTreeMap;

/// Devices by the beginning of their names, after `kvm-` of those that the kernel emulates.
const DEVICES: &[(CostKind, &[&str])] = &[
    (
        CostKind::Clocks,
        &[
            "hpet",
            "rtc",
            "cmos",
            "acpi-tmr",
            "pit",
            "pl031",
            "boot-timer",
        ],
    ),
    (CostKind::Serial, &["serial", "pl011", "isa-debugcon"]),
    (
        CostKind::Disks,
        &[
            "ide",
            "piix-bmdma",
            "bmdma",
            "ahci",
            "nvme",
            "fdc",
            "lsi",
            "megasas",
            "mptsas",
            "pvscsi",
        ],
    ),
    (
        CostKind::Display,
        &[
            "vga",
            "qxl",
            "cirrus",
            "vbe",
            "edid",
            "bochs dispi interface",
            "qemu extended regs",
        ],
    ),
    (CostKind::Virtio, &["virtio"]),
    (
        CostKind::Apic,
        &[
            "apic-msi",
            "icc-apic-container",
            "ioapic",
            "pic",
            "elcr",
            "gic",
        ],
    ),
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
    (CostKind::Timer, &[ExitKind::PreemptionTimer]),
    (CostKind::Apic, &[
        ExitKind::InterruptWindow, ExitKind::TprBelowThreshold, ExitKind::ApicAccess,
        ExitKind::ApicWrite, ExitKind::EoiInduced, ExitKind::Avic,
    ]),
];

/// The kind of cost that an access is, and its part of that. Parts of [`CostKind::Device`] are
/// costs themselves.
fn owner(row: &AccessRow) -> (CostKind, String) {
    let name = row.device_name();
    let address = row.address_text();
    let (kind, part) = match (row.space, row.address, name) {
        (Space::Msr, msr, _) => {
            let kind = match msr {
                // HV_TIME_REF_COUNT: a clock that is read by an exit.
                Some(0x4000_0020) => CostKind::Clocks,
                // TSC deadline, the local APIC's timer registers, Hyper-V's timers and their end of
                // message.
                Some(
                    0x6e0 | 0x832 | 0x838 | 0x839 | 0x83e | 0x4000_0084 | 0x4000_00b0..=0x4000_00b7,
                ) => CostKind::Timer,
                Some(0x1b | 0x800..=0x8ff | 0x4000_0070..=0x4000_0072) => CostKind::Apic,
                _ => CostKind::Msrs,
            };
            let part = name.unwrap_or(&address);
            (kind, part.strip_prefix("IA32_").unwrap_or(part))
        }
        (_, _, Some(name)) => {
            let part = name.strip_prefix("kvm-").unwrap_or(name);
            match DEVICES
                .iter()
                .find(|(_, begins)| begins.iter().any(|begin| part.starts_with(begin)))
            {
                Some((kind, _)) => (*kind, part),
                None => (CostKind::Device, device_map::friendly(name)),
            }
        }
        (Space::Mmio, Some(0xfee0_0000..0xfef0_0000), _) => (CostKind::Apic, "local APIC"),
        (Space::Mmio, ..) => (CostKind::DeviceMemory, address.as_str()),
        (Space::Pio, ..) => (CostKind::Ports, address.as_str()),
    };
    (kind, part.to_owned())
}

/// The exits in which an access of this kind occurs, the likeliest first.
fn exits_of(space: Space, kind: CostKind) -> &'static [ExitKind] {
    match space {
        Space::Pio => &[ExitKind::Io],
        Space::Msr => &[ExitKind::Msr],
        Space::Mmio if kind == CostKind::Apic => &[
            ExitKind::ApicAccess,
            ExitKind::MemoryFault,
            ExitKind::EptMisconfig,
        ],
        Space::Mmio => &[ExitKind::EptMisconfig, ExitKind::MemoryFault],
    }
}

/// Costs by kind, each with its parts.
#[derive(Default)]
struct Ledger(BTreeMap<CostKind, BTreeMap<String, f64>>);

impl Ledger {
    fn add(&mut self, kind: CostKind, part: String, size: f64) {
        let parts = self.0.entry(kind).or_default();
        *parts.entry(part).or_default() += size;
    }

    fn costs(self, unit: Unit) -> Vec<Cost> {
        let mut costs = Vec::new();
        for (kind, mut sizes) in self.0 {
            if kind == CostKind::Device {
                for (name, size) in sizes {
                    costs.push(Cost {
                        name,
                        ..Cost::new(kind, size, unit, Vec::new())
                    });
                }
                continue;
            }
            let amount = sizes.values().sum();
            sizes.retain(|name, _| !name.is_empty());
            costs.push(Cost::new(kind, amount, unit, parts(sizes)));
        }
        costs
    }
}

/// The costs of a guest's exits by time; where exits have no times, by rate.
pub(super) fn costs(domain: &DomainModel) -> Vec<Cost> {
    let timed = ledger(domain, |access| access.cpu_percent, |exit| exit.cpu_percent);
    if !timed.0.is_empty() {
        return timed.costs(Unit::OfCpu);
    }
    let mut counted = ledger(
        domain,
        |access| access.rate,
        |exit| if exit.idle { None } else { exit.rate },
    );
    if counted.0.is_empty() {
        counted = by_counters(domain);
    }
    counted.costs(Unit::PerSecond)
}

/// Exits per second by KVM's own statistics.
fn by_counters(domain: &DomainModel) -> Ledger {
    let mut ledger = Ledger::default();
    for (kind, name) in [
        (CostKind::Ports, "io_exits"),
        (CostKind::DeviceMemory, "mmio_exits"),
        (CostKind::DeviceMemory, "mmio_exit_user"),
        (CostKind::HostInterrupts, "irq_exits"),
    ] {
        if let Some(rate) = domain.counters.get(name).filter(|rate| **rate > 0.0) {
            ledger.add(kind, String::new(), *rate);
        }
    }
    ledger
}

/// Charges each access to its device, and what then is left of the exits to their causes.
fn ledger(
    domain: &DomainModel,
    of_access: fn(&AccessRow) -> Option<f64>,
    of_exit: fn(&ExitRow) -> Option<f64>,
) -> Ledger {
    let known = domain
        .exits
        .rows
        .iter()
        .filter_map(|row| Some((row, of_exit(row)?)));
    let mut exits: Vec<(&ExitRow, f64)> = known.filter(|(_, size)| *size > 0.0).collect();
    let mut ledger = Ledger::default();
    for row in &domain.accesses {
        let Some(mut due) = of_access(row).filter(|size| *size > 0.0) else {
            continue;
        };
        let (kind, part) = owner(row);
        ledger.add(kind, part, due);
        for kind in exits_of(row.space, kind) {
            for (_, left) in exits.iter_mut().filter(|(exit, _)| kind.matches(exit)) {
                let taken = due.min(*left);
                (due, *left) = (due - taken, *left - taken);
            }
        }
    }
    for (exit, left) in exits {
        let cause = CAUSES
            .iter()
            .find(|(_, kinds)| kinds.iter().any(|kind| kind.matches(exit)));
        let kind = cause.map_or(CostKind::OtherExits, |(kind, _)| *kind);
        // The name of most causes says all.
        let part = if matches!(kind, CostKind::Apic | CostKind::OtherExits) {
            exit.reason.clone()
        } else {
            String::new()
        };
        ledger.add(kind, part, left);
    }
    ledger.0.retain(|_, sizes| {
        sizes.retain(|_, size| *size > 0.0);
        !sizes.is_empty()
    });
    ledger
}
