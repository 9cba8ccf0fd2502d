//! Compares two inputs: what changed, and which changes are more than noise.

mod lines;
mod stats;

pub(crate) use lines::ChangedRow;
pub use lines::{AccessLine, Change, DomainDiff, ExitLine};
pub use stats::{Compared, Verdict};

use super::View;
use super::document::SCHEMA;
use super::json::TOOL;
use crate::objects;
use crate::table::cut;
use judge::figures::{change, figure};
use judge::lint::Finding;
use kvm::topology::CPU_MODEL;
use sample::EngineKind;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;

objects! {
    /// Two inputs compared (`diff --json`). A change is called one when it is beyond chance (one in
    /// a thousand) and at least a tenth.
    pub struct Diff(
        views: [&View<'_>; 2], all: Vec<DomainDiff>, remarks: Vec<String>, found: FindingsDiff
    ) {
        /// Version of this format.
        #[schemars(extend("const" = 1))]
        schema: u32 = SCHEMA,
        /// `kvmtop` and its version.
        tool: &'static str = TOOL,
        /// How the sides were measured differently; read it first, because it can look like a
        /// change of a guest. Empty: in the same way.
        conditions: Vec<Condition> = differing_conditions(views),
        /// The answer in a sentence.
        summary: String = summary_sentence(&all),
        /// What all changes together mean. `not-comparable`: no guest is on both sides, or one side
        /// counted nothing.
        #[schemars(extend("enum" = ["changed", "nothing", "not-comparable"]))]
        cause: &'static str = overall_cause(&all),
        /// Seconds that the first side covers. `null`: its files do not say.
        #[schemars(extend("exclusiveMinimum" = 0))]
        before_s: Option<f64> = views[0].model.interval_s,
        /// Seconds that the second side covers. `null`: its files do not say.
        #[schemars(extend("exclusiveMinimum" = 0))]
        after_s: Option<f64> = views[1].model.interval_s,
        /// The guests; guests of the first side come first.
        domains: Vec<DomainDiff> = all,
        /// Guests that were not matched because several could be it: a sentence each.
        unsure: Vec<String> = remarks,
        /// What became of the findings.
        findings: FindingsDiff = found,
    }
}

/// Something that differs in how two inputs were measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Condition {
    /// What differs.
    #[schemars(extend("enum" = ["source", "engine", "lost-events", "kernel", "host", "cpu"]))]
    pub what: &'static str,
    /// On the first side.
    pub before: String,
    /// On the second side.
    pub after: String,
}

/// What became of the findings. Two are the same if rule, target and guest are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct FindingsDiff {
    /// On the first side only.
    pub gone: Vec<Finding>,
    /// On the second side only.
    pub new: Vec<Finding>,
    /// On both, with another severity.
    pub changed: Vec<ChangedFinding>,
    /// On both, as the second side has it.
    pub same: Vec<Finding>,
}

/// A finding whose severity changed.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ChangedFinding {
    /// On the first side.
    pub before: Finding,
    /// On the second side.
    pub after: Finding,
}

/// Compares two inputs.
pub fn compare(before: &View<'_>, after: &View<'_>) -> Diff {
    let views = [before, after];
    let (domains, unsure) = lines::compare_guests(views);
    let findings = compare_findings(views, &domains);
    Diff::new(views, domains, unsure, findings)
}

/// Everything that differs and is known on both sides.
fn differing_conditions(views: [&View<'_>; 2]) -> Vec<Condition> {
    let kinds = views.map(|v| v.model.engine.kind);
    // For files the source is compared, because their engines are all of one kind.
    let differing = if kinds.contains(&EngineKind::File) {
        ("source", views.map(|v| Some(v.source.to_owned())))
    } else {
        ("engine", kinds.map(|kind| Some(kind.as_str().to_owned())))
    };
    let hosts = views.map(|v| &v.model.host.facts);
    let compared = [
        differing,
        ("lost-events", views.map(|v| Some(v.model.lost.to_string()))),
        ("kernel", hosts.map(|h| not_empty(&h.kernel))),
        ("host", hosts.map(|h| not_empty(&h.hostname))),
        ("cpu", hosts.map(|h| h.params.get(CPU_MODEL).cloned())),
    ];
    let mut conditions = Vec::new();
    for (what, [before, after]) in compared {
        if let (Some(before), Some(after)) = (before, after)
            && before != after
        {
            conditions.push(Condition {
                what,
                before,
                after,
            });
        }
    }
    conditions
}

fn not_empty(text: &str) -> Option<String> {
    if text.is_empty() {
        None
    } else {
        Some(text.to_owned())
    }
}

fn overall_cause(domains: &[DomainDiff]) -> &'static str {
    let in_both = domains.iter().filter(|d| d.in_both());
    let changes: Vec<&Change> = in_both.flat_map(DomainDiff::changes).collect();
    let was_counted = changes.iter().any(|c| c.before > Some(0));
    let is_counted = changes.iter().any(|c| c.after > Some(0));
    if !was_counted || !is_counted {
        return "not-comparable";
    }
    if changes.iter().any(|change| change.is_change()) {
        "changed"
    } else {
        "nothing"
    }
}

/// `win10: 35.1k exits/s before, 1200 after (-96.6 %)` for each guest that changed.
fn summary_sentence(domains: &[DomainDiff]) -> String {
    match overall_cause(domains) {
        "not-comparable" => {
            return "No guest with exits is in both inputs, so there is nothing to compare.".into();
        }
        "nothing" => return "Nothing changed by more than noise.".into(),
        _ => {}
    }
    let mut parts = Vec::new();
    for d in domains.iter().filter(|d| d.in_both()) {
        let changed = d.changes().filter(|c| c.is_change()).count();
        if changed == 0 {
            continue;
        }
        let name = cut(d.name(), 48);
        match (d.work.before, d.work.after, d.work.change_percent) {
            (Some(before), Some(after), Some(percent)) if d.work.verdict.is_change() => {
                parts.push(format!(
                    "{name}: {} exits/s before, {} after ({})",
                    figure(before),
                    figure(after),
                    change(percent)
                ));
            }
            _ => parts.push(format!("{name}: rows that changed: {changed}")),
        }
    }
    parts.join("; ") + "."
}

/// Pairs the findings of both inputs: the same rule and target, about guests that were paired. A
/// rule that a finding of the other input covers counts as present there.
fn compare_findings([before, after]: [&View<'_>; 2], domains: &[DomainDiff]) -> FindingsDiff {
    let partners: HashMap<_, _> = domains
        .iter()
        .filter_map(|d| Some((d.before.as_ref()?, d.after.as_ref()?)))
        .collect();
    let mut diff = FindingsDiff::default();
    let mut new: Vec<&Finding> = after.selected_findings().collect();
    for old in before.selected_findings() {
        let guest = old
            .domain
            .as_ref()
            .map(|guest| partners.get(guest).copied().unwrap_or(guest));
        let partner = new.iter().position(|n| {
            let is_rule = n.rule == old.rule && n.target == old.target;
            n.domain.as_ref() == guest
                && (is_rule || n.folded.contains(&old.rule) || old.folded.contains(&n.rule))
        });
        match partner.map(|index| new.remove(index)) {
            None => diff.gone.push(old.clone()),
            Some(new) if new.severity == old.severity => diff.same.push(new.clone()),
            Some(new) => diff.changed.push(ChangedFinding {
                before: old.clone(),
                after: new.clone(),
            }),
        }
    }
    diff.new = new.into_iter().cloned().collect();
    diff
}
