use super::*;
use sample::{DiskSample, Job, JobKind};

const MIB: u64 = 1 << 20;

/// A migration in its fourth pass: the guest writes `dirtied` MiB/s, 10 MiB/s are moved, 60 MiB are
/// left.
fn migration(dirtied: u64) -> Job {
    Job {
        kind: JobKind::Migration,
        status: "active".into(),
        elapsed_ns: Some(40_000_000_000),
        done: Some(400 * MIB),
        total: Some(256 * MIB),
        remaining: Some(60 * MIB),
        rate: Some(10 * MIB),
        limit: Some(10 * MIB),
        rounds: Some(4),
        dirtied: Some(dirtied * MIB),
        downtime_limit_ns: Some(300_000_000),
        auto_converge: Some(false),
        postcopy: Some(true),
        ..Job::default()
    }
}

fn backup(still_s: u64) -> Job {
    Job {
        kind: JobKind::Backup,
        name: "drive-scsi0".into(),
        status: "running".into(),
        still_ns: still_s * 1_000_000_000,
        done: Some(MIB),
        total: Some(4 * MIB),
        remaining: Some(3 * MIB),
        ..Job::default()
    }
}

/// A job of each kind of finding.
pub(super) fn all_bad() -> Vec<Job> {
    let never = Job {
        postcopy: Some(false),
        ..migration(12)
    };
    let lost = Job {
        status: "postcopy-paused".into(),
        ..migration(0)
    };
    let slow = backup(0);
    vec![
        never,
        migration(12),
        lost,
        slow,
        backup(60),
        Job {
            kind: JobKind::Mirror,
            ..backup(60)
        },
    ]
}

/// A guest with this job, whose vCPU and main thread are busy, and whose writes take `us`.
fn with(job: Job, us: u64) -> Fixture {
    let mut guest = Guest::new("g", 5)
        .linux("")
        .vcpus(1, |v, t| t.on(v).cpu(50.0, 0.5, 4.0, 0.0));
    guest.rest.devices_ns = 5_000_000_000;
    let disk = DiskSample {
        name: "vda".into(),
        write_ops: 500,
        write_ns: Some(500_000 * us),
        ..DiskSample::default()
    };
    guest.rest.disks = vec![disk];
    guest.rest.jobs = vec![job];
    on(guest)
}

fn judged(job: Job) -> Report {
    judge(&with(job, 1000).model())
}

#[test]
fn job_not_converging() {
    let report = judged(migration(12));
    fires(&report, RuleId::JobNotConverging, Severity::Warning);
    let found = get(&report, RuleId::JobNotConverging);
    assert_eq!(
        found.evidence[0],
        "the guest writes 12 MiB/s, the migration, pass 4 moves 10 MiB/s"
    );
    assert_eq!(
        found.evidence[1],
        "60 MiB are left after a pass, 3 MiB may be (downtime limit: 300 ms)"
    );
    let fixes: Vec<&str> = found.fix.iter().map(|fix| fix.text.as_str()).collect();
    let [downtime, speed, postcopy, throttle] = fixes[..] else {
        panic!("{fixes:?}")
    };
    assert_eq!(downtime, "virsh migrate-setmaxdowntime g 7500");
    assert_eq!(
        (speed, postcopy),
        ("virsh migrate-setspeed g 24", "virsh migrate-postcopy g")
    );
    assert!(throttle.contains("auto-converge"), "{throttle}");
    // It shrinks, it is in its first pass, the rest fits, or it is over.
    silent(&judged(migration(8)), RuleId::JobNotConverging);
    silent(
        &judged(Job {
            dirtied: None,
            rounds: Some(1),
            ..migration(12)
        }),
        RuleId::JobNotConverging,
    );
    silent(
        &judged(Job {
            remaining: Some(2 * MIB),
            ..migration(12)
        }),
        RuleId::JobNotConverging,
    );
    silent(
        &judged(Job {
            status: "postcopy-active".into(),
            ..migration(12)
        }),
        RuleId::JobNotConverging,
    );
    // QEMU holds the guest back, and will more.
    let slowed = Job {
        auto_converge: Some(true),
        throttle_percent: Some(40),
        ..migration(12)
    };
    fires(
        &judged(slowed.clone()),
        RuleId::JobNotConverging,
        Severity::Info,
    );
    fires(
        &judged(Job {
            throttle_percent: Some(99),
            ..slowed
        }),
        RuleId::JobNotConverging,
        Severity::Warning,
    );
    // A limit that nobody names is none to raise.
    let unlimited = judged(Job {
        limit: None,
        ..migration(12)
    });
    let fix = &get(&unlimited, RuleId::JobNotConverging).fix;
    assert!(
        !fix.iter().any(|fix| fix.text.contains("setspeed")),
        "{fix:#?}"
    );
}

#[test]
fn jobs_without_progress_by_nature_are_silent() {
    silent(
        &judged(Job {
            kind: JobKind::Other,
            ..backup(60)
        }),
        RuleId::JobStalled,
    );
    silent(
        &judged(Job {
            done: Some(0),
            ..backup(60)
        }),
        RuleId::JobStalled,
    );
    fires(&judged(backup(60)), RuleId::JobStalled, Severity::Warning);
}

#[test]
fn what_a_migration_allows_is_what_is_proposed() {
    let texts = |job| {
        get(&judged(job), RuleId::JobNotConverging)
            .fix
            .iter()
            .map(|f| f.text.clone())
            .collect::<String>()
    };
    let slow_network = texts(Job {
        limit: Some(1000 * MIB),
        ..migration(12)
    });
    assert!(
        !slow_network.contains("setspeed"),
        "no limit holds it back: {slow_network}"
    );
    let held = Job {
        throttle_percent: Some(40),
        auto_converge: Some(true),
        ..migration(12)
    };
    assert!(!texts(held.clone()).contains("auto-converge"));
    let evidence = get(&judged(held), RuleId::JobNotConverging)
        .evidence
        .clone();
    assert!(
        evidence
            .iter()
            .any(|line| line.contains("held back for 40 % of the time")),
        "{evidence:?}"
    );
    let no_postcopy = texts(Job {
        postcopy: Some(false),
        ..migration(12)
    });
    assert!(
        no_postcopy.contains("post-copy allowed (--postcopy"),
        "{no_postcopy}"
    );
    let long = texts(Job {
        remaining: Some(4000 * MIB),
        ..migration(12)
    });
    assert!(
        !long.contains("setmaxdowntime"),
        "a stop of minutes is no way out: {long}"
    );
}

#[test]
fn proxmox_and_bare_guests_have_their_own_commands() {
    let by_hand = |socket: &str| {
        let mut guest = Guest::new("g", 5).vcpus(1, |v, t| t.on(v).cpu(50.0, 0.5, 4.0, 0.0));
        guest.rest.jobs = vec![migration(12)];
        let command = kvm::cmdline::QemuCommand {
            qmp_sockets: vec![socket.into()],
            ..Default::default()
        };
        let report = judge(&on(guest.facts(|f| f.command = Some(Arc::new(command)))).model());
        get(&report, RuleId::JobNotConverging).fix[0].clone()
    };
    let proxmox = by_hand("/var/run/qemu-server/104.qmp");
    assert_eq!(
        proxmox.text,
        "echo 'migrate_set_parameter downtime-limit 7500' | qm monitor 104"
    );
    assert!(
        proxmox
            .needs
            .unwrap()
            .contains("stands still for up to 7.5 s")
    );
    assert!(
        by_hand("/tmp/q")
            .text
            .contains("migrate_set_parameter downtime-limit 7500")
    );
}

#[test]
fn job_stalled() {
    let report = judged(backup(30));
    fires(&report, RuleId::JobStalled, Severity::Warning);
    let found = get(&report, RuleId::JobStalled);
    assert_eq!(
        found.evidence[0],
        "backup drive-scsi0 moved nothing for 30 s at 25 %"
    );
    silent(&judged(backup(29)), RuleId::JobStalled);
    for status in ["ready", "paused", "pending", "standby", "failed"] {
        silent(
            &judged(Job {
                status: status.into(),
                ..backup(60)
            }),
            RuleId::JobStalled,
        );
    }
    let full = Job {
        status: "paused".into(),
        error: Some("no space left".into()),
        ..backup(60)
    };
    let report = judged(full);
    assert!(
        get(&report, RuleId::JobStalled)
            .evidence
            .iter()
            .any(|line| line.contains("no space left"))
    );
    fires(
        &judged(Job {
            status: "postcopy-paused".into(),
            ..migration(0)
        }),
        RuleId::JobStalled,
        Severity::Critical,
    );
}

#[test]
fn a_job_explains_a_busy_main_loop_and_memory_faults() {
    let busy = |job: Option<Job>| {
        let guest = Guest::new("g", 5).linux("").vcpus(1, |v, t| t.on(v));
        let mut guest = guest.emulator(|t| t.cpu(0.0, 85.0, 5.0, 0.0));
        guest.rest.jobs = job.into_iter().collect();
        judge(&on(guest).model())
    };
    fires(&busy(None), RuleId::MainLoopBusy, Severity::Warning);
    silent(&busy(Some(backup(0))), RuleId::MainLoopBusy);
    silent(&busy(Some(migration(1))), RuleId::MainLoopBusy);
}
