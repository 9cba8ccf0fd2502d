use super::*;
use sample::DomainState;

fn storm() -> Fixture {
    on(Guest::new("l", 5).linux("").mtree().vcpus(1, |v, t| {
        t.on(v)
            .cpu(50.0, 0.0, 5.0, 0.0)
            .pio(0x608, Direction::Read, 3000.0, 6.0)
    }))
}

#[test]
fn one_second_is_no_finding() {
    let model = storm().model();
    silent(&after(&model, 1, &Options::default()), RuleId::AcpiPmTimer);
    silent(&after(&model, 4, &Options::default()), RuleId::AcpiPmTimer);
    fires(
        &after(&model, 5, &Options::default()),
        RuleId::AcpiPmTimer,
        Severity::Warning,
    );
}

#[test]
fn a_finding_is_withdrawn_when_its_cause_ends() {
    let (mut model, mut memory, options) =
        (storm().model(), RuleMemory::default(), Options::default());
    for _ in 0..10 {
        run(&model, &mut memory, &options);
        model.time_ms += 1000;
    }
    for d in &mut model.domains {
        d.accesses.clear();
        d.vcpu_accesses.clear();
    }
    let mut last = 0;
    for second in 1..=30 {
        model.time_ms += 1000;
        if !run(&model, &mut memory, &options).findings.is_empty() {
            last = second;
        }
    }
    assert!((10..=20).contains(&last), "{last}");
}

#[test]
fn too_little_seen_is_not_all_clear() {
    let model = storm().model();
    let report = after(&model, 1, &Options::default());
    let rows: Vec<(Option<&str>, f64, f64)> = report
        .watching
        .iter()
        .map(|w| (w.domain.as_deref(), w.seen_s, w.needed_s))
        .collect();
    assert_eq!(rows, [(None, 1.0, 8.0), (Some("l"), 1.0, 8.0)]);
    let found = after(&model, 6, &Options::default());
    assert!(
        found.watching.iter().any(|w| w.domain.is_some()),
        "other rules need more"
    );
    assert_eq!(after(&model, 8, &Options::default()).watching, []);
    let quick = Options {
        allow: BTreeSet::from([RuleId::Every]),
        ..Options::default()
    };
    assert_eq!(after(&model, 1, &quick).watching, [], "no rule is asked");
    let mut young = storm();
    young.guests[0].facts.started_ms = Some(testkit::START_MS + 30_000);
    let watching = after(&young.model(), 8, &Options::default()).watching;
    let rows: Vec<(Option<&str>, f64)> = watching
        .iter()
        .map(|w| (w.domain.as_deref(), w.needed_s))
        .collect();
    assert_eq!(rows, [(Some("l"), 128.0)], "said once");
    assert_eq!(from_file(&storm(), Some(10.0)).watching, []);
}

/// The findings of a host whose figures hover around thresholds, each second of a minute and a
/// half.
fn noisy(seed: u32) -> Vec<Vec<(FindingId, Severity)>> {
    let mut random = seed;
    let mut next = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(random >> 8) / f64::from(1 << 24)
    };
    let mut memory = RuleMemory::default();
    let second = |n: i64| {
        // The thresholds are 500 (a warning) and 100 (an info) reads a second, and 1000 and 256
        // accesses of the RTC.
        let (pm, rtc) = (350.0 + 300.0 * next(), 150.0 + 200.0 * next());
        let (wait, cost) = (1.5 + 1.0 * next(), 4.0 * next());
        let guest = |name: &str, pid: i32, from: u32| {
            Guest::new(name, pid).linux("").mtree().vcpus(2, |v, t| {
                let t =
                    t.on(from + v)
                        .cpu(60.0, 0.0, 5.0, wait)
                        .pio(0x608, Direction::Read, pm, cost);
                t.pio(0x71, Direction::Read, rtc, cost)
            })
        };
        let fixture = on(guest("a", 5, 0)).guest(guest("b", 50, 2));
        let mut model = fixture.model();
        model.time_ms += n * 1000;
        run(&model, &mut memory, &Options::default())
            .findings
            .iter()
            .map(|f| (f.id(), f.severity))
            .collect()
    };
    (0..90).map(second).collect()
}

#[test]
fn findings_of_a_noisy_host_stand_still() {
    for seed in 1..6 {
        let seconds = noisy(seed);
        assert!(
            seconds.last().is_some_and(|s| !s.is_empty()),
            "the figures are large enough for findings"
        );
        let changes = seconds.windows(2).filter(|w| w[0] != w[1]).count();
        assert!(
            changes <= 12,
            "seed {seed}: {changes} changes of the list in 90 s: {seconds:#?}"
        );
        let late = seconds[30..].windows(2).filter(|w| w[0] != w[1]).count();
        assert!(
            late <= 3,
            "seed {seed}: {late} changes after the first 30 s"
        );
    }
}

#[test]
fn a_seek_forgets() {
    let (model, mut memory) = (storm().model(), RuleMemory::default());
    for _ in 0..10 {
        run(&model, &mut memory, &Options::default());
    }
    memory.clear();
    assert_eq!(run(&model, &mut memory, &Options::default()).findings, []);
}

#[test]
fn the_behaviour_of_a_guest_that_starts_is_not_judged() {
    let guest = |started_s: i64| {
        let mut fixture = storm();
        fixture.guests[0].facts.started_ms = Some(testkit::START_MS + started_s * 1000);
        fixture.model()
    };
    silent(
        &after(&guest(59), 20, &Options::default()),
        RuleId::AcpiPmTimer,
    );
    let options = Options {
        startup_guard_s: 10.0,
        ..Options::default()
    };
    fires(
        &after(&guest(59), 20, &options),
        RuleId::AcpiPmTimer,
        Severity::Warning,
    );
    // Enlightenments need no wait: a guest has them from its start.
    let mut w = on(Guest::new("w", 5).windows("").vcpus(1, |v, t| t.on(v)));
    w.guests[0].facts.started_ms = Some(testkit::START_MS + 59_000);
    fires(
        &judge(&w.model()),
        RuleId::WindowsEnlightenments,
        Severity::Info,
    );
}

#[test]
fn a_paused_guest_is_not_judged_nor_for_a_while_after() {
    let (mut model, mut memory, options) =
        (storm().model(), RuleMemory::default(), Options::default());
    model.domains[0].state = DomainState::Paused;
    assert!(
        run(&model, &mut memory, &options)
            .cannot_tell
            .iter()
            .any(|c| c.because.contains("paused"))
    );
    model.domains[0].state = DomainState::Running;
    let mut first = None;
    for second in 1..60 {
        // The clock may be set meanwhile, which a live sample's facts follow.
        let passed = if second == 10 { -3_600_000 } else { 1000 };
        model.time_ms += passed;
        if second == 10 {
            let facts = Arc::make_mut(&mut model.domains[0].facts);
            facts.started_ms = facts.started_ms.map(|at| at + passed);
        }
        if first.is_none() && !run(&model, &mut memory, &options).findings.is_empty() {
            first = Some(second);
        }
    }
    assert_eq!(first, Some(34), "30 s of grace and five of pattern");
}

#[test]
fn rules_can_be_silenced_and_raised() {
    let model = storm().model();
    let set = |rule: RuleId| BTreeSet::from([rule]);
    silent(
        &after(
            &model,
            9,
            &Options {
                allow: set(RuleId::AcpiPmTimer),
                ..Options::default()
            },
        ),
        RuleId::AcpiPmTimer,
    );
    let all = Options {
        allow: set(RuleId::Every),
        warn: set(RuleId::AcpiPmTimer),
        ..Options::default()
    };
    fires(
        &after(&model, 9, &all),
        RuleId::AcpiPmTimer,
        Severity::Critical,
    );
    assert!(rule("nonsense").is_none() && rule("rtc-tick").is_some());
}

#[test]
fn thresholds_can_be_set() {
    let thresholds = toml::from_str("[timers]\nacpi_pm_per_vcpu = { warning = 5000.0 }\n").unwrap();
    silent(
        &after(
            &storm().model(),
            9,
            &Options {
                thresholds,
                ..Options::default()
            },
        ),
        RuleId::AcpiPmTimer,
    );
}

#[test]
fn a_recording_is_judged_as_if_it_were_now() {
    // The same findings come from the same models, whatever the clock says.
    let (a, mut b) = (storm().model(), storm().model());
    b.time_ms -= 86_400_000;
    b.domains[0].facts = {
        let mut facts = (*b.domains[0].facts).clone();
        facts.started_ms = facts.started_ms.map(|t| t - 86_400_000);
        Arc::new(facts)
    };
    assert_eq!(rules(&judge(&a)), rules(&judge(&b)));
}

#[test]
fn a_guest_that_the_engine_has_no_place_for_is_not_judged_as_idle() {
    let without_place = |second: f64| {
        let mut sample = storm().sample(second);
        sample.domains[0].uncounted_vcpus = 1;
        sample.domains[0]
            .threads
            .iter_mut()
            .for_each(|t| t.events = sample::ThreadEvents::default());
        sample
    };
    let model = Model::new(&without_place(2.0), Base::Previous(&without_place(1.0)));
    assert_eq!(
        model.domains[0].exit_rate,
        crate::model::ExitRate::default()
    );
    let report = judge(&model);
    let said = report
        .cannot_tell
        .iter()
        .find(|c| c.domain.as_deref() == Some("l"))
        .expect("why");
    assert!(
        said.rule == RuleId::Every
            && said
                .because
                .starts_with("exits and accesses of 1 of 1 vCPUs"),
        "{said:?}"
    );
    assert!(
        judge(&storm().model())
            .cannot_tell
            .iter()
            .all(|c| c.rule != RuleId::Every)
    );
}

#[test]
fn what_another_user_can_make_up_is_no_alarm() {
    let emulated = |foreign: bool| {
        let mut model = on(Guest::new("payroll", 5)).model();
        let facts = Arc::make_mut(&mut model.domains[0].facts);
        (facts.emulated, facts.foreign) = (true, foreign);
        judge(&model)
    };
    fires(&emulated(false), RuleId::NoKvm, Severity::Critical);
    let report = emulated(true);
    fires(&report, RuleId::NoKvm, Severity::Warning);
    let evidence = &get(&report, RuleId::NoKvm).evidence;
    assert!(
        evidence
            .iter()
            .any(|line| line.contains("another user's process")),
        "{evidence:?}"
    );
}
