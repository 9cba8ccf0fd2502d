#![expect(clippy::format_collect, reason = "short texts of tests")]

use super::line::{TraceLine, lost, parse};
use crate::files::Files;
use crate::{ImportOptions, load};
use kvm::Space;
use kvm::isa::Isa;
use kvm::thread_name::Role;
use proptest::prelude::*;
use sample::{DomainSample, Sample};

fn import(text: &str) -> Sample {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("any");
    std::fs::write(&path, text).unwrap();
    let imported = load(&[path], &ImportOptions::default());
    assert_eq!(imported.errors, []);
    assert_eq!(imported.source, "trace");
    imported.sample
}

fn exits(domain: &DomainSample) -> Vec<(Isa, u32, u64, Option<u64>)> {
    let all = domain.threads.iter().flat_map(|t| &t.events.exits);
    all.map(|c| (c.isa, c.code, c.time.count, c.time.total_ns))
        .collect()
}

#[test]
fn events_without_room_are_counted_and_said() {
    let line = |i: usize| {
        let (s, us) = (10 + i / 1000, 900 * (i % 1000));
        let exit = format!(
            "vm-{} [000] {s}.{us:06}: kvm_exit: reason R_{i} rip 0x1 info 0 0\n",
            7 + i % 4
        );
        exit + &format!(
            "vm-{} [000] {s}.{:06}: kvm_entry: vcpu 0\n",
            7 + i % 4,
            us + 9
        )
    };
    let sample = import(&(0..1500).map(line).collect::<String>());
    let counted: u64 = sample.domains.iter().flat_map(exits).map(|e| e.2).sum();
    assert_eq!((counted, sample.engine.overflow), (1024, 476));
    let said = sample.sources[0].cause.as_deref();
    assert!(
        said.is_some_and(|said| said.starts_with("476 events have no row")),
        "{said:?}"
    );
    assert_eq!(sample.host.kernel_log, [], "they are no unknown lines");
}

#[test]
fn a_trace_without_exits_is_read() {
    let nested = "<...>-315119 [010]  3733.092646: kvm_nested_vmexit:    vcpu 0 reason npf rip \
        0x400433 info1 0x6\n";
    let sample = import(nested);
    assert_eq!(
        sample.domains[0].kvm_events.get("kvm_nested_vmexit"),
        Some(&1)
    );
}

#[test]
fn lines_without_times_are_counted() {
    let nested = "kvm_exit: reason EXIT_NPF rip 0x1 info 200000006 1ab000\nkvm_nested_vmexit: vcpu \
        0 reason npf rip 0x1 info1 0x6 info2 0x1ab000\nkvm_nested_vmexit_inject: reason EXIT_NPF \
        info1 6 info2 1ab000\nkvm_nested_vmrun: rip: 0x1 vmcb: 0x2\nkvm_page_fault: address 1ab000 \
        error_code 6\nkvm_emulate_insn: 0:7ffbb280: 0f aa\nkvm_inj_exception: #GP (0x0)\n";
    let counted = import(nested).domains[0].kvm_events.clone();
    assert_eq!(
        (counted.len(), counted.values().sum::<u64>()),
        (7, 7),
        "{counted:?}"
    );
    for other in [
        "[ 12.345678] kvm_intel: L1TF CPU bug present",
        "qemu-system-x86_64: kvm_init_vcpu failed: Cannot allocate memory",
        "host kvm_set_msr_common: MSR",
    ] {
        assert_eq!(parse(other), None, "{other}");
    }
}

#[test]
fn names_of_trace_cmds_plugin_are_known() {
    let text = "qemu-7 [010] 15.8136: kvm_exit: reason EXIT_IOIO rip 0x6b43 info 920091 \
        6b45\nqemu-7 [010] 15.8137: kvm_entry: vcpu 0\nqemu-7 [010] 15.8138: kvm_exit: reason \
        EXIT_NPF rip 0x1 info 6 1ab000\n";
    let all: Vec<_> = exits(&import(text).domains[0])
        .into_iter()
        .map(|e| (e.0, e.1))
        .collect();
    assert_eq!(all, [(Isa::Svm, 0x7b), (Isa::Svm, 0x400)]);
}

#[test]
fn lines_of_every_tool_are_taken_apart() {
    let expected = TraceLine {
        comm: "CPU 1/KVM",
        tid: 131,
        pid: None,
        cpu: 7,
        in_interrupt: false,
        time: Some(58_246_573_000),
        event: "kvm_entry",
        text: "vcpu 1, rip 0x8130",
    };
    for line in [
        "       CPU 1/KVM-131     [007] d..1.    58.246573: kvm_entry: vcpu 1, rip 0x8130",
        "       CPU 1/KVM-131   [007]    58.246573: kvm_entry:            vcpu 1, rip 0x8130",
        "       CPU 1/KVM   131 [007]    58.246573:          kvm:kvm_entry: vcpu 1, rip 0x8130",
        "CPU 1/KVM-131   (-------) [007] ....    58.246573: kvm_entry: vcpu 1, rip 0x8130",
        "CPU 1/KVM 131 [007] 58.246573000: kvm:kvm_entry: vcpu 1, rip 0x8130",
    ] {
        assert_eq!(parse(line), Some(expected), "{line}");
    }
    let with_process = TraceLine {
        pid: Some(120),
        ..expected
    };
    assert_eq!(
        parse("CPU 1/KVM-131 (    120) [007] d..1. 58.246573: kvm_entry: vcpu 1, rip 0x8130"),
        Some(with_process)
    );
    let in_interrupt = parse("<idle>-0 [001] d.h2. 58.1: x: y");
    assert_eq!(
        in_interrupt, None,
        "a time has three digits behind the point at least"
    );
    let in_interrupt = parse(
        "<idle>-0 [001] d.h2. 58.100: sched_waking: comm=CPU 0/KVM pid=9 prio=120 target_cpu=001",
    )
    .unwrap();
    assert!(in_interrupt.in_interrupt && in_interrupt.tid == 0);
    let dashed =
        parse(" qemu-system-x86-6660  [007]   398.691401: kvm_fpu:              unload").unwrap();
    assert_eq!(
        (dashed.comm, dashed.tid, dashed.text),
        ("qemu-system-x86", 6660, "unload")
    );
    for other in [
        "",
        "# tracer: nop",
        "cpus=8",
        "a: b",
        "[ 12.345678] kvm: x",
        "x-1 [000] 99999999999999.1: kvm_exit: ",
    ] {
        assert_eq!(parse(other), None, "{other}");
    }
    assert_eq!(lost("CPU:3 [LOST 123 EVENTS]"), Some(123));
    assert_eq!(lost("a [LOST 123 EVENTS]"), None);
}

#[test]
fn texts_of_all_kernels_are_understood() {
    let exit = |text: &str| {
        let s = import(&format!(
            "a 1 [0] 1.000: kvm:kvm_exit: {text}\na 1 [0] 1.001: kvm:kvm_entry: vcpu 5\n"
        ));
        exits(&s.domains[0])[0]
    };
    for (text, isa, code) in [
        ("reason HLT rip 0xffffffff8104f5b6 info 0 0", Isa::Vmx, 12),
        ("reason EPT_VIOLATION rip 0x1 info 81 0", Isa::Vmx, 48),
        (
            "vcpu 5 reason IO_INSTRUCTION rip 0x8049 info1 0x000000000608000b info2 0x0",
            Isa::Vmx,
            30,
        ),
        (
            "vcpu 5 reason INVALID_STATE FAILED_VMENTRY rip 0x0 info1 0x0",
            Isa::Vmx,
            0x8000_0021,
        ),
        (
            "vcpu 5 reason npf rip 0x8141 info1 0x000000010000000e",
            Isa::Svm,
            0x400,
        ),
        (
            "TRAP: HSR_EC: 0x0024 (DABT_LOW), PC: 0xffff800010101234",
            Isa::Arm64,
            0x24,
        ),
        (
            "IRQ: HSR_EC: 0x0000 (UNKNOWN), PC: 0xffff800010101234",
            Isa::Arm64,
            0x100,
        ),
    ] {
        assert_eq!(exit(text), (isa, code, 1, Some(1_000_000)), "{text}");
    }
    let s = import(
        "a 1 [0] 1.000: kvm:kvm_exit: reason WOBBLE rip 0x1\na 1 [0] 1.001: kvm:kvm_entry: vcpu \
        5\n",
    );
    assert_eq!(
        s.domains[0].threads[0].events.exits[0].name.as_deref(),
        Some("WOBBLE")
    );
}

const ROUND: &str = "\
CPU 0/KVM-99 [000] d..1. 10.000100: kvm_exit: vcpu 0 reason io rip 0x8049 info1 0x06080041 info2 0x804a
CPU 0/KVM-99 [000] ..... 10.000110: kvm_userspace_exit: reason KVM_EXIT_IO (2)
CPU 0/KVM-99 [000] ..... 10.000140: kvm_pio: pio_read at 0x608 size 4 count 1 val 0xcd
CPU 0/KVM-99 [000] d..1. 10.000150: kvm_entry: vcpu 0, rip 0x804a
CPU 0/KVM-99 [000] d..1. 10.000200: kvm_exit: vcpu 0 reason npf rip 0x8067 info1 0xc info2 0xfed000f0
CPU 0/KVM-99 [000] ..... 10.000210: kvm_mmio: mmio unsatisfied-read len 4 gpa 0xfed000f0 val 0x0
CPU 0/KVM-99 [000] ..... 10.000220: kvm_userspace_exit: reason KVM_EXIT_MMIO (6)
CPU 0/KVM-99 [000] ..... 10.000240: kvm_mmio: mmio read len 4 gpa 0xfed000f0 val 0x1
CPU 0/KVM-99 [000] d..1. 10.000250: kvm_entry: vcpu 0, rip 0x8069
CPU 0/KVM-99 [000] d..1. 10.000300: kvm_exit: vcpu 0 reason msr rip 0x8077 info1 0x1 info2 0x0
CPU 0/KVM-99 [000] ..... 10.000310: kvm_msr: msr_write 6e0 = 0x1234 (#GP)
CPU 0/KVM-99 [000] d..1. 10.000320: kvm_entry: vcpu 0, rip 0x8079
CPU 0/KVM-99 [000] d..1. 10.000400: kvm_exit: vcpu 0 reason hlt rip 0x8079 info1 0x0 info2 0x0
CPU 0/KVM-99 [000] ..... 10.001400: kvm_vcpu_wakeup: wait time 990000 ns, polling valid
CPU 0/KVM-99 [000] ..... 10.001401: kvm_userspace_exit: reason restart (4)
CPU 0/KVM-99 [000] d..1. 10.001500: kvm_entry: vcpu 0, rip 0x8079
";

#[test]
fn exits_and_accesses_are_paired() {
    let s = import(ROUND);
    let guest = &s.domains[0];
    assert_eq!(
        exits(guest),
        [
            (Isa::Svm, 0x78, 1, Some(1_001_000)),
            (Isa::Svm, 0x7b, 1, Some(50_000)),
            (Isa::Svm, 0x7c, 1, Some(20_000)),
            (Isa::Svm, 0x400, 1, Some(50_000)),
        ]
    );
    let t = &guest.threads[0];
    assert_eq!(
        (t.tid, t.comm.as_str(), t.role, t.index),
        (99, "CPU 0/KVM", Role::Vcpu, Some(0))
    );
    let accesses: Vec<_> = t
        .events
        .accesses
        .iter()
        .map(|a| (a.space, a.address, a.time.total_ns, a.faults))
        .collect();
    assert_eq!(
        accesses,
        [
            (Space::Pio, Some(0x608), Some(50_000), 0),
            (Space::Mmio, Some(0xfed0_00f0), Some(50_000), 0),
            (Space::Msr, Some(0x6e0), Some(20_000), 1),
        ]
    );
    let hlt = &t.events.exits[0];
    assert_eq!(hlt.halted_ns, Some(990_000));
    let served: Vec<_> = t
        .events
        .userspace
        .iter()
        .map(|u| (u.reason, u.count))
        .collect();
    assert_eq!(served, [(-4, 1), (2, 1), (6, 1)]);
    assert_eq!(guest.kvm_events["kvm_userspace_exit"], 3);
    assert_eq!(s.mono_ns, 1_400_000, "from the first to the last event");
}

#[test]
fn without_entries_exits_are_counted_without_time() {
    let only: String = ROUND
        .lines()
        .filter(|l| !l.contains("kvm_entry"))
        .map(|l| format!("{l}\n"))
        .collect();
    let counts: Vec<_> = exits(&import(&only).domains[0])
        .iter()
        .map(|e| (e.2, e.3))
        .collect();
    assert_eq!(counts, [(1, None); 4]);
}

#[test]
fn no_exit_is_paired_across_lost_events() {
    let cut = ROUND.replace(
        "CPU 0/KVM-99 [000] d..1. 10.000150",
        "CPU:0 [LOST 17 EVENTS]\nCPU 0/KVM-99 [000] d..1. 10.000150",
    );
    let s = import(&cut);
    assert_eq!((s.engine.lost, exits(&s.domains[0]).len()), (17, 3));
    let access = &s.domains[0].threads[0].events.accesses[0];
    assert_eq!((access.time.count, access.time.total_ns), (1, None));
}

#[test]
fn the_scheduler_is_heard() {
    let s = import(&format!(
        "{ROUND}<idle>-0 [001] d.h2. 10.002000: sched_waking: comm=CPU 0/KVM pid=99 prio=120 \
        target_cpu=001\n<idle>-0 [001] d..2. 10.002040: sched_switch: prev_comm=swapper/1 \
        prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=CPU 0/KVM next_pid=99 \
        next_prio=120\nx-5 [001] d..2. 10.002100: sched_migrate_task: comm=CPU 0/KVM pid=99 \
        prio=120 orig_cpu=1 dest_cpu=3\nCPU 0/KVM-99 [003] d..2. 10.002200: sched_switch: CPU \
        0/KVM:99 [120] R ==> stress:77 [120]\nstress-77 [003] d..2. 10.002900: sched_switch: \
        stress:77 [120] S ==> CPU 0/KVM:99 [120]\n"
    ));
    let events = &s.domains[0].threads[0].events;
    assert_eq!(events.migrations.total, Some(1));
    assert_eq!(
        events.wakeups.as_ref().map(|w| (w.count, w.total_ns)),
        Some((1, Some(40_000)))
    );
    let by: Vec<_> = events
        .preempted_by
        .iter()
        .map(|t| (t.comm.as_str(), t.tid, t.ns))
        .collect();
    assert_eq!(by, [("stress", 77, 700_000)]);
}

#[test]
fn a_trace_of_the_scheduler_alone_says_who_has_the_cpu() {
    let s = import(
        "<idle>-0 [001] d.h2. 10.000000: sched_waking: comm=CPU 0/KVM pid=99 prio=120 \
        target_cpu=001\n<idle>-0 [001] d..2. 10.000100: sched_switch: prev_comm=swapper/1 \
        prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=CPU 0/KVM next_pid=99 \
        next_prio=120\nCPU 0/KVM-99 [001] d..2. 10.100100: sched_switch: prev_comm=CPU 0/KVM \
        prev_pid=99 prev_prio=120 prev_state=R+ ==> next_comm=rustc next_pid=77 \
        next_prio=120\nrustc-77 [001] d..2. 10.300100: sched_switch: rustc:77 [120] R ==> CPU \
        0/KVM:99 [120]\nrustc-77 [002] d..2. 10.400100: sched_switch: rustc:77 [120] S ==> bash:78 \
        [120]\nx-5 [001] d..2. 10.500100: sched_waking: comm=CPU 1/KVM pid=100 prio=120 \
        target_cpu=003\n",
    );
    let [guest] = s.domains.as_slice() else {
        panic!("{:?}", s.domains)
    };
    let times = |at: usize| guest.threads[at].cpu.map(|cpu| (cpu.run_ns, cpu.wait_ns));
    assert_eq!(
        guest
            .threads
            .iter()
            .map(|t| (t.tid, t.index))
            .collect::<Vec<_>>(),
        [(99, Some(0)), (100, Some(1))]
    );
    assert_eq!(times(0), Some((Some(300_000_000), Some(200_100_000))));
    let woken: Vec<_> = guest
        .threads
        .iter()
        .map(|t| t.events.woken_by.len())
        .collect();
    assert_eq!(woken, [1, 1]);
    let out = "CPU 0/KVM-99 [001] d..2. 10.600000: sched_switch: CPU 0/KVM:99 [120] S ==> a:7 \
        [120]\n";
    let again = import(&out.repeat(2));
    assert_eq!(
        again.domains[0].threads[0].cpu, None,
        "it left the CPU twice, so a switch is missing"
    );
    assert_eq!(times(1), None, "it was woken, and not seen to run");
    assert_eq!(guest.threads[0].events.preempted_by[0].comm, "rustc");
}

#[test]
fn two_guests_of_a_trace_without_processes_are_distinguished() {
    let second = ROUND.replace("KVM-99", "KVM-205");
    let third = ROUND
        .replace("CPU 0/KVM-99", "CPU 1/KVM-206")
        .replace("vcpu 0", "vcpu 1");
    let s = import(&format!("{ROUND}{second}{third}"));
    let mut tids: Vec<Vec<_>> = s
        .domains
        .iter()
        .map(|d| d.threads.iter().map(|t| t.tid).collect())
        .collect();
    tids.sort();
    assert_eq!(tids, [vec![99], vec![205, 206]]);
    let named = format!("{ROUND}{second}")
        .replace("KVM-99 ", "KVM-99 ( 90) ")
        .replace("KVM-205 ", "KVM-205 ( 90) ");
    assert_eq!(import(&named).domains.len(), 1, "one process is one guest");
}

proptest! {
    #[test]
    fn no_line_makes_it_panic(lines in proptest::collection::vec(
        prop_oneof![
            "[ -~]{0,80}",
            any::<String>(),
            "CPU [0-9]/KVM-[0-9]{1,3} \\[00[0-3]\\] [0-9]{1,10}\\.[0-9]{3,9}: \
            kvm_(exit|entry|pio|mmio|msr|userspace_exit|vcpu_wakeup): [ -~]{0,40}",
            "a 1 \\[0\\] [0-9]{1,3}\\.000: kvm:kvm_(exit|entry): (vcpu [0-9]{0,12} )?reason [ \
                -~]{0,20} rip",
            "x-[0-9]{1,12} \\[00[0-3]\\] [0-9]\\.[0-9]{3}: sched_(switch|waking|migrate_task): [ \
                -~]{0,60}",
            Just("CPU:0 [LOST 18446744073709551615 EVENTS]".to_owned()),
        ], 0..60)) {
        let text = lines.join("\n");
        let _ = super::read(&text, None, &mut Files::default());
    }
}

#[test]
fn faults_at_one_place_are_kept_with_their_address() {
    let fault = |at: usize, emulated: &str| {
        format!(
            "CPU 1/KVM-131 [001] d..1. 58.{at:06}: kvm_exit: vcpu 1 reason EPT_VIOLATION rip \
             0x1234 info1 0x181 info2 0x0 intr_info 0x0 error_code 0x0\nCPU 1/KVM-131 [001] d..1. \
             58.{at:06}: kvm_page_fault: address fd000 error_code 181\n{emulated}CPU 1/KVM-131 \
             [001] d..1. 58.{at:06}: kvm_entry: vcpu 1\n"
        )
    };
    let emulated = "CPU 1/KVM-131 [001] d..1. 58.246573: kvm_mmio: mmio write len 4 gpa 0xfd000 \
        val 0x0\n";
    let sample = import(&(0..7).map(|at| fault(at, "")).collect::<String>());
    let [place] = sample.domains[0].places.as_slice() else {
        panic!("{:?}", sample.domains[0].places)
    };
    assert_eq!(
        (place.rip, place.address, place.error_code),
        (0x1234, Some(0xf_d000), Some(0x181))
    );
    assert_eq!(
        (place.reason.as_str(), place.count, place.of),
        ("EPT_VIOLATION", 7, 7)
    );
    assert_eq!(
        import(&(0..7).map(|at| fault(at, emulated)).collect::<String>()).domains[0].places,
        []
    );
    let apic = (0..7)
        .map(|at| fault(at, ""))
        .collect::<String>()
        .replace("fd000", "fee000b0");
    assert_eq!(import(&apic).domains[0].places, []);

    // A device that KVM knows, on AMD.
    let known = (0..7)
        .map(|at| fault(at, ""))
        .collect::<String>()
        .replace("EPT_VIOLATION", "npf");
    assert_eq!(
        import(&known.replace("code 181", "code 10000000d")).domains[0].places,
        []
    );
}
