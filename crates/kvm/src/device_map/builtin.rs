//! The devices that a VMM or a machine type of QEMU always has at fixed addresses. PCI devices are
//! placed at each boot and are not listed.
//!
//! Names are QEMU's where QEMU has the device. `cmos` is a clock at the RTC's ports that gives no
//! periodic interrupt: it cannot be a guest's tick.

use super::{DeviceMap, MapSource, Region, is_in_kernel};
use crate::Space;

// One bit for each machine, so that a row of the tables can be of several.

/// What every PC has, also one without PCI (`isapc`).
const ISAPC: u16 = 1;
const I440FX: u16 = 1 << 1;
const Q35: u16 = 1 << 2;
/// It only has an RTC with `rtc=on` (hw/i386/microvm.c, `microvm_devices_init`).
const MICROVM: u16 = 1 << 3;
/// QEMU's machine `virt` on arm64.
const VIRT: u16 = 1 << 4;
/// `src/vmm/src/device_manager/legacy.rs`, `src/vmm/src/arch/{x86_64,aarch64}/layout.rs`: interrupt
/// controllers and PIT are KVM's, there is neither RTC nor PM timer, and the first page of device
/// memory is the boot timer.
const FIRECRACKER: u16 = 1 << 5;
/// `vmm/src/device_manager.rs`, `arch/src/{x86_64,aarch64}/layout.rs`: the IOAPIC is in the VMM,
/// without PIC and PIT.
const CLOUD: u16 = 1 << 6;
/// `x86_64/src/lib.rs`, `arch/src/serial.rs`, `aarch64/src/lib.rs`: crosvm places the ports of ACPI
/// at each start and lacks a PM timer.
const CROSVM: u16 = 1 << 7;
/// `x86/ioport.c`, `hw/{i8042,rtc,serial}.c`, `pci.c`, `arm/include/arm-common/kvm-arch.h`.
const KVMTOOL: u16 = 1 << 8;
const PC: u16 = I440FX | Q35;
const QEMU: u16 = ISAPC | PC;
const ALL: u16 = !0;

/// Programs other than QEMU by the beginning of their name.
const VMMS: [(&str, u16); 5] = [
    ("firecracker", FIRECRACKER),
    ("cloud-hyperviso", CLOUD),
    ("crosvm", CROSVM),
    ("lkvm", KVMTOOL),
    ("kvmtool", KVMTOOL),
];

/// The machines that have a device, then its first address, last address and name. A later row
/// covers earlier ones.
type FixedRegion = (u16, u64, u64, &'static str);

#[rustfmt::skip]
const X86_PIO: &[FixedRegion] = &[
    (QEMU, 0x0, 0x7, "dma-chan"), (QEMU, 0x8, 0xf, "dma-cont"), (!CLOUD, 0x20, 0x21, "kvm-pic"),
    (!CLOUD, 0x40, 0x43, "kvm-pit"), (QEMU | FIRECRACKER | KVMTOOL, 0x60, 0x60, "i8042-data"),
    (ALL, 0x61, 0x61, "pcspk"), (!MICROVM, 0x64, 0x64, "i8042-cmd"),
    (QEMU, 0x70, 0x70, "rtc-index"), (QEMU, 0x71, 0x71, "rtc"),
    (CLOUD | CROSVM | KVMTOOL, 0x70, 0x71, "cmos"), (QEMU, 0x7e, 0x7f, "kvmvapic"),
    (QEMU | CLOUD, 0x80, 0x80, "ioport80"), (QEMU, 0x81, 0x83, "dma-page"),
    (QEMU, 0x87, 0x87, "dma-page"), (QEMU, 0x89, 0x8b, "dma-page"), (QEMU, 0x8f, 0x8f, "dma-page"),
    (QEMU | KVMTOOL, 0x92, 0x92, "port92"),
    (!CLOUD, 0xa0, 0xa1, "kvm-pic"), (PC, 0xb2, 0xb3, "apm-io"), (QEMU, 0xc0, 0xcf, "dma-chan"),
    (QEMU, 0xd0, 0xdf, "dma-cont"), (QEMU, 0xf0, 0xf0, "ioportF0"),
    (ISAPC | I440FX, 0x170, 0x177, "ide"), (QEMU, 0x1ce, 0x1d1, "vbe"),
    (ISAPC | I440FX, 0x1f0, 0x1f7, "ide"), (!(MICROVM | CLOUD), 0x2e8, 0x2ef, "serial"),
    (!(MICROVM | CLOUD), 0x2f8, 0x2ff, "serial"), (ISAPC | I440FX, 0x376, 0x376, "ide"),
    (QEMU, 0x378, 0x37f, "parallel"), (QEMU, 0x3b4, 0x3b5, "vga"), (QEMU, 0x3ba, 0x3ba, "vga"),
    (QEMU, 0x3c0, 0x3cf, "vga"), (QEMU, 0x3d4, 0x3d5, "vga"), (QEMU, 0x3da, 0x3da, "vga"),
    (!(MICROVM | CLOUD), 0x3e8, 0x3ef, "serial"), (ISAPC | I440FX, 0x3f1, 0x3f5, "fdc"),
    (ISAPC | I440FX, 0x3f6, 0x3f6, "ide"), (ISAPC | I440FX, 0x3f7, 0x3f7, "fdc"),
    (ALL, 0x3f8, 0x3ff, "serial"), (QEMU | CLOUD | CROSVM | KVMTOOL, 0x402, 0x402, "isa-debugcon"),
    (!CLOUD, 0x4d0, 0x4d1, "kvm-elcr"), (QEMU, 0x501, 0x501, "debugexit"),
    (QEMU, 0x505, 0x505, "pvpanic"), (QEMU | MICROVM, 0x510, 0x511, "fwcfg"),
    (QEMU | MICROVM, 0x514, 0x51b, "fwcfg.dma"),
    // Power management at 0x600: SeaBIOS on `pc`, every firmware on q35.
    (PC, 0x600, 0x603, "acpi-evt"), (CLOUD, 0x600, 0x603, "acpi-cnt"),
    (PC, 0x604, 0x605, "acpi-cnt"), (PC | CLOUD, 0x608, 0x60b, "acpi-tmr"),
    (Q35, 0x620, 0x62f, "acpi-gpe0"), (Q35, 0x630, 0x637, "acpi-smi"),
    (Q35, 0x660, 0x67f, "sm-tco"), (PC, 0x700, 0x73f, "pm-smbus"),
    (PC, 0xa00, 0xa17, "acpi-mem-hotplug"),
    (Q35, 0xcc0, 0xcd7, "acpi-pci-hotplug"), (Q35, 0xcd8, 0xcf7, "acpi-cpu-hotplug"),
    (!(ISAPC | MICROVM), 0xcf8, 0xcfb, "pci-conf-idx"),
    (I440FX, 0xcf9, 0xcf9, "piix3-reset-control"),
    (Q35, 0xcf9, 0xcf9, "lpc-reset-control"), (!(ISAPC | MICROVM), 0xcfc, 0xcff, "pci-conf-data"),
    (QEMU, 0x5658, 0x5658, "vmport"), (I440FX, 0xae00, 0xae17, "acpi-pci-hotplug"),
    (I440FX, 0xaf00, 0xaf1f, "acpi-cpu-hotplug"), (I440FX, 0xafe0, 0xafe3, "acpi-gpe0"),
    // OVMF moves power management here.
    (I440FX, 0xb000, 0xb003, "acpi-evt"), (I440FX, 0xb004, 0xb005, "acpi-cnt"),
    (I440FX, 0xb008, 0xb00b, "acpi-tmr"), (I440FX, 0xb100, 0xb13f, "pm-smbus"),
];
#[rustfmt::skip]
const X86_MMIO: &[FixedRegion] = &[
    (QEMU, 0xa0000, 0xbffff, "vga-lowmem"), (Q35, 0xb000_0000, 0xbfff_ffff, "pcie-mmcfg-mmio"),
    (FIRECRACKER, 0xc000_0000, 0xc000_0fff, "boot-timer"),
    (KVMTOOL, 0xd100_0000, 0xd1ff_ffff, "pcie-mmcfg-mmio"),
    (KVMTOOL, 0xd300_0000, 0xd300_ffff, "virtio-mmio"),
    (MICROVM, 0xe000_0000, 0xefff_ffff, "pcie-mmcfg-mmio"),
    (CLOUD, 0xe800_0000, 0xf7ff_ffff, "pcie-mmcfg-mmio"),
    (FIRECRACKER, 0xeec0_0000, 0xfebf_ffff, "pcie-mmcfg-mmio"),
    (MICROVM, 0xfe90_0000, 0xfe90_ffff, "xhci"), (MICROVM, 0xfea0_0000, 0xfea0_0fff, "acpi-ged"),
    (MICROVM, 0xfeb0_0000, 0xfeb0_2fff, "virtio-mmio"),
    (!(ISAPC | CLOUD), 0xfec0_0000, 0xfec0_0fff, "kvm-ioapic"),
    (CLOUD, 0xfec0_0000, 0xfec0_001f, "ioapic"), (MICROVM, 0xfec1_0000, 0xfec1_0fff, "ioapic"),
    (PC, 0xfed0_0000, 0xfed0_03ff, "hpet"), (Q35, 0xfed1_c000, 0xfed1_ffff, "lpc-rcrb-mmio"),
    (PC, 0xfed4_0000, 0xfed4_4fff, "tpm-tis"), (CLOUD, 0xfed4_0000, 0xfed4_0fff, "tpm-crb"),
    (ALL, 0xfee0_0000, 0xfeef_ffff, "kvm-apic-msi"),
];
#[rustfmt::skip]
const ARM64: &[FixedRegion] = &[
    (VIRT, 0x0800_0000, 0x0800_ffff, "gicv3_dist"), (VIRT, 0x0801_0000, 0x0801_ffff, "gic_cpu"),
    (VIRT, 0x0802_0000, 0x0802_0fff, "gicv2m"), (VIRT, 0x0808_0000, 0x0809_ffff, "gicv3_its"),
    (VIRT, 0x080a_0000, 0x08ff_ffff, "gicv3_redist_region[0]"),
    (CLOUD, 0x08ff_0000, 0x08ff_ffff, "gicv3_dist"),
    (VIRT | CLOUD, 0x0900_0000, 0x0900_0fff, "pl011"),
    (VIRT | CLOUD, 0x0901_0000, 0x0901_0fff, "pl031"),
    (VIRT, 0x0902_0000, 0x0902_0017, "fwcfg"), (CLOUD, 0x0902_0000, 0x0902_0fff, "pl061"),
    (VIRT, 0x0903_0000, 0x0903_0fff, "pl061"), (VIRT, 0x0904_0000, 0x0904_0fff, "pl011"),
    (VIRT, 0x0905_0000, 0x0906_ffff, "smmuv3"), (CLOUD, 0x0905_0000, 0x0905_ffff, "gpex_ioport"),
    (VIRT, 0x0907_0000, 0x0907_0017, "acpi-mem-hotplug"),
    (VIRT, 0x0908_0000, 0x0908_0003, "acpi-ged"),
    (VIRT, 0x0909_0000, 0x0909_0003, "nvdimm-acpi"), (VIRT, 0x090a_0000, 0x090a_ffff, "pvtime"),
    (VIRT, 0x090c_0000, 0x090c_0013, "acpi-pci-hotplug"),
    (CLOUD, 0x3000_0000, 0x3fff_ffff, "pcie-mmcfg-mmio"),
    (VIRT, 0x3eff_0000, 0x3eff_ffff, "gpex_ioport"),
    (VIRT, 0x3f00_0000, 0x3fff_ffff, "pcie-mmcfg-mmio"),
    (FIRECRACKER, 0x4000_0000, 0x4000_0fff, "boot-timer"),
    (FIRECRACKER, 0x4000_1000, 0x4000_1fff, "pl031"),
    (FIRECRACKER, 0x4000_2000, 0x4000_2fff, "serial"),
    (FIRECRACKER, 0x7000_0000, 0x7fff_ffff, "pcie-mmcfg-mmio"), (CROSVM, 0x2e8, 0x2ef, "serial"),
    (CROSVM, 0x2f8, 0x2ff, "serial"), (CROSVM, 0x3e8, 0x3ef, "serial"),
    (CROSVM, 0x3f8, 0x3ff, "serial"), (CROSVM, 0x2000, 0x2fff, "pl031"),
    (CROSVM, 0x3000, 0x3fff, "vmwdt"), (CROSVM, 0x1_0000, 0x100_ffff, "pcie-mmcfg-mmio"),
    (CROSVM, 0x3fff_0000, 0x3fff_ffff, "gicv3_dist"),
    (KVMTOOL, 0x0100_0000, 0x0100_ffff, "serial"), (KVMTOOL, 0x0101_0000, 0x0101_ffff, "cmos"),
    (KVMTOOL, 0x0102_0000, 0x0102_ffff, "pvtime"),
    (KVMTOOL, 0x0300_0000, 0x0300_ffff, "virtio-mmio"),
    (KVMTOOL, 0x3ffd_0000, 0x3fff_ffff, "gic_dist"),
    (KVMTOOL, 0x4000_0000, 0x4fff_ffff, "pcie-mmcfg-mmio"),
];

/// The fixed devices of a guest, as far as they are known: of a VMM by its process name (`qemu`,
/// `firecracker`, cut after 15 characters), a machine type of QEMU (`pc-q35-6.2`, `virt-8.1`) and
/// an architecture (`x86_64`, `aarch64`).
///
/// The map is empty for an unknown machine or architecture. An x86 guest without a machine type
/// gets the devices of both `pc` and `q35`; so does a guest of an unknown VMM, because most VMMs
/// build a PC.
pub fn builtin(vmm: &str, machine: Option<&str>, arch: Option<&str>) -> DeviceMap {
    let machine = machine.unwrap_or_default();
    let arch = arch.unwrap_or_default();
    let mut map = DeviceMap::new(MapSource::Builtin);
    let arm = arch.starts_with("aarch64")
        || arch.starts_with("arm")
        || (arch.is_empty() && machine.starts_with("virt"));
    let x86 = (arch.is_empty() && !arm) || matches!(arch, "x86_64" | "i686" | "i386" | "amd64");
    let vmm = VMMS
        .iter()
        .find(|(name, _)| vmm.starts_with(name))
        .map(|(_, machine)| *machine);
    if arm {
        let is_virt = machine.is_empty() || machine.starts_with("virt");
        let machine = vmm.unwrap_or(if is_virt { VIRT } else { 0 });
        paint_rows(&mut map, Space::Mmio, machine, ARM64);
        // 32 slots of 512 bytes. The slot identifies the device, so each slot is a separate region.
        if machine == VIRT {
            for slot in 0..32 {
                let start = 0x0a00_0000 + slot * 0x200;
                map.paint(Space::Mmio, region(start, start + 0x1ff, "virtio-mmio"));
            }
        }
    } else if x86 {
        let pc = vmm.unwrap_or_else(|| x86_machines(machine));
        paint_rows(&mut map, Space::Pio, pc, X86_PIO);
        paint_rows(&mut map, Space::Mmio, pc, X86_MMIO);
        if vmm.is_none() && machine.is_empty() && arch.is_empty() {
            // It may be an arm64 guest: a PC has RAM there, which causes no access.
            map.paint(Space::Mmio, region(0x0900_0000, 0x0900_0fff, "pl011"));
        }
    }
    map
}

/// The x86 machines of QEMU that a machine type may be.
fn x86_machines(machine: &str) -> u16 {
    match machine {
        m if m.contains("microvm") => MICROVM,
        m if m.starts_with("isapc") => ISAPC,
        m if m.contains("q35") => Q35,
        // `rhel6.6.0` and `ubuntu` are distributions' names of it.
        "pc" | "ubuntu" => I440FX,
        m if m.contains("i440fx")
            || ["pc-0", "pc-1", "rhel6"]
                .iter()
                .any(|begin| m.starts_with(begin)) =>
        {
            I440FX
        }
        m if m.is_empty() || m.starts_with("pc-") => PC,
        _ => 0,
    }
}

fn paint_rows(map: &mut DeviceMap, space: Space, machine: u16, rows: &[FixedRegion]) {
    for (machines, start, end, name) in rows {
        if machines & machine != 0 {
            map.paint(space, region(*start, *end, name));
        }
    }
}

fn region(start: u64, end: u64, name: &str) -> Region {
    // The data port of the clock is the second port of its region.
    let base = if name == "rtc" { start - 1 } else { start };
    Region {
        start,
        end,
        base,
        name: name.to_owned(),
        kernel: is_in_kernel(name),
        ..Region::default()
    }
}
