use super::*;
use proptest::prelude::*;

fn only(text: &str) -> ProxmoxConfig {
    assert!(begins(text), "{text}");
    parse(text, None).unwrap()
}

const MIB: u64 = 1 << 20;

const PROXMOX: &str = "#a note\nagent: 1\naffinity: 4-7\nargs: -cpu host,hv_time=off\nbios: \
    ovmf\nboot: order=scsi0\ncores: 2\ncpu: host,flags=+pcid;-hv-evmcs,hidden=1\nefidisk0: \
    local:vm-100-disk-0,size=4M\nhostpci0: 0000:01:00,pcie=1\nmachine: pc-q35-8.1\nmemory: \
    8192\nname: desk,top\nnet0: virtio=BC:24:11:00:00:01,bridge=vmbr0\nnuma: 0\nostype: \
    win11\nscsi0: local:vm-100-disk-1,iothread=1\nscsihw: virtio-scsi-single\nsmbios1: \
    uuid=8280445B-28ae-48ff-8f1c-ceb79b3f8858\nsockets: 2\nwhat is this\n\n[before]\ncores: \
    16\nostype: l26\n";

#[test]
fn a_proxmox_configuration_becomes_what_it_starts_qemu_with() {
    let c = only(PROXMOX);
    let command = &c.command;
    assert_eq!(
        (command.name.as_deref(), command.vcpus()),
        (Some("desk,top"), Some(4))
    );
    assert_eq!(
        command.uuid.as_deref(),
        Some("8280445b-28ae-48ff-8f1c-ceb79b3f8858")
    );
    assert_eq!(
        (command.machine.as_deref(), command.memory),
        (Some("pc-q35-8.1"), Some(8192 * MIB))
    );
    assert_eq!(
        (command.hpet, command.rtc_base.as_deref()),
        (Some(false), Some("localtime"))
    );
    assert_eq!(
        (c.guest_os.as_deref(), command.iothreads.len()),
        (Some("win11"), 1)
    );
}

#[test]
fn proxmox_adds_enlightenments_for_windows_and_none_for_others() {
    let windows = only(&PROXMOX.replace("args: -cpu host,hv_time=off\n", ""));
    assert!(windows.command.hyperv_on("stimer") && windows.command.hv_time == Some(true));
    assert!(!windows.command.hyperv_on("evmcs"));
    let linux = only("cores: 2\nostype: l26\nmemory: 512\nscsihw: virtio-scsi-pci\nname: x\n");
    assert!(linux.command.hyperv.is_empty() && linux.command.hpet.is_none());
}

const IDE: &str = "boot: order=ide0\ncores: 2\nide0: \
    tank:vm-105-disk-1,cache=unsafe,size=32G\nide2: none,media=cdrom\nmemory: 4096\nname: \
    old\nnet0: e1000=D6:46:16:2C:CD:8C,bridge=vmbr0\nnet1: \
    virtio=D6:46:16:2C:CD:8D,bridge=vmbr0\nonboot: 1\nostype: l26\nscsi1: \
    tank:vm-105-disk-2,aio=threads,iothread=1,mbps_wr=1.5,iops=200\nscsihw: lsi\nsockets: 1\n";

#[test]
fn disks_and_network_cards_become_devices() {
    let command = only(IDE).command;
    let disks: Vec<_> = command
        .disks
        .iter()
        .map(|d| (d.device.as_str(), d.driver.as_deref().unwrap_or_default()))
        .collect();
    assert_eq!(disks, [("ide0", "ide-hd"), ("scsi1", "scsi-hd")]);
    assert_eq!(
        (
            command.disks[0].cache.as_deref(),
            command.disks[0].file.as_str()
        ),
        (Some("unsafe"), "tank:vm-105-disk-1")
    );
    assert_eq!(command.disks[1].cache.as_deref(), Some("none"));
    // Proxmox gives an IOThread to a disk on virtio-scsi-single alone.
    assert_eq!(
        (command.disks[1].iothread.is_some(), command.iothreads.len()),
        (true, 0)
    );
    let single = only(&IDE.replace("scsihw: lsi", "scsihw: virtio-scsi-single")).command;
    assert_eq!(
        (single.disks[1].iothread.as_deref(), single.iothreads.len()),
        (Some("iothread-scsi1"), 1)
    );
    let devices: Vec<_> = command
        .device_properties
        .iter()
        .map(|p| (p.device.as_str(), p.value.as_str()))
        .collect();
    assert_eq!(
        devices,
        [
            ("net0", "e1000"),
            ("net1", "virtio-net-pci"),
            ("scsihw", "lsi53c895a")
        ]
    );
    assert_eq!(command.cpu_options, ["kvm64"], "Proxmox's default");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn damaged_configurations_are_survived(cut in any::<proptest::sample::Index>(),
        at in any::<proptest::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = PROXMOX.as_bytes().to_vec();
        let place = at.index(bytes.len());
        bytes[place] = byte;
        let _ = parse(&String::from_utf8_lossy(&bytes), None);
        bytes.truncate(cut.index(bytes.len()) + 1);
        let _ = parse(&String::from_utf8_lossy(&bytes), None);
    }
}

#[test]
fn a_containers_configuration_is_refused() {
    let container = "arch: amd64\ncores: 4\nhostname: c\nmemory: 4096\nrootfs: \
        tank:subvol-1,size=8G\nswap: 0\n";
    assert!(begins(container) && parse(container, None).unwrap_err().contains("container"));
}

#[test]
fn counts_beyond_kvms_are_left_out() {
    let config = only("cores: 4294967295\nostype: l26\nmemory: 512\nscsihw: virtio-scsi-pci\n");
    assert_eq!(config.command.vcpus(), Some(1));
}

#[test]
fn other_text_is_no_configuration() {
    for text in [
        "",
        "Model name: x\nCPU(s): 4\n",
        "qemu-system-x86_64 -name x -smp 2\n",
        "name: web\nversion: 3\n",
    ] {
        assert!(!begins(text), "{text}");
    }
}

#[test]
fn what_nobody_wrote_down_is_a_default_and_the_files_name_is_the_number() {
    let text = "boot: order=ide0\ncores: 4\nide0: local:vm-100-disk-0,size=9G\nmemory: 512\nname: \
        a\nsmbios1: uuid=1\n";
    let config = only(text);
    assert_eq!(config.command.defaults, ["cpu", "scsihw"]);
    assert_eq!(
        config.command.qmp_sockets,
        ["/var/run/qemu-server/VMID.qmp"]
    );
    let numbered = parse(text, Some("101")).unwrap();
    assert_eq!(
        numbered.command.qmp_sockets,
        ["/var/run/qemu-server/101.qmp"]
    );
    let own = text
        .replace("cores", "cpu: qemu64\ncores")
        .replace("smbios1", "scsihw: lsi\nsmbios1");
    assert!(only(&own).command.defaults.is_empty());
    assert_eq!(
        only(&format!("args: -cpu host\n{text}")).command.defaults,
        ["scsihw"]
    );
}
