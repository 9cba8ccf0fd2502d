use super::*;
use proptest::prelude::*;
use std::fmt::Write as _;

const Q35_FLAT: &str = include_str!("../../../../tests/fixtures/kvm/q35-kvm.mtree-f.txt");
const Q35_TREE: &str = include_str!("../../../../tests/fixtures/kvm/q35-kvm.mtree.txt");
const Q35_OWNERS: &str = include_str!("../../../../tests/fixtures/kvm/q35-kvm.mtree-o.txt");
const PC_TREE: &str = include_str!("../../../../tests/fixtures/kvm/pc-kvm.mtree.txt");
const PC_FLAT: &str = include_str!("../../../../tests/fixtures/kvm/pc-kvm.mtree-f.txt");
const BRIDGES_TREE: &str = include_str!("../../../../tests/fixtures/kvm/q35-bridges.mtree.txt");
const BRIDGES_FLAT: &str = include_str!("../../../../tests/fixtures/kvm/q35-bridges.mtree-f.txt");
const STOPPED_TREE: &str =
    include_str!("../../../../tests/fixtures/kvm/q35-kvm.mtree-disabled.txt");

fn name(map: &DeviceMap, space: Space, addr: u64) -> Option<&str> {
    map.lookup(space, addr).map(|region| region.name.as_str())
}

#[test]
fn the_flat_view_names_ports_and_memory() {
    let map = parse(Q35_FLAT).unwrap();
    assert_eq!(map.source, MapSource::Mtree);
    for (space, addr, expected) in [
        (Space::Pio, 0x608, Some("acpi-tmr")),
        (Space::Pio, 0x70, Some("rtc-index")),
        (Space::Pio, 0x71, Some("rtc")),
        (Space::Pio, 0x40, Some("kvm-pit")),
        (Space::Pio, 0xc060, Some("virtio-pci")),
        (Space::Pio, 0x5040, None),
        (Space::Mmio, 0xfed0_00f0, Some("hpet")),
        (Space::Mmio, 0xfee0_00b0, Some("kvm-apic-msi")),
        (
            Space::Mmio,
            0xfe20_3004,
            Some("virtio-pci-notify-virtio-net"),
        ),
        (Space::Mmio, 0xfead_4401, Some("vga ioports remapped")),
        (Space::Mmio, 0x1000, Some("pc.ram")),
        (Space::Mmio, 0x9_0000_0000, None),
    ] {
        assert_eq!(name(&map, space, addr), expected, "{space:?} {addr:#x}");
    }
    assert_eq!(map.lookup(Space::Pio, 0x71).unwrap().base, 0x70);
    assert!(
        map.lookup(Space::Pio, 0x40).unwrap().kernel
            && map.lookup(Space::Mmio, 0x1000).unwrap().ram
    );
}

/// The tree, resolved here, must say what QEMU's own flat view says.
fn agrees(tree: &str, flat: &str) {
    let (tree, flat) = (parse(tree).unwrap(), parse(flat).unwrap());
    for space in [Space::Pio, Space::Mmio] {
        for region in flat.regions(space) {
            for addr in [region.start, region.end] {
                let found = name(&tree, space, addr);
                // ROM areas mirror memory under different names, so only the names of devices must
                // agree.
                if !region.ram {
                    assert_eq!(found, Some(region.name.as_str()), "{space:?} {addr:#x}");
                }
            }
        }
    }
}

#[test]
fn the_tree_resolves_to_the_flat_view() {
    agrees(Q35_TREE, Q35_FLAT);
    agrees(PC_TREE, PC_FLAT);
    agrees(BRIDGES_TREE, BRIDGES_FLAT);
}

#[test]
fn owners_are_kept() {
    let map = parse(Q35_OWNERS).unwrap();
    assert_eq!(
        map.lookup(Space::Pio, 0x71).unwrap().owner.as_deref(),
        Some("/machine/unattached/device[10]")
    );
    let line = "  000000000000c000-000000000000c07f (prio 1, i/o): virtio-pci owner:{dev \
        id=net0}\n";
    assert_eq!(
        parse(line)
            .unwrap()
            .lookup(Space::Pio, 0xc000)
            .unwrap()
            .owner
            .as_deref(),
        Some("net0")
    );
}

#[test]
fn disabled_regions_are_not_there() {
    let map = parse(STOPPED_TREE).unwrap();
    assert!(
        map.regions(Space::Pio)
            .iter()
            .all(|region| region.name != "io")
    );
    let text = "address-space: I/O\n  0000000000000000-000000000000ffff (prio 0, i/o): io\n\x20   \
        0000000000000000-000000000000003f (prio 0, i/o): pm [disabled]\n      \
        0000000000000008-000000000000000b (prio 0, i/o): acpi-tmr\n\x20   \
        0000000000000020-0000000000000021 (prio 0, i/o): kvm-pic\n";
    let map = parse(text).unwrap();
    assert_eq!(
        (name(&map, Space::Pio, 8), name(&map, Space::Pio, 0x20)),
        (None, Some("kvm-pic"))
    );
    // The same where the disabled parent is left out of the dump.
    let hidden = text.replace(
        "    0000000000000000-000000000000003f (prio 0, i/o): pm [disabled]\n",
        "",
    );
    assert_eq!(name(&parse(&hidden).unwrap(), Space::Pio, 8), None);
}

#[test]
fn line_ends_and_escapes_do_no_harm() {
    let noisy = format!(
        "(qemu) i\u{1b}[K\u{1b}[Din\u{1b}[Kfo mtree -f\r\n{}(qemu) ",
        Q35_FLAT.replace('\n', "\r\n")
    );
    assert_eq!(parse(&noisy).unwrap(), parse(Q35_FLAT).unwrap());
}

#[test]
fn the_order_of_blocks_does_not_matter() {
    let mut blocks: Vec<&str> = Q35_TREE.split("\n\n").collect();
    blocks.reverse();
    assert_eq!(
        parse(&blocks.join("\n\n")).unwrap(),
        parse(Q35_TREE).unwrap()
    );
}

#[test]
fn the_built_in_maps_agree_with_real_guests() {
    for (dump, machine) in [(Q35_FLAT, "pc-q35-7.2"), (PC_FLAT, "pc-i440fx-7.2")] {
        let builtin = crate::device_map::builtin("qemu", Some(machine), Some("x86_64"));
        let real = parse(dump).unwrap();
        let mut compared = 0;
        for space in [Space::Pio, Space::Mmio] {
            for region in builtin.regions(space) {
                if let Some(found) = real.lookup(space, region.start) {
                    assert_eq!(
                        (found.name.as_str(), found.base),
                        (region.name.as_str(), region.base),
                        "{machine} {:#x}",
                        region.start
                    );
                    compared += 1;
                }
            }
        }
        assert!(compared > 40, "{machine} {compared}");
    }
}

#[test]
fn a_banner_is_no_heading() {
    let text = "QEMU 7.2.22 monitor\n0000000000000608-000000000000060b (prio 0, i/o): acpi-tmr\n";
    assert_eq!(
        name(&parse(text).unwrap(), Space::Pio, 0x608),
        Some("acpi-tmr")
    );
}

#[test]
fn a_dump_that_multiplies_by_aliases_is_bounded() {
    let mut text = String::from(
        "address-space: memory\n  0000000000000000-ffffffffffffffff (prio 0, i/o): system\n",
    );
    text.push_str(
        &"    0000000000000000-0000000000ffffff (prio 0, i/o): alias a @t \
            0000000000000000-0000000000ffffff\n"
            .repeat(5000),
    );
    text.push_str("memory-region: t\n  0000000000000000-ffffffffffffffff (prio 0, i/o): t\n");
    for start in (0..160_000).step_by(16) {
        let _ = writeln!(text, "    {start:016x}-{:016x} (prio 0, i/o): d", start + 7);
    }
    let map = parse(&text).unwrap();
    assert!(map.regions(Space::Mmio).len() <= MAX_REGIONS + 2);
}

#[test]
fn a_single_line_is_enough() {
    let map = parse(
        "0000000000000608-000000000000060b (prio 0, i/o): \
    acpi-tmr\n00000000fed00000-00000000fed003ff (prio 0, i/o): hpet",
    )
    .unwrap();
    assert_eq!(
        (
            name(&map, Space::Pio, 0x60b),
            name(&map, Space::Mmio, 0xfed0_0000)
        ),
        (Some("acpi-tmr"), Some("hpet"))
    );
}

#[test]
fn aliases_that_loop_end() {
    let text = "address-space: memory\n  0000000000000000-ffffffffffffffff (prio 0, i/o): \
        system\n\x20   0000000000001000-0000000000001fff (prio 0, i/o): alias a @loop \
        0000000000000000-0000000000000fff\n\nmemory-region: loop\n  \
        0000000000000000-ffffffffffffffff (prio 0, i/o): loop\n\x20   \
        0000000000000000-0000000000000fff (prio 0, i/o): alias b @loop \
        0000000000000000-0000000000000fff\n";
    let _ = parse(text);
}

#[test]
fn what_is_no_dump_says_so() {
    for (text, says) in [
        ("hello", "no memory region found"),
        (
            "FlatView #0\n AS \"memory\", root: system\n  No rendered FlatView\n",
            "no memory region found",
        ),
        (
            "address-space: VGA\n  0000000000000000-ffffffffffffffff (prio 0, i/o): bus master \
                container\n",
            "the dump holds no region of the guest's I/O ports or memory",
        ),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with(says), "{error}");
    }
    assert!(looks_like(Q35_TREE) && looks_like(Q35_FLAT) && !looks_like("(prio of nothing)"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_text_is_survived(text in any::<String>(), words in prop::collection::vec(
        "[ ]{0,8}[0-9a-f]{1,17}-[0-9a-f]{1,17} \\(prio -?[0-9]{1,20}, [a-z/]{2,4}\\): (alias \
            )?[a-z @0-9-]{0,30}",
        0..30,
    )) {
        let _ = (parse(&text), looks_like(&text));
        let _ = parse(&words.join("\n"));
        let _ = parse(&format!("address-space: memory\n{}", words.join("\n")));
    }

    #[test]
    fn a_damaged_dump_is_survived(at in 0usize..PC_TREE.len(), junk in ".{0,8}") {
        let _ = parse(&format!("{}{junk}{}", &PC_TREE[..at], &PC_TREE[at..]));
    }
}
