//! The prose of the device rules.

// Fixes.
pub(super) const USE_MSIX: &str =
    "Remove pci=nomsi from the guest's kernel command line; in a Windows guest, update the virtio drivers";
pub(super) const DEFAULT_VECTORS: &str = "A device with vectors='0' (QEMU) or a very old guest kernel cannot use \
    MSI-X: give the device the default number of vectors";
pub(super) const USE_VHOST: &str = "Network: use vhost (modprobe vhost_net). Disk: leave ioeventfd on, and give it an \
    IOThread";
pub(super) const QUIET_CONSOLE: &str = "Do not run jobs with much output on the serial console: \
    use ssh, or a virtio console (console=hvc0), which takes whole lines at once";
pub(super) const KWORKER_AND_VHOST: &str =
    "A newer host kernel injects MSIs directly; inside the guest, MSI-X instead of INTx avoids the kworker";
pub(super) const KWORKER_AND_POLLING: &str = "A newer host kernel injects MSIs directly; \
    give the polling task (vhost-user, DPDK) a CPU whose kworkers may wait";

/// How the names of regions begin (QEMU's `info mtree`).
pub(super) type Regions = &'static [&'static str];

/// Emulated devices: their kind, and the libvirt element and the device of QEMU that make it virtio.
pub(super) const EMULATED: &[(Regions, (&str, &str, &str))] = &[
    (
        &["e1000", "rtl8139", "pcnet", "ne2000", "vmxnet3"],
        ("network card", "<interface>'s <model type='virtio'/>", "virtio-net-pci"),
    ),
    (
        &["ahci", "ide", "piix-bmdma", "bmdma", "lsi-", "megasas"],
        ("disk controller", "<disk>'s <target dev='vda' bus='virtio'/>", "virtio-blk-pci"),
    ),
];

/// Ports and windows that nothing should poll: their name, and advice where there is no setting.
pub(super) const POLLED: &[(Regions, (&str, Option<&str>))] = &[
    (&["vmport"], ("the VMware backdoor (port 0x5658)", None)),
    (
        &["i8042"],
        ("the PS/2 controller", Some("Give the guest a USB tablet or virtio input instead of the PS/2 mouse")),
    ),
    (
        &["vga", "cirrus", "vbe", "qxl-ioports"],
        (
            "VGA registers",
            Some("Give the guest a framebuffer driver (virtio-gpu, bochs-drm), or no screen: video model none"),
        ),
    ),
    (
        &["pci-conf", "pcie-mmcfg"],
        (
            "PCI configuration space",
            Some(
                "Something in the guest keeps reading configuration space: a monitoring tool (lspci, sensors), or a \
                 driver that polls for hotplug",
            ),
        ),
    ),
];

// Evidence.
pub(super) const CHECK_KICKS: &str =
    "check: trace-cmd record -e kvm:kvm_userspace_exit -e kvm:kvm_fast_mmio, then trace-cmd report";
pub(super) const CHECK_BURSTS: &str = "check: trace-cmd record -e kvm:kvm_pio -e kvm:kvm_mmio, then trace-cmd report; \
    the gaps count, averages hide bursts";
pub(super) const CHECK_KWORKER: &str =
    "check: trace-cmd record -e sched:sched_wakeup -e workqueue:workqueue_execute_start, then trace-cmd report";
pub(super) const KWORKER_ISOLATED: &str =
    "the kworker runs on an isolated CPU and delays the tasks that the CPU is reserved for";
