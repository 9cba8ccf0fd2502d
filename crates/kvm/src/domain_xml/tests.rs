use super::*;
use crate::device_property::PropertyPlace;
use proptest::prelude::*;

const FULL: &str = include_str!("../../../../tests/fixtures/kvm/domain.xml");
const STATUS: &str = include_str!("../../../../tests/fixtures/kvm/domstatus.xml");

#[test]
fn a_full_domain_is_read() {
    let xml = parse(FULL).unwrap();
    assert_eq!(xml.name.as_deref(), Some("desk-7"));
    assert_eq!(
        xml.uuid.as_deref(),
        Some("3f1c0a52-5a3e-4f0e-9d4e-0c2f5d0b7a11")
    );
    assert_eq!(xml.os_id.as_deref(), Some("http://microsoft.com/win/11"));
    assert_eq!((xml.vcpus, xml.memory), (Some(4), Some(8 << 30)));
    assert_eq!(
        (xml.machine.as_deref(), xml.arch.as_deref()),
        (Some("pc-q35-8.2"), Some("x86_64"))
    );
    assert_eq!(
        xml.topology,
        Some(GuestTopology {
            sockets: 1,
            dies: 1,
            cores: 2,
            threads: 2
        })
    );
    assert_eq!(xml.vcpu_pins.get(&1).unwrap().to_string(), "10");
    assert_eq!(xml.vcpu_cpuset.as_ref().unwrap().to_string(), "2-3,10-11");
    assert_eq!(xml.emulator_pin.as_ref().unwrap().to_string(), "0,8");
    assert_eq!(xml.iothread_pins.get(&1).unwrap().to_string(), "1");
    assert_eq!(xml.iothreads, 1);
    assert_eq!(xml.realtime, CpuSet::range(0, 1));
    let tune = xml.numatune.as_ref().unwrap();
    assert_eq!(
        (
            tune.mode.as_deref(),
            tune.nodeset.as_ref().unwrap().to_string()
        ),
        (Some("strict"), "0".to_owned())
    );
    assert_eq!(
        xml.numa_cells[0].host_nodes.as_ref().unwrap().to_string(),
        "0"
    );
    assert_eq!(xml.numa_cells[0].memory, Some(8 << 30));
    assert!(
        xml.hyperv_on("stimer")
            && xml.hyperv_on("stimer_direct")
            && !xml.hyperv_on("avic")
            && !xml.hyperv_on("tlbflush_direct")
    );
    assert_eq!(
        xml.hyperv.as_ref().unwrap().features["spinlocks"]["retries"],
        "8191"
    );
    assert_eq!(xml.kvm_features["hint-dedicated"], "on");
    assert_eq!(xml.clock.offset.as_deref(), Some("localtime"));
    assert_eq!(
        (
            xml.clock.present("hpet"),
            xml.clock.present("hypervclock"),
            xml.clock.present("kvmclock")
        ),
        (Some(false), Some(true), None)
    );
    assert_eq!(
        xml.clock.timer("pit").unwrap().tickpolicy.as_deref(),
        Some("delay")
    );
    assert_eq!(
        (xml.cpu.mode.as_deref(), xml.cpu.features["invtsc"].as_str()),
        (Some("host-passthrough"), "require")
    );
    assert_eq!(
        (
            xml.disks[0].target.as_str(),
            xml.disks[0].bus.as_deref(),
            xml.disks[0].iothread
        ),
        ("vda", Some("virtio"), Some(1))
    );
}

#[test]
fn status_xml_adds_process_and_state() {
    let xml = parse(STATUS).unwrap();
    assert_eq!(
        (xml.name.as_deref(), xml.pid, xml.state.as_deref()),
        (Some("kt-alpha"), Some(6455), Some("running"))
    );
}

#[test]
fn a_frame_around_some_elements_lacks_nothing_else() {
    let inner = "<vcpu>2</vcpu><features><hyperv><stimer state='on'/></hyperv></features>";
    let xml = parse(&format!("<domain type='kvm'>{inner}</domain>")).unwrap();
    assert!(
        !xml.is_whole()
            && xml.shows("features/hyperv")
            && !xml.shows("clock")
            && !xml.shows("cpu/topology")
    );
    for whole in ["<name>a</name>", "<os><type>hvm</type></os>"] {
        assert!(
            parse(&format!("<domain type='kvm'>{whole}{inner}</domain>"))
                .unwrap()
                .is_whole(),
            "{whole}"
        );
    }
}

#[test]
fn what_a_domain_has_already_is_named() {
    let xml = parse(
        "<domain><name>a</name><vcpu>4</vcpu><cputune><vcpupin vcpu='0' cpuset='1'/><emulatorpin cpuset='0'/></cputune>
         <features><hyperv><synic state='off'/></hyperv><kvm><hidden state='on'/></kvm></features>
         <cpu mode='host-model'><topology sockets='4'/><feature policy='disable' name='hypervisor'/></cpu>
         <clock offset='utc'><timer name='hpet' present='yes'/></clock></domain>",
    )
    .unwrap();
    for (piece, names) in [
        (
            "<cpu><feature policy='require' name='invtsc'/></cpu>",
            &[] as &[&str],
        ),
        (
            "<cpu>\n<feature policy='require' name='hypervisor'/>\n</cpu>",
            &["<feature policy='disable' name='hypervisor'/>"],
        ),
        (
            "<cpu mode='host-passthrough'/><vcpu>2</vcpu>",
            &["<vcpu>", "<cpu> mode and model"],
        ),
        ("<cpu><topology cores='4'/></cpu>", &["<topology>"]),
        (
            "<clock><timer name='hpet' present='no'/><timer name='rtc'/></clock>",
            &["<timer name='hpet'>"],
        ),
        (
            "<features><hyperv><synic/><stimer/></hyperv><kvm><hidden/></kvm></features>",
            &["<synic>", "<hidden>"],
        ),
        (
            "<cputune><vcpupin vcpu='0'/><emulatorpin/><iothreadpin iothread='1'/></cputune>",
            &["<vcpupin>", "<emulatorpin>"],
        ),
        (
            "<cputune><vcpupin vcpu='1' cpuset='2'/></cputune><numatune><memory/></numatune>",
            &[],
        ),
    ] {
        assert_eq!(repeated(&xml, piece), names, "{piece}");
    }
}

#[test]
fn passthrough_turns_every_enlightenment_on() {
    let xml = parse("<domain><features><hyperv mode='passthrough'/></features></domain>").unwrap();
    assert!(xml.hyperv_on("stimer") && xml.hyperv_on("stimer_direct"));
}

#[test]
fn hostile_xml_is_refused_with_a_sentence() {
    let bomb = "<!DOCTYPE d [<!ENTITY a 'aaaa'><!ENTITY b \
        '&a;&a;'>]><domain><name>&b;</name></domain>";
    assert!(parse(bomb).unwrap_err().to_string().contains("DTD"));
    for (text, says) in [
        ("<domain><name></domain>", "not well-formed XML: "),
        ("<network/>", "no <domain> element in it"),
        (&" ".repeat(MAX_TEXT + 1), "larger than 4 MiB"),
        (
            &"<domain>".repeat(200_000),
            "not well-formed XML: too many elements",
        ),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with(says), "{error}");
    }
    let name = parse("<domain><name>a\u{202e}b</name></domain>")
        .unwrap()
        .name;
    assert_eq!(name.as_deref(), Some("a\u{fffd}b"));
}

#[test]
fn a_domain_travels() {
    let xml = parse(FULL).unwrap();
    let bytes = rmp_serde::to_vec_named(&xml).unwrap();
    assert_eq!(rmp_serde::from_slice::<DomainXml>(&bytes).unwrap(), xml);
}

proptest! {
    #[test]
    fn any_text_is_survived(text in any::<String>()) {
        let _ = parse(&text);
        let _ = parse(&format!("<domain>{text}</domain>"));
    }

    #[test]
    fn a_damaged_domain_is_survived(at in 0usize..FULL.len(), junk in "[<>/='a-z0-9,^-]{0,8}") {
        if FULL.is_char_boundary(at) {
            let _ = parse(&format!("{}{junk}{}", &FULL[..at], &FULL[at..]));
        }
    }
}

#[test]
fn numbers_that_no_guest_has_are_refused_and_named() {
    let domain = |inside: &str| {
        parse(&format!(
            "<domain type='kvm'><name>a</name>{inside}</domain>"
        ))
    };
    let huge = ["4294967295", "99999999999999999999999999", "4097"];
    let places = [
        ("<vcpu>N</vcpu>", "<vcpu>"),
        ("<vcpu current='N'>4</vcpu>", "<vcpu current=>"),
        ("<iothreads>N</iothreads>", "<iothreads>"),
        (
            "<cputune><vcpupin vcpu='N' cpuset='0'/></cputune>",
            "<vcpupin vcpu=>",
        ),
        (
            "<cpu><topology sockets='1' cores='N' threads='1'/></cpu>",
            "<topology cores=>",
        ),
        (
            "<cpu><numa><cell id='N' cpus='0' memory='1'/></numa></cpu>",
            "<cell id=>",
        ),
    ];
    for (place, what) in places {
        for number in huge {
            let error = domain(&place.replace('N', number)).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains(number), "{error}");
        }
        assert!(domain(&place.replace('N', "64")).is_ok(), "{place}");
    }
    for place in [
        "<vcpu cpuset='N'>4</vcpu>",
        "<cputune><vcpupin vcpu='0' cpuset='N'/></cputune>",
        "<cputune><emulatorpin cpuset='N'/></cputune>",
        "<cputune><iothreadsched iothreads='N' scheduler='fifo' priority='1'/></cputune>",
        "<numatune><memory mode='strict' nodeset='N'/></numatune>",
    ] {
        for list in ["0-4294967295", "99999999999999999999999999", "0-3,8192"] {
            let error = domain(&place.replace('N', list)).unwrap_err().to_string();
            assert!(error.contains(list) && error.contains("8191"), "{error}");
        }
        assert!(domain(&place.replace('N', "0-8191")).is_ok(), "{place}");
    }
    let memory = domain("<memory unit='KiB'>18446744073709551615</memory>").unwrap_err();
    assert!(memory.to_string().contains("<memory>"), "{memory}");
    let live = "<domstatus pid='1'><vcpus><vcpu id='4294967295' \
        pid='1'/></vcpus><domain/></domstatus>";
    assert!(parse(live).unwrap_err().to_string().contains("<vcpu id=>"));
    assert!(
        domain("<metadata><x:cell xmlns:x='urn:x' id='999999'/></metadata>").is_ok(),
        "another program's"
    );
}

#[test]
fn many_elements_and_attributes_cost_neither_memory_nor_time() {
    let domain = |inside: &str| parse(&format!("<domain>{inside}</domain>"));
    for (element, count) in [("<disk/>", 100_000), ("<hostdev/>", 8193)] {
        let error = domain(&format!("<devices>{}</devices>", element.repeat(count)))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("<devices>") && error.contains(&count.to_string()),
            "{error}"
        );
    }
    let pins = (0..9000)
        .map(|_| "<vcpupin vcpu='1' cpuset='8191'/>")
        .collect::<Vec<_>>()
        .concat();
    assert!(domain(&format!("<cputune>{pins}</cputune>")).is_err());
    let cells = (0..129)
        .map(|n| format!("<cell cpus='{n}'/>"))
        .collect::<Vec<_>>()
        .concat();
    assert!(
        domain(&format!("<cpu><numa>{cells}</numa></cpu>"))
            .unwrap_err()
            .to_string()
            .contains("<cell>")
    );
    let attributes = (0..200_000)
        .map(|n| format!("a{n}='' "))
        .collect::<Vec<_>>()
        .concat();
    assert!(
        domain(&format!("<os {attributes}/>"))
            .unwrap_err()
            .to_string()
            .contains("too many attributes")
    );
    let namespaces = (0..65)
        .map(|n| format!("<a xmlns:n{n}='u'>"))
        .collect::<Vec<_>>()
        .concat();
    assert!(
        domain(&namespaces)
            .unwrap_err()
            .to_string()
            .contains("namespaces")
    );
    assert!(
        domain(&format!(
            "{}{}",
            "<a>".repeat(99_999),
            "</a>".repeat(99_999)
        ))
        .is_ok(),
        "depth costs nothing"
    );
}

#[test]
fn a_disk_without_a_bus_has_that_of_its_name() {
    for (target, bus) in [
        ("hda", Some("ide")),
        ("sdb", Some("scsi")),
        ("vda", Some("virtio")),
        ("ubda", None),
    ] {
        let xml = parse(&format!(
            "<domain><devices><disk><target dev='{target}'/></disk></devices></domain>"
        ))
        .unwrap();
        assert_eq!(xml.disks[0].bus.as_deref(), bus, "{target}");
    }
}

#[test]
fn properties_of_devices_are_read_with_their_place() {
    let xml = parse(
        "<domain type='kvm' \
         xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>w</name><devices><disk \
         type='file'><driver name='qemu' ioeventfd='off' event_idx='on'><iothreads><iothread \
         id='2'/><iothread id='3'/></iothreads></driver><target dev='vda' \
         bus='virtio'/></disk><interface type='bridge'><target dev='vnet0'/><model \
         type='virtio'/><driver name='qemu'/><alias \
         name='net0'/></interface></devices><qemu:override><qemu:device \
         alias='ua-nic'><qemu:frontend><qemu:property name='vectors' type='unsigned' \
         value='0'/><qemu:property name='x-vga' type='bool' \
         value='true'/></qemu:frontend></qemu:device><qemu:device \
         alias='net0'><qemu:frontend><qemu:property name='vhost' \
         type='remove'/></qemu:frontend></qemu:device></qemu:override></domain>",
    )
    .unwrap();
    let all: Vec<_> = xml
        .device_properties
        .iter()
        .map(|p| (p.device.as_str(), p.name.as_str(), p.value.as_str()))
        .collect();
    let card = ("net0", "driver", "virtio");
    assert_eq!(
        all,
        [
            ("vda", "ioeventfd", "off"),
            ("vda", "event-idx", "on"),
            card,
            ("nic", "vectors", "0")
        ]
    );
    assert_eq!(xml.device_properties[3].place, PropertyPlace::Override);
    assert_eq!(xml.disks[0].iothread, Some(2), "the first of several");
    // libvirt ignores it outside of QEMU's namespace.
    let other = "<domain><override><device alias='a'><frontend><property name='vectors' \
        value='0'/></frontend></device></override></domain>";
    assert_eq!(parse(other).unwrap().device_properties, []);
}

#[test]
fn what_managers_call_a_guest() {
    let labels = |inner: &str| {
        let text = format!("<domain><name>shop_vm1</name>{inner}</domain>");
        parse(&text).unwrap().labels
    };
    let nova = labels(
        "<metadata><nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'>\
         <nova:name> web \u{9b}2Jfront</nova:name><nova:owner><nova:user uuid='1'>ann</nova:user>\
         <nova:project uuid='2'>shop</nova:project></nova:owner></nova:instance></metadata>",
    );
    assert_eq!(nova.title.as_deref(), Some("web 2Jfront"));
    assert_eq!(nova.owner.as_deref(), Some("shop"));
    let kubevirt = labels(
        "<title>mine</title><metadata><kubevirt xmlns='http://kubevirt.io'><uid/></kubevirt>\
         </metadata>",
    );
    assert_eq!(kubevirt.title.as_deref(), Some("mine"));
    assert_eq!(kubevirt.owner.as_deref(), Some("shop"));
    assert_eq!(labels(""), Labels::default());
}

#[test]
fn limits_of_an_interface() {
    let text = "<domain><devices><interface type='bridge'><target dev='vnet3'/>\
        <bandwidth><inbound average='1000' peak='2000'/></bandwidth></interface>\
        <interface type='bridge'><target dev='vnet4'/></interface></devices></domain>";
    let limit = NicBandwidth {
        target: "vnet3".into(),
        inbound: Some(1_000_000),
        outbound: None,
    };
    assert_eq!(parse(text).unwrap().bandwidths, [limit]);
}
