use super::*;
use crate::model::{PressureModel, SwapUse, Traced};
use kvm::cmdline::QemuCommand;
use kvm::{kernel_log, topology};
use sample::{CpuPower, ExitPlace, HostMemory, HostNode, MemoryGrowth, MemoryInGuest};
use std::sync::Arc;

#[test]
fn unhandled_registers() {
    let mut f = on(Guest::new("w", 21_715)
        .windows(ENLIGHTENED)
        .vcpus(1, |_, t| t));
    let mut model = f.model();
    silent(&judge(&model), RuleId::UnhandledMsr);
    model.host.kernel_log = kernel_log::parse(
        "[592420.654337] kvm [21715]: vcpu1 unhandled rdmsr: 0x611\n[592427.5] kvm [21715]: vcpu0 \
        unhandled rdmsr: 0x606\n",
    );
    let report = judge(&model);
    fires(&report, RuleId::UnhandledMsr, Severity::Info);
    let found = get(&report, RuleId::UnhandledMsr);
    assert_eq!(found.domain.as_deref(), Some("w"));
    assert!(found.evidence.iter().any(|e| e.contains("0x611")) && found.title.contains("power"));
    f.guests[0].threads[1] = f.guests[0].threads[1]
        .clone()
        .msr(0x1a2, Direction::Read, 10.0, 2.0);
    let mut model = f.model();
    model.domains[0].accesses[0].faults = 10;
    assert!(get(&judge(&model), RuleId::UnhandledMsr).evidence[0].contains("0x1a2"));
}

#[test]
fn memory_faults() {
    let at = |rate, extra: &'static str| {
        on(Guest::new("l", 5).linux("").vcpus(2, move |v, t| {
            let t = t
                .on(v)
                .cpu(70.0, 0.0, 5.0, 0.0)
                .exits("EPT_VIOLATION", rate, 2.0);
            if extra.is_empty() {
                t
            } else {
                t.exits(extra, 20.0, 2.0)
            }
        }))
    };
    fires(
        &judge(&at(1500.0, "").model()),
        RuleId::Stage2Faults,
        Severity::Info,
    );
    fires(
        &judge(&at(15_000.0, "").model()),
        RuleId::Stage2Faults,
        Severity::Warning,
    );
    silent(&judge(&at(300.0, "").model()), RuleId::Stage2Faults);
    silent(
        &judge(&at(15_000.0, "PML_FULL").model()),
        RuleId::Stage2Faults,
    );
    cannot(&from_file(&at(5.0, ""), None), RuleId::Stage2Faults);
}

#[test]
fn swapping() {
    let mut model = on(Guest::new("l", 5).linux("").vcpus(1, |_, t| t)).model();
    model.host.memory = Some(HostMemory {
        total: 8 << 30,
        available: 132 << 20,
        ..HostMemory::default()
    });
    model.domains[0].swap = Some(SwapUse {
        bytes: 1 << 30,
        grown: 0,
    });
    silent(&judge(&model), RuleId::HostMemoryPressure);
    model.domains[0].swap = Some(SwapUse {
        bytes: 1 << 30,
        grown: 20 << 20,
    });
    fires(
        &judge(&model),
        RuleId::HostMemoryPressure,
        Severity::Warning,
    );
}

/// A guest of 4 GiB whose balloon driver said two seconds ago that this many percent are usable.
fn with_balloon(usable: u64, faults: u64, balloon: u64) -> Model {
    let mut model = on(Guest::new("l", 5).linux("").vcpus(1, |_, t| t)).model();
    let total = 4 << 30;
    let domain = &mut model.domains[0];
    Arc::make_mut(&mut domain.facts).command = Some(Arc::new(QemuCommand {
        memory: Some(total),
        ..QemuCommand::default()
    }));
    domain.memory.balloon = Some(balloon << 30);
    domain.memory.in_guest = Some(MemoryInGuest {
        total,
        usable: Some(total / 100 * usable),
        updated_s: (model.time_ms / 1000 - 2) as u64,
        grown: Some(MemoryGrowth {
            seconds: 10,
            major_faults: faults,
            swapped: 0,
        }),
        ..MemoryInGuest::default()
    });
    model
}

#[test]
fn a_guest_without_usable_memory() {
    use RuleId::GuestMemoryShort;
    silent(&judge(&with_balloon(30, 1000, 4)), GuestMemoryShort);
    // Short, but nothing suffers from it.
    silent(&judge(&with_balloon(4, 0, 4)), GuestMemoryShort);
    fires(
        &judge(&with_balloon(4, 100, 4)),
        GuestMemoryShort,
        Severity::Warning,
    );
    fires(
        &judge(&with_balloon(2, 0, 4)),
        GuestMemoryShort,
        Severity::Warning,
    );
    let report = judge(&with_balloon(2, 0, 3));
    fires(&report, GuestMemoryShort, Severity::Critical);
    let found = get(&report, GuestMemoryShort);
    assert!(
        found.evidence.iter().any(|e| e.contains("1 GiB back"))
            && found.fix.iter().any(|f| f.text.contains("setmem l 4096M")),
        "{found:?}"
    );
    let mut old = with_balloon(2, 0, 4);
    old.time_ms += 120_000;
    cannot(&judge(&old), GuestMemoryShort);
    let mut untold = with_balloon(2, 0, 4);
    untold.domains[0].memory.in_guest = None;
    silent(&judge(&untold), GuestMemoryShort);
}

#[test]
fn memory_that_comes_back_from_swap() {
    let mut model = on(Guest::new("l", 5).linux("").vcpus(1, |_, t| t)).model();
    model.domains[0].swap = Some(SwapUse {
        bytes: 1 << 30,
        grown: 0,
    });
    silent(&judge(&model), RuleId::GuestSwappedIn);
    model.domains[0].swap_in_rate = Some(4096.0);
    silent(&judge(&model), RuleId::GuestSwappedIn);
    model.domains[0].swap_in_rate = Some(4_194_304.0);
    let report = judge(&model);
    fires(&report, RuleId::GuestSwappedIn, Severity::Warning);
    assert!(get(&report, RuleId::GuestSwappedIn).evidence[0].starts_with("4 MiB/s"));
}

#[test]
fn a_guest_that_is_bound_to_a_full_node_swaps_while_another_has_room() {
    let judged = |free_gib: [u64; 2]| {
        let xml = "<numatune><memory mode='strict' nodeset='1'/></numatune>";
        let mut model = on(Guest::new("l", 5).linux(xml).vcpus(1, |_, t| t)).model();
        model.domains[0].swap_in_rate = Some(4_194_304.0);
        let nodes = [0, 1].map(|node| HostNode {
            node,
            total: 64 << 30,
            free: free_gib[node as usize] << 30,
            ..HostNode::default()
        });
        model.host.nodes = Some(
            nodes
                .map(|node| Traced {
                    of: node,
                    seconds: None,
                    device: None,
                })
                .into(),
        );
        get(&judge(&model), RuleId::GuestSwappedIn).clone()
    };
    let found = judged([20, 1]);
    let seen = "its memory is bound to node 1: node 0 has 20 GiB of 64 GiB free, node 1 has 1 GiB \
        of 64 GiB free";
    assert!(
        found.evidence.iter().any(|e| e == seen),
        "{:?}",
        found.evidence
    );
    assert!(found.fix[0].text.starts_with("Bind its memory to node 0"));
    for free in [[1, 1], [20, 20]] {
        assert!(!judged(free).evidence.iter().any(|e| e.contains("bound")));
    }
}

#[test]
fn steal() {
    let at = |percent: f64| {
        let mut h = host();
        h.busy.insert(2, [1.0, 1.0, 0.0, percent]);
        Fixture::new(h)
    };
    fires(
        &judge(&at(12.0).model()),
        RuleId::HostSteal,
        Severity::Warning,
    );
    silent(&judge(&at(2.0).model()), RuleId::HostSteal);
    silent(&judge(&at(12.0).first()), RuleId::HostSteal);
}

#[test]
fn abnormal_exits_are_reported_at_once() {
    let at = |reason: &'static str, rate: f64| {
        on(Guest::new("l", 5)
            .linux("")
            .vcpus(1, move |_, t| t.exits(reason, rate, 2.0)))
        .model()
    };
    fires(
        &after(&at("BUS_LOCK", 3.0), 1, &Options::default()),
        RuleId::AbnormalExit,
        Severity::Warning,
    );
    fires(
        &after(&at("TRIPLE_FAULT", 1.0), 1, &Options::default()),
        RuleId::AbnormalExit,
        Severity::Info,
    );
    silent(&judge(&at("CPUID", 100.0)), RuleId::AbnormalExit);
    fires(
        &from_file(
            &on(Guest::new("l", 5).vcpus(1, |_, t| t.exits("BUS_LOCK", 3.0, 2.0))),
            None,
        ),
        RuleId::AbnormalExit,
        Severity::Warning,
    );
}

#[test]
fn a_line_of_the_hosts_log_is_reported_for_an_hour() {
    let text = "[  90.5] x86/split lock detection: #AC: CPU 0/KVM/5 took a split_lock trap at \
        address: 0x1\n";
    let mut model = on(Guest::new("l", 5).linux("").vcpus(1, |_, t| t)).model();
    model.host.kernel_log = kvm::kernel_log::parse(text);
    let (mut memory, options) = (RuleMemory::default(), Options::default());
    let mut fires_at = |second: i64| {
        (model.time_ms, model.mono_s) = (second * 1000, second as f64);
        !run(&model, &mut memory, &options).findings.is_empty()
    };
    assert!((91..130).all(&mut fires_at));
    assert!(
        !(4000..4060).map(fires_at).last().unwrap(),
        "the line stays in the log, the finding does not"
    );
}

#[test]
fn main_loop() {
    let at = |percent: f64| {
        on(Guest::new("l", 5)
            .linux("")
            .vcpus(1, |v, t| t.on(v))
            .emulator(move |t| t.cpu(0.0, percent, 5.0, 0.0)))
    };
    fires(
        &judge(&at(85.0).model()),
        RuleId::MainLoopBusy,
        Severity::Warning,
    );
    silent(&judge(&at(30.0).model()), RuleId::MainLoopBusy);
    silent(
        &after(&at(85.0).model(), 4, &Options::default()),
        RuleId::MainLoopBusy,
    );
    silent(&judge(&at(85.0).first()), RuleId::MainLoopBusy);
}

#[test]
fn nested() {
    let at = |rate: f64| {
        on(Guest::new("l", 5).linux("").vcpus(1, move |v, t| {
            t.on(v)
                .exits("VMRESUME", rate, 4.0)
                .exits("MSR_WRITE", 500.0, 2.0)
        }))
    };
    fires(
        &judge(&at(5000.0).model()),
        RuleId::NestedGuest,
        Severity::Info,
    );
    silent(&judge(&at(2.0).model()), RuleId::NestedGuest);
    fires(
        &from_file(&at(5000.0), None),
        RuleId::NestedGuest,
        Severity::Info,
    );
    let mut model = at(0.0).model();
    model.domains[0]
        .kvm_events
        .insert("kvm_nested_vmexit".into(), 400);
    fires(&judge(&model), RuleId::NestedGuest, Severity::Info);
}

#[test]
fn busy_cpus_at_low_clocks() {
    let at = |busy: f64, khz: u64, change: fn(&mut crate::model::HostModel)| {
        let mut fixture = Fixture::new(host().load(2, busy, 0.0, 0.0));
        let params = [
            (topology::CPU_GOVERNOR, "powersave"),
            (topology::CPU_BASE_KHZ, "2400000"),
        ];
        fixture.host.facts.params = params
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let mut model = fixture.model();
        model.host.cpus[2].frequency_khz = Some(khz);
        change(&mut model.host);
        judge(&model)
    };
    let report = at(95.0, 1_000_000, |_| ());
    fires(&report, RuleId::HostFrequency, Severity::Warning);
    let found = get(&report, RuleId::HostFrequency);
    assert!(
        found.evidence[0].contains("CPU 2 runs at 1 GHz"),
        "{found:?}"
    );
    assert!(
        !found.fix.iter().any(|fix| fix.kind == FixKind::Command),
        "the driver is unknown: {found:?}"
    );
    silent(&at(95.0, 2_300_000, |_| ()), RuleId::HostFrequency);
    silent(&at(20.0, 1_000_000, |_| ()), RuleId::HostFrequency);
    silent(
        &at(95.0, 1_000_000, |h| {
            Arc::make_mut(&mut h.facts).virtualised = Some(true);
        }),
        RuleId::HostFrequency,
    );
    let nohz = |h: &mut crate::model::HostModel| {
        Arc::make_mut(&mut h.facts).topology.nohz_full = Some(kvm::CpuSet::range(2, 3));
    };
    silent(&at(95.0, 1_000_000, nohz), RuleId::HostFrequency);
}

#[test]
fn a_loop_of_faults_needs_no_rate() {
    let on_vcpus = |vcpus, count, of| {
        let mut model = on(Guest::new("l", 5).linux("").vcpus(1, |_, t| t)).model();
        let tid = model.domains[0].vcpus().next().unwrap().tid;
        let (address, error_code) = (Some(0x3fef_4281_2000), Some(0x181));
        let reason = "EPT_VIOLATION".to_owned();
        let place = ExitPlace {
            tid,
            reason,
            rip: 0x56,
            address,
            error_code,
            count,
            of,
        };
        model.domains[0].places = vec![place; vcpus];
        judge(&model)
    };
    let at = |count, of| on_vcpus(1, count, of);
    let report = at(5, 6);
    fires(&report, RuleId::FaultLoop, Severity::Warning);
    let evidence = &get(&report, RuleId::FaultLoop).evidence[0];
    assert!(
        evidence.contains("5 of 6") && evidence.contains("address 0x3fef42812000"),
        "{evidence}"
    );
    silent(&at(4, 4), RuleId::FaultLoop);
    fires(&on_vcpus(2, 3, 3), RuleId::FaultLoop, Severity::Warning);
    silent(&on_vcpus(8, 2, 2), RuleId::FaultLoop);
    silent(&at(50, 100), RuleId::FaultLoop);
}

fn started(command: &str) -> Guest {
    let command = kvm::cmdline::parse_text(command).unwrap();
    Guest::new("g", 5).facts(|f| f.command = Some(Arc::new(command)))
}

#[test]
fn cpu_model() {
    let of = |guest: Guest| judge(&on(guest.vcpus(1, |v, t| t.on(v))).model());
    for command in [
        "-enable-kvm -cpu kvm64,+aes",
        "-enable-kvm -cpu host -cpu core2duo",
    ] {
        let report = of(started(&format!("qemu-system-x86_64 {command} -name g")));
        fires(&report, RuleId::CpuModel, Severity::Info);
        assert!(
            get(&report, RuleId::CpuModel).fix[0]
                .text
                .starts_with("-cpu host"),
            "{command}"
        );
    }
    for command in [
        "-enable-kvm -cpu host",
        "-accel tcg",
        "-m 2G",
        "-enable-kvm -cpu kvm64,+aes,+avx",
    ] {
        silent(
            &of(started(&format!("qemu-system-x86_64 -name g {command}"))),
            RuleId::CpuModel,
        );
    }
    let xml = |cpu: &str| of(Guest::new("g", 5).linux(cpu));
    fires(
        &xml("<cpu mode='custom'><model fallback='forbid'>qemu64</model></cpu>"),
        RuleId::CpuModel,
        Severity::Info,
    );
    silent(
        &xml("<cpu><topology sockets='1' cores='2' threads='2'/></cpu>"),
        RuleId::CpuModel,
    );
    silent(&xml(""), RuleId::CpuModel);
    silent(&xml("<cpu mode='host-model'/>"), RuleId::CpuModel);
    silent(
        &xml("<cpu mode='host-passthrough'><model>kvm64</model></cpu>"),
        RuleId::CpuModel,
    );
    silent(
        &xml("<cpu mode='custom'><model>EPYC</model></cpu>"),
        RuleId::CpuModel,
    );
}

#[test]
fn guest_limits() {
    let vcpus = |os: &str, xml: &str, busy: u32| {
        let guest = Guest::new("g", 5)
            .os(os)
            .xml(&format!("<vcpu>8</vcpu><cpu mode='host-model'>{xml}</cpu>"));
        judge(
            &on(guest.vcpus(8, |v, t| {
                t.on(v)
                    .cpu(if v < busy { 40.0 } else { 0.0 }, 0.0, 0.0, 0.0)
            }))
            .model(),
        )
    };
    let report = vcpus("http://microsoft.com/win/10", "", 2);
    fires(&report, RuleId::GuestLimits, Severity::Warning);
    let found = get(&report, RuleId::GuestLimits);
    assert_eq!(
        found.title,
        "Windows uses at most 2 of the 8 vCPUs, which are in 8 sockets"
    );
    assert!(
        found.fix[0]
            .text
            .contains("<topology sockets='1' dies='1' cores='8' threads='1'/>"),
        "{found:#?}"
    );
    fires(
        &vcpus("http://microsoft.com/win/10", "", 0),
        RuleId::GuestLimits,
        Severity::Info,
    );
    silent(
        &vcpus("http://microsoft.com/win/10", "", 8),
        RuleId::GuestLimits,
    );
    silent(
        &vcpus("http://microsoft.com/win/2k19", "", 2),
        RuleId::GuestLimits,
    );
    silent(
        &vcpus("http://ubuntu.com/ubuntu/22.04", "", 2),
        RuleId::GuestLimits,
    );
    silent(
        &vcpus(
            "http://microsoft.com/win/10",
            "<topology sockets='2' cores='4' threads='1'/>",
            2,
        ),
        RuleId::GuestLimits,
    );
}

#[test]
fn a_guest_without_kvm_is_named_and_nothing_of_kvm_is_tuned() {
    let windows = |set: fn(&mut sample::DomainFacts)| {
        from_file(&on(Guest::new("w", 5).windows("").facts(set)), None)
    };
    fires(
        &windows(|_| ()),
        RuleId::WindowsEnlightenments,
        Severity::Info,
    );
    silent(&windows(|_| ()), RuleId::NoKvm);
    let emulated = windows(|facts| facts.emulated = true);
    fires(&emulated, RuleId::NoKvm, Severity::Critical);
    silent(&emulated, RuleId::WindowsEnlightenments);
    let named = judge(&on(Guest::new("l", 5).facts(|facts| facts.emulated = true)).model());
    assert_eq!(
        named
            .findings
            .first()
            .map(|f| (f.rule, f.domain.as_deref())),
        Some((RuleId::NoKvm, Some("l")))
    );
}

#[test]
fn what_says_that_a_guest_has_no_kvm() {
    let xml = |text: &'static str| {
        from_file(
            &on(Guest::new("l", 5).facts(|facts| {
                facts.xml = Some(Known::new(
                    Arc::new(domain_xml::parse(text).unwrap()),
                    Origin::File,
                ));
            })),
            None,
        )
    };
    fires(
        &xml("<domain type='qemu'><name>l</name></domain>"),
        RuleId::NoKvm,
        Severity::Critical,
    );
    let foreign = xml("<domain type='qemu'><os><type arch='aarch64'>hvm</type></os></domain>");
    silent(&foreign, RuleId::NoKvm);
    silent(
        &xml("<domain type='kvm'><name>l</name></domain>"),
        RuleId::NoKvm,
    );
    silent(&xml("<domain><name>l</name></domain>"), RuleId::NoKvm);
    let mut served = on(Fixture::windows_on_pm_timer()).model();
    Arc::make_mut(&mut served.domains[0].facts).emulated = true;
    silent(&judge(&served), RuleId::NoKvm);
}

#[test]
fn a_guest_that_waits_for_memory() {
    let at = |memory: f64| {
        let mut model = on(Guest::new("l", 5).linux("").vcpus(2, |_, t| t)).model();
        let guest = &mut model.domains[0];
        guest.pressure = Some(PressureModel {
            memory,
            memory_full: memory / 2.0,
            ..PressureModel::default()
        });
        judge(&model)
    };
    silent(&at(1.0), RuleId::MemoryStall);
    fires(&at(12.0), RuleId::MemoryStall, Severity::Warning);
    let report = at(50.0);
    fires(&report, RuleId::MemoryStall, Severity::Critical);
    let found = get(&report, RuleId::MemoryStall);
    assert!(
        found.evidence[0].contains("50 % of the last 10 s, all of them 25 %"),
        "{found:#?}"
    );
}

#[test]
fn heat_that_throttles() {
    let at = |throttles: Option<u64>| {
        let mut model = on(Guest::new("l", 5).linux("").vcpus(1, |_, t| t)).model();
        model.host.cpus[3].power = Some(CpuPower {
            over_ns: 5_000_000_000,
            throttles,
            ..CpuPower::default()
        });
        let facts = std::sync::Arc::make_mut(&mut model.host.facts);
        facts
            .params
            .insert(topology::CPU_MAX_KHZ.into(), "3000000".into());
        judge(&model)
    };
    silent(&at(Some(0)), RuleId::HostFrequency);
    let report = at(Some(7));
    fires(&report, RuleId::HostFrequency, Severity::Info);
    assert!(
        get(&report, RuleId::HostFrequency).evidence[0].contains("CPU 3 most often: 7 in 5 s"),
        "{report:#?}"
    );
}

#[test]
fn a_host_without_memory_whose_tasks_wait() {
    let short = |available: u64, memory: f64| {
        let mut model = on(Guest::new("g", 5).linux("").vcpus(1, |_, t| t)).model();
        model.host.memory = Some(sample::HostMemory {
            total: 64 << 30,
            available: available << 30,
            ..sample::HostMemory::default()
        });
        model.host.pressure.get_or_insert_default().memory = memory;
        judge(&model)
    };
    let report = short(2, 5.0);
    fires(&report, RuleId::HostMemoryPressure, Severity::Warning);
    let found = get(&report, RuleId::HostMemoryPressure);
    assert!(
        found.evidence[0].starts_with("2 GiB of 64 GiB are available (3.12 %)"),
        "{found:#?}"
    );
    silent(&short(2, 0.0), RuleId::HostMemoryPressure);
    silent(&short(20, 5.0), RuleId::HostMemoryPressure);
}

#[test]
fn a_cgroup_at_its_memory_limit() {
    let at = |charged: u64, limit: Option<u64>| {
        let mut model = on(Guest::new("l", 5).linux("").vcpus(1, |_, t| t)).model();
        let memory = &mut model.domains[0].memory;
        memory.charged = Some(charged << 30);
        memory.limit = limit.map(|gib| gib << 30);
        judge(&model)
    };
    let report = at(48, Some(48));
    fires(&report, RuleId::MemoryStall, Severity::Warning);
    assert!(
        get(&report, RuleId::MemoryStall).evidence[0]
            .starts_with("its cgroup has 48 GiB of the 48 GiB that it may have")
    );
    silent(&at(40, Some(48)), RuleId::MemoryStall);
    silent(&at(40, None), RuleId::MemoryStall);
}
