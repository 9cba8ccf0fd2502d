use super::*;
use proptest::prelude::*;

fn one(text: &str) -> LogLine {
    let lines = parse(text);
    assert_eq!(lines.len(), 1, "{text}");
    lines.into_iter().next().unwrap()
}

#[test]
fn registers_are_read_in_the_spelling_of_every_age() {
    for (text, pid, vcpu, msr, write, data, kind) in [
        ("kvm: 1234: cpu0 unhandled rdmsr: 0x1a0", 1234, 0, 0x1a0, false, None, LogKind::UnhandledMsr),
        (
            "[592420.654337] kvm [21715]: vcpu1 unhandled rdmsr: 0x611",
            21715,
            1,
            0x611,
            false,
            None,
            LogKind::UnhandledMsr,
        ),
        ("kvm [77]: vcpu2 unhandled wrmsr: 0x1d9 data 0x1", 77, 2, 0x1d9, true, Some(1), LogKind::UnhandledMsr),
        ("kvm [77]: vcpu2 ignored rdmsr: 0x606", 77, 2, 0x606, false, None, LogKind::IgnoredMsr),
        (
            "kvm [77]: vcpu0, guest rIP: 0xfffff8016a5c1234 ignored rdmsr: 0x122 data 0x0",
            77,
            0,
            0x122,
            false,
            Some(0),
            LogKind::IgnoredMsr,
        ),
        (
            "kvm [77]: vcpu12, guest rIP: 0xffff8 Hyper-V unhandled wrmsr: 0x40000118 data 0x1",
            77,
            12,
            0x4000_0118,
            true,
            Some(1),
            LogKind::HypervMsr,
        ),
        (
            "kvm: kvm [77]: vcpu0, guest rIP: 0x1 Unhandled WRMSR(0x1a4) = 0xf",
            77,
            0,
            0x1a4,
            true,
            Some(15),
            LogKind::UnhandledMsr,
        ),
        (
            "Nov 20 10:00:00 h1 kernel: kvm_intel: kvm [77]: vcpu0, guest rIP: 0x1 Unhandled RDMSR(0x64d)",
            77,
            0,
            0x64d,
            false,
            None,
            LogKind::UnhandledMsr,
        ),
        (
            "6,1,2,-;kvm [77]: vcpu3 disabled perfctr wrmsr: 0xc2 data 0xffff",
            77,
            3,
            0xc2,
            true,
            Some(0xffff),
            LogKind::PerfCounter,
        ),
    ] {
        let line = one(text);
        assert_eq!((line.pid, line.vcpu, line.msr), (Some(pid), Some(vcpu), Some(msr)), "{text}");
        assert_eq!((line.write, line.data, line.kind), (write, data, kind), "{text}");
    }
    assert_eq!(one("[592420.654337] kvm [21715]: vcpu1 unhandled rdmsr: 0x611").time_s, Some(592_420.654_337));
}

#[test]
fn locks_and_emulation_failures_are_recognised() {
    let line = one("[1.5] x86/split lock detection: #AC: CPU 3/KVM/4711 took a split_lock trap at address: 0x7ff6");
    assert_eq!((line.kind, line.pid, line.vcpu), (LogKind::SplitLock, Some(4711), Some(3)));
    let line = one("x86/split lock detection: #DB: game.exe/99 took a bus_lock trap at address: 0x1");
    assert_eq!((line.kind, line.pid, line.vcpu), (LogKind::BusLock, Some(99), None));
    assert_eq!(one("kvm: emulation failed (unhandled) rip 7c90").kind, LogKind::EmulationFailure);
    assert_eq!(one("kvm [5]: vcpu0 something new").kind, LogKind::Other);
}

#[test]
fn a_log_is_known_by_its_stamps_too() {
    assert!(looks_like("[    0.000000] Linux version 6.1\n[    0.000001] Command line: x\n"));
    assert!(looks_like("Nov 20 10:00:00 h1 kernel: hello\n"));
    assert!(!looks_like(&"[12:00:01] <anna> my kvm guest is slow\n".repeat(3)));
    let post = format!("{}[Sun Oct  6 16:59:21 2019] tsc: refined\n", "a bug\n".repeat(9));
    assert!(!looks_like(&post) && looks_like(&format!("{post}[ 1.0] a\n[ 1.1] user requested TSC rate\n")));
    assert!(looks_like("kvm [21715]: vcpu1 unhandled rdmsr: 0x611"));
    assert!(!looks_like("CPU 0/KVM-99 [000] d..1. 55.901799: kvm_exit: vcpu 0 reason HLT rip 0x1\n"));
    assert!(!looks_like("qemu-system-x86_64 -enable-kvm -name x"));
    assert!(!looks_like(""));
    assert!(parse("[ 1.0] usb 1-1: new device\nkvm: Nested Virtualization enabled").is_empty());
}

/// Kind, process, vCPU and figure of a line.
type Essence = (LogKind, Option<i32>, Option<u32>, Option<u64>);

fn kinds(text: &str) -> Vec<Essence> {
    parse(text).iter().map(|l| (l.kind, l.pid, l.vcpu, l.data)).collect()
}

#[test]
fn a_value_is_not_taken_for_a_register() {
    for (text, msr, write, data, kind) in [
        (
            "[ 9.1] kvm [24105]: vcpu0 unimplemented HWCR wrmsr: 0x40000",
            0xc001_0015,
            true,
            Some(0x4_0000),
            LogKind::UnhandledMsr,
        ),
        (
            "kvm: 812: cpu1 unimplemented MMIO_CONF_BASE wrmsr: 0xfe0000000020",
            0xc001_0058,
            true,
            Some(0xfe00_0000_0020),
            LogKind::UnhandledMsr,
        ),
        (
            "kvm: 8: cpu0 unimplemented perfctr wrmsr: 0xc1 data 0x130076",
            0xc1,
            true,
            Some(0x13_0076),
            LogKind::PerfCounter,
        ),
        ("kvm: 23090: cpu0 unhandled wrmsr 0x391 data 2000000f", 0x391, true, Some(0x2000_000f), LogKind::UnhandledMsr),
        ("kvm [8]: vcpu0 ignored wrmsr: 0x11e data 0xbe702111", 0x11e, true, Some(0xbe70_2111), LogKind::IgnoredMsr),
        ("kvm [8]: vcpu0 unimplemented wrmsr: 0xc0010115 data 0x1", 0xc001_0115, true, Some(1), LogKind::IgnoredMsr),
        (
            "kvm [8]: vcpu0, guest rIP: 0xf8 kvm_set_msr_common: MSR_IA32_DEBUGCTLMSR 0x1, nop",
            0x1d9,
            true,
            Some(1),
            LogKind::IgnoredMsr,
        ),
        (
            "SVM: kvm [8]: vcpu2, guest rIP: 0xf8 svm_set_msr: MSR_IA32_DEBUGCTL 0x3, nop",
            0x1d9,
            true,
            Some(3),
            LogKind::IgnoredMsr,
        ),
        (
            "kvm_intel: kvm [8]: vcpu0, guest rIP: 0xf vmx_set_msr: BTF|LBR in IA32_DEBUGCTLMSR 0x1, nop",
            0x1d9,
            true,
            Some(1),
            LogKind::IgnoredMsr,
        ),
        (
            "kvm: 9: cpu0 HYPER-V unimplemented wrmsr: 0x40000070 data 0x0",
            0x4000_0070,
            true,
            Some(0),
            LogKind::HypervMsr,
        ),
        ("kvm: kvm [8]: ignored rdmsr: 0xc001029b data 0x0", 0xc001_029b, false, Some(0), LogKind::IgnoredMsr),
    ] {
        let line = one(text);
        assert_eq!((line.msr, line.write, line.data, line.kind), (Some(msr), write, data, kind), "{text}");
    }
    assert_eq!(one("kvm [8]: vcpu0 unhandled something rdmsr:").kind, LogKind::Other, "no register");
}

#[test]
fn what_tools_put_in_front_is_taken_away() {
    for prefix in [
        "",
        "[592420.654337] ",
        "[Mon Nov 20 10:00:00 2023] ",
        "[  +0.000012] ",
        "[   12.345678][ T4711] ",
        "<3>[   12.345678] ",
        "kern  :err   : [   12.345678] ",
        "Nov 20 10:00:00 kvm1 kernel: ",
        "Nov 20 10:00:00 kvm1.example.org kernel: [12.345678] ",
        "Nov 20 10:00:00.123456 h kernel: ",
        "2023-11-20T10:00:00+0100 h kernel: ",
        "2023-11-20T10:00:00.123456+01:00 h kernel: [12.345678] ",
        "2023-11-20T10:00:00,123456+01:00 ",
        "Mon 2023-11-20 10:00:00 CET h kernel: ",
        "[   12.345678] h kernel: ",
        "6,1234,12345678,-;",
        "<3>1 2023-11-20T10:00:00.123Z h kernel: ",
        "> > [592420.654337] ",
        "\u{1b}[31m[592420.654337]\u{1b}[0m ",
        "MESSAGE=",
    ] {
        let text = format!("{prefix}kvm [21715]: vcpu1, guest rIP: 0xfff unhandled rdmsr: 0x611\r\n");
        let line = one(&text);
        assert_eq!((line.pid, line.vcpu, line.msr), (Some(21_715), Some(1), Some(0x611)), "{text}");
        let text = format!("{prefix}usb 1-1: new high-speed USB device number 2\r\n");
        assert_eq!(parse(&text), [], "a host's name says nothing: {text}");
        let text = format!("{prefix}watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [CPU 2/KVM:1234]\r\n");
        assert_eq!(kinds(&text), [(LogKind::Lockup, Some(1234), Some(2), Some(22))], "{text}");
    }
}

#[test]
fn wrapped_lines_are_joined() {
    let whole = "[592420.654337] kvm [21715]: vcpu1, guest rIP: 0xfffff8016a5c1234 ignored rdmsr: 0x122 data 0x0";
    for at in [" ignored", " rdmsr", " 0x122", " data", " 0x0"] {
        let cut = whole.replacen(at, &format!("\n{}", at.trim()), 1);
        let line = one(&format!("{cut}\n[592421.1] usb 1-1: gone\n"));
        assert_eq!((line.msr, line.data, line.kind), (Some(0x122), Some(0), LogKind::IgnoredMsr), "{cut}");
    }
    let lockup = "[30908.222926] watchdog: BUG: soft lockup - CPU#80 stuck for 22s! [CPU\n4/KVM:2698]\n[30909.1] x\n";
    assert_eq!(kinds(lockup), [(LogKind::Lockup, Some(2698), Some(4), Some(22))]);
    let register = one("kvm [8]: vcpu1, guest rIP: 0xfffff800 kvm_set_msr_common:\nMSR_IA32_DEBUGCTLMSR 0x1, nop\n");
    assert_eq!((register.msr, register.kind), (Some(0x1d9), LogKind::IgnoredMsr));
    // `dmesg -t`
    let two = "kvm [8]: vcpu0, guest rIP: 0xfffff800 unhandled rdmsr: 0x34\nwatchdog: BUG: soft lockup - CPU#3 \
        stuck for 22s! [CPU 0/KVM:8]\n";
    assert_eq!(kinds(two).iter().map(|kind| kind.0).collect::<Vec<_>>(), [LogKind::UnhandledMsr, LogKind::Lockup]);
    // A program's message without a stamp, indented or cut.
    for wrapped in [
        "kvm: ../target/i386/kvm/kvm.c:3888: kvm_buf_set_msrs:\n     Assertion `ret == cpu->nmsrs' failed.\n",
        "qemu-kvm: ../target/i386/kvm/kvm.c:3888: kvm_buf_set_msrs: Assertion\n`ret == cpu->nmsrs' failed.\n",
    ] {
        let line = one(wrapped);
        assert!(line.kind == LogKind::Killed && line.text.ends_with("nmsrs' failed."), "{line:?}");
    }
    let message = "qemu-system-x86_64: vhost_set_mem_table failed: Argument list too long (7)";
    for next in
        ["main_channel_link: add main channel client", "char device redirected to /dev/pts/1", "tpm_emulator: x"]
    {
        assert_eq!(one(&format!("{message}\n{next}\n")).text, message, "{next}");
    }
    let apart = "kvm: error: failed to set MSR 0x202 to 0xe000000000 here\nand then I saw it stop\nkvm: new message";
    assert_eq!(kinds(apart).iter().map(|kind| kind.0).collect::<Vec<_>>(), [LogKind::Other, LogKind::Killed]);
}

#[test]
fn each_part_of_a_post_has_its_own_speaker() {
    for pattern in [&IN_GUEST, &ON_HOST, &PARAGRAPHS, &FLAGS, &VFIO_DEVICE, &PCI_DEVICE] {
        assert!(pattern.regex().is_some(), "{}", pattern.source);
    }
    let host = "[ 9.0] kvm [77]: vcpu0, guest rIP: 0x1 unhandled rdmsr: 0x611\n";
    let hung = "[40.0] BUG: soft lockup - CPU#1 stuck for 23s! [nmbd:693]\n";
    let of = |text: &str| parse(text).iter().map(|line| line.kind).collect::<Vec<_>>();
    let guest = format!("[ 0.0] Hypervisor detected: KVM\n{hung}");
    assert_eq!(of(&format!("{host}\n{guest}")), [LogKind::UnhandledMsr, LogKind::GuestLockup]);
    // The guest's lockup is kept until the next report begins.
    assert_eq!(
        of(&format!("{guest} \r\n{host}{hung}")),
        [LogKind::UnhandledMsr, LogKind::GuestLockup, LogKind::OtherLockup]
    );
    assert_eq!(of(&format!("{host}\ndmesg of the guest:\n\n{hung}")), [LogKind::UnhandledMsr, LogKind::GuestLockup]);
    assert_eq!(of(&format!("{host}\nThe log of the host:\n{hung}")), [LogKind::UnhandledMsr, LogKind::OtherLockup]);
    let bochs = "[3.0] Pid: 693, comm: nmbd Tainted: G (2.6.32-24-generic #42) Bochs\n";
    assert_eq!(of(&format!("{hung}{bochs}")), [LogKind::GuestLockup]);
}

#[test]
fn lines_that_speak_plainly_of_errors_are_unexplained() {
    for line in [
        "[ 9.0] vfio-pci 0000:01:00.0: some request failed, error -22",
        "[ 9.0] kvm: a page could not be pinned",
        "[ 9.0] device-mapper: thin: metadata operation aborted",
        "Nov 20 10:00:00 h pvedaemon[7]: VM 100 qmp command failed - got timeout",
        "Nov 20 10:00:00 h libvirtd[7]: internal error: unable to execute QEMU command 'x'",
        "TASK ERROR: can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout",
        "error: internal error: client socket is closed",
        "[Tue Dec 24 10:44:38 2013] init: libvirt-bin main process (286) killed by ABRT signal",
        "Nov 20 10:00:00 h systemd[1]: libvirtd.service: Failed with result 'core-dump'.",
    ] {
        assert_eq!(one(line).kind, LogKind::Unexplained, "{line}");
    }
    let full = one("[ 9.0] device-mapper: thin: 252:4: switching pool to out-of-data-space (queue IO) mode");
    assert_eq!((full.kind, full.data), (LogKind::HostDisk, Some(28)));
    for line in [
        "[ 9.0] nvme nvme0: I/O 900 (I/O Cmd) QID 2 timeout, aborting",
        "[ 9.0] blk_update_request: critical medium error, dev sdb, sector 7",
        "[ 9.0] sd 0:0:0:0: [sda] tag#3 FAILED Result: hostbyte=DID_BAD_TARGET",
        "Mär 27 11:47:53 h kernel: nfs: server nas not responding, still trying",
    ] {
        assert_eq!(one(line).kind, LogKind::HostDisk, "{line}");
    }
    for line in [
        "dump_invalid_vmcs            N",
        "[ 9.0] ACPI Error: AE_NOT_FOUND, While resolving a named reference",
        "[ 9.0] EXT4-fs (sda1): mounted filesystem. Opts: errors=remount-ro",
        "[ 9.0] ata5: SATA link down (SStatus 0 SControl 300)",
        "[ 9.0] kvm: already loaded the other module",
        "[ 9.0] nvme nvme0: missing or invalid SUBNQN field.",
        "[ 9.0] nvme nvme0: Shutdown timeout set to 8 seconds",
        "[ 9.0] sd 6:0:0:0: [sdb] Asking for cache data failed",
        "[ 9.0] Buffer I/O error on dev sr0, logical block 0, async page read",
        "qemu-system-x86_64: Slirp: Failed to send packet, ret: -1",
        "[ 9.0] usb 1-1: device descriptor read/64, error -71",
        "error: linking with cc failed",
        "[ 9.0] md/raid1:md0: active with 2 out of 2 mirrors",
        "[ 9.0] megaraid_sas 0000:18:00.0: FW provided TM TaskAbort/Reset timeout : 6 secs",
        "[ 9.0] ahci 0000:00:1f.2: controller can't do SNTF, turning off CAP_SNTF",
        "[ 9.0] AMD-Vi: Unable to write to IOMMU perf counter.",
        "[ 9.0] ata2.00: exception Emask 0x0 SAct 0x0 SErr 0x0 action 0x0\n[ 9.1] ata2.00: cmd a0/00:00:00:00:00/a0",
        "Nov 20 10:00:00 h sshd[7]: Failed password for invalid user guest from 10.0.0.5 port 5 ssh2",
        "Nov 20 10:00:00 h smbd[8]: pam_unix(samba:auth): authentication failure; user=guest",
        "Nov 20 10:00:00 h pvedaemon[7]: authentication failure; rhost=10.0.0.5 user=root@pam",
        "Nov 20 10:00:00 h pveproxy[9]: problem with client 10.0.0.5; Connection timed out",
        "Nov 20 10:00:00 h kernel: audit: apparmor=\"DENIED\" profile=\"libvirt-6f3c\" comm=\"qemu-system-x86\"",
    ] {
        assert_eq!(parse(line), [], "{line}");
    }
    assert!(!looks_like("error: failed to compile"));
}

#[test]
fn what_stands_elsewhere_in_a_log_is_added_to_a_line() {
    let refused = "flags : fpu vmx est\n\nFATAL: Error inserting kvm_intel (kvm-intel.ko): Operation not supported\n";
    assert_eq!(one(refused).data, Some(no_kvm::OFF_IN_FIRMWARE));
    assert_eq!(one(&refused.replace("vmx", "svm")).data, Some(no_kvm::NO_EXTENSION));
    let iommu = "[1.0] iommu ivhd0: AMD-Vi: Event logged [IOTLB_INV_TIMEOUT device=06:00.0 address=0x1]\n\
        [1.1] ahci 0000:0c:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x17 address=0x2]\n\
        [1.2] vfio-pci 0000:06:00.0: enabling device (0000 -> 0003)\n";
    let texts: Vec<_> = parse(iommu).into_iter().map(|line| line.text).collect();
    assert!(texts[0].ends_with("vfio-pci has 06:00.0"), "{texts:?}");
    assert!(texts[1].ends_with("address=0x2]"), "no line of vfio-pci is no proof: {texts:?}");
}

#[test]
fn a_guest_that_stopped_by_itself_is_no_crash_of_qemu() {
    let log = "2025-06-09 10:00:00.000+0000: panic hyper-v: arg1='0x3e', arg2='0x0'\n\
        2025-06-09 10:00:00.100+0000: shutting down, reason=crashed\n";
    assert_eq!(one(log).kind, LogKind::GuestBug);
    let weeks_later = log.replace("06-09 10:00:00.1", "07-01 10:00:00.1");
    assert_eq!(
        parse(&weeks_later).iter().map(|line| line.kind).collect::<Vec<_>>(),
        [LogKind::GuestBug, LogKind::Killed]
    );
}

#[test]
fn a_failed_entry_is_one_event_on_every_kernel() {
    let intel = "\
[  673.850218] kvm_intel: VMCS 00000000f971be22, last attempted VM-entry on CPU 3
[  673.853454] kvm_intel: *** Guest State ***
[  673.855332] kvm_intel: CR0: actual=0x0000000080010033, shadow=0x0000000080010033, gh_mask=fffffffffffefff7
[  673.870921] kvm_intel: RFLAGS=0x00000002         DR7 = 0x0000000000000400
[  673.875876] kvm_intel: CS:   sel=0x0008, attr=0x0a09b, limit=0xffffffff, base=0x0000000000000000
[  673.880000] kvm_intel: *** Host State ***
[  673.880001] kvm_intel: *** Control State ***
[  673.880002] kvm_intel: VMExit: intr_info=00000000 errcode=00000000 ilen=00000000
[  673.880003] kvm_intel:         reason=80000021 qualification=0000000000000000
[  674.0] usb 1-1: new device
";
    assert_eq!(kinds(intel), [(LogKind::EntryFailed, None, None, Some(0x8000_0021))]);
    assert_eq!(kinds(&intel.replace("kvm_intel: ", "")), [(LogKind::EntryFailed, None, None, Some(0x8000_0021))]);
    let amd = "\
[47175.214140] SVM: VMCB 00000000a4006788, last attempted VMRUN on CPU 81
[47175.215862] SVM: VMCB Control Area:
[47175.216155] SVM: cr_read:            0010
[47175.216426] SVM: exit_code:          ffffffff
[47175.216699] SVM: VMCB State Save Area:
";
    assert_eq!(kinds(amd), [(LogKind::EntryFailed, None, None, None)]);
    for line in [
        "[1.0] set kvm_intel.dump_invalid_vmcs=1 to dump internal KVM state.",
        "[1.0] set kvm_amd.dump_invalid_vmcb=1 to dump internal KVM state.",
        "kvm: vcpu 0 FAILED VMRUN WITH VMCB:",
        "kvm_amd: SEV-SNP vCPU1 VMCB 00000000759a48a5, last attempted VMRUN on CPU 7",
    ] {
        assert_eq!(kinds(line).iter().map(|k| k.0).collect::<Vec<_>>(), [LogKind::EntryFailed], "{line}");
    }
    assert_eq!(kinds("(XEN) *** Guest State ***"), []);
    let unexpected = "[ 5.0] kvm [77]: vcpu0, guest rIP: 0xf vmx: unexpected exit reason 0x3\n\
        [ 5.1] *** Guest State ***\n[ 5.2] kvm_intel: *** Host State ***\n";
    assert_eq!(kinds(unexpected), [(LogKind::InternalError, Some(77), Some(0), None)]);
}

#[test]
fn the_log_of_a_qemu_tells_how_it_ended() {
    let log = |end: &str| {
        format!(
            "2024-01-05 10:11:12.123+0000: starting up libvirt version: 8.0.0, qemu version: 6.2.0, hostname: kvm7\n\
             LC_ALL=C \\\nQEMU_AUDIO_DRV=none \\\n/usr/bin/qemu-system-x86_64 \\\n-name guest=web1,debug-threads=on \
             \\\n-accel kvm \\\n-msg timestamp=on\nchar device redirected to /dev/pts/1 (label charserial0)\n{end}"
        )
    };
    let ended = |end: &str| -> Vec<_> {
        parse(&log(end)).into_iter().map(|l| (l.kind, l.data, l.guest.unwrap_or_default())).collect()
    };
    let web = |kind, data| vec![(kind, data, "web1".to_string())];
    assert_eq!(
        ended("KVM internal error. Suberror: 1\nextra data[0]: 0x2\nemulation failure\nEAX=00000000 EBX=00000000\n"),
        web(LogKind::InternalError, Some(1))
    );
    assert_eq!(
        ended("2024-01-05T10:12:00.1Z qemu-system-x86_64: warning: x\nKVM: entry failed, hardware error 0x80000021\n")
            [1],
        (LogKind::EntryFailed, Some(0x8000_0021), "web1".to_string())
    );
    assert_eq!(ended("error: kvm run failed Bad address\nRAX=0 RBX=0\n"), web(LogKind::RunFailed, None));
    assert_eq!(ended("2024-01-05 12:00:00.1+0000: shutting down, reason=crashed\n"), web(LogKind::Killed, None));
    assert_eq!(
        ended(
            "qemu-system-x86_64: ../x.c:27: f: Assertion `r == a' failed.\n2024-01-05 12:00:00.1+0000: shutting \
            down, reason=crashed\n"
        ),
        web(LogKind::Killed, None)
    );
    let signal = |who: &str, reason: &str| {
        ended(&format!(
            "2024-01-05T12:00:00.000Z qemu-system-x86_64: terminating on signal 15 from pid 1234 ({who})\n\
             2024-01-05 12:00:00.123+0000: shutting down, reason={reason}\n"
        ))
    };
    assert_eq!(signal("/usr/sbin/libvirtd", "shutdown"), [], "libvirt ends the QEMU of a guest that shut down");
    let by_init = "qemu-system-x86_64: terminating on signal 15 from pid 1 (/sbin/init)\n2024-01-05 12:00:00.123+0000: \
        shutting down, reason=shutdown\n";
    assert_eq!(ended(by_init), [], "the host shut down");
    assert_eq!(signal("/usr/sbin/libvirtd", "destroyed"), web(LogKind::Terminated, Some(15)));
    let destroyed = "qemu-system-x86_64: terminating on signal 15 from pid 1234 (/usr/sbin/libvirtd)\n\
        2024-01-05 12:00:00.123+0000: shutting down, reason=destroyed\n";
    let again = format!("{destroyed}2024-01-05 12:01:00.123+0000: starting up libvirt version: 8.8.0\n");
    assert_eq!((kinds(destroyed).len(), kinds(&again)), (1, Vec::new()), "it was started again");
    assert_eq!(signal("/usr/sbin/libvirtd", "crashed"), web(LogKind::Killed, Some(15)));
    assert_eq!(signal("/usr/sbin/virtqemud", "failed"), web(LogKind::StartFailed, Some(15)));
    assert_eq!(signal("<unknown process>", "destroyed"), web(LogKind::Terminated, Some(15)), "virsh destroy");
    assert_eq!(signal("<unknown process>", "shutdown"), web(LogKind::Terminated, Some(15)));
    let cut = |who: &str| ended(&format!("qemu-system-x86_64: terminating on signal 15 from pid 1234 ({who})\n"));
    assert_eq!(cut("/usr/sbin/libvirtd"), web(LogKind::Other, Some(15)), "why is not in the log");
    assert_eq!(cut("/lib/systemd/systemd"), web(LogKind::Terminated, Some(15)));
    assert_eq!(ended("2024-01-05 12:00:00.123+0000: shutting down, reason=shutdown\n"), []);
    assert_eq!(
        ended("2024-01-05T12:00:00Z qemu-system-x86_64: -drive: could not open\n"),
        web(LogKind::StartFailed, None)
    );
    assert_eq!(
        ended("2024-01-05T12:00:00Z qemu-system-x86_64: -chardev pty,id=a: char device redirected to /dev/pts/2\n"),
        [],
        "it goes on"
    );
    let failed = "2024-01-05 12:00:00.1+0000: shutting down, reason=failed\n";
    assert_eq!(ended(&format!("qemu-kvm: -device vfio-pci,host=1: x\n{failed}")).len(), 2);
    assert!(looks_like(&log("")));
}

#[test]
fn a_guest_that_was_not_taken_over_did_not_fail_by_itself() {
    let log = "2024-05-01T08:11:22.123500Z qemu-kvm: error while loading state for instance 0x0 of device \
        '0000:00:03.0/virtio-net'\n2024-05-01T08:11:22.124000Z qemu-kvm: load of migration failed: Invalid argument\n\
        2024-05-01 08:11:22.500+0000: shutting down, reason=failed\n";
    let found: Vec<_> = parse(log).into_iter().map(|line| (line.kind, line.data)).collect();
    assert_eq!(found, [(LogKind::StartFailed, Some(INCOMING_MIGRATION)); 2]);
}

#[test]
fn other_vmms_say_why_a_vcpu_stopped() {
    for (text, kind) in [
        ("km: KVM_EXIT_FAIL_ENTRY\n== KVM_GET_REGS ==", LogKind::EntryFailed),
        (
            "2026-10-08T16:31:45.4 [anonymous-instance:vcpu 0] Received KVM_EXIT_FAIL_ENTRY signal: 7 on cpu 1",
            LogKind::EntryFailed,
        ),
        (
            "[web1:ERROR:vcpu.rs:120] Failed to run vcpu: Unexpected kvm exit received: FailEntry(33, 1)",
            LogKind::EntryFailed,
        ),
        (
            "    0.023199s: <vcpu0> ERROR:vmm/src/cpu.rs:1460 -- VCPU generated error: VcpuRun(Failed to run vcpu\n    \
            Unexpected exit reason on vcpu run: InternalError)",
            LogKind::InternalError,
        ),
        ("fc_vcpu 0:ERROR Unexpected exit reason on vcpu run: Shutdown", LogKind::TripleFault),
    ] {
        assert!(looks_like(text), "{text}");
        assert_eq!(parse(text).iter().map(|l| l.kind).collect::<Vec<_>>(), [kind], "{text}");
    }
}

#[test]
fn a_text_that_ends_within_a_report_is_a_log() {
    for text in [
        "[Thu Mar 25 00:50:20 2021] watchdog: BUG: soft lockup - CPU#1 stuck for 2471s! [CPU 0/KVM:31664]",
        " kernel:[ 4796.249920] watchdog: BUG: soft lockup - CPU#24 stuck for 26s! [qemu-system-x86:263413]",
        "KVM internal error. Suberror: 3",
        "kvm: unhandled exit 80000021",
        "kvm: unhandled validity intercept 0x1011",
        "KVM: entry failed, hardware error 0x80000021",
        "qemu-system-x86_64: terminating on signal 15 from pid 31980 (<unknown process>)",
    ] {
        assert!(looks_like(text) && parse(text).len() == 1, "{text}");
    }
    let other = "watchdog: BUG: soft lockup - CPU#1 stuck for 24s! [kworker/0:1:31]";
    assert!(looks_like(other) && one(other).kind == LogKind::OtherLockup, "it names no VMM, and no host");
    assert!(!looks_like("Reason 8 would be KVM_EXIT_SHUTDOWN and would potentially indicate a triple fault"));
}

#[test]
fn killed_guests_are_recognised() {
    for (text, kind, pid) in [
        (
            "[1.0] Out of memory: Killed process 4711 (qemu-system-x86) total-vm:17825792kB, anon-rss:16777216kB",
            LogKind::KilledForMemory,
            Some(4711),
        ),
        ("[1.0] Killed process 2345, UID 107, (qemu-kvm) total-vm:1kB", LogKind::KilledForMemory, Some(2345)),
        (
            "[1.0] Out of memory: Kill process 2345 (qemu-kvm) score 700 or sacrifice child\n[1.0] Killed process 2345 \
             (qemu-kvm) total-vm:1kB\n[1.1] oom_reaper: reaped process 2345 (qemu-kvm), now anon-rss:0kB",
            LogKind::KilledForMemory,
            Some(2345),
        ),
        (
            "[1.0] Memory cgroup out of memory: Killed process 9 (CPU 0/KVM) total-vm:1kB",
            LogKind::KilledForMemory,
            Some(9),
        ),
        (
            "Nov 20 10:00:00 h systemd-oomd[812]: Killed /machine.slice/machine-qemu\\x2d3\\x2dwin10.scope/libvirt due \
             to memory pressure for /machine.slice being 62.14% > 50.00% for > 20s with reclaim activity",
            LogKind::KilledForMemory,
            None,
        ),
        (
            "Nov 20 10:00:00 pve systemd[1]: 105.scope: A process of this unit has been killed by the OOM killer.",
            LogKind::KilledForMemory,
            None,
        ),
        ("[1.0] BUG: spinlock recursion on CPU#7, CPU 3/KVM/576", LogKind::Lockup, Some(576)),
        ("[1.0] qemu-system-x86[1234]: segfault at 0 ip 00007f sp 00007f error 4", LogKind::Killed, Some(1234)),
        (
            "[1.0] traps: CPU 0/KVM[1234] general protection fault ip:7f sp:7f error:0 in qemu-kvm[55+3]",
            LogKind::Killed,
            Some(1234),
        ),
        (
            "[1.0] IO iothread1[88]: segfault at 8 ip 55 sp 7f error 4 in qemu-system-x86_64[55+3]",
            LogKind::Killed,
            Some(88),
        ),
        (
            "Nov 20 10:00:00 h systemd-coredump[99]: Process 1234 (qemu-system-x86) of user 107 dumped core.",
            LogKind::Killed,
            Some(1234),
        ),
        (
            "Nov 20 10:00:00 h systemd-coredump[9]: Resource limits disable core dumping for process 12 (qemu-kvm).",
            LogKind::Killed,
            Some(12),
        ),
        (
            "[1.0] audit: type=1701 audit(1600000000.1:4): auid=42 ses=4 pid=1234 comm=\"CPU 0/KVM\" \
             exe=\"/usr/libexec/qemu-kvm\" sig=6 res=1",
            LogKind::Killed,
            Some(1234),
        ),
        (
            "[1.0] audit: type=1326 audit(1600000000.1:4): auid=42 ses=4 pid=1234 comm=\"qemu-system-x86\" \
             exe=\"/usr/libexec/qemu-kvm\" sig=31 arch=c000003e syscall=56 compat=0 ip=0x7f code=0x80000000",
            LogKind::Killed,
            Some(1234),
        ),
        (
            "[1.0] Memory failure: 0x1234: Killing qemu-system-x86:1234 due to hardware memory corruption\n\
             [1.1] qemu-system-x86[1234]: segfault at 20 ip 00007f sp 00007f error 4 in qemu-system-x86_64[7f+4]",
            LogKind::MemoryFailure,
            Some(1234),
        ),
        (
            "[1.0] MCE 0x1234: Killing qemu-kvm:1234 early due to hardware memory corruption",
            LogKind::MemoryFailure,
            Some(1234),
        ),
        (
            "[1.0] Memory failure: 0x1234: Sending SIGBUS to CPU 0/KVM:1234 due to hardware memory corruption",
            LogKind::MachineCheck,
            Some(1234),
        ),
        (
            "[1.0] MCE: Killing CPU 3/KVM:1234 due to hardware memory corruption fault at 7f0000000000",
            LogKind::MemoryFailure,
            Some(1234),
        ),
    ] {
        let found: Vec<_> = kinds(text).iter().map(|k| (k.0, k.1)).collect();
        assert_eq!(found, [(kind, pid)], "{text}");
    }
    for text in [
        "[1.0] Out of memory: Killed process 4711 (java) total-vm:17825792kB",
        "[1.0] firefox[1234]: segfault at 0 ip 00007f sp 00007f error 4 in libxul.so[7f+1]",
        "[1.0] Memory failure: 0x1234: Killing postgres:1234 due to hardware memory corruption",
    ] {
        assert_eq!(kinds(text), [], "{text}");
    }
}

#[test]
fn the_table_of_the_oom_killer_is_one_event() {
    let table = "\
[100.1] java invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0
[100.1] CPU: 3 PID: 4242 Comm: java Not tainted 5.15.0-91-generic #101-Ubuntu
[100.1] Tasks state (memory values in pages):
[100.1] [  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name
[100.1] [   4711] 64055  4711  4456448  4194304 34000000        0             0 qemu-system-x86
[100.1] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),global_oom,task_memcg=/machine.slice/\
machine-qemu\\x2d2\\x2ddb\\x2d01.scope/libvirt/emulator,task=qemu-system-x86,pid=4711,uid=64055
[100.1] Out of memory: Killed process 4711 (qemu-system-x86) total-vm:17825792kB, anon-rss:16777216kB
";
    let line = one(table);
    assert_eq!((line.kind, line.pid, line.guest.as_deref()), (LogKind::KilledForMemory, Some(4711), Some("db-01")));
    assert!(line.text.contains("Killed process"), "{}", line.text);
    let other = "\
[100.1] CPU 2/KVM invoked oom-killer: gfp_mask=0x140dca, order=0, oom_score_adj=0
[100.1] [   4711] 64055  4711  4456448  4194304 34000000        0             0 qemu-system-x86
[100.1] Out of memory: Killed process 99 (java) total-vm:1kB
";
    let line = one(other);
    assert_eq!(line.kind, LogKind::OtherKilled, "a guest found no memory, and another program was killed");
    assert!(line.text.contains("CPU 2/KVM invoked") && line.text.contains("Killed process 99 (java)"));
    let of_group = one(&other.replace("Out of", "Memory cgroup out of"));
    assert_eq!(of_group.kind, LogKind::Other, "the limit of a group is not the host's memory");
    let scope = "[100.1] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/pod1,task=java,pid=99,uid=1\n";
    let of_group = other.replace("[100.1] Out of", &format!("{scope}[100.1] Memory cgroup out of"));
    assert_eq!(one(&of_group).kind, LogKind::Other, "as kernels since 5.0 say it");
    let cut = other.lines().take(2).collect::<Vec<_>>().join("\n");
    assert_eq!(one(&cut).kind, LogKind::OutOfMemory, "nobody is named");
}

#[test]
fn lockups_count_where_they_name_a_vmm() {
    let stall = |comm: &str| {
        format!(
            "[10.0] rcu: INFO: rcu_sched self-detected stall on CPU\n[10.1] rcu: \t3-....: (5249 ticks this GP)\n\
             [10.2] NMI backtrace for cpu 3\n[10.3] CPU: 3 PID: 4711 Comm: {comm} Tainted: P           O      \
             5.4.106-1-pve\n\
             [10.4] Call Trace:\n[10.5]  vmx_vcpu_run+0x1/0x2 [kvm_intel]\n[10.6] ---[ end trace 0 ]---\n"
        )
    };
    let line = one(&stall("CPU 2/KVM"));
    assert_eq!((line.kind, line.pid, line.vcpu), (LogKind::Lockup, Some(4711), Some(2)));
    assert!(line.text.contains("stall on CPU 3") && line.text.contains("CPU 2/KVM"), "{}", line.text);
    let boot = |at: &str| {
        format!(
            "[5.0] WARNING: CPU: 3 PID: 412 at {at}+0x12/0x30\n[5.1] Modules linked in: amdgpu(+) kvm_amd kvm\n\
             [5.2] CPU: 3 PID: 412 Comm: systemd-udevd Not tainted 6.1.0\n[5.3] ---[ end trace 0 ]---\n"
        )
    };
    assert_eq!(parse(&boot("drivers/gpu/drm/amd/dcn21_hubbub.c:60 hubbub1_init")), []);
    assert_eq!(one(&boot("drivers/iommu/amd/iommu.c:60 iommu_flush")).kind, LogKind::KernelBug);
    assert_eq!(one(&boot("x").replace("WARNING: CPU: 3 PID: 412 at", "kernel BUG at")).kind, LogKind::KernelBug);
    assert_eq!(one(&stall("postgres").replace("[kvm_intel]", "[xfs]")).kind, LogKind::OtherLockup);
    assert_eq!(one(&stall("kworker/3:1")).kind, LogKind::Lockup, "a frame in KVM");
    for (text, kind, pid, seconds) in [
        ("[9.0] INFO: task CPU 0/KVM:77 blocked for more than 120 seconds.", LogKind::HungTask, Some(77), Some(120)),
        (
            "[9.0] INFO: task qemu-system-x86:78 blocked for more than 241 seconds.",
            LogKind::HungTask,
            Some(78),
            Some(241),
        ),
        ("[9.0] BUG: soft lockup - CPU#5 stuck for 67s! [qemu-kvm:79]", LogKind::Lockup, Some(79), Some(67)),
        (
            "[9.0] NMI watchdog: Watchdog detected hard LOCKUP on cpu 3\n[9.1] CPU: 3 PID: 80 Comm: CPU 1/KVM Not \
            tainted",
            LogKind::Lockup,
            Some(80),
            None,
        ),
        (
            "[9.0] INFO: rcu_sched detected stalls on CPUs/tasks: { 3} (detected by 1, t=60002 jiffies)\n[9.1] Task \
            dump for CPU 3:\n[9.2] qemu-kvm        R  running task        0  4711      1 0x00000008\n",
            LogKind::Lockup,
            None,
            None,
        ),
        (
            "[9.0] WARNING: CPU: 3 PID: 81 at arch/x86/kvm/x86.c:10400 kvm_arch_vcpu_ioctl_run+0x1 [kvm]\n[9.1] \
            Modules linked in: kvm_intel kvm\n[9.2] CPU: 3 PID: 81 Comm: CPU 0/KVM Not tainted 5.10\n",
            LogKind::KernelBug,
            Some(81),
            None,
        ),
        (
            "[9.0] BUG: kernel NULL pointer dereference, address: 0000000000000008\n[9.1] Oops: 0000 [#1] SMP\n[9.2] \
            CPU: 1 PID: 82 Comm: CPU 3/KVM Tainted: G\n[9.3] RIP: 0010:kvm_lapic_reg_read+0x1/0x2 [kvm]\n",
            LogKind::KernelBug,
            Some(82),
            None,
        ),
    ] {
        let line = one(text);
        assert_eq!((line.kind, line.pid, line.data), (kind, pid, seconds), "{text}");
    }
    let other = one("[9.0] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [swapper/0:1]\n");
    assert_eq!((other.kind, other.data), (LogKind::OtherLockup, Some(22)));
    let task = one("[9.0] INFO: task jbd2/sda1-8:300 blocked for more than 120 seconds.\n");
    assert_eq!(task.kind, LogKind::Unexplained, "a guest may wait for the same");
}

#[test]
fn what_was_delivered_is_decoded() {
    let dump = "KVM internal error. Suberror: 3\nextra data[0]: 0x0000000080000b0e\nextra data[1]: 0x31\n\
        extra data[2]: 0x0000000000000981\nRAX=0000000000000000 RBX=0000000000000009\n";
    let line = one(dump);
    assert_eq!((line.kind, line.data), (LogKind::InternalError, Some(3)));
    assert!(line.text.ends_with("exception 14 interrupted by the exit EPT_MISCONFIG"), "{}", line.text);
    assert!(!one(&dump.replace("0x0000000080000b0e", "0x0")).text.contains("interrupted"));
}

#[test]
fn a_start_that_failed_is_no_crash() {
    let lost = "LibvirtError(Message='internal error: QEMU unexpectedly closed the monitor (vm='a'): \n";
    let why = "2025-04-25T14:42:06.0Z qemu-kvm: -device {\"driver\":\"vfio-pci\"}: VFIO_MAP_DMA failed\n";
    assert_eq!(one(&format!("{lost}{why}{why}")).kind, LogKind::StartFailed);
    assert_eq!(one(lost).kind, LogKind::Killed, "it may have run");
    assert_eq!(one("kvm: -netdev tap,id=n0: could not configure /dev/net/tun: busy").kind, LogKind::StartFailed);
    let lacks = "qemu-system-x86_64: kernel doesn't allow setting HyperV VP_INDEX\n";
    assert_eq!(one(lacks).kind, LogKind::StartFailed);
    let warning = "qemu-system-x86_64: -smp 9: warning: Number of SMP cpus exceeds the recommended\n";
    assert_eq!(one(warning).kind, LogKind::Other);
}

#[test]
fn an_instruction_that_arm64_cannot_decode() {
    let line = one("[513.3] kvm [3122]: load/store instruction decoding not implemented\n");
    assert_eq!((line.kind, line.pid), (LogKind::EmulationFailure, Some(3122)));
}

#[test]
fn writes_that_kvm_drops_are_not_called_faults() {
    let kind = |what: &str| one(&format!("kvm_amd: kvm [67539]: vcpu3, guest rIP: 0x1 Unhandled {what} = 0x0\n")).kind;
    assert_eq!(kind("WRMSR(0xc0010115)"), LogKind::IgnoredMsr);
    assert_eq!(kind("WRMSR(0x187)"), LogKind::PerfCounter);
    assert_eq!(kind("WRMSR(0x40000118)"), LogKind::UnhandledMsr);
    assert_eq!(kind("RDMSR(0x1d9)"), LogKind::UnhandledMsr);
    assert_eq!(one("kvm [1]: vcpu0, guest rIP: 0x1 unhandled wrmsr: 0x1d9 data 0x1\n").kind, LogKind::UnhandledMsr);
}

#[test]
fn harmless_lines_are_not_counted() {
    let boot = "\
[    0.000000] Command line: BOOT_IMAGE=/vmlinuz kvm_intel.nested=1
[    0.000000] Hypervisor detected: KVM
[    1.032775] smpboot: CPU0: AMD QEMU TCG CPU version 2.5+ (family: 0xf, model: 0x6b, stepping: 0x1)
[    0.000000] kvm-clock: Using msrs 4b564d01 and 4b564d00
[    0.000000] DMI: QEMU Standard PC (Q35 + ICH9, 2009), BIOS 1.16.2
[    5.1] kvm_amd: TSC scaling supported
[    5.2] kvm: Nested Virtualization enabled
[    5.3] SVM: kvm: Nested Paging enabled
[    5.4] scsi 0:0:0:0: Direct-Access     QEMU     QEMU HARDDISK    2.5+ PQ: 0 ANSI: 5
Nov 20 10:00:00 h systemd-machined[812]: New machine qemu-1-web.
Nov 20 10:00:00 h systemd[1]: Started Virtual Machine qemu-1-web.
";
    assert_eq!(parse(boot), []);
    assert_eq!(one("[ 7.0] kvm [5]: vcpu0 something new").kind, LogKind::Other);
}

proptest! {
    #[test]
    fn any_order_of_pieces_is_survived(pieces in proptest::collection::vec(
        prop_oneof![
            Just("[1.5] ".to_owned()), Just("\n".to_owned()), Just("kvm [5]: vcpu0, guest rIP: 0x1 ".to_owned()),
            Just("*** Guest State ***".to_owned()), Just("reason=".to_owned()), Just("Comm: CPU 0/KVM".to_owned()),
            Just("Killed process ".to_owned()), Just("(qemu-kvm) ".to_owned()), Just("oom-kill:task=".to_owned()),
            Just("machine-qemu\\x2d1\\x2d".to_owned()), Just(".scope".to_owned()),
            Just("invoked oom-killer".to_owned()),
            Just("soft lockup - CPU#1 stuck for ".to_owned()), Just("[CPU 0/KVM:1]".to_owned()),
            Just("-name ".to_owned()),
            Just("shutting down, reason=crashed".to_owned()), Just("terminating on signal ".to_owned()),
            Just("INFO: task é blocked for more than ".to_owned()), Just("unhandled rdmsr: ".to_owned()),
            "[0-9a-fx:]{0,12}", "[é日\u{301} ]{0,3}",
        ], 0..40)) {
        let _ = parse(&pieces.concat());
    }

    #[test]
    fn any_text_is_survived(text in any::<String>()) {
        let _ = looks_like(&text);
        let _ = parse(&format!("kvm [1]: vcpu0 unhandled rdmsr: {text}"));
        let _ = parse(&format!("kvm {text} took a split_lock"));
    }
}

#[test]
fn other_vmms_say_that_kvm_run_failed() {
    // libkrun issue 832; ghost issue 46 (QEMU).
    for text in [
        "ERROR krun_vmm::linux::vstate] Failure during vcpu run: Bad address (os error 14)",
        "qemu: Failed to put registers after init: Invalid argument",
    ] {
        assert_eq!(kinds(text).first().map(|line| line.0), Some(LogKind::RunFailed), "{text}");
    }
}

#[test]
fn what_keeps_kvm_from_being_used_is_told_apart() {
    use no_kvm::*;
    for (text, reason) in [
        ("Could not access KVM kernel module: Permission denied", DENIED),
        ("qemu-system-x86_64: failed to initialize KVM: Permission denied", DENIED),
        ("qemu-system-x86_64: -accel kvm: failed to initialize kvm: Operation not permitted", DENIED),
        ("Could not access KVM kernel module: No such file or directory", ABSENT),
        ("ls: cannot access '/dev/kvm': No such file or directory", ABSENT),
        ("error: invalid argument: could not find capabilities for domaintype=kvm", ABSENT),
        ("qm start 102\n# KVM virtualisation configured, but not available.\n", ABSENT),
        ("qemu-system-x86_64: failed to initialize KVM: Device or resource busy", BUSY),
        ("process exited while connecting to monitor: ioctl(KVM_CREATE_VM) failed: 16 Device or resource busy", BUSY),
        ("[ 3.0] kvm: disabled by bios", OFF_IN_FIRMWARE),
        ("[ 3.0] kvm: support for 'kvm_intel' disabled by bios", OFF_IN_FIRMWARE),
        ("[ 0.1] x86/cpu: VMX (outside TXT) disabled by BIOS", OFF_IN_FIRMWARE),
        ("[ 3.0] kvm_amd: SVM disabled (by BIOS) in MSR_VM_CR on CPU 0", OFF_IN_FIRMWARE),
        ("[ 3.0] kvm: no hardware support", NO_EXTENSION),
        ("[ 3.0] kvm_intel: VMX not supported by CPU 0", NO_EXTENSION),
        ("modprobe: ERROR: could not insert 'kvm_intel': Operation not supported", NO_EXTENSION),
    ] {
        let line = one(text);
        assert_eq!((line.kind, line.data), (LogKind::NoKvm, Some(reason)), "{text}");
    }
    assert_eq!(one("Could not access KVM kernel module: Invalid argument").kind, LogKind::StartFailed);
    // The module of the other vendor, beside one that works or not.
    assert_eq!(parse("[ 3.0] has_svm: not amd\n[ 3.1] kvm: no hardware support\n"), []);
    let off = parse("[ 3.0] kvm: disabled by bios\n[ 3.1] has_svm: not amd\n[ 3.2] kvm: no hardware support\n");
    assert_eq!(off.iter().map(|line| line.data).collect::<Vec<_>>(), [Some(OFF_IN_FIRMWARE)]);
    assert_eq!(parse("[ 3.0] kvm: no hardware support\n[ 3.1] kvm: Nested Virtualization enabled\n"), []);
    assert_eq!(parse("[ 0.0] Hypervisor detected: KVM\n[ 3.0] kvm: no hardware support\n"), [], "a guest");
    let refused = "2026-01-05T12:00:00Z qemu-kvm: failed to initialize kvm: Permission denied\n\
        2026-01-05 12:00:00.1+0000: shutting down, reason=failed\n";
    assert_eq!(kinds(refused), [(LogKind::NoKvm, None, None, Some(DENIED))], "libvirt says no more than that");
    assert_eq!(parse("[ 3.0] x86/cpu: SGX disabled by BIOS.\n"), []);
    assert_eq!(parse("# kvm: disabled by bios\n"), [], "a heading");
}

#[test]
fn headings_and_lists_of_other_programs_are_no_lines_about_kvm() {
    for text in
        ["QEMU:", "qemu-system-x86_64: /usr/bin/qemu-system-x86_64", "kvm_intel  167936  0", "kvm: /usr/bin/kvm"]
    {
        assert_eq!(parse(text), [], "{text}");
    }
}

#[test]
fn failed_requests_of_disks_have_their_errno() {
    for (text, errno) in [
        ("block I/O error in device 'drive-virtio-disk0': No space left on device (28)", 28),
        ("block i/o error in device 'drive-scsi0': Cannot send after transport endpoint shutdown (108)", 108),
        ("2026-01-05 12:00:00.123+0000: qemu-kvm: block I/O error in device 'd': Input/output error (5)", 5),
        ("IO error device='sata0-0-0' node-name='libvirt-2-format' reason='No space left on device'", 28),
        ("2026-01-05 12:00:00.123+0000: IO error device='vda' node-name='' reason='Input/output error'", 5),
    ] {
        assert!(looks_like(text), "{text}");
        assert_eq!(kinds(text), [(LogKind::DiskError, None, None, Some(errno))], "{text}");
    }
}

#[test]
fn an_oom_kill_keeps_its_victim_and_its_limit() {
    let table = |constraint: &str| {
        format!(
            "[9.1] CPU 1/KVM invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=920\n\
             [9.1] memory: usage 2355880kB, limit 2355880kB, failcnt 0\n\
             [9.1] oom-kill:constraint={constraint},nodemask=(null),task=qemu-system-x86,pid=24790,uid=107\n"
        )
    };
    let line = one(&table("CONSTRAINT_MEMCG"));
    assert_eq!((line.kind, line.pid, line.data), (LogKind::KilledForMemory, Some(24790), Some(CGROUP_LIMIT)));
    let more = "killed: qemu-system-x86, PID 24790 … memory: usage 2355880 kB, limit 2355880 kB";
    assert!(line.text.ends_with(more), "{}", line.text);
    let killed = "[9.2] Memory cgroup out of memory: Killed process 24790 (qemu-system-x86) total-vm:2820660kB\n";
    let line = one(&(table("CONSTRAINT_MEMCG") + killed));
    assert_eq!(line.data, Some(CGROUP_LIMIT));
    assert!(line.text.contains("Killed process") && line.text.ends_with("limit 2355880 kB"), "{}", line.text);
    assert_eq!(one(&table("CONSTRAINT_MEMORY_POLICY")).data, Some(NODE_LIMIT));
    assert_eq!(one(&table("CONSTRAINT_NONE")).data, None, "the host's memory");
}

#[test]
fn a_stack_keeps_the_functions_of_its_thread() {
    let log = "\
[9.0] XFS: possible memory allocation deadlock in kmem_alloc (mode:0x250)
[9.1] INFO: task qemu-system-x86:6902 blocked for more than 120 seconds.
[9.1] qemu-system-x86 D ffff88105065e800     0  6902      1 0x00000080
[9.1] Call Trace:
[9.1] [<ffffffff8163a879>] schedule+0x29/0x70
[9.1] [<ffffffffa0256a30>] ? xfs_ilock_data_map_shared+0x30/0x40 [xfs]
[9.1] [<ffffffff81301764>] call_rwsem_down_read_failed+0x14/0x30
[9.1] [<ffffffffa02569bc>] xfs_ilock+0xdc/0x120 [xfs]
";
    let line = one(log);
    let stack = "… XFS: possible memory allocation deadlock in kmem_alloc (mode:0x250) … in \
        call_rwsem_down_read_failed < xfs_ilock";
    assert!(line.text.ends_with(stack), "{}", line.text);
    let lockup = "\
[9.0] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [CPU 1/KVM:1035079]
[9.0] RIP: 0010:smp_call_function_single+0xdf/0x100
[9.0]  vmx_vcpu_load+0x2be/0x410 [kvm_intel]
[9.1] Sending NMI from CPU 1 to CPUs 0,2-95:
[9.1] NMI backtrace for cpu 0
[9.1] RIP: 0010:nfs_wait+0x1/0x100
";
    assert!(one(lockup).text.ends_with("… in smp_call_function_single < vmx_vcpu_load"), "{}", one(lockup).text);
}

#[test]
fn a_broken_map_of_the_guests_memory_is_one_event() {
    let log = "[9.0] EPT: Misconfiguration.\n[9.0] EPT: GPA: 0x108ba4538\n\
        [9.0] ept_misconfig_inspect_spte: spte 0x84c236107 level 4\n\
        [9.0] ept_misconfig_inspect_spte: spte 0x10515c7107 level 3\n";
    assert_eq!(one(log).kind, LogKind::EptMisconfig);
    assert!(one(log).text.ends_with("address 0x108ba4538"));
}

/// What follows from an event in the same log is not counted beside it.
#[test]
fn consequences_are_not_counted_beside_their_cause() {
    let all = |text: &str| parse(text).into_iter().map(|line| (line.kind, line.text)).collect::<Vec<_>>();
    let killed = all("Feb 27 11:28:46 h kernel: oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),global_oom,\
         task_memcg=/qemu.slice/101.scope,task=kvm,pid=32969,uid=0
Feb 27 11:28:46 h kernel: Out of memory: Killed process 32969 (kvm) total-vm:17339840kB, anon-rss:15797740kB, UID:0
Feb 27 11:28:46 h systemd[1]: 101.scope: A process of this unit has been killed by the OOM killer.
Feb 27 11:28:46 h pvedaemon[32957]: start failed: QEMU exited with code 1
");
    assert_eq!(killed.len(), 1, "{killed:?}");
    assert_eq!(killed[0].0, LogKind::KilledForMemory);
    assert!(killed[0].1.contains("task=kvm,pid=32969") && killed[0].1.contains("had 15797740kb"), "{killed:?}");

    let refused = all("`KVM: entry failed, hardware error 0x80000021` being logged under certain
Jun 24 17:25:51 h QEMU[2997]: KVM: entry failed, hardware error 0x80000021
Jun 24 17:25:51 h QEMU[2997]: If you're running a guest on an Intel machine without unrestricted mode
Jun 24 17:25:51 h QEMU[2997]: EAX=00001e30 EBX=4e364180 ECX=00000001 EDX=00000000
");
    assert_eq!(refused.len(), 1, "neither prose nor registers are lines about KVM: {refused:?}");
}

#[test]
fn trouble_of_clock_devices_and_hardware_is_recognised() {
    use LogKind::*;
    for (text, kind) in [
        ("[1.0] tsc: Marking TSC unstable due to check_tsc_sync_source failed", HostClock),
        ("[1.0] Measured 3480 cycles TSC warp between CPUs, turning off TSC clock.", HostClock),
        ("kvm: SMP vm created on host with unstable TSC; guest TSC will not be reliable", HostClock),
        (
            "[1.0] vfio-pci 0000:01:00.0: Unable to change power state from D3cold to D0, device inaccessible",
            DeviceReset,
        ),
        ("[1.0] vfio-pci 0000:0d:00.0: vfio_bar_restore: reset recovery - restoring BARs", DeviceReset),
        ("qemu-system-x86_64: vfio: Cannot reset device 0000:03:00.0, no available reset mechanism.", DeviceReset),
        ("[1.0] vfio-pci 0000:01:00.0: BAR 3: can't reserve [mem 0xe0000000-0xe1ffffff 64bit pref]", DeviceHeld),
        ("[1.0] AMD-Vi: Completion-Wait loop timed out", IommuFault),
        ("[1.0] DMAR: [DMA Read] Request device [01:00.0] fault addr 7c9c0000 [fault reason 06]", IommuFault),
        ("[1.0] {1}[Hardware Error]: event severity: fatal", HardwareError),
        ("[1.0] mce: Uncorrected hardware memory error in user-access at 82080a5669600", HardwareError),
        ("[1.0] hrtimer: interrupt took 1023312 ns", SlowInterrupt),
        ("[1.0] mce: CPU0: Package temperature above threshold, cpu clock throttled (total events = 1)", Overheated),
    ] {
        assert_eq!(one(text).kind, kind, "{text}");
    }
    let healthy = "[1.0] perf: interrupt took too long (2520 > 2500), lowering kernel.perf_event_max_sample_rate\n\
        [1.1] hrtimer: interrupt took 8231 ns\n\
        [1.2] mce: [Hardware Error]: Machine check events logged\n\
        [1.3] EDAC MC0: 3 CE memory read error on CPU_SrcID#0 (channel:1 slot:0 page:0x2f3a5)\n\
        [1.4] clocksource: Switched to clocksource tsc\n\
        [1.5] DMAR: Intel(R) Virtualization Technology for Directed I/O\n\
        [1.6] vfio-pci 0000:01:00.0: resetting\n[1.7] vfio-pci 0000:01:00.0: reset done\n\
        [1.8] mce: CPU0: Core temperature/speed normal\n";
    assert!(parse(healthy).iter().all(|line| line.kind == Other), "{:#?}", parse(healthy));
    let guest = "[0.0] Hypervisor detected: KVM\n[9.0] TSC found unstable after boot, most likely due to broken BIOS.";
    assert!(parse(guest).iter().any(|line| line.kind == GuestClock), "its conclusion is another one");
}

#[test]
fn what_qemu_said_last_stands_beside_its_end() {
    let log = "# tail /var/log/libvirt/qemu/web.log
2022-07-29T07:50:01.8Z qemu-4.1: Error binding guest notifier: 11
qemu-4.1: hw/pci/msix.c:612: msix_unset_vector_notifiers: Assertion `dev->x' failed.
2022-07-29 07:52:53.377+0000: shutting down, reason=crashed
";
    let ended = parse(log).into_iter().find(|line| line.kind == LogKind::Killed).unwrap();
    assert!(ended.text.contains("msix_unset"), "{ended:?}");
    assert!(ended.text.contains("reason=crashed"), "{ended:?}");
    assert_eq!(ended.guest.as_deref(), Some("web"), "from the file's name");
    let log = "kvm_set_user_memory_region: KVM_SET_USER_MEMORY_REGION failed, slot=13: Invalid argument
kvm_set_phys_mem: error registering slot: Invalid argument
shutting down, reason=crashed
";
    let text = one(log).text;
    assert!(text.contains("slot=13") && text.contains("registering slot") && text.contains("crashed"), "{text}");
    let log = "2026-11-01T08:00:00.0Z qemu-system-x86_64: could not open /dev/vhost-net: Permission denied
2026-11-26T10:00:00.0Z qemu-system-x86_64: error: failed to set MSR 0x38f to 0x7000000ff
qemu-system-x86_64: ../target/i386/kvm/kvm.c:2701: kvm_buf_set_msrs: Assertion `ret == n' failed.
2026-11-26 10:00:01.000+0000: shutting down, reason=crashed
";
    let ended = parse(log).into_iter().find(|line| line.kind == LogKind::Killed).unwrap();
    assert!(ended.text.contains("0x38f") && !ended.text.contains("vhost-net"), "weeks before: {ended:?}");
    let bound = "[1.0] oom-kill:constraint=CONSTRAINT_CPUSET,nodemask=0,mems_allowed=0,task=qemu-kvm,pid=7,uid=0";
    assert_eq!((one(bound).kind, one(bound).data), (LogKind::KilledForMemory, Some(NODE_LIMIT)));
}

#[test]
fn sentences_around_a_log_are_no_lines_of_it() {
    for prose in [
        "Machines then report a clocksource watchdog that finds the tsc clocksource skewed, then marked as unstable",
        "kvm:x:993:qemu,libvirt",
        "title: \"KVM guest BUG: soft lockup - CPU#1 stuck for 800s! [nmbd:693]\"",
    ] {
        assert_eq!(parse(prose), [], "{prose}");
    }
    assert_eq!(one("clocksource: tsc: marked as unstable because it is skewed").kind, LogKind::HostClock);
    assert_eq!(one("kvm: some new message").kind, LogKind::Other);
}

#[test]
fn a_bug_in_a_guest_of_a_guest_says_where_its_kernel_runs() {
    let log = "[8.0] BUG: unable to handle page fault for address: ffff888\n\
        [8.1] CPU: 1 PID: 44 Comm: qemu-system-x86 Not tainted 6.1.0\n\
        [8.2] Hardware name: OpenStack Foundation OpenStack Nova, BIOS 1.15.0-1\n\
        [8.3] RIP: 0010:kvm_tdp_mmu_map+0x10/0x20 [kvm]\n";
    let line = one(log);
    assert_eq!(line.kind, LogKind::KernelBug);
    assert!(line.text.contains("virtual machine wrote this, on hardware named openstack foundation"), "{line:?}");
    let on_metal = log.replace("OpenStack Foundation OpenStack Nova", "Supermicro X10");
    assert!(!one(&on_metal).text.contains("virtual machine"));
}

#[test]
fn the_spellings_of_older_programs_are_known() {
    for (line, kind, data) in [
        ("qemu-system-x86_64:-device vfio-pci,host=05:00.0: vfio: failed to open group", LogKind::StartFailed, None),
        ("vfio: error: group 12 is not viable, please bind all its devices", LogKind::StartFailed, None),
        (
            "libvirt: error : cannot limit locked memory to 9126805504: Operation not permitted",
            LogKind::StartFailed,
            None,
        ),
        ("FATAL: Error inserting kvm_amd (/lib/kvm-amd.ko): Operation not supported", LogKind::NoKvm, Some(3)),
        ("unhandled vm exit: 0x7 vcpu_id 1", LogKind::InternalError, None),
        ("QEMU[9]: kvm: Could not update PFLASH: Stale file handle", LogKind::DiskError, Some(116)),
        ("2024-01-01 10:00:00.000+0000: panic hyper-v: arg1='0x7e', arg2='0x0'", LogKind::GuestBug, None),
    ] {
        let found = one(line);
        assert_eq!((found.kind, found.data), (kind, data), "{line}");
    }
}

#[test]
fn a_setting_of_proxmox_is_no_line_of_a_log() {
    let config = "cores: 4\nkvm: 0\nmemory: 512\n";
    assert!(!looks_like(config) && parse(config).is_empty());
}
