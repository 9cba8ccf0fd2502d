//! What a summary of a recording must not lose.

use super::*;
use crate::lint::{RuleId, Severity, Target};
use crate::model::{Base, CpuShare, Model};
use crate::testing::FixtureModel as _;
use kvm::thread_name::Role;
use sample::{Burst, DomainState, HostTaskGroup, SourceState, Timing, UserspaceCell};
use testkit::Fixture;

fn summary(samples: impl IntoIterator<Item = Sample>) -> JudgedInterval {
    runs([samples])
}

fn runs<S: IntoIterator<Item = Sample>>(runs: impl IntoIterator<Item = S>) -> JudgedInterval {
    let mut summary = SessionSummary::new(Pipeline::default());
    for run in runs {
        for (i, sample) in run.into_iter().enumerate() {
            summary.add_watched(Arc::new(sample), i == 0, |_| {});
        }
    }
    summary.finish()
}

fn assert_close(a: Option<f64>, b: Option<f64>, what: &str) {
    match (a, b) {
        (Some(a), Some(b)) => assert!(
            (a - b).abs() <= 1e-6 * a.abs().max(1.0),
            "{what}: {a} and {b}"
        ),
        (a, b) => assert_eq!(a, b, "{what}"),
    }
}

/// Where nothing begins or ends, the sum of all intervals is the difference of the last and the
/// first sample.
#[test]
fn a_steady_hosts_summary_is_the_difference_of_its_last_and_first_sample() {
    let fixture = Fixture::busy_host();
    let all = summary((10..=40).map(|s| fixture.sample(f64::from(s)))).model;
    let whole = Model::new(&fixture.sample(40.0), Base::Previous(&fixture.sample(10.0)));
    assert_close(all.interval_s, whole.interval_s, "interval");
    assert_eq!(
        (all.time_ms, all.lost, all.overflow),
        (whole.time_ms, whole.lost, whole.overflow)
    );
    assert_close(all.own_cpu, whole.own_cpu, "own CPU");
    assert_eq!(all.domains.len(), whole.domains.len());
    for (a, b) in all.domains.iter().zip(&whole.domains) {
        let name = a.name();
        assert_eq!((&a.facts, a.state), (&b.facts, b.state));
        let cpu = |c: Option<CpuShare>| {
            c.map(|c| [c.usr, c.sys, c.guest, c.wait.unwrap_or(-1.0), c.busy()])
        };
        for (x, y) in cpu(a.cpu)
            .into_iter()
            .flatten()
            .zip(cpu(b.cpu).into_iter().flatten())
        {
            assert_close(Some(x), Some(y), name);
        }
        let threads = |d: &crate::model::DomainModel| {
            d.threads
                .iter()
                .map(|t| {
                    (
                        t.tid,
                        t.role,
                        t.index,
                        t.place.clone(),
                        t.growth.and_then(|g| g.voluntary),
                    )
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(threads(a), threads(b), "{name}");
        assert_eq!(
            (a.exits.count, a.exits.total_ns, a.exits.work_ns),
            (b.exits.count, b.exits.total_ns, b.exits.work_ns)
        );
        for (x, y) in a.exits.rows.iter().zip(&b.exits.rows) {
            assert_eq!(
                (&x.reason, x.id, x.idle, x.span.count),
                (&y.reason, y.id, y.idle, y.span.count)
            );
            assert_close(x.rate, y.rate, &x.reason);
            assert_close(x.work_percent, y.work_percent, &x.reason);
        }
        let per_vcpu = |d: &crate::model::DomainModel| {
            d.vcpu_exits
                .iter()
                .map(|(v, t)| (*v, t.count, t.total_ns))
                .collect::<Vec<_>>()
        };
        assert_eq!(per_vcpu(a), per_vcpu(b));
        for (rows, others) in [
            (&a.accesses, &b.accesses),
            (&a.vcpu_accesses, &b.vcpu_accesses),
        ] {
            assert_eq!(rows.len(), others.len());
            for (x, y) in rows.iter().zip(others) {
                assert_eq!(
                    (x.address, x.vcpu, &x.device, x.span.count),
                    (y.address, y.vcpu, &y.device, y.span.count)
                );
                assert_close(x.time_percent, y.time_percent, "time of accesses");
            }
        }
        assert_eq!(a.userspace, b.userspace);
        assert_eq!(a.exit_rate.source, b.exit_rate.source);
        assert_close(a.exit_rate.per_second, b.exit_rate.per_second, name);
    }
    for (a, b) in all.host.cpus.iter().zip(&whole.host.cpus) {
        assert_eq!(a.cpu, b.cpu);
        assert_close(
            a.time.map(|t| t.busy()),
            b.time.map(|t| t.busy()),
            "host CPU",
        );
        let guest_threads = |c: &crate::model::CpuModel| {
            c.guest_threads
                .iter()
                .map(|t| (t.domain, t.thread))
                .collect::<Vec<_>>()
        };
        assert_eq!(guest_threads(a).len(), guest_threads(b).len());
    }
    let named = |m: &Model| {
        m.host
            .task_groups
            .iter()
            .flatten()
            .map(|g| g.cpu_percent)
            .sum::<f64>()
    };
    let usage = |m: &Model| {
        m.host
            .usage()
            .map(|u| [u.guests, u.other, named(m)])
            .unwrap()
    };
    for (part, of_whole) in usage(&all).into_iter().zip(usage(&whole)) {
        assert_close(Some(part), Some(of_whole), "host");
    }
}

#[test]
fn a_task_of_a_part_of_the_time_has_a_part_of_its_percent() {
    let mut fixture = Fixture::busy_host();
    // The CPUs did as much outside guests as the tasks used.
    fixture.host = fixture
        .host
        .load(20, 95.0, 0.0, 0.0)
        .load(21, 95.0, 0.0, 0.0);
    let all = summary((0..=10).map(|second| {
        let mut sample = fixture.sample(f64::from(second));
        if second > 5 {
            let rustc = HostTaskGroup {
                comm: "rustc".into(),
                used_ns: 3_000_000,
                over_ns: 2_000_000,
                count: 4,
            };
            sample.host.task_groups.as_mut().unwrap().push(rustc);
        }
        sample
    }));
    let groups = all.model.host.task_groups.unwrap();
    let groups: Vec<_> = groups
        .iter()
        .map(|g| (g.comm.as_str(), g.cpu_percent.round(), g.count))
        .collect();
    assert_eq!(
        groups,
        [
            ("rustc", 75.0, 4),
            ("node_exporter", 12.0, 1),
            ("ksmd", 9.0, 1)
        ]
    );
}

#[test]
fn threads_and_guests_that_ended_keep_their_exits() {
    let fixture = Fixture::busy_host();
    let samples = || {
        (0..10u64).map(|second| {
            let mut sample = fixture.sample(second as f64);
            for domain in &mut sample.domains {
                for thread in domain.threads.iter_mut().filter(|t| t.role == Role::Vcpu) {
                    thread.events.userspace = vec![UserspaceCell {
                        reason: 2,
                        count: 100 * second,
                    }];
                }
            }
            // The first guest's vCPU threads end, then the whole second guest; both are gone in the
            // last samples.
            if second > 5 {
                sample.domains[0].threads.retain(|t| t.role != Role::Vcpu);
            }
            if second > 7 {
                sample.domains.remove(1);
            }
            sample
        })
    };
    let all = summary(samples()).model;
    let samples: Vec<Sample> = samples().collect();
    let vcpus = samples[0].domains[0]
        .threads
        .iter()
        .filter(|t| t.role == Role::Vcpu)
        .count() as u64;
    let of_all = |d: &crate::model::DomainModel| {
        d.userspace
            .iter()
            .filter(|row| row.vcpu.is_none())
            .map(|row| row.count)
            .sum::<u64>()
    };
    assert_eq!(of_all(&all.domains[0]), 5 * 100 * vcpus, "the first guest");
    assert_eq!(all.domains[0].vcpus().count() as u64, vcpus);
    let exits: u64 = samples
        .windows(2)
        .map(|w| {
            Model::new(&w[1], Base::Previous(&w[0])).domains[0]
                .exits
                .count
        })
        .sum();
    assert_eq!((all.domains[0].exits.count, exits > 0), (exits, true));
    assert_eq!(
        all.domains[0].exit_rate.per_second.map(f64::round),
        Some((exits as f64 / 9.0).round())
    );
    let ended = all.domains.last().unwrap();
    assert_eq!(
        (ended.name(), ended.state),
        (
            samples[0].domains[1].facts.name.value.as_str(),
            DomainState::Ended
        )
    );
    assert_eq!(of_all(ended) % 700, 0);
    assert!(of_all(ended) > 0 && ended.exits.count > 0);
}

#[test]
fn all_runs_of_the_recorder_count_and_are_reported() {
    let fixture = Fixture::busy_host();
    let all = runs([10..14, 20..26].map(|seconds| seconds.map(|s| fixture.sample(f64::from(s)))));
    assert_eq!(all.model.interval_s, Some(8.0), "3 s and 5 s");
    let rate = |m: &Model| m.domains[0].exit_rate.per_second.unwrap().round() as u64;
    assert_eq!(
        rate(&all.model),
        rate(&fixture.model()),
        "the time in between does not count"
    );
    let note = all.model.sources.last().unwrap();
    assert_eq!(
        (note.id, note.state),
        (SourceId::Session, SourceState::Degraded)
    );
    assert_eq!(
        note.cause.as_deref(),
        Some("the recorder ran 2 times and counted nothing in between; figures are of all runs")
    );
    let one = summary((10..14).map(|s| fixture.sample(f64::from(s))));
    assert!(
        one.model.sources.iter().all(|s| s.id != SourceId::Session),
        "one run needs no note"
    );
}

#[test]
fn one_sample_is_no_interval() {
    let only = summary([Fixture::busy_host().sample(1.0)]);
    assert_eq!(
        (only.model.interval_s, only.model.domains.is_empty()),
        (None, false)
    );
}

#[test]
fn extremes_and_accesses_of_single_intervals_are_in_the_summary() {
    let fixture = Fixture::busy_host();
    let samples = (10..15u64).map(|second| {
        let mut sample = fixture.sample(second as f64);
        for events in sample
            .domains
            .iter_mut()
            .flat_map(|d| &mut d.threads)
            .map(|t| &mut t.events)
        {
            for e in &mut events.exits {
                // The longest in the middle, the shortest at second 11; the first sample ends no
                // interval.
                (e.time.min_ns, e.time.max_ns) = (
                    Some(64 * second.abs_diff(11) + 64),
                    Some(1 << (34 - second.abs_diff(12))),
                );
            }
            for a in &mut events.accesses {
                a.time.max_ns = Some(1 << (34 - second.abs_diff(12)));
                a.burst = Some(Burst {
                    count: 100 - second.abs_diff(13),
                    ns: 8192,
                });
            }
            // At the end the cells belong to other addresses.
            events.accesses.retain(|_| second < 14);
        }
        sample
    });
    let model = summary(samples).model;
    let (exits, accesses) = (
        &model.domains[0].exits.rows[0].span,
        &model.domains[0].accesses[0],
    );
    assert_eq!((exits.min_ns, exits.max_ns), (Some(64), Some(1 << 34)));
    assert_eq!(
        (accesses.span.max_ns, accesses.burst.map(|b| b.count)),
        (Some(1 << 34), Some(100))
    );
    assert_eq!(
        model.domains[0].vcpu_exits[0].1.rows[0].span.max_ns,
        Some(1 << 34)
    );
    let second = &fixture.model().domains[0].accesses;
    let rate = second
        .iter()
        .find(|a| a.address == accesses.address)
        .and_then(|a| a.rate);
    assert_eq!(
        accesses
            .rate
            .zip(rate)
            .map(|(all, one)| (all * 4.0 / one).round()),
        Some(3.0),
        "three of four seconds"
    );
}

#[test]
fn an_access_under_way_at_the_end_of_an_interval_makes_no_figure_unknown() {
    let fixture = Fixture::busy_host();
    let samples = (10..15u64).map(|second| {
        let mut sample = fixture.sample(second as f64);
        for events in sample
            .domains
            .iter_mut()
            .flat_map(|d| &mut d.threads)
            .map(|t| &mut t.events)
        {
            // An access counts when it occurs, its time when its exit ends.
            for time in events.accesses.iter_mut().map(|a| &mut a.time) {
                let max_ns = Some(700).filter(|_| second == 13);
                *time = Timing {
                    max_ns,
                    min_ns: max_ns,
                    ..time.clone()
                };
                if second == 11 {
                    *time = Timing {
                        count: time.count,
                        ..Timing::default()
                    };
                }
            }
            for exit in events.exits.iter_mut().filter(|_| second == 12) {
                (exit.time.min_ns, exit.time.max_ns) = (None, None);
            }
        }
        sample
    });
    let model = summary(samples).model;
    let span = &model.domains[0].accesses[0].span;
    assert_eq!((span.min_ns, span.max_ns), (Some(700), Some(700)));
    assert!(
        span.total_ns.is_some() && span.histogram.is_some(),
        "{span:?}"
    );
    assert!(model.domains[0].exits.rows[0].span.max_ns.is_some());
}

#[test]
fn a_cause_is_reported_once() {
    let finding = |rule, folded: &[RuleId], severity, vcpu: Option<u32>| Finding {
        rule,
        folded: folded.to_vec(),
        severity,
        target: vcpu.map_or(Target::default(), Target::Vcpu),
        domain: Some("a".into()),
        ..Finding::default()
    };
    let (info, warning, critical) = (Severity::Info, Severity::Warning, Severity::Critical);
    let kept = |all: Vec<Finding>| {
        let mut kept = HeaviestFindings::default();
        all.into_iter().for_each(|f| kept.add(f));
        kept.finish()
            .into_iter()
            .map(|f| (f.rule, f.severity))
            .collect::<Vec<_>>()
    };
    let clocks = |severity| {
        [
            finding(RuleId::RtcTick, &[RuleId::HpetClock], warning, None),
            finding(RuleId::HpetClock, &[RuleId::RtcTick], severity, None),
        ]
    };
    assert_eq!(
        kept(clocks(critical).into()),
        [(RuleId::HpetClock, critical)],
        "whichever weighs more leads"
    );
    assert_eq!(kept(clocks(info).into()), [(RuleId::RtcTick, warning)]);
    let wait = || finding(RuleId::VcpuWait, &[], critical, None);
    let overlap = || finding(RuleId::PinOverlap, &[RuleId::VcpuWait], warning, None);
    assert_eq!(
        kept(vec![wait(), overlap()]),
        [(RuleId::PinOverlap, warning)],
        "the cause, not its effect alone"
    );
    assert_eq!(
        kept(vec![overlap(), wait()]),
        [(RuleId::PinOverlap, warning)]
    );
    let two = vec![
        finding(RuleId::SerialBurst, &[], info, Some(0)),
        finding(RuleId::SerialBurst, &[], info, Some(1)),
    ];
    assert_eq!(kept(two).len(), 2, "one of each vCPU");
    let mut other = wait();
    other.domain = Some("b".into());
    assert_eq!(kept(vec![overlap(), other]).len(), 2);
}

#[test]
fn findings_of_ever_new_guests_are_bounded() {
    let mut kept = HeaviestFindings::default();
    for guest in 0..lint::MAX_FINDINGS + 100 {
        kept.add(Finding {
            rule: RuleId::VcpuWait,
            domain: Some(guest.to_string()),
            ..Finding::default()
        });
    }
    assert_eq!(kept.finish().len(), lint::MAX_FINDINGS);
}

#[test]
fn what_the_first_second_shows_is_in_the_summary() {
    let mut sample = Fixture::busy_host().sample(10.0);
    sample.host.kernel_log = kvm::kernel_log::parse(
        "[172750.500000] Out of memory: Killed process 7001 (qemu-system-x86) total-vm:1kB, \
            anon-rss:1kB\n",
    );
    let mut next = Fixture::busy_host().sample(11.0);
    next.host.kernel_log = Vec::new();
    let all = summary([sample, next]);
    assert!(
        all.report
            .findings
            .iter()
            .any(|f| f.rule == RuleId::GuestKilled),
        "{:#?}",
        all.report.findings
    );
}
