//! The fixed devices of VMMs other than QEMU.
//!
//! Names are QEMU's where QEMU has the device. `cmos` is a clock at the RTC's ports that gives no periodic interrupt:
//! it cannot be a guest's tick.

use super::FixedRegion;

/// The devices of a VMM.
pub(super) struct VmmTables {
    /// Ports and addresses on x86.
    pub x86: (&'static [FixedRegion], &'static [FixedRegion]),
    /// Addresses on arm64.
    pub arm64: &'static [FixedRegion],
}

/// The tables of a VMM by the name of its process, which the kernel cuts after 15 characters; `None` for a program that
/// is not known here.
pub(super) fn tables(vmm: &str) -> Option<&'static VmmTables> {
    const KNOWN: &[(&str, &VmmTables)] = &[
        ("firecracker", &FIRECRACKER),
        ("cloud-hyperviso", &CLOUD_HYPERVISOR),
        ("crosvm", &CROSVM),
        ("lkvm", &KVMTOOL),
        ("kvmtool", &KVMTOOL),
    ];
    KNOWN.iter().find(|(name, _)| vmm.starts_with(name)).map(|(_, tables)| *tables)
}

/// `src/vmm/src/device_manager/legacy.rs`, `src/vmm/src/arch/{x86_64,aarch64}/layout.rs`: interrupt controllers and PIT
/// are KVM's, there is neither RTC nor PM timer, and the first page of device memory is the boot timer.
#[rustfmt::skip]
static FIRECRACKER: VmmTables = VmmTables {
    x86: (
        &[
            (0x20, 0x21, "kvm-pic"), (0x40, 0x43, "kvm-pit"), (0x60, 0x60, "i8042-data"), (0x61, 0x61, "pcspk"),
            (0x64, 0x64, "i8042-cmd"), (0xa0, 0xa1, "kvm-pic"), (0x2e8, 0x2ef, "serial"), (0x2f8, 0x2ff, "serial"),
            (0x3e8, 0x3ef, "serial"), (0x3f8, 0x3ff, "serial"), (0x4d0, 0x4d1, "kvm-elcr"),
            (0xcf8, 0xcfb, "pci-conf-idx"), (0xcfc, 0xcff, "pci-conf-data"),
        ],
        &[
            (0xc000_0000, 0xc000_0fff, "boot-timer"), (0xeec0_0000, 0xfebf_ffff, "pcie-mmcfg-mmio"),
            (0xfec0_0000, 0xfec0_0fff, "kvm-ioapic"), (0xfee0_0000, 0xfeef_ffff, "kvm-apic-msi"),
        ],
    ),
    arm64: &[
        (0x4000_0000, 0x4000_0fff, "boot-timer"), (0x4000_1000, 0x4000_1fff, "pl031"),
        (0x4000_2000, 0x4000_2fff, "serial"), (0x7000_0000, 0x7fff_ffff, "pcie-mmcfg-mmio"),
    ],
};

/// `vmm/src/device_manager.rs`, `arch/src/{x86_64,aarch64}/layout.rs`: the IOAPIC is in the VMM, without PIC and PIT.
#[rustfmt::skip]
static CLOUD_HYPERVISOR: VmmTables = VmmTables {
    x86: (
        &[
            (0x61, 0x64, "i8042"), (0x70, 0x71, "cmos"), (0x80, 0x80, "ioport80"), (0x3f8, 0x3ff, "serial"),
            (0x402, 0x402, "isa-debugcon"), (0x600, 0x603, "acpi-cnt"), (0x608, 0x60b, "acpi-tmr"),
            (0xcf8, 0xcfb, "pci-conf-idx"), (0xcfc, 0xcff, "pci-conf-data"),
        ],
        &[
            (0xe800_0000, 0xf7ff_ffff, "pcie-mmcfg-mmio"), (0xfec0_0000, 0xfec0_001f, "ioapic"),
            (0xfed4_0000, 0xfed4_0fff, "tpm-crb"), (0xfee0_0000, 0xfeef_ffff, "kvm-apic-msi"),
        ],
    ),
    arm64: &[
        (0x08ff_0000, 0x08ff_ffff, "gicv3_dist"), (0x0900_0000, 0x0900_0fff, "pl011"),
        (0x0901_0000, 0x0901_0fff, "pl031"), (0x0902_0000, 0x0902_0fff, "pl061"),
        (0x0905_0000, 0x0905_ffff, "gpex_ioport"), (0x3000_0000, 0x3fff_ffff, "pcie-mmcfg-mmio"),
    ],
};

/// `x86_64/src/lib.rs`, `arch/src/serial.rs`, `aarch64/src/lib.rs`: crosvm places the ports of ACPI at each start
/// and lacks a PM timer.
#[rustfmt::skip]
static CROSVM: VmmTables = VmmTables {
    x86: (
        &[
            (0x20, 0x21, "kvm-pic"), (0x40, 0x43, "kvm-pit"), (0x61, 0x61, "pcspk"), (0x62, 0x64, "i8042"),
            (0x70, 0x71, "cmos"), (0xa0, 0xa1, "kvm-pic"), (0x2e8, 0x2ef, "serial"), (0x2f8, 0x2ff, "serial"),
            (0x3e8, 0x3ef, "serial"), (0x3f8, 0x3ff, "serial"), (0x402, 0x402, "isa-debugcon"),
            (0x4d0, 0x4d1, "kvm-elcr"), (0xcf8, 0xcfb, "pci-conf-idx"), (0xcfc, 0xcff, "pci-conf-data"),
        ],
        &[(0xfec0_0000, 0xfec0_0fff, "kvm-ioapic"), (0xfee0_0000, 0xfeef_ffff, "kvm-apic-msi")],
    ),
    arm64: &[
        (0x2e8, 0x2ef, "serial"), (0x2f8, 0x2ff, "serial"), (0x3e8, 0x3ef, "serial"), (0x3f8, 0x3ff, "serial"),
        (0x2000, 0x2fff, "pl031"), (0x3000, 0x3fff, "vmwdt"), (0x1_0000, 0x100_ffff, "pcie-mmcfg-mmio"),
        (0x3fff_0000, 0x3fff_ffff, "gicv3_dist"),
    ],
};

/// `x86/ioport.c`, `hw/{i8042,rtc,serial}.c`, `pci.c`, `arm/include/arm-common/kvm-arch.h`.
#[rustfmt::skip]
static KVMTOOL: VmmTables = VmmTables {
    x86: (
        &[
            (0x20, 0x21, "kvm-pic"), (0x40, 0x43, "kvm-pit"), (0x60, 0x61, "i8042-data"), (0x64, 0x65, "i8042-cmd"),
            (0x70, 0x71, "cmos"), (0x92, 0x92, "port92"), (0xa0, 0xa1, "kvm-pic"), (0x2e8, 0x2ef, "serial"),
            (0x2f8, 0x2ff, "serial"), (0x3e8, 0x3ef, "serial"), (0x3f8, 0x3ff, "serial"),
            (0x402, 0x402, "isa-debugcon"), (0x4d0, 0x4d1, "kvm-elcr"),
            (0xcf8, 0xcfb, "pci-conf-idx"), (0xcfc, 0xcff, "pci-conf-data"),
        ],
        &[
            (0xd100_0000, 0xd1ff_ffff, "pcie-mmcfg-mmio"), (0xd300_0000, 0xd300_ffff, "virtio-mmio"),
            (0xfec0_0000, 0xfec0_0fff, "kvm-ioapic"), (0xfee0_0000, 0xfeef_ffff, "kvm-apic-msi"),
        ],
    ),
    arm64: &[
        (0x0100_0000, 0x0100_ffff, "serial"), (0x0101_0000, 0x0101_ffff, "cmos"), (0x0102_0000, 0x0102_ffff, "pvtime"),
        (0x0300_0000, 0x0300_ffff, "virtio-mmio"), (0x3ffd_0000, 0x3fff_ffff, "gic_dist"),
        (0x4000_0000, 0x4fff_ffff, "pcie-mmcfg-mmio"),
    ],
};
