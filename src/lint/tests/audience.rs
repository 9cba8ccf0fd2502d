//! No finding speaks of another vendor's KVM, nor of a VMM or manager that the guest does not have.

use super::*;
use crate::kvm::exit_reason;
use crate::kvm::{Isa, Space, cmdline, kernel_log};
use crate::sample::{DomainSample, Throttling, Vmm};

const LOG: &str = "[3590.0] *** Guest State ***\n[3591.0] kvm: INTERNAL_ERROR in emulation\n\
    [3592.0] Out of memory: Killed process 5 (qemu-kvm) total-vm:1kB\n\
    [3593.0] qemu-kvm[5]: segfault at 0 ip 00007f sp 00007f error 4\n\
    [3594.0] kvm [5]: vcpu0, guest rIP: 0x1 ignored rdmsr: 0x122 data 0x0\n\
    [3595.0] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [CPU 0/KVM:7]\n\
    [3596.0] INFO: task CPU 0/KVM:7 blocked for more than 120 seconds.\n\
    [3597.0] x86/split lock detection: #AC: CPU 0/KVM/7 took a split_lock trap at address: 0x1\n";

/// Who runs the guest.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manager {
    Libvirt,
    QemuByHand,
    Other(&'static str),
}

/// Exits by names of both vendors; a name that the other vendor has is left out.
fn with_exits(thread: Thread, isa: Isa, all: &[(&str, &str, f64)]) -> Thread {
    all.iter().fold(thread, |mut thread, (vmx, svm, rate)| {
        let name = if isa == Isa::Svm { svm } else { vmx };
        if !name.is_empty() {
            thread = thread.exits(name, *rate, 20.0);
            let cell = &mut thread.exits.last_mut().unwrap().0;
            (cell.isa, cell.code) = (isa, exit_reason::code(isa, name).unwrap_or(200));
        }
        thread
    })
}

/// A thread that does everything a rule looks at.
fn everything(vcpu: u32, thread: Thread, isa: Isa) -> Thread {
    let exits = [
        ("IO_INSTRUCTION", "io", 20_000.0),
        ("EPT_MISCONFIG", "npf", 20_000.0),
        ("EPT_VIOLATION", "npf", 20_000.0),
        ("PAUSE_INSTRUCTION", "pause", 9000.0),
        ("EXTERNAL_INTERRUPT", "interrupt", 9000.0),
        ("INTERRUPT_WINDOW", "vintr", 900.0),
        ("MSR_WRITE", "msr", 30_000.0),
        ("TRIPLE_FAULT", "shutdown", 3.0),
        ("BUS_LOCK", "bus_lock", 30.0),
        ("INVALID_STATE", "", 3.0),
        ("VMRESUME", "vmrun", 9000.0),
    ];
    with_exits(thread.on(0).cpu(60.0, 5.0, 20.0, 30.0), isa, &exits)
        .pio(0x608, Direction::Read, 20_000.0, 20.0)
        .pio(0x70, Direction::Write, 3000.0, 20.0)
        .pio(0x71, Direction::Read, 3000.0, 20.0)
        .pio(0x40, Direction::Write, 3000.0, 20.0)
        .pio(0x3f8, Direction::Write, 9000.0, 20.0)
        .pio(0x5658, Direction::Read, 9000.0, 20.0)
        .mmio(0xfed0_00f0, Direction::Read, 9000.0, 20.0)
        .mmio(0xfee0_0300, Direction::Write, 30_000.0, 20.0)
        .msr(0x4000_0020, Direction::Read, 20_000.0, 20.0)
        .msr(0x830, Direction::Write, 40_000.0, 20.0)
        .userspace(2, 20_000.0)
        .userspace(8, 3.0)
        .userspace(9, 3.0)
        .userspace(17, 3.0)
        .userspace(37, 3.0)
        .userspace(-14, 3.0)
        .moves(50.0, 20.0, 3)
        .wakes(200.0, 3000.0)
        .may_run(if vcpu < 2 { "1" } else { "0-7" })
}

fn scene(manager: Manager, isa: Isa, windows: bool, calm: bool) -> Model {
    let mut guest = Guest::new("g", 5).mtree().vcpus(4, |v, t| {
        if !calm {
            return everything(v, t, isa);
        }
        with_exits(t.on(v).cpu(2.0, 0.0, 1.0, 0.0), isa, &[("HLT", "hlt", 2000.0), ("MSR_WRITE", "msr", 300.0)])
            .pio(0x71, Direction::Read, 1500.0, 20.0)
            .msr(0x6e0, Direction::Write, 300.0, 2.0)
    });
    guest = guest.emulator(|t| t.cpu(0.0, 60.0, 35.0, 30.0).may_run("1").on(1));
    guest = guest.iothread(1, |t| t.cpu(0.0, 20.0, 5.0, 0.0).may_run("1").on(1));
    let os = if windows { "http://microsoft.com/win/10" } else { "http://ubuntu.com/ubuntu/22.04" };
    guest = guest.os(os);
    let synic = "<features><hyperv><vpindex state='on'/><synic state='on'/></hyperv></features>";
    guest = match manager {
        Manager::Libvirt => guest.xml(&format!("<memory unit='GiB'>4</memory><vcpu>4</vcpu>{synic}")),
        Manager::QemuByHand => guest.facts(|f| {
            let command =
                cmdline::parse_text("qemu-system-x86_64 -machine q35 -m 4G -smp 4 -cpu host,hv-synic,hv-vpindex");
            (f.command, f.uuid) = (Some(Arc::new(command.unwrap())), None);
        }),
        Manager::Other(name) => guest.facts(|f| (f.vmm, f.uuid, f.machine) = (Vmm::Other(name.into()), None, None)),
    };
    guest.counters.insert("nested_run".into(), 5000.0);
    guest.counters.insert("halt_poll_fail_ns".into(), 900_000_000.0);
    guest.counters.insert("halt_poll_success_ns".into(), 100_000_000.0);
    let throttled = Throttling { group: "domain".into(), periods: 10, throttled: 9, throttled_ns: 500_000_000 };
    guest.rest = DomainSample {
        throttling: vec![throttled],
        node_memory: [(0, 1 << 30), (1, 1 << 32)].into(),
        swap_bytes: Some(1 << 30),
        ..DomainSample::default()
    };
    let mut fixture =
        Fixture::new(Host::numa(2, 4, 1).task("ksmd", true, 1, 30.0).task("backup", false, 1, 50.0)).guest(guest);
    let (module, parameter) = if isa == Isa::Svm { ("kvm_amd", "avic") } else { ("kvm_intel", "enable_apicv") };
    fixture.host.facts.kvm_flavour = Some(module.into());
    fixture.host.facts.params.insert(format!("{module}.{parameter}"), if calm { "Y" } else { "N" }.into());
    let mut model = fixture.model();
    model.mono_s = 3600.0;
    model.host.kernel_log = kernel_log::parse(LOG);
    for access in &mut model.domains[0].accesses {
        access.faults = u64::from(access.space == Space::Msr);
    }
    model
}

/// Words that a finding about such a guest must not have.
fn foreign(manager: Manager, isa: Isa) -> Vec<&'static str> {
    let mut words = if isa == Isa::Svm { vec!["kvm_intel", "enable_apicv"] } else { vec!["kvm_amd"] };
    if manager != Manager::Libvirt {
        words.extend(["virsh", "libvirt", "<emulatorpin", "<memory", "<features", "<timer", "</"]);
    }
    if matches!(manager, Manager::Other(_)) {
        words.extend(["QEMU", "qemu-system", "pgrep -o qemu", "-device ", "-machine ", "-overcommit ", "-cpu "]);
    }
    words
}

#[test]
fn a_finding_speaks_of_what_its_host_and_guest_have() {
    let managers =
        [Manager::Libvirt, Manager::QemuByHand, Manager::Other("firecracker"), Manager::Other("cloud-hypervisor")];
    let mut fired = BTreeSet::new();
    for manager in managers {
        for isa in [Isa::Vmx, Isa::Svm] {
            for (windows, calm) in [(true, false), (false, false), (true, true), (false, true)] {
                let model = scene(manager, isa, windows, calm);
                let mut options = Options { input: InputKind::File, ..Options::default() };
                let mut findings = run(&model, &mut RuleMemory::default(), &options).findings;
                options.input = InputKind::Live;
                findings.extend(after(&model, 12, &options).findings);
                for finding in findings {
                    fired.extend(rules_of_table().filter(|rule| finding.covers(rule)));
                    assert!(!finding.fix.is_empty(), "{manager:?} {isa}: {finding:#?}");
                    let text = format!("{} {} {:?} {:?}", finding.title, finding.why, finding.evidence, finding.fix);
                    for word in foreign(manager, isa) {
                        assert!(!text.contains(word), "{manager:?} {isa} {}: {word} in {text}", finding.rule);
                    }
                }
            }
        }
    }
    let silent: Vec<&str> = rules_of_table().filter(|name| !fired.contains(name)).collect();
    assert!(silent.len() <= 22, "rules that this host does not wake: {silent:?}");
}
