//! The prose of the device rules.

use crate::figures::{figure, or_unknown};
use crate::lint::engine::prose::Prose;
use crate::model::{DoorbellModel, InjectionModel};
use kvm::Space;
use kvm::device_property::DeviceProperty;

pub(super) const INTX: Prose = Prose {
    title: "A virtio device interrupts through INTx instead of MSI-X",
    why: "With MSI-X every queue has its own interrupt, and the driver reads nothing. On a shared line the driver has \
        to ask the device, in QEMU, after each interrupt, and all queues share one vCPU",
};
pub(super) const KICKS: Prose = Prose {
    title: "The VMM serves virtio notifications itself instead of through an ioeventfd",
    why: "A notification with an ioeventfd ends in the kernel and wakes an IOThread or vhost. Without one the vCPU \
        itself returns to QEMU and does the device's work while the guest waits",
};
pub(super) const PROPERTIES: Prose = Prose {
    title: "A device has a property that makes QEMU serve what the kernel could",
    why: "By default KVM, vhost and VFIO pass notifications and interrupts of fast devices past QEMU. A property that \
        turns this off is of use for debugging only",
};
pub(super) const EMULATED_WHY: &str = "Each access to a register of an emulated device is a round trip to QEMU. A \
    virtio device passes whole batches of requests with one notification, or none";
pub(super) const SERIAL_BURST: Prose = Prose {
    title: "Output on the serial port holds a vCPU for milliseconds",
    why: "Each character on an emulated serial port is at least one round trip to QEMU, made by the vCPU that prints. \
        Other work of that vCPU waits meanwhile, for example an interrupt of the network card",
};
pub(super) const SERIAL_STREAM_TITLE: &str = "Output on the serial port holds a vCPU";
pub(super) const POLLING_WHY: &str =
    "Each access is a 5-12 us round trip to QEMU; some is normal while someone uses the guest's screen through VNC";
pub(super) const KWORKER: Prose = Prose {
    title: "Interrupts reach the guest through a kworker",
    why: "KVM queues an interrupt that it cannot inject at once (level-triggered lines, old arm64 kernels) to a \
        kworker on the CPU that raised it. The kworker has to get that CPU before it wakes the vCPU",
};

/// Why no rule judged an address.
pub(super) fn unnamed_address(space: Space, address: &str, rate: f64) -> String {
    let what = match space {
        Space::Pio => "port",
        Space::Mmio | Space::Msr => "address",
    };
    format!("nothing names the device of {what} {address}, which gets {} accesses/s", figure(rate))
}

/// A property, what it costs, and where it was set.
pub(super) fn property(property: &DeviceProperty) -> Option<String> {
    let DeviceProperty { device, name, value, place } = property;
    Some(format!("{device}: {name}={value}, set in {place}: {}", property.cost()?))
}

pub(super) fn more_properties(n: usize) -> String {
    format!("and {n} more")
}

// Fixes.
pub(super) fn remove_from_devices(property: &DeviceProperty) -> String {
    let DeviceProperty { device, name, value, .. } = property;
    match name.as_str() {
        "vhost" => format!("Remove name='qemu' from the <driver> of {device}, so that vhost moves its packets"),
        "tx" => format!("Remove txmode='timer' from the <driver> of {device}"),
        name => format!("Remove {}='{value}' from the <driver> of {device}", name.replace('-', "_")),
    }
}

pub(super) fn remove_override(property: &DeviceProperty) -> String {
    let DeviceProperty { device, name, .. } = property;
    format!("Remove <qemu:property name='{name}' .../> of the device with the alias {device} from <qemu:override>")
}

pub(super) fn remove_argument(property: &DeviceProperty) -> String {
    let DeviceProperty { device, name, value, .. } = property;
    if name == "kernel-irqchip" {
        return format!("Start QEMU without kernel_irqchip={value} in -machine or -accel: on is the default");
    }
    format!("Start QEMU without {name}={value} for the device {device}")
}

pub(super) const USE_MSIX: &str =
    "Remove pci=nomsi from the guest's kernel command line; in a Windows guest, update the virtio drivers";
pub(super) const DEFAULT_VECTORS: &str = "A device with vectors='0' (QEMU) or a very old guest kernel cannot use \
    MSI-X: give the device the default number of vectors";
pub(super) const USE_VHOST: &str = "Network: use vhost (modprobe vhost_net). Disk: leave ioeventfd on, and give it an \
    IOThread";
pub(super) const NO_IOEVENTFD_OFF: &str = "Check that nothing sets ioeventfd=off on the device";
pub(super) const QUIET_CONSOLE: &str = "Do not run jobs with much output on the serial console: \
    use ssh, or a virtio console (console=hvc0), which takes whole lines at once";
pub(super) const KWORKER_AND_VHOST: &str =
    "A newer host kernel injects MSIs directly; inside the guest, MSI-X instead of INTx avoids the kworker";
pub(super) const KWORKER_AND_POLLING: &str = "A newer host kernel injects MSIs directly; \
    give the polling task (vhost-user, DPDK) a CPU whose kworkers may wait";

/// A kind of emulated device: its name, and the libvirt element that makes it virtio.
pub(super) struct EmulatedKind {
    pub name: &'static str,
    pub element: &'static str,
    /// QEMU's device.
    pub device: &'static str,
}
pub(super) const NETWORK_CARD: EmulatedKind =
    EmulatedKind { name: "network card", element: "<interface>'s <model type='virtio'/>", device: "virtio-net-pci" };
pub(super) const DISK_CONTROLLER: EmulatedKind = EmulatedKind {
    name: "disk controller",
    element: "<disk>'s <target dev='vda' bus='virtio'/>",
    device: "virtio-blk-pci",
};

pub(super) fn emulated_title(kind: &EmulatedKind) -> String {
    format!("An emulated {} does real work", kind.name)
}

pub(super) fn change_to_virtio(kind: &EmulatedKind, libvirt: Option<bool>) -> String {
    let what = if libvirt == Some(false) { kind.device } else { kind.element };
    format!(
        "Change the device to virtio: set {what}. First install the virtio drivers in the guest (Windows: virtio-win); \
         without them it does not find its {}",
        kind.name
    )
}

/// Ports and windows that nothing should poll.
pub(super) struct PolledPorts {
    /// How the names of their regions begin.
    pub regions: &'static [&'static str],
    pub name: &'static str,
    pub help: &'static str,
}
pub(super) const VMPORT: &str = "vmport";
pub(super) const POLLED: &[PolledPorts] = &[
    PolledPorts {
        regions: &[VMPORT],
        name: "the VMware backdoor (port 0x5658)",
        help: "Disable it: <features><vmport state='off'/></features>, or -machine vmport=off",
    },
    PolledPorts {
        regions: &["i8042"],
        name: "the PS/2 controller",
        help: "Give the guest a USB tablet or virtio input instead of the PS/2 mouse",
    },
    PolledPorts {
        regions: &["vga", "cirrus", "vbe", "qxl-ioports"],
        name: "VGA registers",
        help: "Give the guest a framebuffer driver (virtio-gpu, bochs-drm), or no screen: video model none",
    },
    PolledPorts {
        regions: &["pci-conf", "pcie-mmcfg"],
        name: "PCI configuration space",
        help: "Something in the guest keeps reading configuration space: \
            a monitoring tool (lspci, sensors), or a driver that polls for hotplug",
    },
];

pub(super) fn polling_title(ports: &PolledPorts) -> String {
    format!("The guest polls {}", ports.name)
}

// Evidence.
pub(super) const CHECK_MSI: &str = "look inside the guest: grep virtio /proc/interrupts should show MSI";
pub(super) const CHECK_KICKS: &str =
    "check: trace-cmd record -e kvm:kvm_userspace_exit -e kvm:kvm_fast_mmio, then trace-cmd report";
pub(super) const CHECK_BURSTS: &str = "check: trace-cmd record -e kvm:kvm_pio -e kvm:kvm_mmio, then trace-cmd report; \
    the gaps count, averages hide bursts";
pub(super) const CHECK_KWORKER: &str =
    "check: trace-cmd record -e sched:sched_wakeup -e workqueue:workqueue_execute_start, then trace-cmd report";
pub(super) const KWORKER_ISOLATED: &str =
    "the kworker runs on an isolated CPU and delays the tasks that the CPU is reserved for";
pub(super) const KWORKER_NOT_ISOLATED: &str = "the kworkers are not on isolated CPUs";

pub(super) fn vmm_exits(count: u64, window: &str) -> String {
    format!("{} exits to the VMM {window}, which other accesses do not explain", figure(count as f64))
}

pub(super) fn burst(accesses: u64, port: Option<&str>, vcpu: Option<u32>, ms: f64) -> String {
    let port = port.unwrap_or("the serial port");
    let vcpu = vcpu.map_or_else(|| "a vCPU".into(), |v| format!("vCPU {v}"));
    format!("{accesses} accesses to {port} without a gap of 1 ms held {vcpu} for {} ms", figure(ms))
}

pub(super) fn late_wakeup(ns: u64) -> String {
    format!("a wake-up of that vCPU took {} ms in the same second", figure(ns as f64 / 1e6))
}

pub(super) fn kworker_wakeups(vcpu: &str, rate: f64, window: &str) -> String {
    format!("kworkers wake {vcpu} {} times/s {window}", or_unknown(Some(rate), figure))
}

/// What the way of these interrupts took, where they were traced.
pub(super) fn kworker_injections(traced: &InjectionModel) -> Option<String> {
    let (rate, wake, delay) = (traced.rate?, traced.wake.mean_us()?, traced.delay.mean_us()?);
    let (wake, delay) = (figure(wake), figure(delay));
    let rate = figure(rate);
    Some(format!(
        "kworkers inject {rate} interrupts/s into the guest; a vCPU that sleeps is woken {wake} us later and has a CPU \
         {delay} us after that"
    ))
}

/// What the VMM's threads take to answer doorbells, where that was traced.
pub(super) fn doorbells(bells: &[DoorbellModel]) -> Option<String> {
    let bell = bells.first()?;
    let (rate, mean) = (figure(bell.rate?), figure(bell.time.mean_us()?));
    Some(format!("the doorbell {:#x} wakes {} {rate} times/s, which runs {mean} us later", bell.address, bell.comm))
}

// What cannot be judged.
pub(super) const VMM_EXITS_NOT_COUNTED: &str =
    "exits to the VMM were not counted, so it is unknown who serves the notifications";
pub(super) const WAKERS_NOT_TRACED: &str = "who wakes the vCPUs on isolated CPUs is visible only with tracing";

pub(super) fn bursts_unknown(accesses: u64) -> String {
    format!("{} accesses to the serial port, but not when each came; averages hide bursts", figure(accesses as f64))
}
