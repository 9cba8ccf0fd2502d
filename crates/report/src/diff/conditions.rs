//! Whether both inputs were measured in the same way. A different way can look like a change of the guest.

use crate::View;
use judge::figures::seconds;
use judge::model::DomainModel;
use kvm::topology::CPU_MODEL;
use sample::{EngineKind, HostFacts, SourceId, SourceState, SourceStatus};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt::Write as _;

/// Something that differs in how two inputs were measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Condition {
    /// What differs. `guests`: one was recorded with `--domain`. `recording`: one has several runs, engines or damage
    /// within.
    #[schemars(extend("enum" = [
        "source", "engine", "level", "kvm-exit", "interval", "lost-events", "kernel", "host", "cpu", "cpus",
        "kvm", "guests", "recording",
    ]))]
    pub what: &'static str,
    /// On the first side. `null`: unknown.
    pub before: Option<String>,
    /// On the second side. `null`: unknown.
    pub after: Option<String>,
    /// What it does to the comparison.
    pub effect: String,
}

/// Sampling intervals whose ratio is smaller count as the same.
const OTHER_INTERVAL: f64 = 1.25;

/// Everything that differs.
pub(super) fn conditions(before: &View<'_>, after: &View<'_>) -> Vec<Condition> {
    let mut found = Vec::new();
    let mut differs = |what, values: [Option<String>; 2], effect: &str| {
        let [before, after] = values;
        if before != after {
            found.push(Condition { what, before, after, effect: String::from(effect) });
        }
    };
    let engines = [before, after].map(|v| &v.model.engine);
    let both_traced = engines.iter().all(|e| matches!(e.kind, EngineKind::Bpf | EngineKind::Perf));
    let from_file = |kind: EngineKind| matches!(kind, EngineKind::File);
    if engines.iter().any(|e| from_file(e.kind)) {
        let effect = format!("{}{SOURCE}", only_in_one(before, after));
        differs("source", [before, after].map(|v| Some(v.source.to_owned())), &effect);
    } else {
        differs("engine", engines.map(|e| Some(e.kind.as_str().to_owned())), ENGINE);
        differs("level", engines.map(|e| both_traced.then(|| e.level.as_str().to_owned())), LEVEL);
    }
    let fires = |exit: Option<bool>| exit.map(|fires| if fires { "fired" } else { "not fired" }.to_owned());
    if let [Some(_), Some(_)] = engines.map(|e| e.fires_kvm_exit) {
        differs("kvm-exit", engines.map(|e| fires(e.fires_kvm_exit)), KVM_EXIT);
    }
    let every = [before, after].map(|v| {
        let (length, intervals) = (v.model.interval_s?, v.model.intervals);
        (v.source == "session" && intervals > 0).then(|| length / intervals as f64)
    });
    if let [Some(b), Some(a)] = every
        && (b / a).max(a / b) >= OTHER_INTERVAL
    {
        differs("interval", [b, a].map(|s| Some(seconds(s))), INTERVAL);
    }
    let lost = [before, after].map(|v| v.model.lost);
    if lost.iter().any(|lost| *lost > 0) {
        differs("lost-events", lost.map(|lost| Some(lost.to_string())), LOST);
    }
    let notes = |id: SourceId, otherwise: &str| {
        [before, after].map(|v| {
            let limits = |s: &&SourceStatus| s.id == id && s.state == SourceState::Degraded;
            let all: Vec<String> = v.model.sources.iter().filter(limits).filter_map(|s| s.cause.clone()).collect();
            Some(if all.is_empty() { otherwise.to_owned() } else { all.join("; ") })
        })
    };
    differs("guests", notes(SourceId::Domain, "all guests"), GUESTS);
    differs("recording", notes(SourceId::Session, "whole, by one engine"), RECORDING);
    let known = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let hosts = [before, after].map(|v| &v.model.host.facts);
    let cpus = |host: &HostFacts| Some(host.topology.cpus.len()).filter(|n| *n > 0).map(|n| n.to_string());
    for (what, of, effect) in [
        ("kernel", hosts.map(|h| known(&h.kernel)), KERNEL),
        ("host", hosts.map(|h| known(&h.hostname)), HOST),
        ("cpu", hosts.map(|h| h.params.get(CPU_MODEL).cloned()), CPU),
        ("cpus", hosts.map(|h| cpus(h)), CPUS),
        ("kvm", hosts.map(|h| h.kvm_flavour.clone()), KVM),
    ] {
        if of.iter().all(Option::is_some) {
            differs(what, of, effect);
        }
    }
    found
}

impl Condition {
    /// `engine: bpf before, perf after; …`.
    pub fn sentence(&self) -> String {
        let value = |v: &Option<String>| v.clone().unwrap_or_else(|| "unknown".into());
        format!("{}: {} before, {} after; {}", self.what, value(&self.before), value(&self.after), self.effect)
    }
}

/// What a kind of figure is called, and whether a guest has one.
type Figures = (&'static str, fn(&DomainModel) -> bool);

/// The figures that not every input has.
const FIGURES: [Figures; 8] = [
    ("exits by reason", |d| d.exits.count > 0),
    ("times of exits", |d| d.exits.rows.iter().any(|r| r.span.total_ns.is_some())),
    ("accesses by address", |d| !d.accesses.is_empty()),
    ("exits to the VMM", |d| !d.userspace.is_empty()),
    ("CPU time", |d| d.cpu.is_some()),
    ("KVM's statistics", |d| !d.counters.is_empty()),
    ("disks and networks", |d| !d.disks.is_empty() || !d.nics.is_empty()),
    ("threads", |d| !d.threads.is_empty()),
];

/// `only the first has CPU time, threads; `, or nothing.
fn only_in_one(before: &View<'_>, after: &View<'_>) -> String {
    let has = |view: &View<'_>, of: &Figures| view.guests().any(of.1);
    let mut text = String::new();
    for (which, one, other) in [("first", before, after), ("second", after, before)] {
        let names: Vec<&str> = FIGURES.iter().filter(|f| has(one, f) && !has(other, f)).map(|f| f.0).collect();
        if !names.is_empty() {
            let _ = write!(text, "only the {which} has {}; ", names.join(", "));
        }
    }
    text
}

const GUESTS: &str =
    "a guest that one recording left out did not come or go, and findings about the host do not know it";
const RECORDING: &str = "figures are of all its parts together";
const SOURCE: &str = "what one of them cannot count is missing there, which is no change of the guest";
const ENGINE: &str = "each event costs another time in each, which alone changes rates and times by a tenth or more: \
                      record both with the same --engine";
const LEVEL: &str = "only the full level measures times, and it slows each exit more: record both at the same level";
const KVM_EXIT: &str = "exits that only reach KVM are counted in one input alone";
const INTERVAL: &str =
    "rates are comparable, but short bursts and findings that have to last show in the shorter interval";
const LOST: &str = "lost events are missing in counts and rates";
const KERNEL: &str = "another kernel handles exits differently";
const CPU: &str = "another CPU takes another time for each exit, and may not need some of them";
const CPUS: &str = "guests wait more or less where there are other CPUs to run on";
const KVM: &str = "the exits of another vendor's CPU have other names and reasons";
const HOST: &str = "times on two machines are not comparable, shares are";
