//! Whether both inputs were measured in the same way: a change of the way is easily taken for a change of the guest.

use crate::figures::seconds;
use crate::report::View;
use crate::sample::EngineKind;
use serde::Serialize;

/// Something that differs in how the inputs were measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// `source`, `engine`, `level`, `kvm-exit`, `interval`, `lost-events`, `kernel` or `host`.
    pub what: &'static str,
    /// In the first input. `null` where it is not known.
    pub before: Option<String>,
    /// In the second input. `null` where it is not known.
    pub after: Option<String>,
    /// What it does to the comparison.
    pub effect: &'static str,
}

/// Sampling intervals whose ratio is smaller count as the same.
const OTHER_INTERVAL: f64 = 1.25;

/// Everything that differs.
pub(super) fn conditions(before: &View<'_>, after: &View<'_>) -> Vec<Condition> {
    let mut found = Vec::new();
    let mut differs = |what, values: [Option<String>; 2], effect| {
        let [before, after] = values;
        if before != after {
            found.push(Condition { what, before, after, effect });
        }
    };
    let engines = [before, after].map(|v| &v.model.engine);
    let both_traced = engines.iter().all(|e| matches!(e.kind, EngineKind::Bpf | EngineKind::Perf));
    let from_file = |kind: EngineKind| matches!(kind, EngineKind::File);
    if engines.iter().any(|e| from_file(e.kind)) {
        differs("source", [before, after].map(|v| Some(v.source.to_owned())), SOURCE);
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
    let known = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let hosts = [before, after].map(|v| &v.model.host.facts);
    for (what, of, effect) in
        [("kernel", hosts.map(|h| known(&h.kernel)), KERNEL), ("host", hosts.map(|h| known(&h.hostname)), HOST)]
    {
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

const SOURCE: &str = "what one of them cannot count is missing there, which is no change of the guest";
const ENGINE: &str = "each event costs another time in each, which alone changes rates and times by a tenth or more: \
                      record both with the same --engine";
const LEVEL: &str = "only the full level measures times, and it slows each exit more: record both at the same level";
const KVM_EXIT: &str = "exits that only reach KVM are counted in one input alone";
const INTERVAL: &str =
    "rates are comparable, but short bursts and findings that have to last show in the shorter interval";
const LOST: &str = "lost events are missing in counts and rates";
const KERNEL: &str = "another kernel handles exits differently";
const HOST: &str = "times on two machines are not comparable, shares are";
