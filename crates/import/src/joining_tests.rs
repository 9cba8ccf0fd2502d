//! Which domain the output of a tool belongs to, and what of it the sample holds.

use super::{ImportOptions, Imported, load};
use kvm::thread_name::Role;
use sample::{DomainState, Origin};

const PINS: &str = " VCPU   CPU Affinity\n----------------------\n 0      2\n 1      2\n\n";

fn xml(name: &str) -> String {
    format!("<domain type='kvm'><name>{name}</name><vcpu>2</vcpu></domain>\n")
}

fn import(contents: &[(&str, &str)]) -> Imported {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in contents {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    load(&[folder.path().to_owned()], &ImportOptions::default())
}

/// Each domain with the CPUs of its threads.
fn places(imported: &Imported) -> Vec<(String, String)> {
    let domain = |d: &sample::DomainSample| {
        let threads = d.threads.iter().filter_map(|t| {
            let id = t.index.map_or(String::new(), |i| i.to_string());
            Some(format!("{}{id}={}", t.role, t.place.affinity.as_ref()?))
        });
        (d.facts.name.value.clone(), threads.collect::<Vec<_>>().join(" "))
    };
    imported.sample.domains.iter().map(domain).collect()
}

fn expected(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn the_output_belongs_to_the_only_domain() {
    let imported = import(&[("a.xml", &xml("web")), ("b", PINS), ("c", " emulator   CPU Affinity\n---\n *    0-1\n")]);
    assert_eq!(imported.errors, []);
    assert_eq!(places(&imported), expected(&[("web", "vcpu0=2 vcpu1=2 emulator=0-1")]));
    let alone = import(&[("b", PINS)]);
    assert_eq!(places(&alone), expected(&[("guest", "vcpu0=2 vcpu1=2")]));
    assert_eq!(alone.sample.domains[0].facts.vcpus.as_ref().unwrap().value, 2);
}

#[test]
fn a_pasted_command_or_the_files_name_says_which_domain_it_is() {
    let both = format!("{}{}", xml("web"), xml("web-2"));
    let pasted = format!("# virsh vcpupin web-2\n{PINS}");
    assert_eq!(
        places(&import(&[("a", &both), ("b", &pasted)])),
        expected(&[("web", ""), ("web-2", "vcpu0=2 vcpu1=2")])
    );
    for name in ["vcpupin-web-2.txt", "virsh_vcpupin_web-2"] {
        assert_eq!(places(&import(&[("a", &both), (name, PINS)]))[1].1, "vcpu0=2 vcpu1=2", "{name}");
    }
    let nameless = import(&[("a", &both), ("b", PINS)]);
    assert!(nameless.errors[0].what.contains("which of 2 domains"), "{:?}", nameless.errors);
    assert!(places(&nameless).iter().all(|(_, threads)| threads.is_empty()));
}

#[test]
fn several_commands_are_several_guests() {
    let command = |name: &str, cpus: u32| format!("kvm -m 2G \\\n  -smp {cpus} \\\n  -name {name} \\\n  -nic none\n\n");
    let names = |text: &str| {
        let imported = import(&[("a", text)]);
        imported.sample.domains.iter().map(|domain| domain.facts.name.value.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&format!("{}and\n{}", command("web", 2), command("db", 4))), ["web", "db"]);
    // A second attempt at one guest, and one guest in two forms.
    assert_eq!(names(&format!("{}{}", command("web", 2), command("web", 4))), ["web"]);
    let forms = import(&[("a", &xml("web")), ("b", &command("web", 2))]);
    assert_eq!(forms.sample.domains.len(), 1);
}

#[test]
fn a_command_by_hand_beside_an_xml_is_of_another_guest() {
    let cut = "...";
    for (vcpus, end, names) in [(2, cut, &["web"][..]), (8, cut, &["web", "guest"]), (2, "", &["web", "guest"])] {
        let command = format!("$ qemu-system-x86_64 -smp {vcpus} -m 8G -hda a.img {end}\n");
        let text = format!("It is:\n{}\nBeside it:\n{command}", xml("web"));
        let domains = import(&[("post.md", &text)]).sample.domains;
        assert_eq!(domains.iter().map(|d| d.facts.name.value.as_str()).collect::<Vec<_>>(), names);
    }
}

#[test]
fn of_two_states_in_one_text_the_later_counts() {
    let state = |cpu: usize| {
        let pin = format!("<cputune><vcpupin vcpu='0' cpuset='{cpu}'/></cputune>");
        let xml = xml("web").replace("</vcpu>", &format!("</vcpu>{pin}"));
        format!("{xml}\n# virsh vcpuinfo web\nVCPU: 0\nCPU: {cpu}\nCPU Affinity: --yy\nVCPU: 1\nCPU: {cpu}\n\n")
    };
    let imported = import(&[("post.md", &format!("Before:\n{}After:\n{}", state(2), state(3)))]);
    let [web] = imported.sample.domains.as_slice() else { panic!("{:?}", imported.sample.domains) };
    let pinned = web.facts.xml.as_ref().and_then(|xml| xml.value.vcpu_pins[&0].first());
    assert_eq!((pinned, web.threads[0].place.cpu), (Some(3), Some(3)));
}

#[test]
fn a_paused_domain_and_its_last_cpus_are_seen() {
    let text =
        "VCPU:           0\nCPU:            3\nState:          paused\nCPU time:       7.0s\nCPU Affinity:   --yy\n";
    let imported = import(&[("a", &xml("web")), ("b", text)]);
    let domain = &imported.sample.domains[0];
    assert_eq!(domain.state, DomainState::Paused);
    let thread = &domain.threads[0];
    assert_eq!((thread.role, thread.place.cpu), (Role::Vcpu, Some(3)));
}

#[test]
fn damaged_xml_is_read_and_said() {
    let imported = import(&[("cut.xml", "<domain>\n<name>web</name>\n<vcpu>4</vcpu>\n<cputune>\n<vcpupin vcpu='0' ")]);
    assert_eq!((imported.errors.len(), places(&imported)[0].0.as_str()), (0, "web"));
    assert_eq!(imported.notes, ["cut.xml:5: the XML breaks off here; what follows is missing"]);
    let escaped = xml("web").replace('<', "&lt;").replace('>', "&gt;");
    assert_eq!(places(&import(&[("a", &escaped)]))[0].0, "web");
}

#[test]
fn fragments_in_several_files_are_one_domain() {
    let (pins, clock) =
        ("<vcpupin vcpu='0' cpuset='2'/>", "<clock offset='utc'><timer name='hpet' present='no'/></clock>");
    let imported = import(&[("a", pins), ("b", clock)]);
    let [domain] = imported.sample.domains.as_slice() else { panic!("{:?}", places(&imported)) };
    let xml = &domain.facts.xml.as_ref().unwrap().value;
    assert_eq!((xml.vcpu_pins.len(), xml.clock.present("hpet")), (1, Some(false)));
}

#[test]
fn one_text_shows_a_nameless_guest_step_by_step() {
    let step = |pin: &str, more: &str| {
        format!("<domain type='kvm'>\n...\n<cputune><vcpupin vcpu='0' cpuset='{pin}'/></cputune>{more}\n</domain>\n")
    };
    let clock = "<clock offset='utc'/>";
    let imported = import(&[("a", &(step("2", "") + &step("2", clock)))]);
    let [domain] = imported.sample.domains.as_slice() else { panic!("{:?}", places(&imported)) };
    assert_eq!(domain.facts.xml.as_ref().unwrap().value.clock.offset.as_deref(), Some("utc"));
    assert_eq!(import(&[("a", &(step("2", "") + &step("3", clock)))]).sample.domains.len(), 2);
    // At its end the guide shows the guest as it became.
    let guide = import(&[("a", &(step("2", "") + &xml("web")))]);
    let [web] = guide.sample.domains.as_slice() else { panic!("{:?}", places(&guide)) };
    assert_eq!(web.facts.name.value, "web");
    assert!(guide.notes.iter().any(|note| note.contains("as a draft of it")), "{:?}", guide.notes);
    let placeholder = xml("web") + "\nvirsh migrate --live <domain> <dest-uri> [<vcpu>]\n";
    assert_eq!(import(&[("a", &placeholder)]).sample.domains.len(), 1);
}

#[test]
fn several_texts_of_one_host_complete_each_other() {
    let imported = import(&[
        ("a", "node 0 cpus: 0 2\nnode 1 cpus: 1 3\n"),
        ("b", "CPU SOCKET CORE ONLINE\n0 0 0 yes\n1 1 1 yes\n2 0 0 yes\n3 1 1 yes\n"),
    ]);
    let host = &imported.sample.host.facts.topology;
    assert_eq!((host.siblings(3).to_string(), host.node_of(2)), ("1,3".into(), Some(0)));
}

/// A sosreport in miniature: what of it is of use, what is not, the same log twice, a link and an unreadable file.
fn sosreport() -> Vec<(String, String)> {
    let log = |prefix: &str| format!("{prefix}kvm [21715]: vcpu1 unhandled rdmsr: 0x611\n").repeat(2);
    let files = [
        ("sos_commands/virsh/virsh_-r_dumpxml_web", xml("web")),
        ("sos_commands/virsh/virsh_-r_dumpxml_db", xml("db")),
        ("sos_commands/virsh/virsh_-r_vcpuinfo_db", "VCPU: 0\nCPU: 3\nState: running\nCPU Affinity: --yy\n".to_owned()),
        (
            "sos_commands/virsh/virsh_-r_domcapabilities",
            "<domainCapabilities><vcpu max='9'/></domainCapabilities>".into(),
        ),
        ("etc/libvirt/qemu/networks/default.xml", "<network><name>x</name><domain name='y'/></network>".into()),
        ("sos_commands/processor/lscpu", "CPU(s): 4\nOn-line CPU(s) list: 0-3\nThread(s) per core: 1\n".into()),
        ("sos_commands/numa/numactl_--hardware", "node 0 cpus: 0 1\nnode 1 cpus: 2 3\n".into()),
        ("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 isolcpus=managed_irq,domain,2-3 nohz_full=2-3\n".into()),
        ("sos_commands/kernel/dmesg", log("[  592.654337] ")),
        ("var/log/messages", log("Nov 20 10:00:00 h1 kernel: ")),
        ("etc/passwd", "root:x:0:0\n".into()),
        ("sos_commands/x/binary", "\0\0\0\0".into()),
    ];
    files.into_iter().map(|(name, text)| (format!("sosreport-h1/{name}"), text)).collect()
}

fn is_read_as_a_whole(imported: &Imported) {
    assert_eq!(imported.errors, []);
    let mut places = places(imported);
    places.sort();
    assert_eq!(places, expected(&[("db", "vcpu0=2-3"), ("web", "")]));
    let host = &imported.sample.host.facts.topology;
    assert_eq!((host.all().to_string(), host.node_of(3)), ("0-3".into(), Some(1)));
    assert_eq!(host.isolated.as_ref().map(ToString::to_string), Some("2-3".into()));
    assert_eq!(imported.sample.host.kernel_log.len(), 2, "each message of the kernel once");
    assert!(imported.notes.iter().any(|note| note.contains("8 of 12 files are of use")), "{:?}", imported.notes);
}

fn tarball() -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, text) in sosreport() {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_cksum();
        builder.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    let mut link = tar::Header::new_gnu();
    link.set_entry_type(tar::EntryType::Symlink);
    link.set_size(0);
    builder.append_link(&mut link, "sosreport-h1/lscpu", "/etc/passwd").unwrap();
    builder.into_inner().unwrap()
}

#[test]
fn a_sosreport_is_read_as_a_folder_and_as_an_archive() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in sosreport() {
        let path = folder.path().join("case").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    std::os::unix::fs::symlink("/etc", folder.path().join("case/sosreport-h1/link")).unwrap();
    for root in ["case", "case/sosreport-h1"] {
        is_read_as_a_whole(&load(&[folder.path().join(root)], &ImportOptions::default()));
    }
    let path = folder.path().join("archive");
    let plain = tarball();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut gzip, &plain).unwrap();
    for bytes in [plain.clone(), gzip.finish().unwrap(), zstd::encode_all(plain.as_slice(), 0).unwrap()] {
        std::fs::write(&path, bytes).unwrap();
        is_read_as_a_whole(&load(std::slice::from_ref(&path), &ImportOptions::default()));
    }
    // Cut off: what came before is used, and it is said.
    std::fs::write(&path, &plain[..plain.len() / 2]).unwrap();
    let cut = load(std::slice::from_ref(&path), &ImportOptions::default());
    assert!(cut.errors[0].what.contains("cut off") && !cut.sample.domains.is_empty(), "{:?}", cut.errors);
}

#[test]
fn a_compressed_file_is_read_by_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    std::fs::write(&path, zstd::encode_all(xml("web").as_bytes(), 0).unwrap()).unwrap();
    assert_eq!(places(&load(std::slice::from_ref(&path), &ImportOptions::default())), expected(&[("web", "")]));
    std::fs::write(&path, &zstd::encode_all(xml("web").as_bytes(), 0).unwrap()[..20]).unwrap();
    let damaged = load(std::slice::from_ref(&path), &ImportOptions::default());
    assert_eq!(damaged.errors.len(), 1);
}

#[test]
fn counts_become_the_counters_of_the_only_guest() {
    let counts = "exits 1000 500\nhalt_exits 9 3\nkvm_exit(HLT) 9 3\nkvm_userspace_exit(IO) 50 40\n";
    let imported = import(&[("a", &xml("web")), ("b", counts)]);
    let [domain] = imported.sample.domains.as_slice() else { panic!("{:?}", places(&imported)) };
    assert_eq!((imported.base, imported.source), (Some(1.0), "text"));
    assert_eq!((domain.counters["exits"], domain.unattributed.exits[0].time.count), (500, 3));
    assert_eq!((domain.unattributed.userspace[0].reason, domain.unattributed.userspace[0].count), (2, 40));
    let stat = "  1,234   kvm:kvm_exit\n   99   kvm:kvm_entry\n  10.0 seconds time elapsed\n";
    let imported = import(&[("a", &xml("web")), ("b", stat)]);
    let domain = &imported.sample.domains[0];
    assert_eq!((imported.base, domain.counters["exits"], domain.kvm_events["kvm_entry"]), (Some(10.0), 1234, 99));
    // Counts of two lengths give no common rate.
    let both = import(&[("a", counts), ("b", stat)]);
    assert!(both.notes.iter().any(|note| note.contains("left out")), "{:?}", both.notes);
}

#[test]
fn a_proxmox_configuration_is_a_domain() {
    let proxmox = "cores: 2\nostype: win11\nmemory: 512\nscsihw: virtio-scsi-pci\nname: desk\naffinity: 4-5\n";
    let imported = import(&[("100.conf", proxmox)]);
    assert_eq!(places(&imported), expected(&[("desk", "vcpu0=4-5 vcpu1=4-5 emulator=4-5")]));
    assert_eq!(imported.sample.domains[0].facts.guest_os.as_ref().unwrap().value, "win11");
}

#[test]
fn guests_of_one_name_that_differ_are_listed_each() {
    let line = |cpus: u32| format!("/usr/bin/qemu-system-x86_64 -name web -smp {cpus} -accel kvm -cpu host\n");
    // Each comes twice, as two listings of processes in a sosreport show them.
    let listing = line(2) + &line(4);
    let imported = import(&[("ps-aux", &listing), ("ps-elf", &listing)]);
    let vcpus: Vec<_> = imported.sample.domains.iter().map(|d| d.facts.vcpus.as_ref().unwrap().value).collect();
    assert_eq!((vcpus, imported.notes.len()), (vec![2, 4], 1), "{:?}", imported.notes);
    assert!(imported.notes[0].contains("2 guests are called 'web'"), "{:?}", imported.notes);
}

#[test]
fn the_running_domain_goes_before_its_definition_and_its_snapshots() {
    let pinned = "<domain type='kvm' id='4'><name>web</name><vcpu>2</vcpu><cputune>\
        <vcpupin vcpu='0' cpuset='3'/></cputune></domain>";
    let snapshot = "<domainsnapshot><name>s</name><domain type='kvm'><name>web</name><vcpu>2</vcpu><cputune>\
        <vcpupin vcpu='0' cpuset='9'/></cputune></domain></domainsnapshot>";
    let imported = import(&[("a.xml", snapshot), ("b.xml", &xml("web")), ("c.xml", pinned)]);
    let pins: Vec<_> =
        imported.sample.domains.iter().map(|d| d.facts.xml.as_ref().unwrap().value.vcpu_pins.clone()).collect();
    assert_eq!((pins.len(), pins[0][&0].to_string()), (1, "3".to_owned()));
    assert!(imported.notes[0].contains("a.xml: a snapshot's XML"), "{:?}", imported.notes);
}

#[test]
fn files_of_two_hosts_are_not_mixed() {
    let lscpu = |cpus: u32| {
        let row = |cpu: u32| format!("{cpu} 0 0 {cpu} {cpu}:{cpu}:{cpu}:0 yes\n");
        "CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE\n".to_owned() + &(0..cpus).map(row).collect::<String>()
    };
    let imported = import(&[("kvm1.txt", &lscpu(2)), ("kvm2.txt", &lscpu(4))]);
    assert_eq!(imported.sample.host.facts.topology.cpus.len(), 2);
    assert!(imported.notes[0].contains("kvm2.txt and kvm1.txt describe different hosts"), "{:?}", imported.notes);
    assert!(import(&[("kvm1.txt", &lscpu(4)), ("kvm2.txt", &lscpu(4))]).notes.is_empty());
}

#[test]
fn a_definition_alone_or_what_a_tool_says_is_a_domain_that_is_shut_off() {
    let state = |contents: &[(&str, &str)]| {
        let xml = import(contents).sample.domains[0].facts.xml.clone().unwrap();
        xml.value.state.clone()
    };
    let stats = |state: u32| format!("Domain: 'web'\n  state.state={state}\n  state.reason=1\n");
    let running = xml("web").replace("type='kvm'", "type='kvm' id='3'");
    let off = Some("shut off".to_owned());
    assert_eq!(state(&[("a", &xml("web"))]), off);
    assert_eq!(state(&[("a", &xml("web")), ("b", &stats(5))]), off);
    assert_eq!(state(&[("a", &running)]), None);
    assert_eq!(state(&[("a", &xml("web")), ("b", &stats(1))]), None);
    assert_eq!(state(&[("a", &xml("web")), ("b", "qemu-system-x86_64 -name guest=web -smp 2\n")]), None);
}

#[test]
fn vcpus_listed_before_a_change_are_left_out() {
    let affinities = |count: usize| {
        let pins = [0, 1, 2].map(|v| format!("<vcpupin vcpu='{v}' cpuset='{}'/>", v + 1)).concat();
        let xml = format!("<domain type='kvm'><name>web</name><vcpu>{count}</vcpu><cputune>{pins}</cputune></domain>");
        let imported = import(&[("a", &xml), ("b", &vcpuinfo("web", [0, 0]))]);
        let threads = imported.sample.domains[0].threads.iter();
        (threads.filter(|t| t.place.affinity.is_some()).count(), imported.notes.len())
    };
    assert_eq!(affinities(3), (0, 1));
    assert_eq!(affinities(2).1, 0, "the pins have drifted");
}

#[test]
fn a_part_of_an_xml_is_of_the_domain_whose_list_is_cut() {
    let pins =
        "<vcpu>3</vcpu>\n<cputune>\n<vcpupin vcpu='0' cpuset='0'/>\n<vcpupin vcpu='1' cpuset='1'/>\n</cputune>\n";
    let cut = vcpuinfo("79", [0, 1]);
    assert_eq!(import(&[("a", &format!("```\n{pins}```\n\n{cut}"))]).sample.domains.len(), 1);
    let larger = pins.replace(">3<", ">1<");
    assert_eq!(import(&[("a", &format!("```\n{larger}```\n\n{cut}"))]).sample.domains.len(), 2);
}

/// `virsh vcpuinfo` of two vCPUs on these CPUs of a host with four.
fn vcpuinfo(domain: &str, cpus: [usize; 2]) -> String {
    let vcpu = |(vcpu, cpu): (usize, usize)| {
        let mask: String = (0..4).map(|at| if at == cpu { 'y' } else { '-' }).collect();
        format!("VCPU:           {vcpu}\nCPU:            {cpu}\nState:          running\nCPU Affinity:   {mask}\n\n")
    };
    format!("# virsh vcpuinfo {domain}\n{}", (0..2).zip(cpus).map(vcpu).collect::<String>())
}

#[test]
fn a_domain_that_is_asked_about_by_its_id_is_no_other_one() {
    let list = " Id   Name    State\n-----------------------\n 3    db      running\n 6    web     running\n\n";
    let (web, db) = (vcpuinfo("6", [1, 2]), vcpuinfo("3", [2, 3]));
    let both = expected(&[("web", "vcpu0=1 vcpu1=2"), ("db", "vcpu0=2 vcpu1=3")]);
    let xmls = xml("web") + &xml("db");
    assert_eq!(places(&import(&[("a", &format!("{xmls}\n{list}{db}{web}"))])), both, "a list in the same text");
    let with_id = |name: &str, id: u32| xml(name).replace("type='kvm'", &format!("type='kvm' id='{id}'"));
    let running = with_id("web", 6) + &with_id("db", 3);
    assert_eq!(places(&import(&[("a", &running), ("b", &web), ("c", &db)])), both, "ids of the XML");
    let alone = expected(&[("web", "vcpu0=1 vcpu1=2")]);
    assert_eq!(places(&import(&[("a", &xml("web")), ("b", &web)])), alone, "the only domain");
    // The name of a domain can be a number, and virsh finds it by that if no domain has this id.
    assert_eq!(places(&import(&[("a", &xml("6")), ("b", &web)])), expected(&[("6", "vcpu0=1 vcpu1=2")]));
}

#[test]
fn an_id_without_a_name_is_the_only_domain_or_one_of_its_own() {
    let names = |xml: &str| {
        let imported = import(&[("a", xml), ("b", &vcpuinfo("6", [2, 3]))]);
        places(&imported).into_iter().map(|domain| domain.0).collect::<Vec<_>>()
    };
    assert_eq!(names(&(xml("web") + &xml("db"))), ["web", "db", "6"]);
    // Another number of vCPUs is another domain.
    let larger = xml("web").replace(">2<", ">4<");
    assert_eq!(names(&larger), ["web", "6"]);
    // A post leaves out what is alike.
    let one = import(&[("a", &format!("{larger}\n{}", vcpuinfo("6", [2, 3])))]);
    assert_eq!(places(&one), expected(&[("web", "vcpu0=2 vcpu1=3")]));
}

#[test]
fn a_nameless_domain_is_called_guest() {
    let pins = "<cputune><vcpupin vcpu='0' cpuset='2'/></cputune>\n";
    let facts = import(&[("a", pins)]).sample.domains[0].facts.clone();
    assert_eq!((facts.name.value.as_str(), facts.name.from), ("guest", Origin::BuiltIn));
    let number = import(&[("104.conf", "cores: 2\nostype: win11\nmemory: 512\nscsihw: virtio-scsi-pci\n")]);
    assert_eq!(places(&number)[0].0, "104");
}

#[test]
fn nameless_guests_with_other_pins_are_several() {
    let part = |first: u32| {
        format!(
            "\n<vcpu placement='static'>2</vcpu>\n<cputune>\n<vcpupin vcpu='0' cpuset='{first}'/>\n\
            <vcpupin vcpu='1' cpuset='{}'/>\n</cputune>\n",
            first + 1
        )
    };
    let names = |contents: &[(&str, &str)]| places(&import(contents)).into_iter().map(|d| d.0).collect::<Vec<_>>();
    assert_eq!(names(&[("a", &part(2)), ("b", &part(3))]), ["guest-1", "guest-2"]);
    let text = format!("### Gaming{}### Office{}", part(2), part(10));
    assert_eq!(names(&[("a", &text)]), ["guest-1", "guest-2"]);
    // On the same CPUs it may be a later version of the first.
    assert_eq!(names(&[("a", &format!("Before:{}After:{}", part(2), part(3)))]), ["guest"]);
    assert_eq!(names(&[("a", &part(2)), ("b", &part(2))]), ["guest"]);
}

/// Nothing but its rows says how many CPUs the host has.
#[test]
fn a_table_that_ends_before_the_pins_is_left_out() {
    let pinned = xml("web").replace("</vcpu>", "</vcpu><cputune><vcpupin vcpu='0' cpuset='5'/></cputune>");
    let cpus =
        |table: &str| import(&[("web.xml", &pinned), ("lscpu.txt", table)]).sample.host.facts.topology.cpus.len();
    let table = "CPU NODE SOCKET CORE ONLINE\n0 0 0 0 yes\n1 0 0 0 yes\n2 0 0 1 yes\n3 0 0 1 yes\n";
    assert_eq!(cpus(table), 0);
    assert_eq!(cpus(&table.replace("3 0 0 1 yes", "5 0 0 1 yes")), 4);
    assert_eq!(cpus(&format!("{table}4 - - - no\n5 - - - no\n")), 4, "its rows say that the pinned CPU is offline");
    assert_eq!(cpus(&format!("{table}\nThread(s) per core: 2\nNUMA node0 CPU(s): 0-3\n")), 4);
}

#[test]
fn affinities_tell_how_many_cpus_the_host_has() {
    let cpus = |contents: &[(&str, &str)]| import(contents).sample.host.facts.topology.cpus.len();
    assert_eq!(cpus(&[("a", &vcpuinfo("web", [1, 2]))]), 4);
    assert_eq!(cpus(&[("a", &vcpuinfo("web", [1, 2])), ("b", &vcpuinfo("db", [1, 2]).replace("-\n", "--\n"))]), 0);
    assert_eq!(cpus(&[("a", &vcpuinfo("web", [1, 2])), ("b", "node 0 cpus: 0 1 2\n")]), 3);
}

#[test]
fn equal_remarks_are_said_once() {
    let folders = ["x", "y"].map(|folder| {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(folder);
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("cut.xml"), format!("<domain>\n<name>{folder}</name>\n<vcpu>4</vcpu>\n")).unwrap();
        (root, path)
    });
    let imported = load(&folders.each_ref().map(|(_, path)| path.clone()), &ImportOptions::default());
    assert_eq!(imported.notes, ["cut.xml:3: the XML breaks off here; what follows is missing (2 times)"]);
}
