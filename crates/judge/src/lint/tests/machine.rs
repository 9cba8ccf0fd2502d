use super::*;
use crate::model::GuestProfile;
use kvm::kernel_log;
use sample::HostMemory;
use testkit::profile;

#[test]
fn unhandled_registers() {
    let mut f = on(Guest::new("w", 21_715).windows(ENLIGHTENED).vcpus(1, |_, t| t));
    let mut model = f.model();
    silent(&judge(&model), RuleId::UnhandledMsr);
    model.host.kernel_log = kernel_log::parse(
        "[592420.654337] kvm [21715]: vcpu1 unhandled rdmsr: 0x611\n[592427.5] kvm [21715]: vcpu0 unhandled rdmsr: \
        0x606\n",
    );
    let report = judge(&model);
    fires(&report, RuleId::UnhandledMsr, Severity::Info);
    let found = get(&report, RuleId::UnhandledMsr);
    assert_eq!(found.domain.as_deref(), Some("w"));
    assert!(found.evidence.iter().any(|e| e.contains("0x611")) && found.title.contains("power"));
    f.guests[0].threads[1] = f.guests[0].threads[1].clone().msr(0x1a2, Direction::Read, 10.0, 2.0);
    let mut model = f.model();
    model.domains[0].accesses[0].faults = 10;
    assert!(get(&judge(&model), RuleId::UnhandledMsr).evidence[0].contains("0x1a2"));
}

#[test]
fn memory_faults() {
    let at = |rate, extra: &'static str| {
        on(Guest::new("l", 5).linux("").vcpus(2, move |v, t| {
            let t = t.on(v).cpu(70.0, 0.0, 5.0, 0.0).exits("EPT_VIOLATION", rate, 2.0);
            if extra.is_empty() { t } else { t.exits(extra, 20.0, 2.0) }
        }))
    };
    fires(&judge(&at(1500.0, "").model()), RuleId::Stage2Faults, Severity::Info);
    fires(&judge(&at(15_000.0, "").model()), RuleId::Stage2Faults, Severity::Warning);
    silent(&judge(&at(300.0, "").model()), RuleId::Stage2Faults);
    silent(&judge(&at(15_000.0, "PML_FULL").model()), RuleId::Stage2Faults);
    cannot(&from_file(&at(15_000.0, ""), None), RuleId::Stage2Faults);
}

#[test]
fn swapping() {
    let mut model = on(Guest::new("l", 5).linux("").vcpus(1, |_, t| t)).model();
    model.host.memory = Some(HostMemory { total: 8 << 30, available: 132 << 20, ..HostMemory::default() });
    model.domains[0].swap = Some((1 << 30, 0));
    silent(&judge(&model), RuleId::HostMemoryPressure);
    model.domains[0].swap = Some((1 << 30, 20 << 20));
    fires(&judge(&model), RuleId::HostMemoryPressure, Severity::Warning);
}

#[test]
fn ksm() {
    let at = |percent| judge(&Fixture::new(host().task("ksmd", true, 1, percent)).model());
    fires(&at(9.0), RuleId::HostMemoryPressure, Severity::Info);
    silent(&at(2.0), RuleId::HostMemoryPressure);
}

#[test]
fn steal() {
    let at = |percent: f64| {
        let mut h = host();
        h.busy.insert(2, [1.0, 1.0, 0.0, percent]);
        Fixture::new(h)
    };
    fires(&judge(&at(12.0).model()), RuleId::HostSteal, Severity::Warning);
    silent(&judge(&at(2.0).model()), RuleId::HostSteal);
    silent(&judge(&at(12.0).first()), RuleId::HostSteal);
}

#[test]
fn abnormal_exits_are_reported_at_once() {
    let at = |reason: &'static str, rate: f64| {
        on(Guest::new("l", 5).linux("").vcpus(1, move |_, t| t.exits(reason, rate, 2.0))).model()
    };
    fires(&after(&at("BUS_LOCK", 3.0), 1, &Options::default()), RuleId::AbnormalExit, Severity::Warning);
    fires(&after(&at("TRIPLE_FAULT", 1.0), 1, &Options::default()), RuleId::AbnormalExit, Severity::Info);
    silent(&judge(&at("CPUID", 100.0)), RuleId::AbnormalExit);
    let crash =
        on(Guest::new("w", 5).windows(ENLIGHTENED).vcpus(1, |_, t| t.msr(0x4000_0105, Direction::Write, 1.0, 2.0)));
    fires(&judge(&crash.model()), RuleId::AbnormalExit, Severity::Warning);
    fires(
        &from_file(&on(Guest::new("l", 5).vcpus(1, |_, t| t.exits("BUS_LOCK", 3.0, 2.0))), None),
        RuleId::AbnormalExit,
        Severity::Warning,
    );
}

#[test]
fn a_line_of_the_hosts_log_is_reported_when_it_appears() {
    let text = "[  90.5] x86/split lock detection: #AC: CPU 0/KVM/5 took a split_lock trap at address: 0x1\n";
    let mut model = on(Guest::new("l", 5).linux("").vcpus(1, |_, t| t)).model();
    model.host.kernel_log = kvm::kernel_log::parse(text);
    let (mut memory, options) = (RuleMemory::default(), Options::default());
    let mut seconds = (0..60).map(|_| {
        model.time_ms += 1000;
        !run(&model, &mut memory, &options).findings.is_empty()
    });
    assert!(seconds.by_ref().take(20).all(|fires| fires));
    assert!(!seconds.any(|fires| fires), "the line stays in the log, the finding does not");
}

#[test]
fn main_loop() {
    let at = |percent: f64| {
        on(Guest::new("l", 5).linux("").vcpus(1, |v, t| t.on(v)).emulator(move |t| t.cpu(0.0, percent, 5.0, 0.0)))
    };
    fires(&judge(&at(85.0).model()), RuleId::MainLoopBusy, Severity::Warning);
    silent(&judge(&at(30.0).model()), RuleId::MainLoopBusy);
    silent(&after(&at(85.0).model(), 4, &Options::default()), RuleId::MainLoopBusy);
    silent(&judge(&at(85.0).first()), RuleId::MainLoopBusy);
}

#[test]
fn a_profile_of_the_main_loop_is_evidence() {
    let at = |tid: i32, age_ms: i64| {
        let guest = Guest::new("l", 5).linux("").vcpus(1, |v, t| t.on(v)).emulator(|t| t.cpu(0.0, 85.0, 5.0, 0.0));
        let mut model = on(guest).model();
        let mut stacks = profile();
        let main = model.domains[0].emulator().unwrap().tid;
        stacks.stacks.iter_mut().filter(|stack| stack.tid == 100).for_each(|stack| stack.tid = main + tid);
        stacks.began_ms = model.time_ms - age_ms;
        model.domains[0].profile = Some(GuestProfile { stacks: Arc::new(stacks), is_new: false });
        let report = judge(&model);
        report.findings.iter().find(|f| f.rule == RuleId::MainLoopBusy).unwrap().evidence.join("; ")
    };
    let seen = at(0, 60_000);
    assert!(seen.contains("of 300 samples of its stack: 60 % in ppoll, 30 % in rtc_update_timer"), "{seen}");
    for other in [at(0, 3_600_000), at(1, 60_000)] {
        assert!(other.contains("look at: kvmtop profile") && !other.contains("ppoll"), "{other}");
    }
}

#[test]
fn nested() {
    let at = |rate: f64| {
        on(Guest::new("l", 5)
            .linux("")
            .vcpus(1, move |v, t| t.on(v).exits("VMRESUME", rate, 4.0).exits("MSR_WRITE", 500.0, 2.0)))
    };
    fires(&judge(&at(5000.0).model()), RuleId::NestedGuest, Severity::Info);
    silent(&judge(&at(2.0).model()), RuleId::NestedGuest);
    fires(&from_file(&at(5000.0), None), RuleId::NestedGuest, Severity::Info);
    let mut model = at(0.0).model();
    model.domains[0].kvm_events.insert("kvm_nested_vmexit".into(), 400);
    fires(&judge(&model), RuleId::NestedGuest, Severity::Info);
}
