use super::*;
use sample::Throttling;

fn guest(vcpus: u32, make: impl Fn(u32, Thread) -> Thread) -> Guest {
    Guest::new("l", 5).linux("").vcpus(vcpus, make)
}

#[test]
fn pause_loops() {
    let at = |rate, wait| {
        on(guest(2, move |v, t| {
            t.on(v)
                .cpu(70.0, 0.0, 5.0, wait)
                .exits("PAUSE_INSTRUCTION", rate, 3.0)
        }))
    };
    fires(
        &judge(&at(8000.0, 20.0).model()),
        RuleId::PauseLoops,
        Severity::Warning,
    );
    fires(
        &judge(&at(8000.0, 0.1).model()),
        RuleId::PauseLoops,
        Severity::Info,
    );
    silent(&judge(&at(100.0, 20.0).model()), RuleId::PauseLoops);
    cannot(&from_file(&at(8000.0, 0.0), None), RuleId::PauseLoops);
}

#[test]
fn host_interrupts() {
    let at = |rate| {
        on(guest(2, move |v, t| {
            t.on(v)
                .cpu(90.0, 0.0, 5.0, 0.0)
                .exits("EXTERNAL_INTERRUPT", rate, 2.0)
        }))
    };
    fires(
        &judge(&at(3000.0).model()),
        RuleId::HostInterrupts,
        Severity::Info,
    );
    silent(&judge(&at(300.0).model()), RuleId::HostInterrupts);
    cannot(&from_file(&at(3000.0), None), RuleId::HostInterrupts);
    let isolated = Fixture::new(host().isolated("4-5")).guest(guest(2, |v, t| {
        t.pinned(4 + v)
            .cpu(90.0, 0.0, 5.0, 0.0)
            .exits("EXTERNAL_INTERRUPT", 3000.0, 2.0)
    }));
    fires(
        &judge(&isolated.model()),
        RuleId::HostInterrupts,
        Severity::Warning,
    );
}

#[test]
fn halt_polling() {
    let at = |percent: f64, busy: f64| {
        on(guest(1, move |v, mut t| {
            t.counters = [
                ("halt_poll_fail_ns".into(), percent * 0.8e7),
                ("halt_poll_success_ns".into(), percent * 0.2e7),
            ]
            .into();
            t.on(v).cpu(busy, 0.0, percent, 0.0)
        }))
    };
    fires(
        &judge(&at(40.0, 5.0).model()),
        RuleId::HaltPollBurn,
        Severity::Info,
    );
    silent(&judge(&at(5.0, 5.0).model()), RuleId::HaltPollBurn);
    silent(&judge(&at(40.0, 55.0).model()), RuleId::HaltPollBurn);
    silent(&judge(&at(40.0, 5.0).first()), RuleId::HaltPollBurn);
}

#[test]
fn migrations() {
    let at = |moves, node, busy, wait| {
        Fixture::new(Host::numa(2, 4, 1)).guest(guest(2, move |v, t| {
            t.may_run("0-7")
                .on(v)
                .cpu(busy, 0.0, 1.0, wait)
                .moves(moves, node, 3)
        }))
    };
    fires(
        &judge(&at(20.0, 0.0, 80.0, 10.0).model()),
        RuleId::VcpuMigrating,
        Severity::Warning,
    );
    fires(
        &judge(&at(20.0, 0.0, 80.0, 0.1).model()),
        RuleId::VcpuMigrating,
        Severity::Info,
    );
    fires(
        &judge(&at(20.0, 8.0, 80.0, 10.0).model()),
        RuleId::VcpuMigrating,
        Severity::Critical,
    );
    silent(
        &judge(&at(20.0, 0.0, 5.0, 0.1).model()),
        RuleId::VcpuMigrating,
    );
    silent(
        &judge(&at(0.2, 0.0, 80.0, 0.1).model()),
        RuleId::VcpuMigrating,
    );
    silent(
        &judge(&at(20.0, 0.0, 80.0, 10.0).first()),
        RuleId::VcpuMigrating,
    );
    let report = judge(&at(20.0, 0.0, 80.0, 10.0).model());
    let fix = &get(&report, RuleId::VcpuMigrating).fix;
    // vCPU 1 runs on CPU 1, and CPU 0 is the host's.
    assert_eq!(
        fix[0].text, "virsh vcpupin l 0 2 --live --config\nvirsh vcpupin l 1 1 --live --config",
        "{fix:#?}"
    );
    assert!(
        fix[1].text.contains("<vcpupin vcpu='0' cpuset='2'/>"),
        "{fix:#?}"
    );
}

#[test]
fn waiting() {
    let at = |busy, wait| {
        on(guest(2, move |v, t| {
            t.may_run("0-7").on(v).cpu(busy, 0.0, 1.0, wait)
        }))
    };
    fires(
        &judge(&at(70.0, 28.0).model()),
        RuleId::VcpuWait,
        Severity::Critical,
    );
    fires(
        &judge(&at(88.0, 8.0).model()),
        RuleId::VcpuWait,
        Severity::Warning,
    );
    silent(&judge(&at(97.0, 0.5).model()), RuleId::VcpuWait);
    silent(&judge(&at(40.0, 6.0).model()), RuleId::VcpuWait);
    silent(&judge(&at(3.0, 4.0).model()), RuleId::VcpuWait);
    silent(&judge(&at(2.0, 9.0).model()), RuleId::VcpuWait);
    silent(&judge(&at(70.0, 28.0).first()), RuleId::VcpuWait);

    // Who ran meanwhile is named by what it is to its guest.
    let mut model = at(70.0, 28.0).model();
    let threads = &mut model.domains[0].threads;
    let task = |tid, comm: &str, ns| sample::OtherTask {
        tid,
        comm: comm.into(),
        count: 9,
        ns,
    };
    let other = threads.iter().find(|t| t.index == Some(1)).unwrap().tid;
    threads
        .iter_mut()
        .filter(|t| t.index == Some(0))
        .for_each(|t| {
            t.preempted_by = vec![
                task(other, "CPU 1/KVM", 200_000_000),
                task(99, "rcu_sched", 60_000_000),
            ];
            t.cpu.as_mut().unwrap().wait = Some(29.0);
        });
    let report = judge(&model);
    let ran = "meanwhile its CPU ran own vCPUs 20 %, rcu_sched 6 %".to_owned();
    assert!(
        get(&report, RuleId::VcpuWait).evidence.contains(&ran),
        "{ran}: {:#?}",
        get(&report, RuleId::VcpuWait)
    );
}

#[test]
fn quota() {
    let at = |throttled: u64, ms: u64| {
        let wait = if ms > 100 { 45.0 } else { 0.3 };
        let mut model = on(guest(1, move |v, t| t.on(v).cpu(50.0, 0.0, 1.0, wait))).model();
        model.domains[0].throttling = vec![Throttling {
            group: "vcpu0".into(),
            periods: 10,
            throttled,
            throttled_ns: ms * 1_000_000,
            ..Throttling::default()
        }];
        judge(&model)
    };
    let report = at(10, 450);
    fires(&report, RuleId::QuotaThrottled, Severity::Critical);
    let f = get(&report, RuleId::QuotaThrottled);
    assert!(
        f.covers(RuleId::VcpuWait),
        "the wait is the quota's: {f:#?}"
    );
    assert!(
        f.fix[0]
            .text
            .contains("virsh schedinfo l --set vcpu_quota=-1 --live")
    );
    fires(&at(1, 3), RuleId::QuotaThrottled, Severity::Warning);
    silent(&at(0, 0), RuleId::QuotaThrottled);
}

#[test]
fn a_quota_is_lifted_where_it_is() {
    let fix = |group: &str, ms: u64| {
        let mut model = on(guest(2, |v, t| t.on(v).cpu(50.0, 0.0, 1.0, 0.3))).model();
        model.domains[0].throttling = vec![Throttling {
            group: group.into(),
            periods: 10,
            throttled: 9,
            throttled_ns: ms * 1_000_000,
            ..Throttling::default()
        }];
        let report = judge(&model);
        let f = get(&report, RuleId::QuotaThrottled);
        (f.fix[0].text.clone(), f.evidence[0].clone())
    };
    for (group, part) in [
        ("domain", "--set global_quota=-1"),
        ("iothread1", "--set iothread_quota=-1"),
        ("emulator", "--set emulator_quota=-1"),
        (
            "machine.slice",
            "systemctl set-property --runtime machine.slice CPUQuota=",
        ),
        (
            "-.slice",
            "systemctl set-property --runtime -- '-.slice' CPUQuota=",
        ),
        ("kubepods", "cgroup kubepods"),
        ("a\u{fffd}b.slice", "cgroup a\u{fffd}b.slice"),
    ] {
        assert!(
            fix(group, 450).0.contains(part),
            "{group}: {}",
            fix(group, 450).0
        );
    }
    assert!(
        fix("domain", 450)
            .1
            .contains("together 45 % of one CPU's time")
    );
    assert!(
        fix("domain", 1800)
            .1
            .contains("together 180 % of one CPU's time")
    );
}

#[test]
fn overcommit() {
    let busy = |vcpus, guest_time, wait| {
        Fixture::new(Host::numa(1, 2, 1)).guest(guest(vcpus, move |v, t| {
            t.may_run("0-1").on(v % 2).cpu(guest_time, 0.0, 0.1, wait)
        }))
    };
    let at = |vcpus, wait| busy(vcpus, 15.0, wait);
    fires(
        &judge(&at(12, 20.0).model()),
        RuleId::Overcommit,
        Severity::Warning,
    );
    let many = judge(&at(24, 20.0).model());
    fires(&many, RuleId::Overcommit, Severity::Critical);
    assert_eq!(
        many.findings[0].rule,
        RuleId::Overcommit,
        "the cause before what each guest loses"
    );
    silent(&judge(&at(12, 0.0).model()), RuleId::Overcommit);
    silent(&judge(&at(2, 20.0).model()), RuleId::Overcommit);
    // Idle guests, which wait for half of the tenth of a percent that they want.
    silent(&judge(&busy(12, 0.0, 0.1).model()), RuleId::Overcommit);
}

/// Two guests of six vCPUs each on two CPUs, on which a task of the host uses this much of each.
fn beside_a_task(name: &str, task: f64) -> Fixture {
    let vcpu = |v: u32, t: Thread| {
        t.may_run("0-1")
            .on(v % 2)
            .cpu((90.0 - task) / 6.0, 0.0, 0.1, 80.0)
    };
    let two =
        |f: Fixture, pid| f.guest(Guest::new(&format!("g{pid}"), pid).linux("").vcpus(6, vcpu));
    let host = Host::numa(1, 4, 1)
        .task(name, false, 0, task)
        .task(name, false, 1, task);
    two(two(Fixture::new(host), 10), 50)
}

#[test]
fn a_task_of_the_host_that_takes_the_guests_cpus_is_named() {
    let report = judge(&beside_a_task("backup", 80.0).model());
    fires(&report, RuleId::HostTaskHog, Severity::Critical);
    let f = get(&report, RuleId::HostTaskHog);
    assert_eq!(
        (f.title.as_str(), f.problem.as_str()),
        (
            "backup takes the CPUs that guests want",
            "backup takes its CPU"
        )
    );
    assert!(
        f.concerns("g10") && f.concerns("g50") && f.covers(RuleId::VcpuWait),
        "{f:#?}"
    );
    assert!(
        f.evidence
            .iter()
            .any(|line| line.contains("backup uses 160 % of a CPU; PID 100, 101")),
        "{f:#?}"
    );
    assert_eq!(
        f.fix[0].text, "taskset -apc 2-3 100\ntaskset -apc 2-3 101",
        "the CPUs that no guest may use"
    );
    silent(&report, RuleId::Overcommit);
    // The same vCPUs without it, and beside one that matters little.
    for task in [0.0, 5.0] {
        let report = judge(&beside_a_task("backup", task).model());
        silent(&report, RuleId::HostTaskHog);
        fires(&report, RuleId::Overcommit, Severity::Warning);
    }
    let own = judge(&beside_a_task("kvmtop", 80.0).model());
    assert!(
        get(&own, RuleId::HostTaskHog).fix[0].text.contains("-d 5"),
        "its own cost is named as that"
    );
}

#[test]
fn a_task_on_the_cpu_of_a_pinned_vcpu_is_one_finding() {
    let guest = guest(1, |_, t| t.pinned(3).cpu(50.0, 0.0, 0.1, 45.0));
    let report = judge(
        &Fixture::new(host().task("java", false, 3, 49.0))
            .guest(guest)
            .model(),
    );
    let f = get(&report, RuleId::HostTaskHog);
    assert!(
        f.covers(RuleId::PinnedNotIsolated) && f.covers(RuleId::VcpuWait),
        "{report:#?}"
    );
    assert_eq!(f.title, "java takes the CPUs that guests want");
    assert!(
        f.cost.is_some_and(|cost| (40.0..=45.5).contains(&cost)),
        "what the guest loses: {:?}",
        f.cost
    );
}

#[test]
fn a_wait_for_a_quota_is_for_nothing_else() {
    let mut model = beside_a_task("backup", 30.0).model();
    for domain in &mut model.domains {
        domain.throttling = vec![Throttling {
            group: "domain".into(),
            periods: 10,
            throttled: 9,
            throttled_ns: 4_500_000_000,
            ..Throttling::default()
        }];
    }
    let report = judge(&model);
    fires(&report, RuleId::QuotaThrottled, Severity::Critical);
    assert_eq!(rules(&report), [RuleId::QuotaThrottled; 2], "{report:#?}");
    let costs = crate::cost::guest_costs(&model);
    assert!(
        costs[0].what_costs(60).contains("CPU quota"),
        "{}",
        costs[0].what_costs(60)
    );
}

#[test]
fn wake_latency() {
    let at = |us| {
        on(guest(1, move |_, t| {
            t.pinned(3).cpu(5.0, 0.0, 1.0, 0.1).wakes(200.0, us)
        }))
    };
    fires(
        &judge(&at(200.0).model()),
        RuleId::WakeupLatency,
        Severity::Info,
    );
    fires(
        &judge(&at(2000.0).model()),
        RuleId::WakeupLatency,
        Severity::Warning,
    );
    silent(&judge(&at(30.0).model()), RuleId::WakeupLatency);
    silent(
        &judge(
            &on(guest(1, |_, t| {
                t.pinned(3).cpu(5.0, 0.0, 1.0, 0.1).wakes(5.0, 200.0)
            }))
            .model(),
        ),
        RuleId::WakeupLatency,
    );
}
