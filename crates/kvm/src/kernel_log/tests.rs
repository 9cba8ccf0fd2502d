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
        (
            "kvm: 1234: cpu0 unhandled rdmsr: 0x1a0",
            1234,
            0,
            0x1a0,
            false,
            None,
            LogKind::UnhandledMsr,
        ),
        (
            "[592420.654337] kvm [21715]: vcpu1 unhandled rdmsr: 0x611",
            21715,
            1,
            0x611,
            false,
            None,
            LogKind::UnhandledMsr,
        ),
        (
            "kvm [77]: vcpu2 unhandled wrmsr: 0x1d9 data 0x1",
            77,
            2,
            0x1d9,
            true,
            Some(1),
            LogKind::UnhandledMsr,
        ),
        (
            "kvm [77]: vcpu2 ignored rdmsr: 0x606",
            77,
            2,
            0x606,
            false,
            None,
            LogKind::IgnoredMsr,
        ),
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
            LogKind::UnhandledMsr,
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
            "Nov 20 10:00:00 h1 kernel: kvm_intel: kvm [77]: vcpu0, guest rIP: 0x1 Unhandled \
                RDMSR(0x64d)",
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
            LogKind::IgnoredMsr,
        ),
    ] {
        let line = one(text);
        assert_eq!(
            (line.pid, line.vcpu, line.msr),
            (Some(pid), Some(vcpu), Some(msr)),
            "{text}"
        );
        assert_eq!(
            (line.write, line.data, line.kind),
            (write, data, kind),
            "{text}"
        );
    }
    assert_eq!(
        one("[592420.654337] kvm [21715]: vcpu1 unhandled rdmsr: 0x611").time_s,
        Some(592_420.654_337)
    );
}

#[test]
fn locks_and_emulation_failures_are_recognised() {
    let line = one(
        "[1.5] x86/split lock detection: #AC: CPU 3/KVM/4711 took a split_lock trap at address: \
        0x7ff6",
    );
    assert_eq!(
        (line.kind, line.pid, line.vcpu),
        (LogKind::SplitLock, Some(4711), Some(3))
    );
    let line =
        one("x86/split lock detection: #DB: CPU 3/KVM/99 took a bus_lock trap at address: 0x1");
    assert_eq!(
        (line.kind, line.pid, line.vcpu),
        (LogKind::SplitLock, Some(99), Some(3))
    );
    assert_eq!(
        parse("x86/split lock detection: #DB: game.exe/99 took a bus_lock trap at address: 0x1"),
        []
    );
    assert_eq!(
        one("kvm: emulation failed (unhandled) rip 7c90").kind,
        LogKind::EmulationFailure
    );
    assert_eq!(parse("kvm [5]: vcpu0 something new"), []);
}

#[test]
fn other_lines_are_left_out() {
    assert!(parse("[ 1.0] usb 1-1: new device\nkvm: Nested Virtualization enabled").is_empty());
}

/// Kind, process, vCPU and figure of a line.
type Essence = (LogKind, Option<i32>, Option<u32>, Option<u64>);

fn kinds(text: &str) -> Vec<Essence> {
    parse(text)
        .iter()
        .map(|l| (l.kind, l.pid, l.vcpu, l.data))
        .collect()
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
            LogKind::IgnoredMsr,
        ),
        (
            "kvm: 23090: cpu0 unhandled wrmsr 0x391 data 2000000f",
            0x391,
            true,
            Some(0x2000_000f),
            LogKind::UnhandledMsr,
        ),
        (
            "kvm [8]: vcpu0 ignored wrmsr: 0x11e data 0xbe702111",
            0x11e,
            true,
            Some(0xbe70_2111),
            LogKind::IgnoredMsr,
        ),
        (
            "kvm [8]: vcpu0 unimplemented wrmsr: 0xc0010115 data 0x1",
            0xc001_0115,
            true,
            Some(1),
            LogKind::IgnoredMsr,
        ),
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
            "kvm_intel: kvm [8]: vcpu0, guest rIP: 0xf vmx_set_msr: BTF|LBR in IA32_DEBUGCTLMSR \
                0x1, nop",
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
            LogKind::UnhandledMsr,
        ),
        (
            "kvm: kvm [8]: ignored rdmsr: 0xc001029b data 0x0",
            0xc001_029b,
            false,
            Some(0),
            LogKind::IgnoredMsr,
        ),
    ] {
        let line = one(text);
        assert_eq!(
            (line.msr, line.write, line.data, line.kind),
            (Some(msr), write, data, kind),
            "{text}"
        );
    }
    assert_eq!(
        parse("kvm [8]: vcpu0 unhandled something rdmsr:"),
        [],
        "no register"
    );
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
        "\u{1b}[31m[592420.654337]\u{1b}[0m ",
    ] {
        let text =
            format!("{prefix}kvm [21715]: vcpu1, guest rIP: 0xfff unhandled rdmsr: 0x611\r\n");
        let line = one(&text);
        assert_eq!(
            (line.pid, line.vcpu, line.msr),
            (Some(21_715), Some(1), Some(0x611)),
            "{text}"
        );
        let text = format!("{prefix}usb 1-1: new high-speed USB device number 2\r\n");
        assert_eq!(parse(&text), [], "a host's name says nothing: {text}");
        let text = format!(
            "{prefix}watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [CPU 2/KVM:1234]\r\n"
        );
        assert_eq!(
            kinds(&text),
            [(LogKind::Lockup, Some(1234), Some(2), Some(22))],
            "{text}"
        );
    }
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
    assert_eq!(
        kinds(intel),
        [(LogKind::EntryFailed, None, None, Some(0x8000_0021))]
    );
    assert_eq!(
        kinds(&intel.replace("kvm_intel: ", "")),
        [(LogKind::EntryFailed, None, None, Some(0x8000_0021))]
    );
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
        "Jan 05 10:12:00 h QEMU[9]: KVM: entry failed, hardware error 0x80000021",
    ] {
        assert_eq!(
            kinds(line).iter().map(|k| k.0).collect::<Vec<_>>(),
            [LogKind::EntryFailed],
            "{line}"
        );
    }
    assert_eq!(kinds("(XEN) *** Guest State ***"), []);
    let unexpected = "[ 5.0] kvm [77]: vcpu0, guest rIP: 0xf vmx: unexpected exit reason 0x3\n[ \
        5.1] *** Guest State ***\n[ 5.2] kvm_intel: *** Host State ***\n";
    assert_eq!(
        kinds(unexpected),
        [(LogKind::InternalError, Some(77), Some(0), None)]
    );
}

#[test]
fn killed_guests_are_recognised() {
    for (text, kind, pid) in [
        (
            "[1.0] Out of memory: Killed process 4711 (qemu-system-x86) total-vm:17825792kB, \
                anon-rss:16777216kB",
            LogKind::KilledForMemory,
            Some(4711),
        ),
        (
            "[1.0] Out of memory: Kill process 2345 (qemu-kvm) score 700 or sacrifice child\n[1.0] \
             Killed process 2345 (qemu-kvm) total-vm:1kB\n[1.1] oom_reaper: reaped process 2345 \
             (qemu-kvm), now anon-rss:0kB",
            LogKind::KilledForMemory,
            Some(2345),
        ),
        (
            "[1.0] Memory cgroup out of memory: Killed process 9 (CPU 0/KVM) total-vm:1kB",
            LogKind::KilledForMemory,
            Some(9),
        ),
        (
            "[1.0] BUG: spinlock recursion on CPU#7, CPU 3/KVM/576",
            LogKind::Lockup,
            Some(576),
        ),
        (
            "[1.0] qemu-system-x86[1234]: segfault at 0 ip 00007f sp 00007f error 4",
            LogKind::Killed,
            Some(1234),
        ),
        (
            "[1.0] traps: qemu-system-x86[1234] general protection fault ip:55a sp:7ffd error:0 in \
                qemu-system-x86_64",
            LogKind::Killed,
            Some(1234),
        ),
        (
            "Nov 20 10:00:00 h systemd-coredump[99]: Process 77 (qemu-kvm) of user 107 dumped \
                core.",
            LogKind::Killed,
            Some(77),
        ),
        (
            "[1.0] audit: type=1701 audit(1.2:3): uid=107 pid=78 comm=\"qemu-kvm\" exe=\"/q\" \
                sig=6",
            LogKind::Killed,
            Some(78),
        ),
        (
            "[1.0] Memory failure: 0x1: Killing qemu-kvm:79 due to hardware memory corruption",
            LogKind::MemoryFailure,
            Some(79),
        ),
        (
            "[1.0] Memory failure: 0x1: Sending SIGBUS to CPU 0/KVM:80 due to hardware memory \
                corruption",
            LogKind::MachineCheck,
            Some(80),
        ),
    ] {
        let line = one(text);
        assert_eq!((line.kind, line.pid), (kind, pid), "{text}");
    }
    assert_eq!(
        parse(
            "[1.0] Out of memory: Killed process 4711 (java) total-vm:1kB\n[1.0] bash[7]: segfault \
            at 0 ip 1"
        ),
        []
    );
}

#[test]
fn an_oom_kill_is_one_event_with_its_guest_and_its_limit() {
    let table = |constraint: &str| {
        format!(
            "[9.1] java invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE), order=0, \
             oom_score_adj=0\n[9.1] CPU: 3 PID: 4242 Comm: java Not tainted 5.15.0-91-generic \
             #101-Ubuntu\n[9.1] [   4711] 64055  4711  4456448  4194304 34000000        \
             0             0 qemu-system-x86\n[9.1] \
             oom-kill:constraint={constraint},nodemask=(null),task_memcg=/machine.slice/machine-qemu\\x2d2\\x2ddb\\x2d01.scope/libvirt/emulator,task=qemu-system-x86,pid=4711,uid=64055\n[9.1] \
             Out of memory: Killed process 4711 (qemu-system-x86) total-vm:17825792kB, \
             anon-rss:16777216kB\n"
        )
    };
    let line = one(&table("CONSTRAINT_MEMCG"));
    assert_eq!(
        (line.kind, line.pid, line.guest.as_deref()),
        (LogKind::KilledForMemory, Some(4711), Some("db-01"))
    );
    assert_eq!(line.data, Some(CGROUP_LIMIT));
    assert!(
        line.text.ends_with("it had 16777216kb of memory"),
        "{}",
        line.text
    );
    assert_eq!(
        one(&table("CONSTRAINT_MEMORY_POLICY")).data,
        Some(NODE_LIMIT)
    );
    assert_eq!(
        one(&table("CONSTRAINT_NONE")).data,
        None,
        "the host's memory"
    );
    let killed = "[9.2] Memory cgroup out of memory: Killed process 24790 (qemu-system-x86) \
        total-vm:2820660kB\n";
    assert_eq!(one(killed).data, Some(CGROUP_LIMIT));
    assert_eq!(
        parse(&(table("CONSTRAINT_MEMCG") + killed)).len(),
        2,
        "two guests"
    );
}

#[test]
fn lockups_count_where_they_name_a_vmm() {
    let stall = |comm: &str| {
        format!(
            "[10.0] rcu: INFO: rcu_sched self-detected stall on CPU\n[10.1] rcu: \t3-....: (5249 \
             ticks this GP)\n[10.2] NMI backtrace for cpu 3\n[10.3] CPU: 3 PID: 4711 Comm: {comm} \
             Tainted: P           O      5.4.106-1-pve\n[10.4] Call Trace:\n[10.5]  \
             vmx_vcpu_run+0x1/0x2 [kvm_intel]\n[10.6] ---[ end trace 0 ]---\n"
        )
    };
    let line = one(&stall("CPU 2/KVM"));
    assert_eq!(
        (line.kind, line.pid, line.vcpu),
        (LogKind::Lockup, Some(4711), Some(2))
    );
    assert!(line.text.contains("CPU 2/KVM"), "{}", line.text);
    assert_eq!(
        parse(&stall("postgres").replace("[kvm_intel]", "[xfs]")),
        []
    );
    assert_eq!(
        one(&stall("kworker/3:1")).kind,
        LogKind::Lockup,
        "a frame in KVM"
    );
    for (text, kind, pid, seconds) in [
        (
            "[9.0] INFO: task CPU 0/KVM:77 blocked for more than 120 seconds.",
            LogKind::HungTask,
            Some(77),
            Some(120),
        ),
        (
            "[9.0] INFO: task qemu-system-x86:78 blocked for more than 241 seconds.",
            LogKind::HungTask,
            Some(78),
            Some(241),
        ),
        (
            "[9.0] BUG: soft lockup - CPU#5 stuck for 67s! [qemu-kvm:79]",
            LogKind::Lockup,
            Some(79),
            Some(67),
        ),
        (
            "[9.0] NMI watchdog: Watchdog detected hard LOCKUP on cpu 3\n[9.1] CPU: 3 PID: 80 \
            Comm: CPU 1/KVM Not tainted",
            LogKind::Lockup,
            Some(80),
            None,
        ),
    ] {
        let line = one(text);
        assert_eq!(
            (line.kind, line.pid, line.data),
            (kind, pid, seconds),
            "{text}"
        );
    }
    assert_eq!(
        parse("[9.0] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [swapper/0:1]\n"),
        []
    );
    assert_eq!(
        parse("[9.0] INFO: task jbd2/sda1-8:300 blocked for more than 120 seconds.\n"),
        []
    );
}

#[test]
fn a_stack_keeps_the_functions_of_its_thread() {
    let log = "\
[9.1] INFO: task qemu-system-x86:6902 blocked for more than 120 seconds.
[9.1] Call Trace:
[9.1] [<ffffffff8163a879>] schedule+0x29/0x70
[9.1] [<ffffffffa0256a30>] ? xfs_ilock_data_map_shared+0x30/0x40 [xfs]
[9.1] [<ffffffff81301764>] call_rwsem_down_read_failed+0x14/0x30
[9.1] [<ffffffffa02569bc>] xfs_ilock+0xdc/0x120 [xfs]
";
    let line = one(log);
    let stack = "… in call_rwsem_down_read_failed < xfs_ilock";
    assert!(line.text.ends_with(stack), "{}", line.text);
    let lockup = "\
[9.0] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [CPU 1/KVM:1035079]
[9.0] RIP: 0010:smp_call_function_single+0xdf/0x100
[9.0]  vmx_vcpu_load+0x2be/0x410 [kvm_intel]
[9.1] Sending NMI from CPU 1 to CPUs 0,2-95:
[9.1] NMI backtrace for cpu 0
[9.1] RIP: 0010:nfs_wait+0x1/0x100
";
    assert!(
        one(lockup)
            .text
            .ends_with("… in smp_call_function_single < vmx_vcpu_load"),
        "{}",
        one(lockup).text
    );
}

#[test]
fn writes_that_kvm_drops_are_not_called_faults() {
    let kind = |what: &str| {
        one(&format!(
            "kvm_amd: kvm [67539]: vcpu3, guest rIP: 0x1 Unhandled {what} = 0x0\n"
        ))
        .kind
    };
    assert_eq!(kind("WRMSR(0xc0010115)"), LogKind::IgnoredMsr);
    assert_eq!(kind("WRMSR(0x187)"), LogKind::IgnoredMsr);
    assert_eq!(kind("WRMSR(0x40000118)"), LogKind::UnhandledMsr);
    assert_eq!(kind("RDMSR(0x1d9)"), LogKind::UnhandledMsr);
    assert_eq!(
        one("kvm [1]: vcpu0, guest rIP: 0x1 unhandled wrmsr: 0x1d9 data 0x1\n").kind,
        LogKind::UnhandledMsr
    );
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
}

proptest! {
    #[test]
    fn any_order_of_pieces_is_survived(pieces in proptest::collection::vec(
        prop_oneof![
            Just("[1.5] ".to_owned()), Just("\n".to_owned()), Just("kvm [5]: vcpu0, guest rIP: \
                0x1 ".to_owned()),
            Just("*** Guest State ***".to_owned()), Just("reason=".to_owned()), Just("Comm: CPU \
                0/KVM".to_owned()),
            Just("Killed process ".to_owned()), Just("(qemu-kvm) ".to_owned()), Just("oom-kill:task=".to_owned()),
            Just("machine-qemu\\x2d1\\x2d".to_owned()), Just(".scope".to_owned()),
            Just("invoked oom-killer".to_owned()),
            Just("soft lockup - CPU#1 stuck for ".to_owned()), Just("[CPU 0/KVM:1]".to_owned()),
            Just("INFO: task é blocked for more than ".to_owned()), Just("unhandled rdmsr: ".to_owned()),
            "[0-9a-fx:]{0,12}", "[é日\u{301} ]{0,3}",
        ], 0..40)) {
        let _ = parse(&pieces.concat());
    }

    #[test]
    fn any_text_is_survived(text in any::<String>()) {
        let _ = parse(&format!("kvm [1]: vcpu0 unhandled rdmsr: {text}"));
        let _ = parse(&format!("kvm {text} took a split_lock"));
    }
}

#[test]
fn what_keeps_kvm_from_being_used_is_told_apart() {
    use no_kvm::{BUSY, NO_EXTENSION, OFF_IN_FIRMWARE};
    for (text, reason) in [
        ("[ 3.0] kvm: disabled by bios", OFF_IN_FIRMWARE),
        (
            "[ 3.0] kvm: support for 'kvm_intel' disabled by bios",
            OFF_IN_FIRMWARE,
        ),
        (
            "[ 3.0] kvm_amd: SVM disabled (by BIOS) in MSR_VM_CR on CPU 0",
            OFF_IN_FIRMWARE,
        ),
        ("[ 3.0] kvm: no hardware support", NO_EXTENSION),
        ("[ 3.0] kvm_intel: VMX not supported by CPU 0", NO_EXTENSION),
        ("[ 3.0] kvm: enabling virtualization on CPU3 failed", BUSY),
    ] {
        let line = one(text);
        assert_eq!(
            (line.kind, line.data),
            (LogKind::NoKvm, Some(reason)),
            "{text}"
        );
    }
    assert_eq!(
        parse("[ 3.0] kvm: no hardware support\n[ 3.1] kvm: Nested Virtualization enabled\n"),
        []
    );
    assert_eq!(
        parse("[ 0.0] Hypervisor detected: KVM\n[ 3.0] kvm: no hardware support\n"),
        [],
        "a guest"
    );
    assert_eq!(parse("[ 3.0] x86/cpu: SGX disabled by BIOS.\n"), []);
}

#[test]
fn heat_and_failing_disks_are_recognised() {
    for (text, kind) in [
        (
            "[1.0] mce: CPU0: Package temperature above threshold, cpu clock throttled (total \
                events = 1)",
            LogKind::Overheated,
        ),
        (
            "[ 9.0] nvme nvme0: I/O 900 (I/O Cmd) QID 2 timeout, aborting",
            LogKind::HostDisk,
        ),
        (
            "[ 9.0] blk_update_request: critical medium error, dev sdb, sector 7",
            LogKind::HostDisk,
        ),
        (
            "[ 9.0] sd 0:0:0:0: [sda] tag#3 FAILED Result: hostbyte=DID_BAD_TARGET",
            LogKind::HostDisk,
        ),
        (
            "Mär 27 11:47:53 h kernel: nfs: server nas not responding, still trying",
            LogKind::HostDisk,
        ),
    ] {
        assert_eq!(one(text).kind, kind, "{text}");
    }
    let full = one(
        "[ 9.0] device-mapper: thin: 252:4: switching pool to out-of-data-space (queue IO) mode",
    );
    assert_eq!((full.kind, full.data), (LogKind::HostDisk, Some(28)));
    let healthy = "[1.0] perf: interrupt took too long (2520 > 2500), lowering \
        kernel.perf_event_max_sample_rate\n[1.4] clocksource: Switched to clocksource tsc\n[1.5] \
        DMAR: Intel(R) Virtualization Technology for Directed I/O\n[1.6] vfio-pci 0000:01:00.0: \
        resetting\n[1.7] vfio-pci 0000:01:00.0: reset done\n[1.8] mce: CPU0: Core \
        temperature/speed normal\n[9.0] Buffer I/O error on dev sr0, logical block 0, async page \
        read\n[9.0] md/raid1:md0: active with 2 out of 2 mirrors\n";
    assert_eq!(parse(healthy), []);
    let guest = "[0.0] Hypervisor detected: KVM\n[9.0] TSC found unstable after boot, most likely \
        due to broken BIOS.";
    assert_eq!(parse(guest), [], "another clock than the host's");
}

#[test]
fn a_kind_of_an_older_recording_is_read_as_another_line() {
    #[derive(serde::Deserialize)]
    struct Kinds {
        kinds: Vec<LogKind>,
    }
    let old: Kinds = serde_json::from_str(r#"{"kinds": ["StartFailed", "Killed"]}"#).unwrap();
    assert_eq!(old.kinds, [LogKind::Other, LogKind::Killed]);
}
