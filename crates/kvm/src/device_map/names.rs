//! Region names in words.

/// Words for regions whose names begin so, after `kvm-` of those that the kernel emulates. The
/// first match counts.
const NAMES: &[(&str, &str)] = &[
    ("acpi-tmr", "ACPI PM timer"),
    ("acpi-evt", "ACPI events"),
    ("acpi-cnt", "ACPI power control"),
    ("acpi-gpe0", "ACPI hotplug events"),
    ("acpi-smi", "ACPI SMI"),
    ("acpi-pci-hotplug", "ACPI hotplug"),
    ("acpi-cpu-hotplug", "ACPI hotplug"),
    ("acpi-mem-hotplug", "ACPI hotplug"),
    ("sm-tco", "watchdog (TCO)"),
    ("vmwdt", "watchdog"),
    ("apm-io", "SMI command"),
    ("pm-smbus", "SMBus"),
    ("rtc", "RTC (CMOS clock)"),
    ("cmos", "CMOS clock"),
    ("boot-timer", "boot timer"),
    ("hpet", "HPET"),
    ("pit", "PIT 8254"),
    ("pic", "PIC 8259"),
    ("elcr", "PIC 8259"),
    ("ioapic", "IOAPIC"),
    ("apic-msi", "local APIC"),
    ("icc-apic-container", "local APIC"),
    ("kvmvapic", "TPR patching (32-bit Windows)"),
    ("pcspk", "PC speaker"),
    ("serial", "serial port"),
    ("pl011", "serial port (PL011)"),
    ("pl031", "RTC (PL031)"),
    ("pl061", "GPIO (PL061)"),
    ("parallel", "parallel port"),
    ("fdc", "floppy disk"),
    ("ide", "IDE disk"),
    ("piix-bmdma", "IDE disk"),
    ("bmdma", "IDE disk"),
    ("ahci", "SATA disk (AHCI)"),
    ("nvme", "NVMe disk"),
    ("pci-conf", "PCI config space"),
    ("pcie-mmcfg-mmio", "PCI config space"),
    ("lpc-rcrb-mmio", "chipset (LPC)"),
    ("piix3-reset-control", "reset"),
    ("lpc-reset-control", "reset"),
    ("ioport80", "POST port 0x80 (I/O delay)"),
    ("ioportF0", "FPU error port"),
    ("port92", "A20 and reset"),
    ("vmport", "VMware backdoor"),
    ("isa-debugcon", "firmware debug console"),
    ("debugexit", "debug exit"),
    ("pvpanic", "panic notification"),
    ("qxl", "QXL"),
    ("vga", "VGA"),
    ("cirrus", "VGA"),
    ("vbe", "VGA"),
    ("edid", "VGA"),
    ("bochs dispi interface", "VGA"),
    ("qemu extended regs", "VGA"),
    ("msix-table", "MSI-X table"),
    ("msix-pba", "MSI-X pending bits"),
    ("pvtime", "stolen time"),
    ("virtio-pci-notify", "virtio kick"),
    ("virtio-pci-isr", "virtio INTx status"),
    ("virtio-pci-common", "virtio setup"),
    ("virtio-pci-device", "virtio device config"),
    ("virtio-mmio", "virtio (MMIO transport)"),
    ("fwcfg", "firmware config"),
    ("i8042", "PS/2 keyboard and mouse"),
    ("dma-", "ISA DMA"),
    ("gicv3_its", "interrupt translation (ITS)"),
    ("gic", "interrupt controller (GIC)"),
    ("tpm", "TPM"),
    ("e1000e", "network card (e1000e)"),
    ("e1000", "network card (e1000)"),
    ("rtl8139", "network card (rtl8139)"),
    ("uhci", "USB controller (UHCI)"),
    ("ehci", "USB controller (EHCI)"),
    ("xhci", "USB controller (xHCI)"),
    ("gpex_ioport", "PCI I/O ports"),
];

/// A region name in words; the name itself if it is unknown.
pub fn friendly(name: &str) -> &str {
    let plain = name.strip_prefix("kvm-").unwrap_or(name);
    let row = NAMES.iter().find(|(begin, _)| plain.starts_with(begin));
    row.map_or(name, |(_, words)| words)
}

/// As [`friendly`], for an access `offset` bytes into the region: names the register of a legacy
/// virtio device (`virtio_pci.h`: 0x10 queue notify, 0x13 interrupt status).
pub fn friendly_at(name: &str, offset: u64) -> &str {
    match (name, offset) {
        ("virtio-pci", 0x10 | 0x11) => "virtio kick",
        ("virtio-pci", 0x13) => "virtio INTx status",
        ("virtio-pci", 0..=0xf | 0x12) => "virtio setup",
        ("serial", 5) => "serial port (line status)",
        ("pl011", 0x18) => "serial port (PL011, flags)",
        ("hpet", 0xf0..=0xf7) => "HPET counter",
        _ => friendly(name),
    }
}

/// Whether the kernel emulates a region of this name, so that an access causes no exit to the VMM.
/// (arm64's interrupt controller is always in the kernel under KVM, whatever its name.)
pub fn is_in_kernel(name: &str) -> bool {
    name.starts_with("kvm-") || name.starts_with("gicv3_") || name.starts_with("gic_")
}

/// The device that a region of `info mtree` belongs to. QEMU's RTC has a separate region for its
/// index port (hw/rtc/mc146818rtc.c, `rtc_realizefn`).
pub fn device_of(region: &str) -> &str {
    if region == "rtc-index" { "rtc" } else { region }
}
