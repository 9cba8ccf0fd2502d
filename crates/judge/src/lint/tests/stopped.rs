use super::*;
use kvm::cmdline;
use sample::{Job, JobKind, Stop, StopDisk, StopReason};
use std::sync::Arc;

const HOUR_NS: u64 = 3_600_000_000_000;

fn stop(reason: StopReason, for_ns: u64) -> Stop {
    Stop {
        reason,
        for_ns,
        disks: Vec::new(),
    }
}

/// A guest of libvirt that a full disk stopped.
fn full_disk() -> Stop {
    let disk = StopDisk {
        name: "vdb".into(),
        file: Some("/vm/b.img".into()),
        is_full: true,
        free_bytes: Some(4096),
        also: vec!["web".into(), "db".into()],
    };
    Stop {
        disks: vec![disk],
        ..stop(StopReason::IoError, 75_000_000_000)
    }
}

fn guest(stop: Stop) -> Guest {
    Guest::new("mail", 5)
        .linux("")
        .vcpus(2, |v, t| t.on(v))
        .stopped(stop)
}

fn judged(stop: Stop) -> Report {
    judge(&on(guest(stop)).model())
}

fn fixes_of(report: &Report) -> Vec<String> {
    get(report, RuleId::GuestStopped)
        .fix
        .iter()
        .map(|fix| fix.text.clone())
        .collect()
}

#[test]
fn a_guest_that_a_full_disk_stopped_is_critical_while_it_is_paused() {
    let report = judged(full_disk());
    fires(&report, RuleId::GuestStopped, Severity::Critical);
    let found = get(&report, RuleId::GuestStopped);
    assert_eq!(found.problem, "stopped: vdb full");
    assert_eq!(
        found.since_ms,
        Some(testkit::START_MS + 60_000 + 11_000 - 75_000)
    );
    let said = found.evidence.join("\n");
    assert!(said.contains("io-error, for 75 s"), "{said}");
    assert!(
        said.contains("vdb (/vm/b.img): no space left for a write; 4 KiB free"),
        "{said}"
    );
    assert!(said.contains("stop next: db, web"), "{said}");
    assert_eq!(
        fixes_of(&report),
        [
            "Free or extend the file system of /vm/b.img",
            "virsh resume mail"
        ]
    );
    assert!(found.also.is_empty(), "the others are not stopped");
}

#[test]
fn a_guest_runs_again_with_the_manager_that_it_has() {
    let of = |command: &str| {
        let mut guest = guest(full_disk());
        guest.facts.command = Some(Arc::new(cmdline::parse_text(command).unwrap()));
        (guest.facts.xml, guest.facts.uuid) = (None, None);
        fixes_of(&judge(&on(guest).model()))
    };
    let plain = of("qemu-system-x86_64 -accel kvm -m 64 -qmp unix:/run/q.sock,server=on,wait=off");
    assert_eq!(plain[1], "In its monitor: cont (QMP and HMP)");
    let proxmox = of("qemu-system-x86_64 -id 104 -accel kvm -m 64 -qmp \
        unix:/var/run/qemu-server/104.qmp,server=on");
    assert_eq!(proxmox[1], "qm resume 104");
}

#[test]
fn each_reason_has_its_severity_and_its_words() {
    let bad = [
        (StopReason::IoError, "stopped: I/O error"),
        (StopReason::InternalError, "stopped: internal error"),
        (StopReason::GuestPanicked, "stopped: panicked"),
        (StopReason::Watchdog, "stopped: watchdog"),
        (StopReason::PostcopyFailed, "stopped: post-copy failed"),
        (StopReason::Crashed, "stopped: crashed"),
    ];
    for (reason, problem) in bad {
        let report = judged(stop(reason, 1_000_000_000));
        fires(&report, RuleId::GuestStopped, Severity::Critical);
        assert_eq!(get(&report, RuleId::GuestStopped).problem, problem);
    }
    for (reason, problem) in [
        (StopReason::User, "paused for 3 h"),
        (StopReason::Suspended, "suspended itself"),
        (StopReason::Prelaunch, "waits for its first start"),
        (StopReason::ProcessStopped, "process is stopped"),
    ] {
        let report = judged(stop(reason, 3 * HOUR_NS));
        fires(&report, RuleId::GuestStopped, Severity::Info);
        assert_eq!(get(&report, RuleId::GuestStopped).problem, problem);
    }
    fires(
        &judged(stop(StopReason::Unknown, 20_000_000_000)),
        RuleId::GuestStopped,
        Severity::Warning,
    );
}

#[test]
fn a_short_pause_and_a_job_that_holds_the_guest_are_silent() {
    silent(
        &judged(stop(StopReason::User, 500_000_000_000)),
        RuleId::GuestStopped,
    );
    silent(
        &judged(stop(StopReason::Unknown, 5_000_000_000)),
        RuleId::GuestStopped,
    );
    for reason in [
        StopReason::Migration,
        StopReason::Save,
        StopReason::Snapshot,
        StopReason::Shutdown,
    ] {
        silent(&judged(stop(reason, HOUR_NS)), RuleId::GuestStopped);
    }
    let mut dumped = guest(stop(StopReason::User, HOUR_NS));
    dumped.rest.jobs = vec![Job {
        kind: JobKind::Dump,
        status: "active".into(),
        ..Job::default()
    }];
    silent(&judge(&on(dumped.clone()).model()), RuleId::GuestStopped);
    // No job stops a guest by an error of its disk.
    dumped.rest.stop = Some(full_disk());
    fires(
        &judge(&on(dumped).model()),
        RuleId::GuestStopped,
        Severity::Critical,
    );
}

#[test]
fn a_pause_without_a_reason_cannot_be_told() {
    let mut old = guest(Stop::default());
    old.rest.stop = None;
    cannot(&judge(&on(old).model()), RuleId::GuestStopped);
}

#[test]
fn the_order_has_a_stopped_guest_first() {
    let storm = Guest::new("a", 9).windows("").vcpus(1, |v, t| {
        t.on(v).pio(0x608, Direction::Read, 90_000.0, 10.0)
    });
    let report = judge(&on(storm).guest(guest(full_disk())).model());
    assert!(report.findings.len() > 1);
    assert_eq!(report.findings[0].rule, RuleId::GuestStopped);
}

#[test]
fn a_finding_about_load_goes_when_the_guest_stops() {
    // 90 % wait of a vCPU, then an error of KVM.
    let busy = Guest::new("mail", 5)
        .linux("")
        .vcpus(2, |_, t| t.on(0).cpu(50.0, 0.0, 0.0, 50.0));
    let load = on(busy).model();
    let mut memory = RuleMemory::default();
    let mut report = Report::default();
    let options = Options::default();
    for second in 0..12 {
        let mut model = load.clone();
        model.time_ms += second * 1000;
        report = run(&model, &mut memory, &options);
    }
    let of_guest = |report: &Report| {
        let own = report.findings.iter().filter(|f| f.domain.is_some());
        own.map(|f| f.rule).collect::<Vec<_>>()
    };
    assert!(!of_guest(&report).is_empty(), "it waits");
    let mut stopped = on(guest(stop(StopReason::InternalError, 1_000_000_000))).model();
    stopped.time_ms = load.time_ms + 12_000;
    let left = run(&stopped, &mut memory, &options);
    assert_eq!(
        of_guest(&left),
        [RuleId::GuestStopped],
        "before: {:?}",
        of_guest(&report)
    );
}
