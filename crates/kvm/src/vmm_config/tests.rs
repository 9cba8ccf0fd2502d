use super::*;
use proptest::prelude::*;

fn only(text: &str) -> VmmConfig {
    assert!(looks_like(text), "{text}");
    let mut all = parse(text);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn pins(config: &VmmConfig) -> Vec<(u32, String)> {
    config.command.thread_cpus().vcpus.iter().map(|(vcpu, cpus)| (*vcpu, cpus.to_string())).collect()
}

const MIB: u64 = 1 << 20;

const PROXMOX: &str = "#a note\nagent: 1\naffinity: 4-7\nargs: -cpu host,hv_time=off\nbios: ovmf\nboot: order=scsi0\n\
    cores: 2\ncpu: host,flags=+pcid;-hv-evmcs,hidden=1\nefidisk0: local:vm-100-disk-0,size=4M\n\
    hostpci0: 0000:01:00,pcie=1\nmachine: pc-q35-8.1\nmemory: 8192\nname: desk,top\n\
    net0: virtio=BC:24:11:00:00:01,bridge=vmbr0\nnuma: 0\nostype: win11\nscsi0: local:vm-100-disk-1,iothread=1\n\
    scsihw: virtio-scsi-single\nsmbios1: uuid=8280445B-28ae-48ff-8f1c-ceb79b3f8858\nsockets: 2\n\
    what is this\n\n[before]\ncores: 16\nostype: l26\n";

#[test]
fn a_proxmox_configuration_becomes_what_it_starts_qemu_with() {
    let c = only(PROXMOX);
    let command = &c.command;
    assert_eq!((command.name.as_deref(), command.vcpus()), (Some("desk,top"), Some(4)));
    assert_eq!(command.uuid.as_deref(), Some("8280445b-28ae-48ff-8f1c-ceb79b3f8858"));
    assert_eq!((command.machine.as_deref(), command.memory), (Some("pc-q35-8.1"), Some(8192 * MIB)));
    assert_eq!((command.hpet, command.rtc_base.as_deref()), (Some(false), Some("localtime")));
    assert_eq!((c.guest_os.as_deref(), command.iothreads.len()), (Some("win11"), 1));
    assert_eq!((pins(&c).len(), c.command.thread_cpus().emulator.unwrap().to_string()), (4, "4-7".into()));
    assert_eq!(c.unread.first, [(21, "what is this".to_owned())]);
}

#[test]
fn notes_at_the_end_of_a_line_are_no_value() {
    let c = only("boot: c\ncores: 8   # of 16\nmemory: 4096\nname: desk # mine\nostype: win10 # really\nsockets: 1\n");
    assert_eq!((c.command.name.as_deref(), c.command.vcpus()), (Some("desk"), Some(8)));
    assert_eq!(c.guest_os.as_deref(), Some("win10"));
}

#[test]
fn an_arm_guest_is_emulated() {
    let c = only("arch: aarch64\nboot: c\ncores: 2\nmemory: 4096\nname: arm\nostype: l26\nsockets: 1\nvmgenid: 1\n");
    assert_eq!((c.command.machine.as_deref(), c.command.accel.as_deref()), (Some("virt"), Some("tcg")));
    assert!(c.command.cpu_options.is_empty());
}

#[test]
fn several_proxmox_configurations_of_one_text_are_separated() {
    let one = |name: &str, cores: u32| {
        format!("boot: c\ncores: {cores}\nmemory: 2048\nname: {name}\nnuma: 0\nostype: l26\nsockets: 1\n")
    };
    let snapshot = "\n[before]\ncores: 64\nname: old\nnuma: 0\nostype: l26\n";
    let said = |text: &str| -> Vec<_> {
        let name = |c: &VmmConfig| c.command.name.clone().unwrap_or_default();
        parse(text).iter().map(|c| (name(c), c.command.vcpus())).collect()
    };
    let both = vec![("a".to_owned(), Some(2)), ("b".to_owned(), Some(8))];
    for between in ["", "\n", "\n### VMID 101\n\n", "root@pve:~# qm config 101\n", snapshot] {
        assert_eq!(said(&format!("{}{between}{}", one("a", 2), one("b", 8))), both, "{between:?}");
    }
    // A blank line or indentation does not end a configuration.
    assert_eq!(said(&one("a", 2).replace("name", "\n  name")), both[..1]);
    assert_eq!(said(&(one("a", 2) + snapshot)), both[..1]);
}

#[test]
fn proxmox_adds_enlightenments_for_windows_and_none_for_others() {
    let windows = only(&PROXMOX.replace("args: -cpu host,hv_time=off\n", ""));
    assert!(windows.command.hyperv_on("stimer") && windows.command.hv_time == Some(true));
    assert!(!windows.command.hyperv_on("evmcs"));
    let linux = only("cores: 2\nostype: l26\nmemory: 512\nscsihw: virtio-scsi-pci\nname: x\n");
    assert!(linux.command.hyperv.is_empty() && linux.command.hpet.is_none() && linux.command.thread_cpus().is_empty());
}

const IDE: &str = "boot: order=ide0\ncores: 2\nide0: tank:vm-105-disk-1,cache=unsafe,size=32G\n\
    ide2: none,media=cdrom\nmemory: 4096\nname: old\nnet0: e1000=D6:46:16:2C:CD:8C,bridge=vmbr0\n\
    net1: virtio=D6:46:16:2C:CD:8D,bridge=vmbr0\nonboot: 1\nostype: l26\n\
    scsi1: tank:vm-105-disk-2,aio=threads,iothread=1,mbps_wr=1.5,iops=200\nscsihw: lsi\nsockets: 1\n";

#[test]
fn disks_and_network_cards_become_devices() {
    let command = only(IDE).command;
    let disks: Vec<_> =
        command.disks.iter().map(|d| (d.device.as_str(), d.driver.as_deref().unwrap_or_default())).collect();
    assert_eq!(disks, [("ide0", "ide-hd"), ("scsi1", "scsi-hd")]);
    assert_eq!(
        (command.disks[0].cache.as_deref(), command.disks[0].file.as_str()),
        (Some("unsafe"), "tank:vm-105-disk-1")
    );
    assert_eq!(command.disks[1].cache.as_deref(), Some("none"));
    assert_eq!(command.disks[1].limits.values().collect::<Vec<_>>(), [&200, &1_572_864]);
    // Proxmox gives an IOThread to a disk on virtio-scsi-single alone.
    assert_eq!((command.disks[1].iothread.is_some(), command.iothreads.len()), (true, 0));
    let single = only(&IDE.replace("scsihw: lsi", "scsihw: virtio-scsi-single")).command;
    assert_eq!((single.disks[1].iothread.as_deref(), single.iothreads.len()), (Some("iothread-scsi1"), 1));
    let devices: Vec<_> = command.device_properties.iter().map(|p| (p.device.as_str(), p.value.as_str())).collect();
    assert_eq!(devices, [("net0", "e1000"), ("net1", "virtio-net-pci"), ("scsihw", "lsi53c895a")]);
    assert_eq!(command.qmp_sockets, ["/var/run/qemu-server/105.qmp"]);
    assert!(!command.is_cut && command.cpu_options == ["kvm64"], "Proxmox's default");
}

#[test]
fn a_part_of_a_configuration_has_no_default_cpu() {
    for text in [IDE.replace("name: old\n", ""), IDE.replace("name: old\n", "...\nname: old\n")] {
        let command = only(&text).command;
        assert!(command.is_cut && command.cpu_options.is_empty(), "{text}");
    }
}

#[test]
fn containers_and_the_text_around_are_left_out() {
    let container = "arch: amd64\ncores: 4\nhostname: c\nmemory: 4096\nnet0: name=eth0,bridge=vmbr0,type=veth\n\
        onboot: 1\nostype: debian\nrootfs: tank:subvol-1,size=8G\nswap: 0\nlxc.cap.drop:\n";
    assert!(parse(container).is_empty());
    let page = format!("My VM, and why:\n\n```\n{IDE}```\n\nThat is all.\n\n{container}");
    let config = only(&page);
    assert_eq!((config.command.name.as_deref(), config.unread.count), (Some("old"), 0));
    assert_eq!(only(&IDE.replace("memory", "kvm: 0 # no VT-x\nmemory")).command.accel.as_deref(), Some("tcg"));
    let logged = format!("{IDE}{}kvm: vfio: Cannot reset device 0000:00:1f.3\n", "Then it says:\n".repeat(20));
    assert_eq!(only(&logged).command.name.as_deref(), Some("old"));
    let noted = only(&format!("#cpu_taskset 3-18\n#a note\n{IDE}"));
    assert_eq!(noted.unread.first, [(1, "#cpu_taskset 3-18".to_owned())]);
}

#[test]
fn counts_beyond_kvms_are_named_and_left_out() {
    for (text, note) in [
        (
            "cores: 4294967295\nostype: l26\nmemory: 512\nscsihw: virtio-scsi-pci\n",
            "x.conf:1: this line is not read: cores: 4294967295",
        ),
        ("ostype: win11\nmemory: 512\nscsihw: a\nsockets: 99999\n", "x.conf:4: this line is not read: sockets: 99999"),
    ] {
        let c = only(text);
        let notes = c.unread.notes("x.conf");
        assert_eq!(notes, [note]);
        assert_eq!(c.command.vcpus(), None, "{text}");
    }
}

#[test]
fn other_text_is_no_configuration() {
    for text in ["", "Model name: x\nCPU(s): 4\nNUMA node0 CPU(s): 0-3\n", "qemu-system-x86_64 -name x -smp 2\n"] {
        assert!(!looks_like(text), "{text}");
    }
}

#[test]
fn a_fragment_typed_by_hand_is_read() {
    let c = only(
        "set these:\n```\ncores: 4\ncpu: cputype=host\naffinity: 0-3\nnuma: 1\nnuma0: cpus=0-3,hostnodes=0\n```\n",
    );
    assert_eq!(
        (c.command.vcpus(), pins(&c)[3].1.as_str(), c.command.cpu_options[0].as_str()),
        (Some(4), "0-3", "host")
    );
    let c = only(
        "agent: 1\nboot: order=scsi0\ncpu: host\nmemory: 4096\nname: web\nnet0: virtio=BC:24:11:00:00:01,bridge=vmbr0\n\
        scsi0: local-lvm:vm-7-disk-0,size=8G\nscsihw: virtio-scsi-single\n",
    );
    assert!(
        c.command.device_properties.iter().any(|device| device.is_device("virtio-scsi")) && c.command.disks.len() == 1
    );
    assert!(!looks_like("version: 3\ncpu: 2\nmemory: 512\nname: web\naffinity: none\n"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn damaged_configurations_are_survived(cut in any::<proptest::sample::Index>(),
        at in any::<proptest::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = PROXMOX.as_bytes().to_vec();
        let place = at.index(bytes.len());
        bytes[place] = byte;
        let _ = parse(&String::from_utf8_lossy(&bytes));
        bytes.truncate(cut.index(bytes.len()) + 1);
        let _ = parse(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn what_nobody_wrote_down_is_a_default_and_the_files_name_is_the_number() {
    let text = "boot: order=ide0\ncores: 4\nide0: local:vm-100-disk-0,size=9G\nmemory: 512\nname: a\nsmbios1: uuid=1\n";
    let mut config = parse(text).remove(0);
    assert_eq!(config.command.defaults, ["cpu", "scsihw"]);
    assert_eq!(config.command.qmp_sockets, ["/var/run/qemu-server/100.qmp"]);
    config.set_number("101");
    assert_eq!(config.command.qmp_sockets, ["/var/run/qemu-server/101.qmp"]);
    let own = text.replace("cores", "cpu: qemu64\ncores").replace("smbios1", "scsihw: lsi\nsmbios1");
    assert!(parse(&own)[0].command.defaults.is_empty());
    let with_args = format!("args: -cpu host\n{text}");
    assert_eq!(parse(&with_args)[0].command.defaults, ["scsihw"]);
}
