//! Compares two inputs: what changed, and which changes are more than noise.
//!
//! Rates are compared as Poisson counts over their times, means by Welch's test from count, mean and standard error.
//! Real guests come in bursts and are not Poisson, so a change counts as one only if it is both beyond chance (3.3
//! standard errors, one in a thousand) and large enough to matter (a tenth of the value, half a percent of all exits).

mod conditions;
mod lines;
mod matching;
mod stats;
mod verdict;

pub use conditions::Condition;
pub use lines::{AccessLine, Change, DomainDiff, ExitLine};
pub use matching::MatchedBy;
pub use stats::{Compared, Verdict};
pub use verdict::Cause;

use super::View;
use super::json;
use judge::lint::Finding;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// Two inputs compared (`diff --json`). A change is called one when it is beyond chance (one in a thousand) and at
/// least a tenth.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Diff {
    /// Version of this format.
    #[schemars(extend("const" = 1))]
    pub schema: u32,
    /// `kvmtop` and its version.
    pub tool: &'static str,
    /// How the sides were measured differently; read it first, because it can look like a change of a guest. Empty: in
    /// the same way.
    pub conditions: Vec<Condition>,
    /// The answer in a sentence.
    pub summary: String,
    /// What all changes together mean. `only-duration`: one side was watched longer, and rates or shares are equal.
    /// `not-comparable`: no guest is on both sides, or one side counted nothing.
    pub cause: Cause,
    /// Seconds that the first side covers. `null`: its files do not say.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub before_s: Option<f64>,
    /// Seconds that the second side covers. `null`: its files do not say.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub after_s: Option<f64>,
    /// The guests; guests of the first side come first.
    pub domains: Vec<DomainDiff>,
    /// Guests that were matched by a weak sign, or not at all because several could be it: a sentence each.
    pub unsure: Vec<String>,
    /// What became of the findings.
    pub findings: FindingsDiff,
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
    let (domains, unsure) = lines::domains(before, after);
    let findings = findings(before, after, &domains);
    let cause = verdict::cause(&domains);
    Diff {
        schema: super::document::SCHEMA,
        tool: json::TOOL,
        conditions: conditions::conditions(before, after),
        summary: verdict::summary(before, after, &domains, cause, &findings),
        cause,
        before_s: before.model.interval_s,
        after_s: after.model.interval_s,
        domains,
        unsure,
        findings,
    }
}

/// Pairs the findings of both inputs: the same rule and target, about guests that were paired. A rule that a finding of
/// the other input covers counts as present there.
fn findings(before: &View<'_>, after: &View<'_>, domains: &[DomainDiff]) -> FindingsDiff {
    // Findings are compared between a guest and its partner in the second input.
    let pairs = domains.iter().filter_map(|d| Some((d.before.as_deref()?, d.after.as_deref()?)));
    let partners: HashMap<&str, &str> = pairs.collect();
    let partner = |guest: Option<&'_ str>| guest.map(|name| partners.get(name).copied().unwrap_or(name).to_owned());
    let (old, new): (Vec<_>, Vec<_>) = (before.selected_findings().collect(), after.selected_findings().collect());
    let mut twins = HashMap::new();
    let mut covered = HashMap::new();
    for (at, f) in new.iter().enumerate() {
        twins.entry((f.rule, f.target, f.domain.clone())).or_insert(at);
        for rule in &f.folded {
            covered.entry((*rule, f.domain.clone())).or_insert(at);
        }
    }
    let mut diff = FindingsDiff::default();
    let mut lined_up = vec![false; new.len()];
    let mut covered_before = HashSet::new();
    for f in &old {
        let domain = partner(f.domain.as_deref());
        covered_before.extend(f.folded.iter().map(|rule| (*rule, domain.clone())));
        let twin = twins.get(&(f.rule, f.target, domain.clone())).or_else(|| covered.get(&(f.rule, domain)));
        let Some(at) = twin.copied() else {
            diff.gone.push((*f).clone());
            continue;
        };
        if std::mem::replace(&mut lined_up[at], true) {
            continue;
        }
        let n = new[at];
        if n.severity == f.severity {
            diff.same.push(n.clone());
        } else {
            diff.changed.push(ChangedFinding { before: (*f).clone(), after: n.clone() });
        }
    }
    for (n, _) in new.iter().zip(lined_up).filter(|(_, lined_up)| !lined_up) {
        let covered = covered_before.contains(&(n.rule, n.domain.clone()));
        if covered { &mut diff.same } else { &mut diff.new }.push((*n).clone());
    }
    diff
}
