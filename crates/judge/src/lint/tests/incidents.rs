//! What ends or breaks a guest.

use super::*;
use crate::model::UserspaceExits;
use kvm::kernel_log;
use sample::DomainState;

fn quiet() -> Model {
    on(Guest::new("l", 5).linux("").vcpus(1, |_, t| t)).model()
}

fn exits(vcpu: Option<u32>, reason: i32) -> UserspaceExits {
    UserspaceExits {
        vcpu,
        reason,
        count: 1,
    }
}

/// The model of a guest whose `KVM_RUN` returned this.
fn returned(reason: i32) -> Model {
    let mut model = quiet();
    model.domains[0].userspace = vec![exits(None, reason), exits(Some(0), reason)];
    model
}

fn logged(model: &mut Model, text: &str) {
    model.host.kernel_log = kernel_log::parse(text);
}

fn once(model: &Model) -> Report {
    after(model, 1, &Options::default())
}

fn words(finding: &Finding) -> String {
    let fixes = finding
        .fix
        .iter()
        .map(|f| f.text.clone() + f.needs.as_deref().unwrap_or_default());
    [
        finding.title.clone(),
        finding.why.clone(),
        finding.evidence.join(" "),
        fixes.collect::<Vec<_>>().join(" "),
    ]
    .join(" ")
}

#[test]
fn a_failed_kvm_run_is_reported_at_once() {
    for (reason, severity, word) in [
        (-14, Severity::Critical, "EFAULT"),
        (-22, Severity::Critical, "error 22"),
        (0, Severity::Critical, "KVM_EXIT_UNKNOWN"),
        (8, Severity::Info, "KVM_EXIT_SHUTDOWN"),
        (9, Severity::Critical, "KVM_EXIT_FAIL_ENTRY"),
        (17, Severity::Critical, "KVM_EXIT_INTERNAL_ERROR"),
        (37, Severity::Warning, "KVM_EXIT_NOTIFY"),
        (39, Severity::Critical, "KVM_EXIT_MEMORY_FAULT"),
    ] {
        let report = once(&returned(reason));
        fires(&report, RuleId::AbnormalExit, severity);
        assert!(
            words(get(&report, RuleId::AbnormalExit)).contains(word),
            "{reason}"
        );
    }
    for ordinary in [-4, -11, 2, 5, 6, 10, 24] {
        silent(&once(&returned(ordinary)), RuleId::AbnormalExit);
    }
}

#[test]
fn a_guest_that_starts_pauses_or_ends_is_judged_by_what_broke_it() {
    let mut model = returned(8);
    model.domains[0].state = DomainState::Ended;
    fires(&once(&model), RuleId::AbnormalExit, Severity::Warning);
    let mut model = returned(17);
    model.domains[0].state = DomainState::Paused;
    fires(&once(&model), RuleId::AbnormalExit, Severity::Critical);
    let mut f = on(Guest::new("l", 5).linux("").vcpus(1, |_, t| t));
    f.guests[0].facts.started_ms = Some(testkit::START_MS + 59_000);
    let mut model = f.model();
    model.domains[0].userspace = vec![exits(None, 9)];
    fires(&once(&model), RuleId::AbnormalExit, Severity::Critical);
}

#[test]
fn an_event_outlives_its_guest_and_a_command_that_prints_once_keeps_it() {
    let mut model = returned(17);
    model.domains[0].state = DomainState::Ended;
    let fires_for = |options: &Options, seconds: i64| {
        let (mut model, mut memory) = (model.clone(), RuleMemory::default());
        assert!(!run(&model, &mut memory, options).findings.is_empty());
        model.domains.clear();
        let mut last = Report::default();
        for _ in 0..seconds {
            model.time_ms += 1000;
            last = run(&model, &mut memory, options);
        }
        !last.findings.is_empty()
    };
    assert!(fires_for(&Options::default(), 10) && !fires_for(&Options::default(), 40));
    assert!(fires_for(
        &Options {
            keep_events: true,
            ..Options::default()
        },
        400
    ));
}

#[test]
fn a_killed_guest_is_reported_for_an_hour() {
    let at = |seconds_ago: f64, who: &str| {
        let mut model = quiet();
        model.mono_s = 100_000.0;
        let time = model.mono_s - seconds_ago;
        logged(
            &mut model,
            &format!("[{time:.3}] Out of memory: Killed process {who} total-vm:17825792kB\n"),
        );
        judge(&model)
    };
    let report = at(30.0, "5 (qemu-kvm)");
    fires(&report, RuleId::GuestKilled, Severity::Critical);
    assert_eq!(
        get(&report, RuleId::GuestKilled).domain.as_deref(),
        Some("l")
    );
    let gone = at(1800.0, "99 (qemu-kvm)");
    fires(&gone, RuleId::GuestKilled, Severity::Critical);
    assert_eq!(get(&gone, RuleId::GuestKilled).domain, None);
    silent(&at(7200.0, "99 (qemu-kvm)"), RuleId::GuestKilled);
    silent(&at(30.0, "99 (java)"), RuleId::GuestKilled);
}

#[test]
fn lockups_and_failed_entries_of_the_log() {
    let mut model = quiet();
    model.mono_s = 1000.0;
    logged(
        &mut model,
        "[990.0] watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [CPU 0/KVM:5]\n",
    );
    fires(&once(&model), RuleId::HostLockup, Severity::Critical);
    logged(
        &mut model,
        "[990.0] INFO: task qemu-system-x86:5 blocked for more than 120 seconds.\n",
    );
    fires(&once(&model), RuleId::HostLockup, Severity::Warning);
    logged(
        &mut model,
        "[990.0] kvm_intel: set kvm_intel.dump_invalid_vmcs=1 to dump internal KVM state.\n",
    );
    let report = once(&model);
    fires(&report, RuleId::AbnormalExit, Severity::Critical);
    assert_eq!(
        get(&report, RuleId::AbnormalExit).domain,
        None,
        "the line names no guest"
    );
    let see = &get(&report, RuleId::AbnormalExit).see;
    assert!(
        !see.is_empty() && !see.iter().any(|link| link.contains("buslock")),
        "links fit the incident: {see:#?}"
    );
}

#[test]
fn like_events_keep_the_first_and_the_last() {
    let mut model = quiet();
    model.mono_s = 1000.0;
    let (mut memory, options) = (RuleMemory::default(), Options::default());
    logged(&mut model, "[900.0] kvm [5]: vcpu0 unhandled rdmsr: 0x1\n");
    run(&model, &mut memory, &options);
    let error =
        |at: &str| format!("[{at}] qemu-kvm[5]: segfault at 0 ip 00007f sp 00007f error 4\n");
    logged(&mut model, &error("990.0"));
    assert!(
        words(get(
            &run(&model, &mut memory, &options),
            RuleId::GuestKilled
        ))
        .contains("the log says: ")
    );
    logged(
        &mut model,
        &[error("990.0"), error("995.0"), error("999.5")].concat(),
    );
    let text = words(get(
        &run(&model, &mut memory, &options),
        RuleId::GuestKilled,
    ));
    assert!(
        text.contains("3 times") && text.contains("[990.0]") && text.contains("last: [999.5]"),
        "{text}"
    );
}

fn of_log(log: &str) -> Report {
    let mut model = quiet();
    model.domains.clear();
    Arc::make_mut(&mut model.host.facts).kvm_flavour = None;
    logged(&mut model, log);
    let options = Options {
        input: InputKind::File,
        ..Options::default()
    };
    run(&model, &mut RuleMemory::default(), &options)
}

#[test]
fn different_kills_are_each_said_and_lead_to_their_limit() {
    let kill = |at: u32, pid: u32, kind: &str| {
        format!(
            "[{at}.0] {kind}ut of memory: Killed process {pid} (qemu-system-x86) total-vm:1kB\n"
        )
    };
    let log = [
        kill(1, 70870, "Memory cgroup o"),
        kill(2, 24790, "Memory cgroup o"),
        kill(3, 39079, "Memory cgroup o"),
    ];
    let report = of_log(&log.concat());
    let found = get(&report, RuleId::GuestKilled);
    let text = words(found);
    assert!(
        ["70870", "24790", "39079"]
            .iter()
            .all(|pid| text.contains(pid))
            && !text.contains("3 times"),
        "{text}"
    );
    assert!(
        found.title.contains("limit of its cgroup") && !text.contains("free -h"),
        "{text}"
    );
    let text = words(get(&of_log(&kill(1, 7, "O")), RuleId::GuestKilled));
    assert!(text.contains("free -h"), "{text}");
}

#[test]
fn what_keeps_kvm_away_has_its_own_fix() {
    for (log, word) in [
        ("[1.0] kvm: disabled by bios\n", "AMD-V"),
        ("[1.0] kvm: no hardware support\n", "systemd-detect-virt"),
        (
            "[1.0] kvm: enabling virtualization on CPU0 failed\n",
            "vboxdrv",
        ),
    ] {
        let report = of_log(log);
        fires(&report, RuleId::NoKvm, Severity::Warning);
        silent(&report, RuleId::AbnormalExit);
        assert!(words(get(&report, RuleId::NoKvm)).contains(word), "{log}");
    }
    let mut model = quiet();
    logged(&mut model, "[1.0] kvm: no hardware support\n");
    let options = Options {
        input: InputKind::File,
        ..Options::default()
    };
    let judged = |model: &Model| run(model, &mut RuleMemory::default(), &options);
    let facts = Arc::make_mut(&mut model.host.facts);
    (facts.virtualised, facts.kvm_flavour) = (Some(true), None);
    assert!(
        get(&judged(&model), RuleId::NoKvm)
            .title
            .contains("nested virtualisation")
    );
    Arc::make_mut(&mut model.host.facts).kvm_flavour = Some("kvm_amd".into());
    silent(&judged(&model), RuleId::NoKvm);
}

#[test]
fn trouble_of_disks_of_the_host() {
    let disk = "[9.0] ata2.00: failed command: WRITE FPDMA QUEUED\n";
    assert_eq!(
        get(&of_log(disk), RuleId::DiskErrors).title,
        "A disk, its link or its file system reports errors"
    );
    let pool = of_log("[ 9.0] device-mapper: thin: 252:4: no free data space available.\n");
    assert!(words(get(&pool, RuleId::DiskErrors)).contains("lvs -a"));
}

#[test]
fn events_of_one_guest_have_one_list_of_causes() {
    let mut model = returned(17);
    logged(
        &mut model,
        "KVM internal error. Suberror: 1\nextra data[0]: 0x2\n",
    );
    let options = Options {
        input: InputKind::File,
        ..Options::default()
    };
    let found = run(&model, &mut RuleMemory::default(), &options);
    let found = get(&found, RuleId::AbnormalExit);
    assert_eq!(found.why.matches("QEMU stops").count(), 1, "{}", found.why);
    assert!(
        words(found).contains("Suberror: 1") && found.fix.len() == 1,
        "{found:#?}"
    );
    let kernel = of_log("[1.0] INFO: task CPU 0/KVM:77 blocked for more than 120 seconds.\n");
    // The log is there already.
    assert!(!words(get(&kernel, RuleId::HostLockup)).contains("look at: "));
}
