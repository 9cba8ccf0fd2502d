use super::*;
use proptest::prelude::*;

fn name(map: &DeviceMap, space: Space, addr: u64) -> Option<&str> {
    map.lookup(space, addr).map(|region| region.name.as_str())
}

fn region(start: u64, end: u64, name: &str) -> Region {
    Region {
        start,
        end,
        base: start,
        name: name.into(),
        ..Region::default()
    }
}

#[test]
fn the_pm_timer_is_known_on_every_pc() {
    for machine in [
        None,
        Some("pc"),
        Some("pc-i440fx-6.2"),
        Some("pc-q35-6.2"),
        Some("q35"),
        Some("pc-q35-rhel9.2.0"),
    ] {
        assert_eq!(
            name(&builtin("qemu", machine, Some("x86_64")), Space::Pio, 0x608),
            Some("acpi-tmr"),
            "{machine:?}"
        );
    }
    assert_eq!(
        name(
            &builtin("qemu", Some("pc-i440fx-9.0"), None),
            Space::Pio,
            0xb008
        ),
        Some("acpi-tmr")
    );
    assert_eq!(
        name(
            &builtin("qemu", Some("pc-q35-9.0"), None),
            Space::Pio,
            0xb008
        ),
        None
    );
}

#[test]
fn machine_types_differ_where_they_should() {
    let q35 = builtin("qemu", Some("pc-q35-9.0"), Some("x86_64"));
    assert_eq!(name(&q35, Space::Pio, 0x1f0), None);
    assert_eq!(
        name(&q35, Space::Mmio, 0xb000_1000),
        Some("pcie-mmcfg-mmio")
    );
    let pc = builtin("qemu", Some("pc"), Some("x86_64"));
    assert_eq!(name(&pc, Space::Pio, 0x1f0), Some("ide"));
    assert_eq!(name(&pc, Space::Mmio, 0xfed0_00f0), Some("hpet"));
    let arm = builtin("qemu", Some("virt-8.1"), Some("aarch64"));
    assert_eq!(name(&arm, Space::Mmio, 0x0900_0018), Some("pl011"));
    assert_eq!(
        arm.lookup(Space::Mmio, 0x0a00_0250).unwrap().start,
        0x0a00_0200
    );
    assert!(arm.regions(Space::Pio).is_empty());
    let microvm = builtin("qemu", Some("microvm"), None);
    assert_eq!(
        name(&microvm, Space::Mmio, 0xfeb0_0050),
        Some("virtio-mmio")
    );
    assert_eq!(
        (
            name(&microvm, Space::Pio, 0x71),
            name(&microvm, Space::Pio, 0x608)
        ),
        (None, None)
    );
    let isa = builtin("qemu", Some("isapc"), Some("x86_64"));
    assert_eq!(
        (name(&isa, Space::Pio, 0x71), name(&isa, Space::Pio, 0x1f0)),
        (Some("rtc"), Some("ide"))
    );
    assert_eq!(
        (name(&isa, Space::Pio, 0x608), name(&isa, Space::Pio, 0xcf8)),
        (None, None)
    );
    assert_eq!(name(&isa, Space::Mmio, 0xfed0_00f0), None);
    for (machine, arch) in [
        ("s390-ccw-virtio", None),
        ("s390-ccw-virtio-8.2", Some("s390x")),
        ("pseries-8.2", None),
        ("sbsa-ref", Some("aarch64")),
        ("none", Some("x86_64")),
    ] {
        assert!(builtin("qemu", Some(machine), arch).is_empty(), "{machine}");
    }
    assert!(builtin("qemu", Some("virt"), Some("riscv64")).is_empty());
}

#[test]
fn a_vmm_has_its_own_devices() {
    let x86 = |vmm, space, addr| {
        name(&builtin(vmm, None, Some("x86_64")), space, addr)
            .map(str::to_owned)
            .unwrap_or_default()
    };
    for (vmm, at_71, at_608, at_3fd) in [
        ("firecracker", "", "", "serial"),
        ("cloud-hyperviso", "cmos", "acpi-tmr", "serial"),
        ("crosvm", "cmos", "", "serial"),
        ("lkvm-static", "cmos", "", "serial"),
        ("qemu", "rtc", "acpi-tmr", "serial"),
        ("another", "rtc", "acpi-tmr", "serial"),
    ] {
        let found = [0x71, 0x608, 0x3fd].map(|port| x86(vmm, Space::Pio, port));
        assert_eq!(found, [at_71, at_608, at_3fd], "{vmm}");
        assert!(builtin(vmm, None, Some("s390x")).is_empty(), "{vmm}");
    }
    assert_eq!(x86("firecracker", Space::Mmio, 0xc000_0000), "boot-timer");
    assert_eq!(x86("firecracker", Space::Mmio, 0xfed0_00f0), "");
    assert_eq!(x86("cloud-hypervisor", Space::Pio, 0x40), "");
    let arm = builtin("firecracker", None, Some("aarch64"));
    assert_eq!(
        (
            name(&arm, Space::Mmio, 0x4000_2000),
            arm.regions(Space::Pio).len()
        ),
        (Some("serial"), 0)
    );
}

#[test]
fn the_kernel_serves_its_own() {
    let map = builtin("qemu", None, None);
    assert!(map.lookup(Space::Pio, 0x40).unwrap().kernel);
    assert!(!map.lookup(Space::Pio, 0x608).unwrap().kernel);
    assert!(!is_in_kernel("kvmvapic"));
    assert!(map.lookup(Space::Msr, 0x40).is_none());
}

#[test]
fn names_become_words() {
    assert_eq!(friendly("acpi-tmr"), "ACPI PM timer");
    assert_eq!(friendly("virtio-pci-notify-virtio-net"), "virtio kick");
    assert_eq!(friendly("something-new"), "something-new");
    assert_eq!(friendly_at("virtio-pci", 0x10), "virtio kick");
    assert_eq!(friendly_at("virtio-pci", 0x13), "virtio INTx status");
    assert_eq!(friendly_at("acpi-tmr", 0), "ACPI PM timer");
}

#[test]
fn a_later_region_covers_an_earlier_one() {
    let mut map = DeviceMap::default();
    map.paint(Space::Mmio, region(0, 99, "wide"));
    map.paint(Space::Mmio, region(10, 19, "inner"));
    map.paint(Space::Mmio, region(15, 29, "later"));
    map.paint(Space::Mmio, region(5, 4, "reversed"));
    let found: Vec<_> = map
        .regions(Space::Mmio)
        .iter()
        .map(|r| (r.start, r.end, r.base, r.name.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            (0, 9, 0, "wide"),
            (10, 14, 10, "inner"),
            (15, 29, 15, "later"),
            (30, 99, 0, "wide")
        ]
    );
    map.paint(Space::Mmio, region(0, u64::MAX, "all"));
    assert_eq!(map.regions(Space::Mmio).len(), 1);
}

#[test]
fn a_map_travels() {
    let map = builtin("qemu", Some("q35"), None);
    let bytes = rmp_serde::to_vec_named(&map).unwrap();
    assert_eq!(rmp_serde::from_slice::<DeviceMap>(&bytes).unwrap(), map);
}

proptest! {
    #[test]
    fn painting_agrees_with_a_plain_array(strokes in prop::collection::vec((0u64..200, 0u64..200), 0..40)) {
        let mut map = DeviceMap::default();
        let mut plain: Vec<Option<String>> = vec![None; 200];
        for (index, (a, b)) in strokes.iter().enumerate() {
            map.paint(Space::Pio, region(*a, *b, &index.to_string()));
            for slot in plain.iter_mut().enumerate().filter(|(at, _)| (*a..=*b).contains(&(*at as u64))) {
                *slot.1 = Some(index.to_string());
            }
        }
        for (addr, expected) in plain.iter().enumerate() {
            prop_assert_eq!(name(&map, Space::Pio, addr as u64), expected.as_deref());
        }
        prop_assert!(map.regions(Space::Pio).windows(2).all(|pair| pair[0].end < pair[1].start));
    }

    #[test]
    fn painting_at_the_edges_is_survived(
        strokes in prop::collection::vec((any::<u64>(), any::<u64>()), 0..20),
        addr in any::<u64>(),
    ) {
        let mut map = DeviceMap::default();
        for (a, b) in strokes {
            map.paint(Space::Mmio, region(a, b, "x"));
        }
        let _ = map.lookup(Space::Mmio, addr);
    }
}

#[test]
fn a_decoded_map_becomes_one_that_was_painted() {
    let region = |start, end| Region {
        start,
        end,
        ..Region::default()
    };
    let mut regions = vec![
        region(9, 3),
        region(u64::MAX - 2, u64::MAX),
        region(4, 7),
        region(0, 4),
        region(8, 8),
    ];
    regions.extend(
        (0..2 * MAX_REGIONS as u64)
            .rev()
            .map(|i| region(0x1000 + i, 0x1000 + i)),
    );
    let mut map = DeviceMap {
        pio: regions,
        ..DeviceMap::default()
    };
    map.normalise();
    let pio = map.regions(Space::Pio);
    assert_eq!((pio.len(), pio[0].end, pio[1].start), (MAX_REGIONS, 4, 8));
    assert!(pio.windows(2).all(|two| two[0].end < two[1].start));
    assert_eq!(map.lookup(Space::Pio, 3).map(|region| region.end), Some(4));
}
