use super::*;
use crate::sample::DomainState;

fn storm() -> Fixture {
    on(Guest::new("l", 5)
        .linux("")
        .mtree()
        .vcpus(1, |v, t| t.on(v).cpu(50.0, 0.0, 5.0, 0.0).pio(0x608, Direction::Read, 3000.0, 6.0)))
}

#[test]
fn one_second_is_no_finding() {
    let model = storm().model();
    silent(&after(&model, 1, &Options::default()), "acpi-pm-timer");
    silent(&after(&model, 4, &Options::default()), "acpi-pm-timer");
    fires(&after(&model, 5, &Options::default()), "acpi-pm-timer", Severity::Warning);
}

#[test]
fn a_finding_is_withdrawn_when_its_cause_ends() {
    let (mut model, mut memory, options) = (storm().model(), RuleMemory::default(), Options::default());
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
    assert!((1..=10).contains(&last), "{last}");
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
fn a_guest_that_starts_is_not_judged_by_what_it_does() {
    let mut f = storm();
    f.guests[0].facts.started_ms = Some(crate::synthetic::START_MS + 30_000);
    let report = judge(&f.model());
    silent(&report, "acpi-pm-timer");
    assert!(report.cannot_tell.iter().any(|c| c.rule == EVERY_RULE && c.because.contains("started")));
    let options = Options { startup_guard_s: 10.0, ..Options::default() };
    fires(&after(&f.model(), 8, &options), "acpi-pm-timer", Severity::Warning);
    // A guest that starts has no enlightenments to wait for, though.
    let mut w = on(Guest::new("w", 5).windows("").vcpus(1, |v, t| t.on(v)));
    w.guests[0].facts.started_ms = Some(crate::synthetic::START_MS + 59_000);
    fires(&judge(&w.model()), "windows-enlightenments", Severity::Info);
}

#[test]
fn a_paused_guest_is_not_judged_nor_for_a_while_after() {
    let (mut model, mut memory, options) = (storm().model(), RuleMemory::default(), Options::default());
    model.domains[0].state = DomainState::Paused;
    assert!(run(&model, &mut memory, &options).cannot_tell.iter().any(|c| c.because.contains("paused")));
    model.domains[0].state = DomainState::Running;
    let mut first = None;
    for second in 1..60 {
        model.time_ms += 1000;
        if first.is_none() && !run(&model, &mut memory, &options).findings.is_empty() {
            first = Some(second);
        }
    }
    assert_eq!(first, Some(34), "30 s of grace and five of pattern");
}

#[test]
fn rules_can_be_silenced_and_raised() {
    let model = storm().model();
    let set = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    silent(&after(&model, 9, &Options { allow: set(&["acpi-pm-timer"]), ..Options::default() }), "acpi-pm-timer");
    let all = Options { allow: set(&["all"]), warn: set(&["acpi-pm-timer"]), ..Options::default() };
    fires(&after(&model, 9, &all), "acpi-pm-timer", Severity::Critical);
    assert!(rule("nonsense").is_none() && rule("rtc-tick").is_some());
}

#[test]
fn thresholds_can_be_set() {
    let thresholds = toml::from_str("[timers]\nacpi_pm_per_vcpu = { warning = 5000.0 }\n").unwrap();
    silent(&after(&storm().model(), 9, &Options { thresholds, ..Options::default() }), "acpi-pm-timer");
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
