use super::*;
use kvm::device_map::{DeviceMap, MapSource, Region};
use kvm::device_property::{DeviceProperty, PropertyPlace};
use kvm::{Space, cmdline};
use sample::Burst;

fn mapped(guest: Guest, regions: &[(Space, u64, u64, &str)]) -> Guest {
    let mut map = DeviceMap::new(MapSource::Mtree);
    for (space, start, end, name) in regions {
        map.paint(
            *space,
            Region {
                start: *start,
                end: *end,
                base: *start,
                name: (*name).into(),
                ..Region::default()
            },
        );
    }
    guest.facts(|f| f.devices = Some(Known::new(Arc::new(map), Origin::Monitor)))
}

fn touching(
    regions: &[(Space, u64, u64, &str)],
    space: Space,
    address: u64,
    direction: Direction,
    rate: f64,
    to_vmm: f64,
) -> Fixture {
    let exit = if space == Space::Pio { 2 } else { 6 };
    on(
        mapped(Guest::new("g", 5).linux(""), regions).vcpus(1, move |v, t| {
            t.on(v)
                .cpu(50.0, 0.5, 4.0, 0.0)
                .access(space, address, direction, rate, Some(6.0))
                .userspace(exit, to_vmm)
        }),
    )
}

const VIRTIO: &[(Space, u64, u64, &str)] = &[
    (Space::Pio, 0xc040, 0xc05f, "virtio-pci"),
    (
        Space::Mmio,
        0xfe20_3000,
        0xfe20_3fff,
        "virtio-pci-notify-virtio-net",
    ),
    (
        Space::Mmio,
        0xfe20_1000,
        0xfe20_1fff,
        "virtio-pci-isr-virtio-net",
    ),
];

#[test]
fn virtio_intx() {
    let isr = |rate| touching(VIRTIO, Space::Pio, 0xc053, Direction::Read, rate, rate);
    fires(
        &judge(&isr(300.0).model()),
        RuleId::VirtioIntx,
        Severity::Warning,
    );
    fires(
        &judge(
            &touching(
                VIRTIO,
                Space::Mmio,
                0xfe20_1000,
                Direction::Read,
                300.0,
                300.0,
            )
            .model(),
        ),
        RuleId::VirtioIntx,
        Severity::Warning,
    );
    silent(&judge(&isr(5.0).model()), RuleId::VirtioIntx);
    silent(
        &judge(&touching(VIRTIO, Space::Pio, 0xc050, Direction::Write, 300.0, 0.0).model()),
        RuleId::VirtioIntx,
    );
    cannot(&from_file(&isr(300.0), None), RuleId::VirtioIntx);
}

#[test]
fn virtio_kicks() {
    let kick = |rate, to_vmm| {
        touching(
            VIRTIO,
            Space::Mmio,
            0xfe20_3000,
            Direction::Write,
            rate,
            to_vmm,
        )
    };
    fires(
        &judge(&kick(5000.0, 5000.0).model()),
        RuleId::VirtioKicks,
        Severity::Info,
    );
    silent(&judge(&kick(5000.0, 1.0).model()), RuleId::VirtioKicks);
    silent(&judge(&kick(50.0, 50.0).model()), RuleId::VirtioKicks);
    cannot(&from_file(&kick(5000.0, 5000.0), None), RuleId::VirtioKicks);
}

#[test]
fn properties_that_cost_are_found_and_cited() {
    let set = |place: &str| {
        let over = "<qemu:override \
            xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><qemu:device \
            alias='ua-n'><qemu:frontend><qemu:property name='ioeventfd' type='bool' \
            value='false'/></qemu:frontend></qemu:device></qemu:override>";
        let devices = "<devices><interface type='bridge'><model type='virtio'/><driver \
                ioeventfd='off'/></interface></devices>";
        on(Guest::new("g", 5).linux(if place == "override" { over } else { devices }))
    };
    let report = judge(&set("override").model());
    fires(&report, RuleId::DeviceProperties, Severity::Info);
    let found = get(&report, RuleId::DeviceProperties);
    assert!(
        found.evidence[0].contains("n: ioeventfd=off, set in <qemu:override>"),
        "{found:#?}"
    );
    assert!(
        found.fix[0].text.contains("from <qemu:override>"),
        "{found:#?}"
    );
    let report = judge(&set("devices").model());
    let found = get(&report, RuleId::DeviceProperties);
    assert!(
        found.fix[0]
            .text
            .contains("Remove ioeventfd='off' from the <driver>"),
        "{found:#?}"
    );
    silent(
        &judge(&on(Guest::new("g", 5).linux("<devices/>")).model()),
        RuleId::DeviceProperties,
    );
    // What the process's command line repeats of the XML keeps the XML's place; what it adds has
    // its own.
    let mut fixture = set("override");
    let command = cmdline::parse_text(
        "qemu-system-x86_64 -device virtio-net-pci,id=ua-n,ioeventfd=off,vectors=0",
    )
    .unwrap();
    fixture.guests[0].facts.command = Some(Arc::new(command));
    let report = judge(&fixture.model());
    let found = get(&report, RuleId::DeviceProperties);
    assert!(
        found.evidence[0].contains("<qemu:override>")
            && found.evidence[1].contains("vectors=0, set in QEMU's"),
        "{found:#?}"
    );
    // The rule about their effect cites them.
    let mut model = touching(
        VIRTIO,
        Space::Mmio,
        0xfe20_3000,
        Direction::Write,
        5000.0,
        5000.0,
    )
    .model();
    let property = DeviceProperty::new("n", "ioeventfd", "off", PropertyPlace::Override).unwrap();
    let facts = Arc::make_mut(&mut model.domains[0].facts);
    Arc::make_mut(&mut facts.xml.as_mut().unwrap().value)
        .device_properties
        .push(property);
    let report = judge(&model);
    let found = get(&report, RuleId::VirtioKicks);
    assert!(
        found.covers(RuleId::DeviceProperties) && found.fix[0].text.contains("<qemu:override>"),
        "{found:#?}"
    );
}

#[test]
fn emulated_device() {
    let nic = |rate| {
        touching(
            &[(Space::Mmio, 0xfeb8_0000, 0xfeb9_ffff, "e1000e-mmio")],
            Space::Mmio,
            0xfeb8_3818,
            Direction::Write,
            rate,
            rate,
        )
    };
    fires(
        &judge(&nic(5000.0).model()),
        RuleId::EmulatedDevice,
        Severity::Info,
    );
    silent(&judge(&nic(20.0).model()), RuleId::EmulatedDevice);
    cannot(&from_file(&nic(5000.0), None), RuleId::EmulatedDevice);
}

#[test]
fn serial_bursts_are_seen_by_their_length() {
    let burst = |count, ms: u64, late: f64| {
        let f = on(Guest::new("g", 5).linux("").mtree().vcpus(1, move |v, t| {
            t.on(v)
                .pio(0x3f8, Direction::Write, 64.0, 230.0)
                .wakes(50.0, late)
        }));
        let mut model = f.model();
        let d = &mut model.domains[0];
        for r in d.accesses.iter_mut().chain(&mut d.vcpu_accesses) {
            r.burst = Some(Burst {
                count,
                ns: ms * 1_000_000,
            });
        }
        judge(&model)
    };
    fires(&burst(64, 15, 10.0), RuleId::SerialBurst, Severity::Info);
    fires(&burst(64, 30, 10.0), RuleId::SerialBurst, Severity::Warning);
    fires(
        &burst(64, 15, 2000.0),
        RuleId::SerialBurst,
        Severity::Warning,
    );
    silent(&burst(64, 2, 10.0), RuleId::SerialBurst);
    silent(&burst(3, 15, 10.0), RuleId::SerialBurst);
    let console = |rate| {
        on(Guest::new("g", 5).linux("").mtree().vcpus(1, move |v, t| {
            t.on(v).pio(0x3f8, Direction::Write, rate, 230.0)
        }))
    };
    cannot(&from_file(&console(64.0), None), RuleId::SerialBurst);
    cannot(&from_file(&console(64.0), Some(10.0)), RuleId::SerialBurst);
    // More than one a millisecond is a burst without end: 2000 of them at 230 us are 46 % of a CPU.
    fires(
        &from_file(&console(2000.0), Some(10.0)),
        RuleId::SerialBurst,
        Severity::Critical,
    );
    let few = from_file(&console(1.0), None);
    assert!(
        !few.cannot_tell
            .iter()
            .any(|c| c.rule == RuleId::SerialBurst),
        "{:?}",
        few.cannot_tell
    );
}

#[test]
fn polling() {
    let at = |port, rate| {
        on(Guest::new("g", 5)
            .linux("")
            .mtree()
            .vcpus(1, move |v, t| t.on(v).pio(port, Direction::Read, rate, 6.0)))
    };
    fires(
        &judge(&at(0x5658, 900.0).model()),
        RuleId::LegacyPortPolling,
        Severity::Info,
    );
    fires(
        &judge(&at(0x64, 900.0).model()),
        RuleId::LegacyPortPolling,
        Severity::Info,
    );
    silent(&judge(&at(0x5658, 20.0).model()), RuleId::LegacyPortPolling);
    cannot(
        &from_file(&at(0x5658, 900.0), None),
        RuleId::LegacyPortPolling,
    );
}

#[test]
fn kworkers_on_isolated_cpus() {
    let woken = |comm: &str, per_second: u64, isolated: &str| {
        let f = Fixture::new(host().isolated(isolated))
            .guest(Guest::new("g", 5).linux("").vcpus(1, |_, t| t.pinned(1)));
        let mut model = f.model();
        let thread = model.domains[0]
            .threads
            .iter_mut()
            .find(|t| t.index == Some(0))
            .unwrap();
        thread.woken_by = vec![sample::OtherTask {
            tid: 9,
            comm: comm.into(),
            count: per_second,
            ns: 0,
        }];
        judge(&model)
    };
    fires(
        &woken("kworker/4:1", 200, "4-5"),
        RuleId::IrqfdKworker,
        Severity::Info,
    );
    fires(
        &woken("kworker/4:1", 5000, ""),
        RuleId::IrqfdKworker,
        Severity::Warning,
    );
    silent(&woken("kworker/4:1", 200, "6-7"), RuleId::IrqfdKworker);
    silent(&woken("kworker/u8:1", 200, "0-7"), RuleId::IrqfdKworker);
    silent(&woken("qemu", 5000, "4"), RuleId::IrqfdKworker);
    let untraced = |isolated| {
        judge(
            &Fixture::new(host().isolated(isolated))
                .guest(Guest::new("g", 5).vcpus(1, |_, t| t.pinned(4)))
                .model(),
        )
    };
    cannot(&untraced("4-5"), RuleId::IrqfdKworker);
    assert!(
        !untraced("")
            .cannot_tell
            .iter()
            .any(|c| c.rule == RuleId::IrqfdKworker)
    );
}

#[test]
fn an_emulated_card_is_named_where_nothing_is_measured() {
    let card = |model: &str| {
        let xml = format!(
            "<devices><interface><model type='{model}'/><alias name='net0'/></interface></devices>"
        );
        Guest::new("g", 5).linux(&xml)
    };
    let report = judge(&on(card("e1000e").vcpus(1, |v, t| t.on(v))).model());
    fires(&report, RuleId::EmulatedDevice, Severity::Info);
    silent(&report, RuleId::DeviceProperties);
    assert_eq!(
        get(&report, RuleId::EmulatedDevice).title,
        "The network card net0 is an emulated e1000e"
    );
    silent(
        &judge(&on(card("virtio").vcpus(1, |v, t| t.on(v))).model()),
        RuleId::EmulatedDevice,
    );
    // What the guest is seen to do decides.
    let quiet = [(Space::Mmio, 0xfeb8_0000, 0xfeb9_ffff, "e1000e-mmio")];
    let guest = mapped(card("e1000e"), &quiet).vcpus(1, |v, t| {
        t.on(v)
            .access(Space::Mmio, 0xfeb8_3818, Direction::Write, 5.0, Some(6.0))
            .userspace(6, 5.0)
    });
    silent(&judge(&on(guest).model()), RuleId::EmulatedDevice);
}

/// The fixes of a guest that was started with these options, or by Proxmox.
fn fixes_of(rule: RuleId, options: &str) -> Vec<Fix> {
    let command = cmdline::parse_text(&format!(
        "qemu-system-x86_64 -enable-kvm -cpu host -m 2G {options}"
    ))
    .unwrap();
    let guest = Guest::new("g", 5).facts(|f| f.command = Some(Arc::new(command)));
    let report = of_file(&on(guest).first());
    report
        .findings
        .into_iter()
        .filter(|found| found.rule == rule)
        .flat_map(|found| found.fix)
        .collect()
}

#[test]
fn a_fix_fits_what_is_there() {
    for (options, text, drivers) in [
        (
            "-net nic -net user",
            "Give the guest virtio-net in place of e1000 for -net nic",
            true,
        ),
        (
            "-device virtio-net-pci,netdev=a -netdev user,id=a -device rtl8139,netdev=b",
            "Give the guest virtio-net in place of rtl8139 for b",
            false,
        ),
        (
            "-device lsi53c895a,id=l -nic none",
            "Give the guest virtio-scsi in place of lsi53c895a for l",
            true,
        ),
    ] {
        let fix = fixes_of(RuleId::EmulatedDevice, options);
        assert_eq!(
            fix.iter().map(|fix| fix.text.as_str()).collect::<Vec<_>>(),
            [text],
            "{options}"
        );
        assert_eq!(
            fix[0]
                .needs
                .as_ref()
                .unwrap()
                .contains("first needs the virtio driver"),
            drivers,
            "{options}"
        );
    }
    let disk = &fixes_of(RuleId::DiskSetup, "-nic none -hda a.img")[0];
    assert!(
        disk.text
            .contains("if=virtio in its -drive (in place of -hda)"),
        "{disk:?}"
    );
}
