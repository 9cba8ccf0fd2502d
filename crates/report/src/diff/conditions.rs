//! Whether both inputs were measured in the same way. A different way can look like a change of the guest.

use crate::View;
use judge::figures::seconds;
use kvm::topology::CPU_MODEL;
use sample::{EngineKind, SourceId, SourceState, SourceStatus};
use schemars::JsonSchema;
use serde::Serialize;

/// Something that differs in how two inputs were measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Condition {
    /// What differs. `guests`: one was recorded with `--domain`. `recording`: one has several runs, engines or damage
    /// within.
    #[schemars(extend("enum" = [
        "source", "engine", "kvm-exit", "interval", "lost-events", "kernel", "host", "cpu", "cpus",
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

/// Everything that differs and is known on both sides.
pub(super) fn conditions(views: [&View<'_>; 2]) -> Vec<Condition> {
    let engines = views.map(|v| &v.model.engine);
    let has_file = engines.iter().any(|e| e.kind == EngineKind::File);
    let every = views.map(|v| {
        let (length, intervals) = (v.model.interval_s?, v.model.intervals);
        (v.source == "session" && intervals > 0).then(|| length / intervals as f64)
    });
    let other_interval = matches!(every, [Some(b), Some(a)] if (b / a).max(a / b) >= OTHER_INTERVAL);
    let notes = |id: SourceId, otherwise: &str| {
        views.map(|v| {
            let limits = |s: &&SourceStatus| s.id == id && s.state == SourceState::Degraded;
            let all: Vec<String> = v.model.sources.iter().filter(limits).filter_map(|s| s.cause.clone()).collect();
            Some(if all.is_empty() { otherwise.to_owned() } else { all.join("; ") })
        })
    };
    let fires = |fires: bool| if fires { "fired" } else { "not fired" }.to_owned();
    let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty() && text != "0");
    let hosts = views.map(|v| &v.model.host.facts);
    let all = [
        ("source", views.map(|v| has_file.then(|| v.source.to_owned())), SOURCE),
        ("engine", engines.map(|e| (!has_file).then(|| e.kind.as_str().to_owned())), ENGINE),
        ("kvm-exit", engines.map(|e| e.fires_kvm_exit.map(fires)), KVM_EXIT),
        ("interval", every.map(|s| s.filter(|_| other_interval).map(seconds)), INTERVAL),
        ("lost-events", views.map(|v| Some(v.model.lost.to_string())), LOST),
        ("guests", notes(SourceId::Domain, "all guests"), GUESTS),
        ("recording", notes(SourceId::Session, "whole, by one engine"), RECORDING),
        ("kernel", hosts.map(|h| known(&h.kernel)), KERNEL),
        ("host", hosts.map(|h| known(&h.hostname)), HOST),
        ("cpu", hosts.map(|h| h.params.get(CPU_MODEL).cloned()), CPU),
        ("cpus", hosts.map(|h| known(&h.topology.cpus.len().to_string())), CPUS),
        ("kvm", hosts.map(|h| h.kvm_flavour.clone()), KVM),
    ];
    let differ = all.into_iter().filter(|(_, [b, a], _)| b.is_some() && a.is_some() && b != a);
    differ.map(|(what, [before, after], effect)| Condition { what, before, after, effect: effect.into() }).collect()
}

impl Condition {
    /// `engine: bpf before, perf after; …`.
    pub fn sentence(&self) -> String {
        let value = |v: &Option<String>| v.clone().unwrap_or_else(|| "unknown".into());
        format!("{}: {} before, {} after; {}", self.what, value(&self.before), value(&self.after), self.effect)
    }
}

const GUESTS: &str =
    "a guest that one recording left out did not come or go, and findings about the host do not know it";
const RECORDING: &str = "figures are of all its parts together";
const SOURCE: &str = "what one of them cannot count is missing there, which is no change of the guest";
const ENGINE: &str = "each event costs another time in each, which alone changes rates and times by a tenth or more: \
                      record both with the same --engine";
const KVM_EXIT: &str = "exits that only reach KVM are counted in one input alone";
const INTERVAL: &str =
    "rates are comparable, but short bursts and findings that have to last show in the shorter interval";
const LOST: &str = "lost events are missing in counts and rates";
const KERNEL: &str = "another kernel handles exits differently";
const CPU: &str = "another CPU takes another time for each exit, and may not need some of them";
const CPUS: &str = "guests wait more or less where there are other CPUs to run on";
const KVM: &str = "the exits of another vendor's CPU have other names and reasons";
const HOST: &str = "times on two machines are not comparable, shares are";
