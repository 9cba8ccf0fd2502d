//! Emulated devices: network cards and disk controllers, old ports that are polled, and runs of
//! characters on the serial port.

use super::properties;
use crate::figures::figure;
use crate::lint::facts::{
    Confidence, Context, EventTotals, Finding, Fix, GuestContext, Mark, Severity, Verdicts, known,
};
use crate::lint::fixes;
use crate::model::{AccessRow, GuestKind, has_device};
use kvm::device_property::DeviceProperty;

/// A wake-up that takes this long within the same interval makes a burst a warning, nanoseconds.
const LATE_NS: u64 = 1_000_000;

/// Accesses per second that can only come in bursts: on average less than a millisecond apart.
const STREAM: f64 = 1000.0;

/// With fewer accesses per second a prompt or a line of a log appears now and then.
const SPARSE: f64 = 30.0;

/// How the names of regions begin (QEMU's `info mtree`).
type Regions = &'static [&'static str];

/// What replaces an emulated device.
struct Emulated {
    kind: &'static str,
    /// The libvirt element that makes it virtio.
    element: &'static str,
    /// The device of QEMU that does.
    device: &'static str,
}

const EMULATED: &[(Regions, Emulated)] = &[
    (
        &["e1000", "rtl8139", "pcnet", "ne2000", "vmxnet3"],
        Emulated {
            kind: "network card",
            element: "<interface>'s <model type='virtio'/>",
            device: "virtio-net-pci",
        },
    ),
    (
        &["ahci", "ide", "piix-bmdma", "bmdma", "lsi-", "megasas"],
        Emulated {
            kind: "disk controller",
            element: "<disk>'s <target dev='vda' bus='virtio'/>",
            device: "virtio-blk-pci",
        },
    ),
];

/// Ports and windows that nothing should poll.
struct Polled {
    name: &'static str,
    /// Empty where a setting stops it.
    advice: &'static str,
}

const POLLED: &[(Regions, Polled)] = &[
    (
        &["vmport"],
        Polled {
            name: "the VMware backdoor (port 0x5658)",
            advice: "",
        },
    ),
    (
        &["i8042"],
        Polled {
            name: "the PS/2 controller",
            advice: "Give the guest a USB tablet or virtio input instead of the PS/2 mouse",
        },
    ),
    (
        &["vga", "cirrus", "vbe", "qxl-ioports"],
        Polled {
            name: "VGA registers",
            advice: "Give the guest a framebuffer driver (virtio-gpu, bochs-drm), or no \
            screen: video model none",
        },
    ),
    (
        &["pci-conf", "pcie-mmcfg"],
        Polled {
            name: "PCI configuration space",
            advice: "Look in the guest for a monitoring tool (lspci, sensors) \
            or a driver that polls",
        },
    ),
];

/// The first group of regions that the guest uses at least this often.
fn first_used<T>(
    guest: &GuestContext<'_>,
    groups: &'static [(Regions, T)],
    least: f64,
    verdicts: &mut Verdicts,
) -> Option<(Regions, &'static T, EventTotals)> {
    for (regions, group) in groups {
        let accesses = guest.accesses(|r| r.device_name().is_some_and(|name| is_of(regions, name)));
        let rate = accesses.rate_or_tell(verdicts);
        if accesses.count > 0 && rate.is_none_or(|rate| rate >= least) {
            return rate.map(|_| (*regions, group, accesses));
        }
    }
    None
}

fn is_of(regions: Regions, name: &str) -> bool {
    regions.iter().any(|prefix| name.starts_with(prefix))
}

pub(super) fn emulated(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let least = ctx.thresholds().devices.emulated;
    let Some((regions, emulated, accesses)) = first_used(guest, EMULATED, least, verdicts) else {
        // Where accesses are measured, their absence shows that the device does no work.
        let measured = !ctx.is_file() && guest.domain.exits.count > 0;
        if !measured && guest.domain.accesses.iter().all(|row| row.device.is_none()) {
            configured(guest, verdicts);
        }
        return;
    };
    let Emulated {
        kind,
        element,
        device,
    } = emulated;
    let rows = guest.domain.accesses.iter();
    let mut names = rows.filter_map(AccessRow::device_name);
    let region = names.find(|name| is_of(regions, name)).unwrap_or(kind);
    let evidence = vec![accesses.describe("accesses", &format!("to {region}"))];
    let what = if guest.config.libvirt == Some(false) {
        device
    } else {
        element
    };
    let change = fixes::advice(format!("Change the device to virtio: set {what}"));
    let change = change.needing(fixes::virtio_needs(false));
    // The accesses are work that the guest wants done: no more than a warning.
    let by_cost = accesses
        .cost
        .and_then(|cost| ctx.thresholds().cost.of_one_cpu.severity(cost));
    let severity = by_cost.unwrap_or_default().min(Severity::Warning);
    let found =
        Finding::new(severity, Confidence::High, evidence, vec![change]).caused_by(accesses);
    verdicts.find(Finding {
        title: format!("An emulated {kind} does real work"),
        problem: format!("emulated {kind}"),
        ..found
    });
}

/// Emulated devices of a guest whose accesses are not measured.
fn configured(guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    if !guest.config.is_x86()
        || guest.kind.kind == GuestKind::Other
        || fixes::hyperv::too_old(guest)
    {
        return;
    }
    let devices = properties::emulated(guest);
    let Some(first) = devices.first() else {
        return;
    };
    let what = if is_scsi(first) {
        "SCSI controller"
    } else {
        "network card"
    };
    let fix = devices.iter().map(|device| made_virtio(guest, device));
    let evidence = devices
        .iter()
        .filter_map(|one| {
            let default = guest.said_if_default(&one.device);
            Some(format!(
                "{} of {}: {}{default}: {}",
                one.device,
                guest.name(),
                one.value,
                one.cost()?
            ))
        })
        .collect();
    let found = Finding::new(Severity::Info, Confidence::Medium, evidence, fix.collect());
    verdicts.find(Finding {
        title: format!("The {what} {} is an emulated {}", first.device, first.value),
        problem: format!("emulated {what}"),
        ..found
    });
}

fn is_scsi(device: &DeviceProperty) -> bool {
    ["lsi", "mega", "mpt", "pvscsi"]
        .iter()
        .any(|model| device.value.starts_with(model))
}

/// Advice to replace an emulated device by one of virtio.
fn made_virtio(guest: &GuestContext<'_>, property: &DeviceProperty) -> Fix {
    let kind = if is_scsi(property) {
        "virtio-scsi"
    } else {
        "virtio-net"
    };
    let DeviceProperty { device, value, .. } = property;
    let text = if guest.config.libvirt == Some(false) {
        format!("Give the guest {kind} in place of {value} for {device}")
    } else {
        format!(
            "Make {device} a virtio device: model='virtio' (a controller's: 'virtio-scsi') in \
                place of {value}"
        )
    };
    fixes::advice(text).needing(fixes::virtio_needs(has_device(&guest.domain.facts, kind)))
}

/// Polling of old ports.
pub(super) fn polling(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let least = ctx.thresholds().devices.polling;
    let Some((_, Polled { name, advice }, accesses)) = first_used(guest, POLLED, least, verdicts)
    else {
        return;
    };
    let fix = if advice.is_empty() {
        let off = "<features>\n  <vmport state='off'/>\n</features>";
        fixes::setting(guest, off, "-machine vmport=off")
    } else {
        vec![fixes::advice(*advice)]
    };
    let evidence = vec![accesses.describe("accesses", "")];
    let found = Finding::new(Severity::Info, Confidence::High, evidence, fix).caused_by(accesses);
    verdicts.find(Finding {
        title: format!("The guest polls {name}"),
        problem: format!("polls {name}"),
        ..found
    });
}

fn is_serial(r: &AccessRow) -> bool {
    r.device_name()
        .is_some_and(|name| name == "pl011" || name.starts_with("serial"))
}

pub(super) fn serial(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().devices;
    let serial = guest
        .domain
        .vcpu_accesses
        .iter()
        .chain(&guest.domain.accesses)
        .filter(|r| is_serial(r));
    let bursts =
        serial.filter_map(|r| Some((r.burst.filter(|b| b.count as f64 >= t.burst_accesses)?, r)));
    let longest = bursts.max_by_key(|(b, r)| (b.ns, r.vcpu.is_some()));
    let Some((burst, row)) = longest else {
        return stream(ctx, guest, verdicts);
    };
    let ms = burst.ns as f64 / 1e6;
    let Some(mut severity) = t.burst_ms.severity(ms) else {
        return;
    };
    let wakeups = row
        .vcpu
        .and_then(|v| guest.domain.vcpu(v))
        .and_then(|t| t.wakeups.as_ref());
    let late = wakeups
        .and_then(|w| w.max_ns)
        .filter(|ns| *ns >= LATE_NS)
        .map(|ns| figure(ns as f64 / 1e6));
    if late.is_some() {
        severity = severity.max(Severity::Warning);
    }
    let port = row.device_name().unwrap_or("the serial port");
    let vcpu = row
        .vcpu
        .map_or_else(|| "a vCPU".into(), |v| format!("vCPU {v}"));
    let evidence = known([
        Some(format!(
            "{} accesses to {port} without a gap of 1 ms held {vcpu} for {} ms",
            burst.count,
            figure(ms)
        )),
        late.map(|ms| format!("a wake-up of that vCPU took {ms} ms in the same second")),
    ]);
    let marks = known([
        Some(Mark::Access(row.space, row.address, row.direction)),
        row.vcpu.map(Mark::Vcpu),
    ]);
    verdicts.find(Finding {
        marks,
        ..Finding::new(severity, Confidence::High, evidence, quieten(guest))
    });
}

/// Judges the serial port where only the number of accesses is known. More than one a millisecond
/// on average come in bursts, however they are spread; fewer may.
fn stream(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    if guest
        .domain
        .accesses
        .iter()
        .any(|r| is_serial(r) && r.burst.is_some())
    {
        return;
    }
    let accesses = guest.accesses(is_serial);
    if (accesses.count as f64) < ctx.thresholds().devices.burst_accesses {
        return;
    }
    match accesses.rate {
        Some(rate) if rate >= STREAM => {
            let severity = ctx.severity_by_cost(&accesses).unwrap_or_default();
            let evidence = vec![accesses.describe("accesses", "to the serial port")];
            verdicts.find(
                Finding::new(severity, Confidence::High, evidence, quieten(guest))
                    .caused_by(accesses),
            );
        }
        Some(rate) if rate < SPARSE => {}
        _ => verdicts.cannot_tell(format!(
            "{} accesses to the serial port, but not when each came; averages hide bursts",
            figure(accesses.count as f64)
        )),
    }
}

fn quieten(guest: &GuestContext<'_>) -> Vec<Fix> {
    vec![
        fixes::advice("For jobs with much output use ssh, or a virtio console (console=hvc0)"),
        fixes::inside(guest, "dmesg -n 4"),
    ]
}
