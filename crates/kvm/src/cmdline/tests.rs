use super::*;
use proptest::prelude::*;

/// As libvirt logs it; own example.
const LOG: &str = concat!(
    "2026-11-20 10:00:00.000+0000: starting up libvirt version: 9.0.0, qemu version: 7.2.22, \
        kernel: 6.1.0, ",
    r#"hostname: h1
LC_ALL=C \
PATH=/usr/sbin:/usr/bin \
HOME=/var/lib/libvirt/qemu/domain-3-win10 \
/usr/bin/qemu-system-x86_64 \
-name guest=win10,debug-threads=on \
-S \
-object '{"qom-type":"secret","id":"masterKey0","format":"raw","file":"/var/lib/x"}' \
-blockdev '{"driver":"file","filename":"/usr/share/OVMF/OVMF_CODE_4M.ms.fd","node-name":"libvirt-pflash0-storage"}' \
-machine pc-q35-7.2,usb=off,vmport=off,hpet=off,dump-guest-core=off,pflash0=libvirt-pflash0-format,"#,
    r#"memory-backend=pc.ram \
-accel kvm \
-cpu host,migratable=on,invtsc=on,hv-time=on,hv-relaxed=on,hv-vapic=on,hv-spinlocks=0x1fff,hv-vpindex=on,"#,
    r#"hv-synic=on,hv-stimer=on,hv-stimer-direct=on,hv-tlbflush=on,hv-ipi=off \
-m 8192 \
-overcommit mem-lock=off,cpu-pm=on \
-smp 8,sockets=1,dies=1,cores=4,threads=2 \
-object '{"qom-type":"iothread","id":"iothread1"}' \
-uuid A5884A23-73F0-44D2-8CA9-45872223F844 \
-display none \
-no-user-config \
-chardev socket,id=charmonitor,path=/var/lib/libvirt/qemu/domain-3-win10/monitor.sock,server=on,wait=off \
-mon chardev=charmonitor,id=monitor,mode=control \
-rtc base=localtime,driftfix=slew \
-global kvm-pit.lost_tick_policy=delay \
-netdev '{"type":"tap","fd":"33","vhost":true,"vhostfd":"35","id":"hostnet0"}' \
-device '{"driver":"virtio-net-pci","netdev":"hostnet0","id":"net0","bus":"pci.1"}' \
-chardev pty,id=charserial0 \
-device '{"driver":"isa-serial","chardev":"charserial0","id":"serial0","index":0}' \
-msg timestamp=on
char device redirected to /dev/pts/0 (label charserial0)
"#
);

#[test]
fn a_libvirt_log_is_read_whole() {
    let command = parse_text(LOG).unwrap();
    assert_eq!(command.program, "/usr/bin/qemu-system-x86_64");
    assert_eq!(command.name.as_deref(), Some("win10"));
    assert_eq!(
        command.uuid.as_deref(),
        Some("a5884a23-73f0-44d2-8ca9-45872223f844")
    );
    assert_eq!(command.machine.as_deref(), Some("pc-q35-7.2"));
    assert_eq!(command.accel.as_deref(), Some("kvm"));
    assert_eq!(command.hpet, Some(false));
    assert_eq!(
        command.smp,
        Smp {
            cpus: Some(8),
            maxcpus: None,
            sockets: Some(1),
            dies: Some(1),
            cores: Some(4),
            threads: Some(2)
        }
    );
    assert_eq!(command.memory, Some(8 << 30));
    assert_eq!(command.hv_time, Some(true));
    assert_eq!(
        command.cpu_features.get("invtsc").map(String::as_str),
        Some("on")
    );
    assert!(
        command.hyperv_on("stimer_direct")
            && command.hyperv_on("spinlocks")
            && !command.hyperv_on("ipi")
            && !command.hyperv_on("avic")
    );
    assert_eq!(
        command.hyperv.get("spinlocks").map(String::as_str),
        Some("0x1fff")
    );
    assert_eq!(command.rtc_base.as_deref(), Some("localtime"));
    assert_eq!(command.pit_policy.as_deref(), Some("delay"));
    assert_eq!(
        command.qmp_sockets,
        ["/var/lib/libvirt/qemu/domain-3-win10/monitor.sock"]
    );
    assert!(command.debug_threads);
    assert_eq!(command.iothreads, ["iothread1"]);
}

#[test]
fn the_form_of_a_name_alone_does_not_show_libvirt() {
    let by_libvirt = |text: &str| parse_text(text).unwrap().by_libvirt;
    let mail = "/usr/bin/qemu-system-x86_64 -name guest=mail,debug-threads=on -m 512";
    assert!(!by_libvirt(mail) && by_libvirt(LOG));
    for sign in [
        " -object {\"qom-type\":\"secret\",\"id\":\"masterKey0\"}",
        " -mon chardev=charmonitor,id=monitor,mode=control",
        " -qmp unix:/var/lib/libvirt/qemu/domain-3-mail/monitor.sock,server=on",
    ] {
        assert!(by_libvirt(&format!("{mail}{sign}")), "{sign}");
    }
    assert!(
        by_libvirt(&format!("libvirt+ 6455 99.0 {mail}")),
        "a line of ps, cut"
    );
}

#[test]
fn the_last_start_in_a_log_counts() {
    let text = format!("{LOG}{}", LOG.replace("guest=win10", "guest=win11"));
    assert_eq!(parse_text(&text).unwrap().name.as_deref(), Some("win11"));
}

#[test]
fn old_and_short_spellings_are_understood() {
    let text = "qemu-kvm -enable-kvm -M pc -name 'my guest' -cpu \
    qemu64,+hv_relaxed,hv_time,hv-vendor-id=\"some one\",-kvmclock,hv-apicv -smp 4 -no-hpet \
    -rtc-td-hack -no-kvm-pit-reinjection -qmp unix:/tmp/q.sock,server,nowait -m 2G -nographic \
    -object iothread,id=io1 -device virtio-blk-pci,drive=d0,id=disk0 -device VGA -global \
    kvm-pit.lost_tick_policy=discard";
    let command = parse_text(text).unwrap();
    assert_eq!(command.name.as_deref(), Some("my guest"));
    assert_eq!(
        (command.machine.as_deref(), command.accel.as_deref()),
        (Some("pc"), Some("kvm"))
    );
    assert_eq!((command.hv_time, command.hpet), (Some(true), Some(false)));
    assert!(command.hyperv_on("relaxed") && command.hyperv_on("avic"));
    assert_eq!(
        command.hyperv.get("vendor_id").map(String::as_str),
        Some("some one")
    );
    assert_eq!(command.vcpus(), Some(4));
    assert_eq!(command.memory, Some(2 << 30));
    assert_eq!(command.qmp_sockets, ["/tmp/q.sock"]);
    assert_eq!(command.pit_policy.as_deref(), Some("discard"));
    assert_eq!(command.iothreads, ["io1"]);
}

#[test]
fn commas_in_names_are_doubled() {
    let argv: Vec<String> = [
        "/usr/bin/kvm",
        "-name",
        "guest=a,,b,debug-threads=on",
        "-machine",
        "type=q35,accel=kvm:tcg",
        "-smp",
        "sockets=2,cores=3",
    ]
    .map(str::to_owned)
    .to_vec();
    let command = parse_argv(&argv);
    assert_eq!(command.name.as_deref(), Some("a,b"));
    assert_eq!(
        (command.machine.as_deref(), command.accel.as_deref()),
        (Some("q35"), Some("kvm"))
    );
    assert_eq!(command.vcpus(), Some(6));
}

#[test]
fn a_command_begins_its_text() {
    let command = "/usr/bin/qemu-system-x86_64 -name guest=vm1 -smp 2";
    for before in [
        "",
        "LC_ALL=C PATH=/bin ",
        "sudo taskset -c 4-7 ",
        "libvirt+  6455 99.0 25.8 2993332 2115848 ?  Sl   22:46   2:44 ",
        "USER PID %CPU COMMAND\nroot 1 0.0 ",
        "2026-11-20 10:00:00.000+0000: starting up libvirt version: 9.0.0\nLC_ALL=C \\\n",
    ] {
        let text = format!("\n{before}{command}\n");
        assert!(looks_like(&text), "{text}");
        assert_eq!(parse_text(&text).unwrap().name.as_deref(), Some("vm1"));
    }
    for prose in [
        "#!/bin/sh\n",
        "I start it so: ",
        "Hello,\n\nthis is slow:\n",
        "> ",
    ] {
        assert!(!looks_like(&format!("{prose}{command}\n")), "{prose}");
    }
}

#[test]
fn other_text_is_none() {
    for text in [
        "",
        "hello",
        "<domain><emulator>/usr/bin/qemu-system-x86_64 -x</emulator></domain>",
        "kvm [21715]: vcpu1 unhandled rdmsr: 0x611",
        "kvm 1311 [001] 2254.5: kvm:kvm_eoi: apicid 0 vector -1",
    ] {
        assert!(!looks_like(text), "{text}");
    }
    assert!(
        parse_text("nothing")
            .unwrap_err()
            .to_string()
            .contains("no QEMU program")
    );
}

proptest! {
    #[test]
    fn any_text_is_survived(text in any::<String>()) {
        let _ = looks_like(&text);
        let _ = parse_text(&format!("qemu-system-x86_64 -cpu {text}"));
        let _ = parse_text(&format!("qemu-system-x86_64 -device '{{{text}' -smp {text} -m {text}"));
    }

    #[test]
    fn any_arguments_are_survived(argv in prop::collection::vec("-?[a-z,=:{}\"']{0,12}", 0..20)) {
        let _ = parse_argv(&argv);
    }
}

#[test]
fn only_a_monitor_on_which_qemu_listens_can_be_asked() {
    let sockets = |options: &str| {
        parse_text(&format!("qemu-kvm -name a {options}"))
            .unwrap()
            .qmp_sockets
    };
    assert_eq!(sockets("-qmp unix:/a,server=on,wait=off"), ["/a"]);
    assert_eq!(sockets("-qmp unix:/a"), [""; 0]);
    assert_eq!(sockets("-qmp unix:/a,server=off"), [""; 0]);
    assert_eq!(sockets("-qmp tcp:localhost:4444,server"), [""; 0]);
    // As Proxmox starts it: the second monitor is a client of the host's event daemon.
    let proxmox = "-chardev socket,id=qmp,path=/var/run/qemu-server/100.qmp,server=on,wait=off \
                   -mon chardev=qmp,mode=control -chardev \
                   socket,id=qmp-event,path=/var/run/qmeventd.sock,reconnect=5 -mon \
                   chardev=qmp-event,mode=control";
    assert_eq!(sockets(proxmox), ["/var/run/qemu-server/100.qmp"]);
    assert_eq!(
        sockets("-chardev socket,id=q,path=a,server=on,abstract=on -mon q,mode=control"),
        [""; 0]
    );
}

#[test]
fn numbers_that_no_guest_has_are_refused_in_a_file_and_unknown_live() {
    for (option, value) in [
        ("-smp", "4294967295"),
        ("-smp", "2,maxcpus=99999999999999999999"),
        ("-smp", "sockets=4097"),
        ("-m", "18446744073709551615"),
        ("-m", "size=99999999T"),
    ] {
        let text = format!("qemu-system-x86_64 -name a {option} {value} -nodefaults");
        assert!(looks_like(&text));
        let error = parse_text(&text).unwrap_err().to_string();
        assert!(
            error.contains(option) && error.contains("largest possible"),
            "{error}"
        );
        let command = parse_argv(&["qemu-system-x86_64".into(), option.into(), value.into()]);
        assert!(command.vcpus().is_none_or(|n| n <= 4096) && command.memory.is_none());
    }
    let product = parse_argv(&[
        "qemu-system-x86_64".into(),
        "-smp".into(),
        "sockets=4096,cores=4096".into(),
    ]);
    assert_eq!(product.vcpus(), None);
    assert_eq!(
        parse_text("qemu-kvm -smp 4096 -m 4096G").unwrap().vcpus(),
        Some(4096)
    );
}

#[test]
fn the_last_cpu_counts_alone_and_other_options_are_merged() {
    let command = parse_text(
        "qemu-system-x86_64 -cpu host,hv-time,hv-synic,+topoext,invtsc -smp 4,maxcpus=8 -cpu \
         EPYC,hv_vpindex,kvm=off -smp cores=2,threads=2 -machine q35,hpet=on -M pc,hpet=off \
         -append 'root=/dev/vda1 ro'",
    )
    .unwrap();
    assert_eq!(command.hv_time, None);
    assert!(command.hyperv_on("vpindex") && !command.hyperv_on("synic"));
    assert_eq!(command.cpu_features.keys().collect::<Vec<_>>(), ["kvm"]);
    assert_eq!(
        command.cpu_options,
        [
            "host,hv-time,hv-synic,+topoext,invtsc",
            "EPYC,hv_vpindex,kvm=off"
        ]
    );
    let smp = command.smp;
    assert_eq!(
        (smp.cpus, smp.maxcpus, smp.cores, smp.threads),
        (Some(4), Some(8), Some(2), Some(2))
    );
    assert_eq!(
        (command.machine.as_deref(), command.hpet),
        (Some("pc"), Some(false))
    );
    assert_eq!(command.append.as_deref(), Some("root=/dev/vda1 ro"));
}

#[test]
fn a_minus_wins_over_a_plus_and_a_plus_over_a_value() {
    let on = |cpu: &str| parse_text(&format!("qemu-system-x86_64 -name a -cpu {cpu}")).unwrap();
    assert!(!on("host,-hv-stimer,hv-stimer=on,+hv-stimer").hyperv_on("stimer"));
    assert!(on("host,+hv-stimer,hv-stimer=off").hyperv_on("stimer"));
    let global = parse_text(
        "qemu-system-x86_64 -name a -global host-x86_64-cpu.hv-synic=on -cpu host,hv-time -global \
         kvm-pit.lost_tick_policy=discard",
    );
    assert_eq!(global.unwrap().pit_policy.as_deref(), Some("discard"));
}

#[test]
fn drives_are_kept_by_the_names_of_their_files() {
    let command = parse_text(
        "kvm -name a -drive file=/isos/virtio-win-0.1-81.iso,if=none -cdrom '/isos/Windows 7.iso' \
         -blockdev '{\"driver\":\"file\",\"filename\":\"/d/win7.img\",\"node-name\":\"n\"}'",
    )
    .unwrap();
    assert_eq!(
        command.drive_files,
        ["virtio-win-0.1-81.iso", "win7.img", "Windows 7.iso"]
    );
}

#[test]
fn properties_of_devices_are_read_from_every_option() {
    let text = "qemu-system-x86_64 -device virtio-net-pci,id=net0,ioeventfd=off,vectors=4 -device \
        '{\"driver\":\"virtio-blk-pci\",\"id\":\"ua-d\",\"event_idx\":false,\"num-queues\":4}' \
        -device vfio-pci,x-no-mmap=on -set device.net0.ioeventfd=on -global \
        virtio-scsi-pci.vectors=0";
    let command = parse_text(text).unwrap();
    let all: Vec<_> = command
        .device_properties
        .iter()
        .map(|p| format!("{}.{}={}", p.device, p.name, p.value))
        .collect();
    assert_eq!(
        all,
        [
            "net0.driver=virtio-net-pci",
            "net0.vectors=4",
            "d.event-idx=off",
            "vfio-pci.x-no-mmap=on",
            "net0.ioeventfd=on",
            "virtio-scsi-pci.vectors=0"
        ]
    );
}

#[test]
fn json_without_quotes_is_read_as_ps_prints_it() {
    let command = parse_text(concat!(
        r#"qemu 7 1 /usr/bin/qemu-system-x86_64 -name guest=a -blockdev {"driver":"host_device","filename":"/dev/x","#,
        r#""node-name":"s","cache":{"direct":true,"no-flush":false}} -device {"driver":"virtio-blk-pci","drive":"s","#,
        r#""id":"virtio-disk0","iothread":"io1"} -net nic,model=rtl8139"#
    ))
    .unwrap();
    let disk = &command.disks[0];
    assert_eq!(
        (disk.device.as_str(), disk.iothread.as_deref()),
        ("virtio-disk0", Some("io1"))
    );
    assert_eq!(
        (disk.cache.as_deref(), disk.file.as_str()),
        (Some("none"), "/dev/x")
    );
    assert_eq!(command.device_properties[0].value, "rtl8139");
}

#[test]
fn qemu_emulates_where_a_whole_command_line_names_no_kvm() {
    let accel = |text: &str| parse_text(text).unwrap().accel;
    for text in [
        "qemu-system-x86_64 -m 2G -hda disk.img",
        "qemu-system-i386 -m 512 -kernel bzImage -nographic",
        "qemu-system-x86_64 -m 2G -machine q35,accel=tcg",
        "qemu-system-x86_64 -m 2G -accel tcg,thread=multi -cpu max",
        "qemu-system-x86_64 -m 2G -no-kvm",
        "qemu-system-aarch64 -m 2G -machine virt -cpu cortex-a72",
        "qemu-system-ppc64 -m 4G -netdev user,id=net0,$ports -device rtl8139,netdev=net0",
    ] {
        assert_eq!(accel(text).as_deref(), Some(TCG), "{text}");
    }
    for text in [
        "qemu-system-x86_64 -m 2G -accel kvm -accel tcg",
        "qemu-system-x86_64 -m 2G -machine accel=kvm:tcg",
        "qemu-kvm -m 2G -hda disk.img",
        "/usr/bin/kvm -m 2G -hda disk.img",
        "qemu-system-x86_64 -m 2G -cpu host",
        "qemu-system-m68k -m 64",
        "qemu-system-x86_64 -m 2G -readconfig vm.cfg",
        "qemu-system-x86_64 -name web -S",
        "qemu-system-x86_64 -m 2G -M xenfv-4.2",
        "qemu-system-x86_64 -m 2G -machine none",
    ] {
        assert_ne!(accel(text).as_deref(), Some(TCG), "{text}");
    }
}

#[test]
fn a_build_with_a_suffix_is_qemu() {
    assert!(
        is_program("/opt/bin/qemu-kvm.patched")
            && !is_program("/tmp/qemu-kvm.log")
            && !is_program("qemu-kvm.x")
    );
    assert_eq!(
        parse_text("/opt/bin/qemu-kvm.patched -name web -smp 3")
            .unwrap()
            .vcpus(),
        Some(3)
    );
}

/// The cards of a command line, as `device: model`.
fn cards(text: &str) -> Vec<String> {
    let command = parse_text(text).unwrap();
    command
        .device_properties
        .iter()
        .map(|card| format!("{}: {}", card.device, card.value))
        .collect()
}

#[test]
fn qemus_default_models_of_cards_are_facts() {
    for (text, expected) in [
        (
            "qemu-system-x86_64 -m 2G -enable-kvm -net nic -net user",
            &["-net nic: e1000"][..],
        ),
        (
            "qemu-system-x86_64 -m 2G -M q35 -nic user,hostfwd=tcp::2222-:22",
            &["-nic: e1000e"],
        ),
        (
            "kvm -m 2G -net nic,model=virtio -net nic -net user",
            &["-net nic: virtio", "-net nic 2: e1000"],
        ),
        ("qemu-system-x86_64 -m 2G -M pc-q35-8.1 -cpu host", &[]),
        (
            "kvm -m 2G -device e1000,netdev=a -device e1000,netdev=b -netdev user,id=a",
            &["a: e1000", "b: e1000"],
        ),
        ("qemu-system-x86_64 -m 2G -nic none", &[]),
        ("qemu-system-aarch64 -M virt -m 2G -net nic -net user", &[]),
    ] {
        assert_eq!(cards(text), expected, "{text}");
    }
}

#[test]
fn a_bare_image_is_the_first_disk() {
    for text in [
        "kvm -m 2G debian.qcow2",
        "kvm -m 2G -enable-kvm /vm/a.img -snapshot",
        "kvm -m 2G -hda a.raw",
    ] {
        let command = parse_text(text).unwrap();
        let drivers: Vec<_> = command
            .disks
            .iter()
            .map(|disk| disk.driver.as_deref())
            .collect();
        assert_eq!(drivers, [Some("ide")], "{text}");
    }
    // The device may come before its drive.
    let command = parse_text(
        "kvm -device virtio-blk-pci,drive=d -drive if=none,id=d,file=a -drive id=e,file=b",
    )
    .unwrap();
    let drivers: Vec<_> = command
        .disks
        .iter()
        .map(|disk| disk.driver.as_deref())
        .collect();
    assert_eq!(drivers, [Some("virtio-blk-pci"), Some("ide")]);
    assert!(
        parse_text("kvm -m 2G -enable-kvm, and the rest is.img")
            .unwrap()
            .memory
            .is_some()
    );
    for end in [
        "> /dev/null",
        "2>/tmp/a.raw a.raw",
        "&> a.raw",
        "< a.raw",
        "| a.raw",
        "& a.raw",
        "&& cp a.raw b.raw",
    ] {
        for end in [end, "; cp a.raw b.raw"] {
            assert_eq!(
                parse_text(&format!("kvm -m 2G -name <vm> -S {end}"))
                    .unwrap()
                    .disks,
                [],
                "{end}"
            );
        }
    }
}
