//! No finding speaks of another vendor's KVM, nor of a VMM or manager that the guest does not have.

use super::*;
use crate::model::Traced;
use kvm::exit_reason;
use kvm::kernel_log::{self, LogKind};
use kvm::{Isa, Space, cmdline, topology};
use sample::{
    DiskSample, DomainSample, ExitPlace, HostLink, MemoryInGuest, NicSample, Pressure, StoredDisk,
    Throttling, Vmm, WholeDisk,
};

const LOG: &str = "[3590.0] *** Guest State ***\n[3591.0] kvm: INTERNAL_ERROR in \
    emulation\n[3592.0] Out of memory: Killed process 5 (qemu-kvm) total-vm:1kB\n[3593.0] \
    qemu-kvm[5]: segfault at 0 ip 00007f sp 00007f error 4\n[3594.0] kvm [5]: vcpu0, guest rIP: \
    0x1 ignored rdmsr: 0x122 data 0x0\n[3595.0] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! \
    [CPU 0/KVM:7]\n[3596.0] INFO: task CPU 0/KVM:7 blocked for more than 120 seconds.\n[3597.0] \
    x86/split lock detection: #AC: CPU 0/KVM/7 took a split_lock trap at address: 0x1\n[3598.0] \
    vfio-pci 0000:01:00.0: not ready 65535ms after FLR; giving up\n";

/// The host's kind.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Machine {
    Intel,
    Amd,
    Arm64,
    S390x,
}

impl Machine {
    fn isa(self) -> Isa {
        match self {
            Self::Intel => Isa::Vmx,
            Self::Amd => Isa::Svm,
            Self::Arm64 => Isa::Arm64,
            Self::S390x => Isa::Other(0),
        }
    }

    fn is_pc(self) -> bool {
        matches!(self, Self::Intel | Self::Amd)
    }

    fn arch(self) -> &'static str {
        match self {
            Self::Intel | Self::Amd => "x86_64",
            Self::Arm64 => "aarch64",
            Self::S390x => "s390x",
        }
    }
}

/// Who runs the guest.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manager {
    Libvirt,
    QemuByHand,
    Proxmox,
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

/// Exits of an arm64 guest in trouble.
const ARM_EXITS: &[(&str, f64)] = &[
    ("DABT_LOW", 30_000.0),
    ("IABT_LOW", 9000.0),
    ("IRQ", 9000.0),
    ("SYS64", 30_000.0),
    ("ERET", 9000.0),
];

/// A thread that does everything a rule looks at.
fn everything(vcpu: u32, thread: Thread, machine: Machine) -> Thread {
    let thread = thread.on(0).cpu(60.0, 5.0, 20.0, 30.0);
    let common = |thread: Thread| {
        thread
            .userspace(2, 20_000.0)
            .userspace(8, 3.0)
            .userspace(9, 3.0)
            .userspace(17, 3.0)
            .userspace(-14, 3.0)
            .moves(50.0, 20.0, 3)
            .wakes(200.0, 3000.0)
            .may_run(if vcpu < 2 { "1" } else { "0-7" })
    };
    match machine {
        Machine::S390x => return common(thread),
        Machine::Arm64 => {
            return common(ARM_EXITS.iter().fold(thread, |thread, (name, rate)| {
                let mut thread = thread.exits(name, *rate, 20.0);
                let cell = &mut thread.exits.last_mut().unwrap().0;
                (cell.isa, cell.code) = (Isa::Arm64, exit_reason::code(Isa::Arm64, name).unwrap());
                thread
            }));
        }
        Machine::Intel | Machine::Amd => {}
    }
    let isa = machine.isa();
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
    common(with_exits(thread, isa, &exits))
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
        .userspace(37, 3.0)
}

const DISK: &str = "<devices><disk><target dev='hda' \
    bus='ide'/><iotune><total_iops_sec>100</total_iops_sec></iotune></disk><disk><driver \
    cache='unsafe'/><target dev='vdb' bus='virtio'/></disk><disk><driver \
    cache='writethrough'/><target dev='vdc' bus='virtio'/></disk><disk type='block'><driver \
    cache='none' io='threads'/><target dev='vdd' bus='virtio'/></disk><interface \
    type='bridge'><model type='e1000'/></interface><interface type='bridge'><model \
    type='virtio'/><driver ioeventfd='off'/></interface></devices>";
/// The same as options of QEMU, the first disk without its device.
const OPTIONS: &str = "-drive file=/b,if=none,id=b,cache=unsafe -device ide-hd,drive=b,id=sata1 \
    -drive file=/c,if=none,id=c,cache=writethrough -device virtio-blk-pci,drive=c,id=virtio0 \
    -drive file=/dev/d,if=none,id=d,cache=none,aio=threads -device \
    virtio-blk-pci,drive=d,id=virtio1 -device lsi53c895a,id=l -device e1000,id=net0 -device \
    virtio-net-pci,id=net1,ioeventfd=off -net nic,model=rtl8139 -netdev user,id=n";

/// A disk at its limit, full, flushing and failing.
fn disk() -> DiskSample {
    DiskSample {
        name: "hda".into(),
        read_ops: 99,
        read_ns: Some(990_000_000),
        write_ns: Some(0),
        flush_ops: Some(70),
        flush_ns: Some(700_000_000),
        failed_ops: Some(3),
        ..DiskSample::default()
    }
}

fn idle_disk() -> DiskSample {
    DiskSample {
        name: "hda".into(),
        ..DiskSample::default()
    }
}

fn nearly_full() -> StoredDisk {
    StoredDisk {
        storage: "/srv".into(),
        size_bytes: Some(1 << 40),
        free_bytes: Some(1 << 30),
        may_grow: true,
        ..StoredDisk::default()
    }
}

fn dropping() -> NicSample {
    NicSample {
        name: "vnet0".into(),
        rx_packets: 1000,
        rx_drops: Some(100),
        ..NicSample::default()
    }
}

/// A disk that is slow or idle, and a link that is full.
fn host_devices(model: &mut Model, is_idle: bool) {
    let requests = if is_idle { 0 } else { 100 };
    model.host.disks = Some(vec![Traced {
        of: WholeDisk {
            name: "sda".into(),
            reads: requests,
            time_ns: requests * 60_000_000,
            ..WholeDisk::default()
        },
        seconds: Some(1.0),
        device: None,
    }]);
    model.host.links = Some(vec![Traced {
        of: HostLink {
            name: "eno1".into(),
            rx_bytes: 120_000_000,
            speed_mbit: Some(1000),
            ..HostLink::default()
        },
        seconds: Some(1.0),
        device: None,
    }]);
}

fn scene(manager: Manager, machine: Machine, windows: bool, calm: bool) -> Model {
    let isa = machine.isa();
    let is_idle = calm && windows;
    let mut guest = Guest::new("g", 5).mtree().vcpus(4, |v, t| {
        if !calm {
            return everything(v, t, machine);
        }
        // The task of the host that is on its CPU has it.
        let (t, wait) = if v == 2 {
            (t.pinned(2), 60.0)
        } else {
            (t.on(v), 0.0)
        };
        if !machine.is_pc() {
            return t.cpu(2.0, 0.0, 1.0, wait);
        }
        with_exits(
            t.cpu(2.0, 0.0, 1.0, wait),
            isa,
            &[("HLT", "hlt", 2000.0), ("MSR_WRITE", "msr", 300.0)],
        )
        .pio(0x71, Direction::Read, 1500.0, 20.0)
        .msr(0x6e0, Direction::Write, 300.0, 2.0)
    });
    guest = guest.emulator(|t| t.cpu(0.0, 60.0, 35.0, 30.0).may_run("1").on(1));
    guest = guest.iothread(1, |t| t.cpu(0.0, 20.0, 5.0, 0.0).may_run("1").on(1));
    let os = if windows {
        "http://microsoft.com/win/10"
    } else {
        "http://ubuntu.com/ubuntu/22.04"
    };
    guest = guest.os(os);
    let synic = "<features><hyperv><vpindex state='on'/><synic state='on'/></hyperv></features>";
    guest = match manager {
        Manager::Libvirt => {
            let synic = if machine.is_pc() { synic } else { "" };
            let guest = guest.xml(&format!(
                "<memory unit='GiB'>4</memory><vcpu>4</vcpu>{synic}{DISK}"
            ));
            guest.facts(|f| {
                Arc::make_mut(&mut f.xml.as_mut().unwrap().value).arch =
                    Some(machine.arch().into());
            })
        }
        Manager::QemuByHand | Manager::Proxmox => guest.facts(|f| {
            let cpu = if machine.is_pc() {
                "q35,accel=kvm -cpu kvm64,hv-synic,hv-vpindex"
            } else {
                "virt -cpu host"
            };
            // A name in libvirt's form, which scripts copy.
            let monitor = if manager == Manager::Proxmox {
                "-qmp unix:/var/run/qemu-server/100.qmp,server=on"
            } else {
                "-name guest=g,debug-threads=on"
            };
            let text = format!(
                "qemu-system-{} -machine {cpu} -m 4G -smp 4 {monitor} -drive \
                file=/a,if=ide,id=hda,throttling.iops-total=100 {OPTIONS}",
                machine.arch()
            );
            (f.command, f.uuid) = (Some(Arc::new(cmdline::parse_text(&text).unwrap())), None);
        }),
        Manager::Other(name) => {
            guest.facts(|f| (f.vmm, f.uuid, f.machine) = (Vmm::Other(name.into()), None, None))
        }
    };
    guest.counters.insert("nested_run".into(), 5000.0);
    guest
        .counters
        .insert("halt_poll_fail_ns".into(), 900_000_000.0);
    guest
        .counters
        .insert("halt_poll_success_ns".into(), 100_000_000.0);
    let throttled = Throttling {
        group: "domain".into(),
        periods: 10,
        throttled: 9,
        throttled_ns: 500_000_000,
        ..Throttling::default()
    };
    guest.rest = DomainSample {
        throttling: vec![throttled],
        jobs: if calm && !matches!(manager, Manager::Other(_)) {
            jobs::all_bad()
        } else {
            Vec::new()
        },
        node_memory: [(0, 1 << 30), (1, 1 << 32)].into(),
        swap_bytes: Some(1 << 30),
        pressure: Some(Pressure {
            memory: 2000,
            io: 9900,
            ..Pressure::default()
        }),
        disks: vec![if is_idle { idle_disk() } else { disk() }],
        devices_ns: 1_000_000_000,
        storage: vec![nearly_full()],
        nics: vec![dropping()],
        nics_ns: 1_000_000_000,
        ..DomainSample::default()
    };
    let host = Host::numa(2, 4, 1)
        .task("ksmd", true, 1, 30.0)
        .task("backup", false, 1, 50.0);
    let mut fixture = Fixture::new(host.task("backup", false, 2, 50.0)).guest(guest);
    fixture.host.busy.insert(3, [0.0, 0.0, 0.0, 20.0]);
    fixture.host.facts.arch = machine.arch().into();
    fixture
        .host
        .facts
        .params
        .insert(topology::CPU_GOVERNOR.into(), "ondemand".into());
    let (module, parameter) = if isa == Isa::Svm {
        ("kvm_amd", "avic")
    } else {
        ("kvm_intel", "enable_apicv")
    };
    if machine.is_pc() {
        fixture.host.facts.kvm_flavour = Some(module.into());
        fixture.host.facts.params.insert(
            format!("{module}.{parameter}"),
            if calm { "Y" } else { "N" }.into(),
        );
    }
    let mut model = fixture.model();
    model.mono_s = 3600.0;
    model.host.kernel_log = kernel_log::parse(LOG);
    if !machine.is_pc() {
        let of_a_pc = [
            LogKind::IgnoredMsr,
            LogKind::SplitLock,
            LogKind::EntryFailed,
            LogKind::InternalError,
        ];
        model
            .host
            .kernel_log
            .retain(|line| !of_a_pc.contains(&line.kind));
    }
    let tid = model.domains[0].threads[0].tid;
    model.domains[0].places = vec![ExitPlace {
        tid,
        rip: 0x1234,
        count: 50,
        of: 50,
        ..ExitPlace::default()
    }];
    host_devices(&mut model, is_idle);
    let guest = &mut model.domains[0];
    guest.swap_in_rate = Some(1e7);
    guest.memory.balloon = Some(1 << 30);
    guest.memory.in_guest = Some(MemoryInGuest {
        total: 4 << 30,
        usable: Some(1 << 20),
        updated_s: (model.time_ms / 1000) as u64,
        ..MemoryInGuest::default()
    });
    for access in &mut model.domains[0].accesses {
        access.faults = u64::from(access.space == Space::Msr);
    }
    model
}

/// Words that a finding about such a guest must not have.
fn foreign(manager: Manager, machine: Machine) -> Vec<&'static str> {
    let mut words = match machine {
        Machine::Amd => vec!["kvm_intel", "enable_apicv"],
        Machine::Intel => vec!["kvm_amd"],
        Machine::Arm64 | Machine::S390x => {
            vec![
                "kvm_intel",
                "kvm_amd",
                "enable_apicv",
                "Hyper-V",
                "hypervclock",
                "HPET",
                "x2APIC",
                "TSC",
                "intel_idle",
            ]
        }
    };
    if manager != Manager::Libvirt {
        words.extend(["virsh", "libvirt", "<"]);
    }
    if manager != Manager::Proxmox {
        words.extend(["qm set", "qm config", "Proxmox", "args:"]);
    }
    if manager == Manager::Libvirt {
        words.extend(["-device ", "-drive ", "-netdev ", "if=virtio"]);
    }
    if matches!(manager, Manager::Other(_)) {
        words.extend([
            "QEMU",
            "qemu-system",
            "pgrep -o qemu",
            "-device ",
            "-machine ",
            "-overcommit ",
            "-cpu ",
        ]);
    }
    words
}

#[test]
fn a_finding_speaks_of_what_its_host_and_guest_have() {
    let managers = [
        Manager::Libvirt,
        Manager::QemuByHand,
        Manager::Proxmox,
        Manager::Other("firecracker"),
        Manager::Other("cloud-hypervisor"),
    ];
    let (mut fired, mut proxmox) = (BTreeSet::new(), false);
    for manager in managers {
        for machine in [Machine::Intel, Machine::Amd, Machine::Arm64, Machine::S390x] {
            for (windows, calm) in [(true, false), (false, false), (true, true), (false, true)] {
                if windows && !machine.is_pc() {
                    continue;
                }
                let model = scene(manager, machine, windows, calm);
                let mut options = Options {
                    input: InputKind::File,
                    ..Options::default()
                };
                let mut findings = run(&model, &mut RuleMemory::default(), &options).findings;
                options.input = InputKind::Live;
                findings.extend(after(&model, 12, &options).findings);
                for finding in findings {
                    fired.extend(rules_of_table().filter(|rule| finding.covers(*rule)));
                    assert!(
                        !finding.fix.is_empty(),
                        "{manager:?} {machine:?}: {finding:#?}"
                    );
                    let mut fixes = finding.fix.iter();
                    proxmox |= manager == Manager::Proxmox
                        && fixes.any(|fix| fix.text.starts_with("qm set 100"));
                    let text = format!(
                        "{} {} {:?} {:?}",
                        finding.title, finding.why, finding.evidence, finding.fix
                    );
                    for word in foreign(manager, machine) {
                        assert!(
                            !text.contains(word),
                            "{manager:?} {machine:?} {}: {word} in {text}",
                            finding.rule
                        );
                    }
                }
            }
        }
    }
    assert!(proxmox, "no finding names Proxmox's own command");
    let silent: Vec<RuleId> = rules_of_table()
        .filter(|name| !fired.contains(name))
        .collect();
    assert!(
        silent.len() <= 26,
        "rules that this host does not wake: {silent:?}"
    );
}

/// QEMU by hand and a guest of libvirt, with a vCPU each on one CPU.
fn by_hand_beside_libvirt() -> Fixture {
    let pinned = |_, t: Thread| t.cpu(60.0, 0.0, 1.0, 30.0).pinned(1);
    let text = "qemu-system-x86_64 -name guest=mail,debug-threads=on -accel kvm -cpu host -m 512";
    let mail = Guest::new("mail", 5)
        .facts(|f| (f.command, f.uuid) = (Some(Arc::new(cmdline::parse_text(text).unwrap())), None))
        .vcpus(1, pinned);
    let db = Guest::new("db", 50)
        .linux("<vcpu>2</vcpu>")
        .vcpus(2, pinned);
    on(mail).guest(db)
}

#[test]
fn a_finding_about_two_guests_has_the_commands_of_each() {
    let report = judge(&by_hand_beside_libvirt().model());
    let found = get(&report, RuleId::PinOverlap);
    assert!(found.concerns("mail") && found.concerns("db"), "{found:#?}");
    let fixes = report.findings.iter().flat_map(|f| &f.fix);
    assert!(
        fixes
            .clone()
            .any(|fix| fix.text.contains("virsh vcpupin db")),
        "{report:#?}"
    );
    for fix in fixes {
        assert!(
            !fix.text.contains("virsh vcpupin mail") && fix.place() != "virsh edit mail",
            "{fix:#?}"
        );
    }
}

#[test]
fn a_pasted_element_says_what_it_stands_in_place_of() {
    let features = "<cpu mode='host-passthrough'><feature policy='disable' \
        name='hypervisor'/></cpu>";
    let report =
        of_file(&on(Guest::new("g", 5).windows(&format!("{ENLIGHTENED}{features}"))).first());
    let found = get(&report, RuleId::WindowsEnlightenments);
    let needs = found.fix[0].needs.as_deref().unwrap_or_default();
    assert!(
        needs
            .starts_with("in place of the guest's <feature policy='disable' name='hypervisor'/>; "),
        "{found:#?}"
    );
    assert_eq!(
        (found.fix.len(), found.comes_first),
        (1, true),
        "nothing else has to do with it: {found:#?}"
    );
}

#[test]
fn a_proxmox_guest_without_kvm_gets_it_by_its_own_setting() {
    let text = "boot: c\ncores: 2\nkvm: 0\nmemory: 512\nname: a\nostype: l26\nscsi0: \
            z:vm-100-disk-0\nsmbios1: uuid=1\n";
    let config = import::proxmox::parse(text, Some("100")).unwrap();
    let guest = Guest::new("a", 5).facts(|f| f.command = Some(Arc::new(config.command)));
    let report = of_file(&on(guest.vcpus(1, |v, t| t.on(v))).first());
    let found = get(&report, RuleId::NoKvm);
    let fix: Vec<&str> = found.fix.iter().map(|fix| fix.text.as_str()).collect();
    assert_eq!(
        (fix, found.confidence),
        (vec!["qm set 100 --kvm 1"], Confidence::High),
        "{found:#?}"
    );
    assert_eq!(found.evidence, ["its configuration says kvm: 0"]);
}
