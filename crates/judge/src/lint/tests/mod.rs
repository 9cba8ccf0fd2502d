//! Each rule: a host on which it fires, one on which it is silent, one on which it cannot tell.

mod apic;
mod audience;
mod devices;
mod disks;
mod guards;
mod incidents;
mod isolation;
mod jobs;
mod machine;
mod network;
mod pinning;
mod placement_hosts;
mod placement_property;
mod placement_worlds;
mod rules_md;
mod scheduling;
mod stopped;
mod texts;
mod timers;

use super::*;
use crate::model::{Base, Model};
use crate::testing::FixtureModel as _;
use kvm::domain_xml;
use sample::{Direction, EngineKind, Known, Origin};
use std::collections::BTreeSet;
use std::sync::Arc;
use testkit::{Fixture, Guest, Host, Thread};

/// The report after a host did the same for a number of seconds.
fn after(model: &Model, seconds: i64, options: &Options) -> Report {
    let mut memory = RuleMemory::default();
    let mut model = model.clone();
    let mut report = Report::default();
    for _ in 0..seconds {
        report = run(&model, &mut memory, options);
        model.time_ms += 1000;
    }
    report
}

/// The report after enough seconds for every pattern to last. Each finding is there as soon as its
/// rule says.
fn judge(model: &Model) -> Report {
    let report = after(model, 12, &Options::default());
    for f in &report.findings {
        let needed_s = super::engine::table::hold(f.rule).shows_s().ceil().max(1.0) as i64;
        let guarded = report
            .cannot_tell
            .iter()
            .any(|c| c.rule == RuleId::Every && c.domain == f.domain);
        let early = after(model, needed_s, &Options::default());
        assert!(
            guarded || early.findings.iter().any(|e| e.covers(f.rule)),
            "{} needs over {needed_s} s",
            f.rule
        );
    }
    report
}

/// The same host from a file, with or without the time that its figures cover.
fn from_file(fixture: &Fixture, seconds: Option<f64>) -> Report {
    let mut sample = fixture.sample(seconds.unwrap_or(10.0));
    sample.engine.kind = EngineKind::File;
    for d in &mut sample.domains {
        for t in &mut d.threads {
            t.cpu = None;
        }
    }
    sample.host.cpus.clear();
    of_file(&Model::new(&sample, Base::Whole(seconds)))
}

fn of_file(model: &Model) -> Report {
    run(
        model,
        &mut RuleMemory::default(),
        &Options {
            input: InputKind::File,
            ..Options::default()
        },
    )
}

fn rules(report: &Report) -> Vec<RuleId> {
    report.findings.iter().map(|f| f.rule).collect()
}

fn get(report: &Report, rule: RuleId) -> &Finding {
    report
        .findings
        .iter()
        .find(|f| f.rule == rule)
        .unwrap_or_else(|| panic!("no {rule} in {:?}", rules(report)))
}

#[track_caller]
fn fires(report: &Report, rule: RuleId, severity: Severity) {
    let f = get(report, rule);
    assert_eq!(f.severity, severity, "{f:#?}");
    assert!(
        !f.title.is_empty()
            && !f.why.is_empty()
            && !f.evidence.is_empty()
            && !f.fix.is_empty()
            && !f.see.is_empty(),
        "{f:#?}"
    );
}

#[track_caller]
fn silent(report: &Report, rule: RuleId) {
    assert!(
        !report.findings.iter().any(|f| f.covers(rule)),
        "{:#?}",
        report.findings
    );
}

#[track_caller]
fn cannot(report: &Report, rule: RuleId) {
    silent(report, rule);
    assert!(
        report.cannot_tell.iter().any(|c| c.rule == rule),
        "{:?}",
        report.cannot_tell
    );
}

fn rules_of_table() -> impl Iterator<Item = RuleId> {
    super::rules().map(|rule| rule.id)
}

fn host() -> Host {
    Host::numa(1, 8, 1)
}

fn on(guest: Guest) -> Fixture {
    Fixture::new(host()).guest(guest)
}

trait Described {
    /// With this XML inside of `<domain>`.
    fn xml(self, inner: &str) -> Self;
    /// Windows, with this XML.
    fn windows(self, inner: &str) -> Self;
    /// Linux, with this XML.
    fn linux(self, inner: &str) -> Self;
}

impl Described for Guest {
    fn xml(self, inner: &str) -> Self {
        let text = format!(
            "<domain type='kvm'><name>g</name><os><type arch='x86_64' \
            machine='pc-q35-7.2'>hvm</type></os>{inner}</domain>"
        );
        let xml = domain_xml::parse(&text).unwrap();
        self.facts(|f| f.xml = Some(Known::new(Arc::new(xml), Origin::Libvirt)))
    }

    fn windows(self, inner: &str) -> Self {
        self.os("http://microsoft.com/win/10").xml(inner)
    }

    fn linux(self, inner: &str) -> Self {
        self.os("http://ubuntu.com/ubuntu/22.04").xml(inner)
    }
}

/// All that lets Windows keep time in the kernel.
const ENLIGHTENED: &str = "<features><hyperv><vpindex state='on'/><synic state='on'/><stimer state='on'/><avic \
    state='on'/></hyperv></features>
    <clock offset='localtime'><timer name='hpet' present='no'/><timer name='hypervclock' present='yes'/></clock>";

#[test]
fn every_rule_is_described() {
    let names: BTreeSet<RuleId> = super::rules().map(|r| r.id).collect();
    assert_eq!(
        (names.len(), super::rules().count()),
        (72, 72),
        "every name stands for one rule"
    );
    for r in super::rules() {
        let texts = [r.doc.sees, r.doc.problem, r.doc.limits, r.doc.fix];
        assert!(
            texts.iter().all(|t| !t.is_empty() && !t.ends_with('.')) && !r.doc.links.is_empty(),
            "{}",
            r.id
        );
    }
}

#[test]
fn every_problem_fits_its_column_and_is_plain() {
    let problems: Vec<&str> = super::rules().map(|r| r.doc.problem).collect();
    assert_eq!(
        problems.iter().collect::<BTreeSet<_>>().len(),
        problems.len(),
        "no two rules say the same"
    );
    for r in super::rules() {
        let (problem, name) = (r.doc.problem, r.id.as_str());
        assert!(
            problem.len() <= 26 && problem.chars().all(|c| c.is_ascii_graphic() || c == ' '),
            "{problem}"
        );
        assert!(
            problem.split(' ').count() <= 6 && !problem.contains(name) && !problem.contains('_'),
            "{problem}"
        );
    }
    let shared = |cpus: &'static [u32]| {
        let pinned = move |v: u32, t: Thread| t.cpu(60.0, 0.0, 1.0, 30.0).pinned(cpus[v as usize]);
        let report = judge(
            &on(Guest::new("a", 5)
                .linux("")
                .vcpus(cpus.len() as u32, pinned))
            .model(),
        );
        get(&report, RuleId::PinOverlap).problem.clone()
    };
    assert_eq!(shared(&[1, 2, 2]), "2 vCPUs on CPU 2");
    let windows = judge(&on(Fixture::windows_on_pm_timer().windows("")).model());
    assert_eq!(
        windows.findings[0].problem, "no Hyper-V clock",
        "{:#?}",
        windows.findings[0]
    );
}

#[test]
fn a_fix_names_the_guest_whose_xml_it_changes() {
    let pinned = |v: u32, t: Thread| t.cpu(60.0, 0.0, 1.0, 30.0).pinned(v + 1);
    let guest = |name: &str, pid: i32| Guest::new(name, pid).linux("").vcpus(2, pinned);
    let report = judge(&on(guest("build-1", 10)).guest(guest("build-2", 20)).model());
    let xml = |f: &Finding| {
        f.fix
            .iter()
            .filter(|f| f.kind == FixKind::LibvirtXml)
            .cloned()
            .collect::<Vec<_>>()
    };
    let found = get(&report, RuleId::PinOverlap);
    assert_eq!(found.domain.as_deref(), Some("build-1"));
    let places: Vec<String> = xml(found).iter().map(Fix::place).collect();
    assert_eq!(places, ["virsh edit build-2"], "{found:#?}");
    let fixtures = [
        Fixture::busy_host(),
        Fixture::with_devices(),
        Fixture::many_vcpus(16),
    ];
    for fix in fixtures
        .iter()
        .flat_map(|f| judge(&f.model()).findings)
        .flat_map(|f| xml(&f))
    {
        assert!(fix.domain.is_some(), "{fix:#?}");
    }
}

#[test]
fn a_finding_that_costs_next_to_nothing_is_below_one_that_costs_a_cpu() {
    let found = |cost, since_ms| Finding {
        cost,
        since_ms,
        ..Finding::default()
    };
    let sorted = |since: [Option<i64>; 4]| {
        let costs = [Some(0.04), None, Some(31.0), Some(97.0)];
        let mut all: Vec<Finding> = costs
            .into_iter()
            .zip(since)
            .map(|(cost, since)| found(cost, since))
            .collect();
        all.sort_by(order);
        all.into_iter().map(|f| f.cost).collect::<Vec<_>>()
    };
    assert_eq!(
        sorted([None; 4]),
        [Some(97.0), Some(31.0), None, Some(0.04)]
    );
    let steady = sorted([1, 2, 3, 4].map(Some));
    assert_eq!(
        steady,
        [Some(31.0), Some(97.0), None, Some(0.04)],
        "costs that are alike keep their order"
    );
    let worse = Finding {
        severity: Severity::Warning,
        ..found(None, Some(9))
    };
    assert_eq!(
        order(&worse, &found(Some(97.0), Some(1))),
        std::cmp::Ordering::Less
    );
    let loses_data = Finding {
        comes_first: true,
        ..found(None, Some(9))
    };
    assert_eq!(
        order(&loses_data, &found(Some(97.0), Some(1))),
        std::cmp::Ordering::Less,
        "whatever others cost"
    );
    assert_eq!(
        order(&loses_data, &worse),
        std::cmp::Ordering::Greater,
        "within its severity"
    );
}

#[test]
fn a_quiet_host_has_no_findings() {
    let idle = |v: u32, t: Thread| {
        t.cpu(0.4, 0.0, 0.2, 0.0)
            .on(v)
            .exits("HLT", 10.0, 90_000.0)
            .exits("MSR_WRITE", 12.0, 2.0)
    };
    let fixture = on(Guest::new("idle", 5)
        .linux("<vcpu>2</vcpu>")
        .mtree()
        .vcpus(2, idle));
    assert_eq!(rules(&judge(&fixture.model())), Vec::<RuleId>::new());
    assert_eq!(rules(&judge(&fixture.first())), Vec::<RuleId>::new());
    assert_eq!(judge(&Fixture::new(host()).model()), Report::default());
}

#[test]
fn a_healthy_busy_guest_has_no_findings() {
    // A Linux guest with one busy vCPU at 250 Hz, as measured (KVM clock).
    let busy = |v: u32, t: Thread| {
        if v > 0 {
            return t
                .cpu(0.5, 0.0, 0.2, 0.0)
                .pinned(v + 1)
                .exits("HLT", 10.0, 96_000.0);
        }
        t.cpu(97.0, 0.1, 0.6, 0.1)
            .pinned(1)
            .exits("MSR_WRITE", 394.0, 2.2)
            .exits("EXTERNAL_INTERRUPT", 264.0, 3.8)
            .exits("PREEMPTION_TIMER", 251.0, 0.7)
            .exits("EPT_VIOLATION", 39.0, 3.9)
            .msr(0x6e0, Direction::Write, 390.0, 2.2)
            .wakes(20.0, 30.0)
    };
    let xml = "<vcpu>4</vcpu><cputune><emulatorpin cpuset='0'/></cputune>";
    let guest = Guest::new("busy", 5)
        .linux(xml)
        .mtree()
        .vcpus(4, busy)
        .emulator(|t| t.cpu(0.0, 0.5, 0.5, 0.0).pinned(0));
    assert_eq!(rules(&judge(&on(guest).model())), Vec::<RuleId>::new());
}
