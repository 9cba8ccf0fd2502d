//! Each rule: a host on which it fires, one on which it is silent, one on which it cannot tell.

mod apic;
mod audience;
mod devices;
mod disks;
mod guards;
mod incidents;
mod isolation;
mod machine;
mod pinning;
mod placement_property;
mod placement_worlds;
mod rules_md;
mod scheduling;
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

/// The report after enough seconds for every pattern to last. Each finding is there as soon as its rule says.
fn judge(model: &Model) -> Report {
    let report = after(model, 12, &Options::default());
    for f in &report.findings {
        let needed_s = super::table::hold(f.rule).times().0.ceil().max(1.0) as i64;
        let guarded = report.cannot_tell.iter().any(|c| c.rule == RuleId::Every && c.domain == f.domain);
        let early = after(model, needed_s, &Options::default());
        assert!(guarded || early.findings.iter().any(|e| e.covers(f.rule)), "{} needs over {needed_s} s", f.rule);
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
    run(
        &Model::new(&sample, Base::Whole(seconds)),
        &mut RuleMemory::default(),
        &Options { input: InputKind::File, ..Options::default() },
    )
}

fn rules(report: &Report) -> Vec<RuleId> {
    report.findings.iter().map(|f| f.rule).collect()
}

fn get(report: &Report, rule: RuleId) -> &Finding {
    report.findings.iter().find(|f| f.rule == rule).unwrap_or_else(|| panic!("no {rule} in {:?}", rules(report)))
}

#[track_caller]
fn fires(report: &Report, rule: RuleId, severity: Severity) {
    let f = get(report, rule);
    assert_eq!(f.severity, severity, "{f:#?}");
    assert!(
        !f.title.is_empty() && !f.why.is_empty() && !f.evidence.is_empty() && !f.fix.is_empty() && !f.see.is_empty(),
        "{f:#?}"
    );
}

#[track_caller]
fn silent(report: &Report, rule: RuleId) {
    assert!(!report.findings.iter().any(|f| f.covers(rule)), "{:#?}", report.findings);
}

#[track_caller]
fn cannot(report: &Report, rule: RuleId) {
    silent(report, rule);
    assert!(report.cannot_tell.iter().any(|c| c.rule == rule), "{:?}", report.cannot_tell);
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
    assert_eq!((names.len(), super::rules().count()), (53, 53), "every name stands for one rule");
    for r in super::rules() {
        let texts = [r.doc.sees, r.doc.limits, r.doc.fix];
        assert!(texts.iter().all(|t| !t.is_empty() && !t.ends_with('.')) && !r.doc.links.is_empty(), "{}", r.id);
    }
}

#[test]
fn a_quiet_host_has_no_findings() {
    let idle =
        |v: u32, t: Thread| t.cpu(0.4, 0.0, 0.2, 0.0).on(v).exits("HLT", 10.0, 90_000.0).exits("MSR_WRITE", 12.0, 2.0);
    let fixture = on(Guest::new("idle", 5).linux("<vcpu>2</vcpu>").mtree().vcpus(2, idle));
    assert_eq!(rules(&judge(&fixture.model())), Vec::<RuleId>::new());
    assert_eq!(rules(&judge(&fixture.first())), Vec::<RuleId>::new());
    assert_eq!(judge(&Fixture::new(host()).model()), Report::default());
}

#[test]
fn a_healthy_busy_guest_has_no_findings() {
    // A Linux guest with one busy vCPU at 250 Hz, as measured (KVM clock).
    let busy = |v: u32, t: Thread| {
        if v > 0 {
            return t.cpu(0.5, 0.0, 0.2, 0.0).pinned(v + 1).exits("HLT", 10.0, 96_000.0);
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
    let guest =
        Guest::new("busy", 5).linux(xml).mtree().vcpus(4, busy).emulator(|t| t.cpu(0.0, 0.5, 0.5, 0.0).pinned(0));
    assert_eq!(rules(&judge(&on(guest).model())), Vec::<RuleId>::new());
}
