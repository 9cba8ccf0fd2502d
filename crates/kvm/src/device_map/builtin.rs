//! The devices that a machine type always has at fixed addresses. PCI devices are placed at each boot and are not
//! listed.

use super::other_vmms;
use super::{DeviceMap, FixedRegion, MapSource, Region, is_in_kernel};
use crate::Space;

/// What every PC has, also one without PCI (`isapc`).
#[rustfmt::skip]
const ISA_PIO: &[FixedRegion] = &[
    (0x0, 0x7, "dma-chan"), (0x8, 0xf, "dma-cont"), (0x20, 0x21, "kvm-pic"), (0x40, 0x43, "kvm-pit"),
    (0x60, 0x60, "i8042-data"),
    (0x61, 0x61, "pcspk"), (0x64, 0x64, "i8042-cmd"), (0x70, 0x70, "rtc-index"), (0x71, 0x71, "rtc"),
    (0x7e, 0x7f, "kvmvapic"),
    (0x80, 0x80, "ioport80"), (0x81, 0x83, "dma-page"), (0x87, 0x87, "dma-page"), (0x89, 0x8b, "dma-page"),
    (0x8f, 0x8f, "dma-page"),
    (0x92, 0x92, "port92"), (0xa0, 0xa1, "kvm-pic"), (0xc0, 0xcf, "dma-chan"), (0xd0, 0xdf, "dma-cont"),
    (0xf0, 0xf0, "ioportF0"), (0x1ce, 0x1d1, "vbe"), (0x2e8, 0x2ef, "serial"), (0x2f8, 0x2ff, "serial"),
    (0x378, 0x37f, "parallel"),
    (0x3b4, 0x3b5, "vga"), (0x3ba, 0x3ba, "vga"), (0x3c0, 0x3cf, "vga"), (0x3d4, 0x3d5, "vga"), (0x3da, 0x3da, "vga"),
    (0x3e8, 0x3ef, "serial"), (0x3f8, 0x3ff, "serial"), (0x402, 0x402, "isa-debugcon"), (0x4d0, 0x4d0, "kvm-elcr"),
    (0x4d1, 0x4d1, "kvm-elcr"),
    (0x501, 0x501, "debugexit"), (0x505, 0x505, "pvpanic"), (0x510, 0x511, "fwcfg"), (0x514, 0x51b, "fwcfg.dma"),
    (0x5658, 0x5658, "vmport"),
];
const ISA_MMIO: &[FixedRegion] = &[(0xa0000, 0xbffff, "vga-lowmem"), (0xfee0_0000, 0xfeef_ffff, "kvm-apic-msi")];
/// What `pc` and `q35` have besides.
const PC_PIO: &[FixedRegion] = &[
    (0xb2, 0xb3, "apm-io"),
    (0xa00, 0xa17, "acpi-mem-hotplug"),
    (0xcf8, 0xcfb, "pci-conf-idx"),
    (0xcfc, 0xcff, "pci-conf-data"),
];
const PC_MMIO: &[FixedRegion] = &[
    (0xfec0_0000, 0xfec0_0fff, "kvm-ioapic"),
    (0xfed0_0000, 0xfed0_03ff, "hpet"),
    (0xfed4_0000, 0xfed4_4fff, "tpm-tis"),
];
#[rustfmt::skip]
const ISA_DISKS: &[FixedRegion] = &[
    (0x170, 0x177, "ide"), (0x1f0, 0x1f7, "ide"), (0x376, 0x376, "ide"), (0x3f1, 0x3f5, "fdc"), (0x3f6, 0x3f6, "ide"),
    (0x3f7, 0x3f7, "fdc"),
];
/// Power management at 0x600 (`SeaBIOS` on `pc`, every firmware on q35).
const ACPI_600: &[FixedRegion] =
    &[(0x600, 0x603, "acpi-evt"), (0x604, 0x605, "acpi-cnt"), (0x608, 0x60b, "acpi-tmr"), (0x700, 0x73f, "pm-smbus")];
#[rustfmt::skip]
const I440FX_PIO: &[FixedRegion] = &[
    (0xcf9, 0xcf9, "piix3-reset-control"), (0xae00, 0xae17, "acpi-pci-hotplug"), (0xaf00, 0xaf1f, "acpi-cpu-hotplug"),
    (0xafe0, 0xafe3, "acpi-gpe0"),
    // OVMF moves power management here.
    (0xb000, 0xb003, "acpi-evt"), (0xb004, 0xb005, "acpi-cnt"), (0xb008, 0xb00b, "acpi-tmr"),
    (0xb100, 0xb13f, "pm-smbus"),
];
#[rustfmt::skip]
const Q35_PIO: &[FixedRegion] = &[
    (0x620, 0x62f, "acpi-gpe0"), (0x630, 0x637, "acpi-smi"), (0x660, 0x67f, "sm-tco"),
    (0xcc0, 0xcd7, "acpi-pci-hotplug"),
    (0xcd8, 0xcf7, "acpi-cpu-hotplug"), (0xcf9, 0xcf9, "lpc-reset-control"),
];
const Q35_MMIO: &[FixedRegion] =
    &[(0xb000_0000, 0xbfff_ffff, "pcie-mmcfg-mmio"), (0xfed1_c000, 0xfed1_ffff, "lpc-rcrb-mmio")];
/// Without the RTC, which a microvm under KVM only has with `rtc=on` (hw/i386/microvm.c, `microvm_devices_init`).
#[rustfmt::skip]
const MICROVM_PIO: &[FixedRegion] = &[
    (0x20, 0x21, "kvm-pic"), (0x40, 0x43, "kvm-pit"), (0x61, 0x61, "pcspk"), (0xa0, 0xa1, "kvm-pic"),
    (0x3f8, 0x3ff, "serial"), (0x4d0, 0x4d1, "kvm-elcr"), (0x510, 0x511, "fwcfg"), (0x514, 0x51b, "fwcfg.dma"),
];
#[rustfmt::skip]
const MICROVM_MMIO: &[FixedRegion] = &[
    (0xe000_0000, 0xefff_ffff, "pcie-mmcfg-mmio"), (0xfe90_0000, 0xfe90_ffff, "xhci"),
    (0xfea0_0000, 0xfea0_0fff, "acpi-ged"),
    (0xfeb0_0000, 0xfeb0_2fff, "virtio-mmio"), (0xfec0_0000, 0xfec0_0fff, "kvm-ioapic"),
    (0xfec1_0000, 0xfec1_0fff, "ioapic"),
    (0xfee0_0000, 0xfeef_ffff, "kvm-apic-msi"),
];
#[rustfmt::skip]
const VIRT_MMIO: &[FixedRegion] = &[
    (0x0800_0000, 0x0800_ffff, "gicv3_dist"), (0x0801_0000, 0x0801_ffff, "gic_cpu"),
    (0x0802_0000, 0x0802_0fff, "gicv2m"),
    (0x0808_0000, 0x0809_ffff, "gicv3_its"), (0x080a_0000, 0x08ff_ffff, "gicv3_redist_region[0]"),
    (0x0900_0000, 0x0900_0fff, "pl011"),
    (0x0901_0000, 0x0901_0fff, "pl031"), (0x0902_0000, 0x0902_0017, "fwcfg"), (0x0903_0000, 0x0903_0fff, "pl061"),
    (0x0904_0000, 0x0904_0fff, "pl011"), (0x0905_0000, 0x0906_ffff, "smmuv3"),
    (0x0907_0000, 0x0907_0017, "acpi-mem-hotplug"),
    (0x0908_0000, 0x0908_0003, "acpi-ged"), (0x0909_0000, 0x0909_0003, "nvdimm-acpi"),
    (0x090a_0000, 0x090a_ffff, "pvtime"),
    (0x090c_0000, 0x090c_0013, "acpi-pci-hotplug"), (0x0a00_0000, 0x0a00_3fff, "virtio-mmio"),
    (0x3eff_0000, 0x3eff_ffff, "gpex_ioport"),
    (0x3f00_0000, 0x3fff_ffff, "pcie-mmcfg-mmio"),
];

/// The fixed devices of a guest, as far as they are known: of a VMM by its process name (`qemu`, `firecracker`), a
/// machine type of QEMU (`pc-q35-6.2`, `virt-8.1`) and an architecture (`x86_64`, `aarch64`).
///
/// The map is empty for an unknown machine or architecture. An x86 guest without a machine type gets the devices of
/// both `pc` and `q35`; so does a guest of an unknown VMM, because most VMMs build a PC.
pub fn builtin(vmm: &str, machine: Option<&str>, arch: Option<&str>) -> DeviceMap {
    let machine = machine.unwrap_or_default();
    let arch = arch.unwrap_or_default();
    let mut map = DeviceMap::new(MapSource::Builtin);
    let arm =
        arch.starts_with("aarch64") || arch.starts_with("arm") || (arch.is_empty() && machine.starts_with("virt"));
    let x86 = arch.is_empty() && !arm || matches!(arch, "x86_64" | "i686" | "i386" | "amd64");
    if let Some(tables) = other_vmms::tables(vmm) {
        let (pio, mmio) = if x86 { tables.x86 } else { (&[] as &[_], if arm { tables.arm64 } else { &[] }) };
        add(&mut map, Space::Pio, pio);
        add(&mut map, Space::Mmio, mmio);
    } else if arm && (machine.is_empty() || machine.starts_with("virt")) {
        add(&mut map, Space::Mmio, VIRT_MMIO);
        // 32 slots of 512 bytes. The slot identifies the device, so each slot is a separate region.
        for slot in 0..32 {
            let start = 0x0a00_0000 + slot * 0x200;
            map.paint(Space::Mmio, region(start, start + 0x1ff, "virtio-mmio"));
        }
    } else if x86 {
        add_pc(&mut map, machine);
        if machine.is_empty() && arch.is_empty() {
            // It may be an arm64 guest: a PC has RAM there, which causes no access.
            map.paint(Space::Mmio, region(0x0900_0000, 0x0900_0fff, "pl011"));
        }
    }
    map
}

/// The machine types of QEMU on x86.
fn add_pc(map: &mut DeviceMap, machine: &str) {
    let q35 = machine.contains("q35");
    // `rhel6.6.0` and `ubuntu` are distributions' names of it.
    let i440fx = machine.contains("i440fx")
        || matches!(machine, "pc" | "ubuntu")
        || ["pc-0", "pc-1", "rhel6"].iter().any(|begin| machine.starts_with(begin));
    if machine.contains("microvm") {
        add(map, Space::Pio, MICROVM_PIO);
        add(map, Space::Mmio, MICROVM_MMIO);
    } else if machine.starts_with("isapc") {
        add(map, Space::Pio, ISA_PIO);
        add(map, Space::Mmio, ISA_MMIO);
        add(map, Space::Pio, ISA_DISKS);
    } else if machine.is_empty() || q35 || i440fx || machine.starts_with("pc-") {
        add(map, Space::Pio, ISA_PIO);
        add(map, Space::Mmio, ISA_MMIO);
        add(map, Space::Pio, PC_PIO);
        add(map, Space::Mmio, PC_MMIO);
        add(map, Space::Pio, ACPI_600);
        if !q35 {
            add(map, Space::Pio, ISA_DISKS);
            add(map, Space::Pio, I440FX_PIO);
        }
        if !i440fx {
            add(map, Space::Pio, Q35_PIO);
            add(map, Space::Mmio, Q35_MMIO);
        }
    }
}

fn add(map: &mut DeviceMap, space: Space, rows: &[FixedRegion]) {
    for (start, end, name) in rows {
        map.paint(space, region(*start, *end, name));
    }
}

fn region(start: u64, end: u64, name: &str) -> Region {
    // The data port of the clock is the second port of its region.
    let base = if name == "rtc" { start - 1 } else { start };
    Region { start, end, base, name: name.to_owned(), owner: None, kernel: is_in_kernel(name), ram: false }
}
