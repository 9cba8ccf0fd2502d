//! Emulated and paravirtual devices.

mod emulated;
mod properties;
mod virtio;

use crate::lint::facts::Check::{Behaviour, Setup};
use crate::lint::facts::{Hold, Rule, RuleDoc, RuleId, links, thresholds};

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule::new(RuleId::VirtioIntx, Behaviour(virtio::intx), Hold::USUAL).described(RuleDoc {
        sees: "a virtio device interrupts through INTx instead of MSI-X",
        problem: "virtio without MSI-X",
        why: "With MSI-X every queue has its own interrupt. On a shared line the driver has to ask \
            the device, in QEMU, after each interrupt, and all queues share one vCPU",
        thresholds: thresholds![devices.intx_reads],
        limits: "Needs the names of regions (info mtree; live guests of libvirt: --monitor) or the \
            port window of a legacy virtio device",
        fix: "The guest's kernel command line or drivers; the device's number of vectors",
        links: &["https://docs.kernel.org/driver-api/virtio/virtio.html"],
    }),
    Rule::new(RuleId::VirtioKicks, Behaviour(virtio::kicks), Hold::USUAL).described(RuleDoc {
        sees: "the VMM serves virtio notifications itself instead of through an ioeventfd",
        problem: "virtio without ioeventfd",
        why: "A notification with an ioeventfd ends in the kernel and wakes an IOThread or vhost. \
            Without one the vCPU itself returns to QEMU and does the device's work while the guest \
            waits",
        thresholds: thresholds![devices.kicks],
        limits: "Infers it from exits to the VMM that no other access explains, half of the \
            notifications at least",
        fix: "The device's driver options in the domain's XML: vhost, ioeventfd, an IOThread",
        links: &[links::DEVICES],
    }),
    Rule::new(
        RuleId::EmulatedDevice,
        Behaviour(emulated::emulated),
        Hold::USUAL,
    )
    .described(RuleDoc {
        sees: "an emulated network card or disk controller does real work",
        problem: "emulated disk or network",
        why: "Each access to a register of an emulated device is a round trip to QEMU; virtio \
            passes batches",
        thresholds: thresholds![devices.emulated],
        limits: "Needs the names of regions (info mtree; live guests of libvirt: --monitor); else \
            the configuration's network cards and SCSI controllers are named, or that a device is \
            used and not which. An installer or firmware that reads the disk looks the same",
        fix: "The device's model in the domain's XML, after virtio drivers are installed in the \
            guest",
        links: &[links::DEVICES],
    }),
    Rule::new(
        RuleId::SerialBurst,
        Behaviour(emulated::serial),
        Hold::For(1.0, 10.0),
    )
    .described(RuleDoc {
        sees: "output on the serial port holds a vCPU for milliseconds",
        problem: "serial output stops vCPUs",
        why: "Each character is at least one round trip to QEMU; other work of the vCPU waits \
            meanwhile",
        thresholds: thresholds![
            devices.burst_accesses,
            devices.burst_ms,
            cost.of_one_cpu,
            cost.of_vcpus
        ],
        limits: "Accesses less than 1 ms apart are a burst. Files with sums only are judged from \
            1000 accesses/s on",
        fix: "Inside the guest: less output on the console, or a virtio console",
        links: &["https://libvirt.org/formatdomain.html#console"],
    }),
    Rule::new(
        RuleId::LegacyPortPolling,
        Behaviour(emulated::polling),
        Hold::USUAL,
    )
    .described(RuleDoc {
        sees: "the guest polls VGA, PS/2, vmport or PCI configuration ports",
        problem: "polls old PC devices",
        why: "Each access is a 5-12 us round trip to QEMU",
        thresholds: thresholds![devices.polling],
        limits: "Somebody who uses the guest's screen through VNC causes some of it",
        fix: "Features and devices in the domain's XML, after a power cycle; or the program in the \
            guest that polls",
        links: &[links::DEVICES],
    }),
    Rule::new(
        RuleId::IrqfdKworker,
        Behaviour(virtio::kworker),
        Hold::USUAL,
    )
    .described(RuleDoc {
        sees: "interrupts reach the guest through a kworker",
        problem: "interrupts via a kworker",
        why: "KVM queues an interrupt that it cannot inject at once (level-triggered lines, old \
            arm64 kernels) to a kworker on the CPU that raised it. The kworker has to get that CPU \
            before it wakes the vCPU",
        thresholds: thresholds![devices.kworker_wakes],
        limits: "Needs scheduler tracepoints. Sees that a kworker woke the vCPU, not for which \
            work",
        fix: "The host's kernel, or the placement of the task that raises the interrupts",
        links: &["https://docs.kernel.org/core-api/workqueue.html"],
    }),
    Rule::new(
        RuleId::DeviceProperties,
        Setup(properties::costly),
        Hold::AT_ONCE,
    )
    .described(RuleDoc {
        sees: "a device has a property that makes QEMU serve what the kernel could",
        problem: "slow device settings",
        why: "By default KVM, vhost and VFIO pass notifications and interrupts of fast devices \
            past QEMU. A property that turns this off is of use for debugging only",
        thresholds: &[],
        limits: "Configuration only. Knows ioeventfd, vectors, event_idx, indirect_desc, tx, vhost \
            and the x-no-kvm-… and x-no-mmap of passed-through devices; of several settings the \
            last one counts",
        fix: "The property, in the place that decides, after a power cycle",
        links: &[links::DEVICES],
    }),
];
