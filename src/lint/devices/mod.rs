//! Emulated and paravirtual devices.

use crate::kvm::Space;
use crate::kvm::thread_name::Role;
use crate::lint::context::guest::{Context, GuestContext, region};
use crate::lint::context::totals::{by_cost, told};
use crate::lint::engine::text::{figure, maybe};
use crate::lint::engine::verdicts::Verdicts;
use crate::lint::{Confidence, Finding, Mark, Severity, fix};
use crate::model::{AccessRow, ThreadModel};
use crate::sample::Direction;

const DEVICES_DOC: &str = "https://libvirt.org/formatdomain.html#devices";
const VIRTIO_DOC: &str = "https://docs.kernel.org/driver-api/virtio/virtio.html";
/// Offsets in a legacy virtio device's port window (`uapi/linux/virtio_pci.h`).
const LEGACY_NOTIFY: u64 = 0x10;
const LEGACY_ISR: u64 = 0x13;
/// `KVM_EXIT_MMIO` and `KVM_EXIT_IO` (`uapi/linux/kvm.h`).
const EXIT_MMIO: i32 = 6;
const EXIT_IO: i32 = 2;

fn legacy(row: &AccessRow, offset: u64) -> bool {
    row.space == Space::Pio
        && row.device.as_ref().is_some_and(|d| d.name == "virtio-pci" && row.address == Some(d.base + offset))
}

/// I-01: a virtio driver that asks which device interrupted.
pub(crate) fn intx(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let isr = |r: &AccessRow| {
        legacy(r, LEGACY_ISR) && r.direction == Direction::Read
            || r.device_name().is_some_and(|n| n.starts_with("virtio-pci-isr"))
    };
    let seen = guest.accesses(isr);
    if seen.count == 0 {
        return;
    }
    let Some(rate) = seen.rate else { return verdicts.cannot(guest.no_rate()) };
    if rate < world.options.thresholds.devices.intx_reads {
        return;
    }
    verdicts.find(Finding {
        severity: Severity::Warning,
        confidence: Confidence::High,
        title: "A virtio device interrupts through INTx instead of MSI-X".into(),
        evidence: vec![told(guest, &seen, "reads of virtio's interrupt status"), "check inside the guest: grep virtio /proc/interrupts should say MSI".into()],
        why: "With MSI-X every queue has an interrupt of its own and nothing is read. On a shared line the driver has to ask the device, in QEMU, after \
              each interrupt, and all queues share one vCPU"
            .into(),
        fix: vec![
            fix::advice("Take pci=nomsi off the guest's kernel command line; update the virtio drivers of a Windows guest"),
            fix::advice("A device with vectors='0' (QEMU) or a very old guest kernel cannot use MSI-X: give it the default number of vectors"),
        ],
        see: vec![VIRTIO_DOC.into()],
        cost: seen.cost,
        marks: seen.marks,
        ..Finding::default()
    });
}

/// I-02: doorbells that reach the VMM.
pub(crate) fn kicks(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let doorbell = |r: &AccessRow| {
        r.direction == Direction::Write
            && (legacy(r, LEGACY_NOTIFY) || r.device_name().is_some_and(|n| n.starts_with("virtio-pci-notify")))
    };
    let seen = guest.accesses(doorbell);
    if seen.count == 0 {
        return;
    }
    let Some(rate) = seen.rate else { return verdicts.cannot(guest.no_rate()) };
    if rate < world.options.thresholds.devices.kicks {
        return;
    }
    // An ioeventfd ends in the kernel: count what of the exits to the VMM can only be doorbells.
    let to_vmm: u64 = guest
        .domain
        .userspace
        .iter()
        .filter(|u| u.0.is_none() && matches!(u.1, EXIT_MMIO | EXIT_IO))
        .map(|u| u.2)
        .sum();
    if guest.domain.userspace.is_empty() {
        return verdicts.cannot("exits to the VMM were not counted, so it is not known who serves the notifications");
    }
    let others = guest
        .accesses(|r| r.space != Space::Msr && !doorbell(r) && r.device.as_ref().is_none_or(|d| !d.in_kernel))
        .count;
    if to_vmm.saturating_sub(others) * 2 < seen.count {
        return;
    }
    verdicts.find(Finding {
        severity: Severity::Info,
        confidence: Confidence::Medium,
        title: "virtio notifications are served by the VMM instead of an ioeventfd".into(),
        evidence: vec![
            told(guest, &seen, "virtio notifications"),
            format!("{} exits to the VMM {}, which other accesses do not explain", figure(to_vmm as f64), guest.window()),
            "check: trace-cmd record -e kvm:kvm_userspace_exit -e kvm:kvm_fast_mmio".into(),
        ],
        why: "A notification that has an ioeventfd ends in the kernel and wakes an IOThread or vhost. Without one the vCPU itself returns to QEMU and does \
              the device's work while the guest waits"
            .into(),
        fix: vec![
            fix::advice("Network: use vhost (modprobe vhost_net; <driver name='vhost'/>). Disk: do not set ioeventfd='off'; give it an IOThread"),
            fix::advice("Check that nothing sets ioeventfd=off on the device (virsh dumpxml, or the QEMU command line)"),
        ],
        see: vec![DEVICES_DOC.into()],
        cost: seen.cost,
        marks: seen.marks,
        ..Finding::default()
    });
}

/// Regions of emulated disk controllers and network cards, with the libvirt element that replaces them.
const EMULATED: &[(&str, &str)] = &[
    ("e1000", "nic"),
    ("rtl8139", "nic"),
    ("pcnet", "nic"),
    ("ne2000", "nic"),
    ("vmxnet3", "nic"),
    ("ahci", "disk"),
    ("ide", "disk"),
    ("piix-bmdma", "disk"),
    ("bmdma", "disk"),
    ("lsi-", "disk"),
    ("megasas", "disk"),
];

/// I-03: a real load on an emulated device.
pub(crate) fn emulated(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    for (kind, name, element) in [
        ("nic", "network card", "<interface>'s <model type='virtio'/>"),
        ("disk", "disk controller", "<disk>'s <target dev='vda' bus='virtio'/>"),
    ] {
        let of = |n: &str| EMULATED.iter().any(|(prefix, k)| *k == kind && n.starts_with(prefix));
        let seen = guest.accesses(|r| r.device_name().is_some_and(of));
        if seen.count == 0 {
            continue;
        }
        let Some(rate) = seen.rate else { return verdicts.cannot(guest.no_rate()) };
        if rate < world.options.thresholds.devices.emulated {
            continue;
        }
        let region = guest.domain.accesses.iter().filter_map(AccessRow::device_name).find(|n| of(n)).unwrap_or(name);
        verdicts.find(Finding {
            severity: Severity::Info,
            confidence: Confidence::High,
            title: format!("An emulated {name} does real work"),
            evidence: vec![told(guest, &seen, &format!("accesses to {region}")), guest.perf("mmio")],
            why: "Each register of an emulated device that the guest touches is a round trip to QEMU; a virtio device passes whole batches of requests \
                  for one notification, or none"
                .into(),
            fix: vec![fix::advice(format!(
                "Change the device to virtio: in {element}. Install the virtio drivers in the guest first (Windows: virtio-win), or it will not find its {name}"
            ))],
            see: vec![DEVICES_DOC.into()],
            cost: seen.cost,
            marks: seen.marks,
            ..Finding::default()
        });
        return;
    }
}

/// Accesses to the serial port per second that cannot but come in bursts: closer than a millisecond on average.
const STREAM: f64 = 1000.0;
/// So few of them per second are a prompt or a line of a log now and then.
const SPARSE: f64 = 30.0;

fn is_serial(name: &str) -> bool {
    matches!(name, "serial" | "pl011") || name.starts_with("serial")
}

/// I-04: a run of characters on the serial port.
pub(crate) fn serial(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &world.options.thresholds.devices;
    let longest = guest
        .domain
        .vcpu_accesses
        .iter()
        .chain(&guest.domain.accesses)
        .filter(|r| region(r).is_some_and(is_serial))
        .filter_map(|r| Some((r.burst?, r)))
        .filter(|(b, _)| b.count >= t.burst_accesses)
        .max_by_key(|(b, r)| (b.ns, r.vcpu.is_some()));
    let Some((burst, row)) = longest else { return stream(world, guest, verdicts) };
    let ms = burst.ns as f64 / 1e6;
    let Some(mut severity) = t.burst_ms.of(ms) else { return };
    let late = row
        .vcpu
        .and_then(|v| guest.domain.vcpu(v))
        .and_then(|t| t.wakeups.as_ref())
        .and_then(|w| w.max_ns)
        .filter(|ns| *ns >= 1_000_000);
    if late.is_some() {
        severity = severity.max(Severity::Warning);
    }
    let mut evidence = vec![format!(
        "{} accesses to {} without a gap of 1 ms held {} for {} ms",
        burst.count,
        region(row).unwrap_or("the serial port"),
        row.vcpu.map_or_else(|| "a vCPU".into(), |v| format!("vCPU {v}")),
        figure(ms)
    )];
    if let Some(ns) = late {
        evidence.push(format!("a wake-up of that vCPU took {} ms within the same second", figure(ns as f64 / 1e6)));
    }
    evidence.push("check: trace-cmd record -e kvm:kvm_pio -e kvm:kvm_mmio; averages hide it, look at the gaps".into());
    let mut marks = vec![Mark::Access(row.space, row.address, row.direction)];
    marks.extend(row.vcpu.map(Mark::Vcpu));
    verdicts.find(Finding { severity, evidence, marks, ..serial_finding() });
}

/// The same where only sums are known: accesses that come faster than one a millisecond on average are bursts, however they are
/// spread; fewer may be.
fn stream(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let of_port = |r: &AccessRow| region(r).is_some_and(is_serial);
    if guest.domain.accesses.iter().any(|r| of_port(r) && r.burst.is_some()) {
        return;
    }
    let (seen, event) = match guest.ports(of_port) {
        seen if seen.count > 0 => (seen, "ioport"),
        _ => (guest.accesses(of_port), "mmio"),
    };
    if seen.count < world.options.thresholds.devices.burst_accesses {
        return;
    }
    match seen.rate {
        Some(rate) if rate >= STREAM => verdicts.find(Finding {
            severity: by_cost(world, guest, &seen).unwrap_or_default(),
            title: "Output on the serial port holds a vCPU".into(),
            evidence: vec![told(guest, &seen, "accesses to the serial port"), guest.perf(event)],
            cost: seen.cost,
            marks: seen.marks,
            ..serial_finding()
        }),
        Some(rate) if rate < SPARSE => {}
        _ => verdicts.cannot(format!(
            "{} accesses to the serial port, but not when each came; averages hide bursts",
            figure(seen.count as f64)
        )),
    }
}

fn serial_finding() -> Finding {
    Finding {
        confidence: Confidence::High,
        title: "Output on the serial port holds a vCPU for milliseconds".into(),
        why: "Each character on an emulated serial port is at least one round trip to QEMU, made by the vCPU that prints. Whatever else that vCPU has to \
              do meanwhile waits: an interrupt of the network card, for one"
            .into(),
        fix: vec![
            fix::advice("Do not run chatty jobs on the serial console: use ssh, or a virtio console (console=hvc0), which takes whole lines at once"),
            fix::command("dmesg -n 4").needing(fix::IN_GUEST),
        ],
        see: vec!["https://libvirt.org/formatdomain.html#console".into()],
        ..Finding::default()
    }
}

/// Ports and windows that nothing should poll: name's beginning, in words, what helps.
const POLLED: &[(&[&str], &str, &str)] = &[
    (
        &["vmport"],
        "the VMware backdoor (port 0x5658)",
        "Switch it off: <features><vmport state='off'/></features>, or -machine vmport=off",
    ),
    (
        &["i8042"],
        "the PS/2 controller",
        "A tablet (<input type='tablet' bus='usb'/>) or virtio input spares the guest the PS/2 mouse",
    ),
    (
        &["vga", "cirrus", "vbe", "qxl-ioports"],
        "VGA registers",
        "Give the guest a framebuffer driver (virtio-gpu, bochs-drm), or do without a screen: video model none",
    ),
    (
        &["pci-conf", "pcie-mmcfg"],
        "PCI configuration space",
        "Something in the guest reads configuration space all the time: monitoring tools (lspci, sensors), or a driver that polls for hotplug",
    ),
];

/// I-05: polling of old ports.
pub(crate) fn polling(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    for (names, words, help) in POLLED {
        let seen = guest.accesses(|r| region(r).is_some_and(|n| names.iter().any(|p| n.starts_with(p))));
        if seen.count == 0 {
            continue;
        }
        let Some(rate) = seen.rate else { return verdicts.cannot(guest.no_rate()) };
        if rate < world.options.thresholds.devices.polling {
            continue;
        }
        let mut fixes = Vec::new();
        if names.contains(&"vmport") {
            fixes.extend(fix::either(
                guest,
                fix::xml("<features>\n  <vmport state='off'/>\n</features>"),
                fix::qemu("-machine vmport=off"),
            ));
        }
        if fixes.is_empty() {
            fixes.push(fix::advice(*help));
        }
        verdicts.find(Finding {
            severity: Severity::Info,
            confidence: Confidence::High,
            title: format!("The guest polls {words}"),
            evidence: vec![told(guest, &seen, "accesses"), guest.perf("ioport")],
            why: "None of these is fast by nature: every access is a round trip to QEMU of some 5 to 12 us. While somebody uses the guest's screen through \
                  VNC some of it is to be expected"
                .into(),
            fix: fixes,
            see: vec![DEVICES_DOC.into()],
            cost: seen.cost,
            marks: seen.marks,
            ..Finding::default()
        });
        return;
    }
}

/// The CPU that a bound kworker belongs to: `kworker/3:1`, `kworker/3:1H-kblockd`; unbound ones are `kworker/u8:2`.
fn kworker_cpu(comm: &str) -> Option<u32> {
    comm.strip_prefix("kworker/")?.split(':').next()?.parse().ok()
}

/// I-06: interrupts that arrive by way of a workqueue.
pub(crate) fn kworker(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let Some(seconds) = guest.seconds else { return };
    let host = &world.model.host.facts.topology;
    let mut vcpus = guest.vcpu_threads().peekable();
    if vcpus.peek().is_some() && vcpus.all(|t| t.wakeups.is_none() && t.woken_by.is_empty()) {
        if guest.vcpu_cpus.reach.iter().any(|c| host.is_isolated(c)) {
            verdicts.cannot("who wakes the vCPUs on isolated CPUs is not seen without tracing");
        }
        return;
    }
    let wakes = |t: &ThreadModel| -> (u64, bool) {
        let by = || t.woken_by.iter().filter(|w| w.comm.starts_with("kworker/"));
        let isolated = by().any(|w| kworker_cpu(&w.comm).is_some_and(|c| host.is_isolated(c)));
        (by().map(|w| w.count).sum(), isolated)
    };
    let busiest = guest.vcpu_threads().map(|t| (wakes(t), t)).max_by_key(|((n, _), _)| *n);
    let Some(((count, isolated), thread)) = busiest else { return };
    let rate = count as f64 / seconds;
    let warn = world.options.thresholds.devices.kworker_wakes;
    if !(isolated && rate >= 10.0) && rate < warn {
        return;
    }
    let polling = guest.domain.threads.iter().any(|t| t.role == Role::Vhost);
    verdicts.find(Finding {
        severity: if rate >= warn { Severity::Warning } else { Severity::Info },
        confidence: Confidence::Medium,
        target: crate::lint::Target::Vcpu(thread.index.unwrap_or_default()),
        title: "Interrupts reach the guest through a kworker".into(),
        evidence: vec![
            format!("{}/s wake-ups of {} by kworkers {}", maybe(Some(rate)), thread.label(), guest.window()),
            if isolated { "the kworker runs on an isolated CPU, between the tasks that the CPU is kept for".into() } else { "the kworkers are not on isolated CPUs".to_owned() },
            "check: trace-cmd record -e sched:sched_wakeup -e workqueue:workqueue_execute_start".into(),
        ],
        why: "An interrupt that KVM cannot inject at once (level-triggered lines, old arm64 kernels) is queued to a kworker on the CPU that raised it, \
              which first has to run there and then wakes the vCPU"
            .into(),
        fix: vec![fix::advice(if polling {
            "A newer host kernel injects MSIs directly; inside the guest, MSI-X instead of INTx avoids it"
        } else {
            "A newer host kernel injects MSIs directly; give the polling task (vhost-user, DPDK) a CPU whose kworkers may wait"
        })],
        see: vec!["https://docs.kernel.org/core-api/workqueue.html".into()],
        marks: thread.index.map(Mark::Vcpu).into_iter().collect(),
        ..Finding::default()
    });
}
