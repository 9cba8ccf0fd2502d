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
pub(crate) use lines::DiffRow;
pub use lines::{AccessLine, Change, DomainDiff, ExitLine};
pub use matching::MatchedBy;
pub use stats::{Compared, Verdict};
pub use verdict::Cause;

use super::View;
use super::document::SCHEMA;
use super::json::TOOL;
use crate::objects;
use judge::lint::Finding;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;

objects! {
    /// Two inputs compared (`diff --json`). A change is called one when it is beyond chance (one in a thousand) and at
    /// least a tenth.
    pub struct Diff(views: [&View<'_>; 2], all: Vec<DomainDiff>, remarks: Vec<String>, found: FindingsDiff) {
        /// Version of this format.
        #[schemars(extend("const" = 1))]
        schema: u32 = SCHEMA,
        /// `kvmtop` and its version.
        tool: &'static str = TOOL,
        /// How the sides were measured differently; read it first, because it can look like a change of a guest.
        /// Empty: in the same way.
        conditions: Vec<Condition> = conditions::conditions(views),
        /// The answer in a sentence.
        summary: String = verdict::summary(views, &all, &found),
        /// What all changes together mean. `only-duration`: one side was watched longer, and rates or shares are equal.
        /// `not-comparable`: no guest is on both sides, or one side counted nothing.
        cause: Cause = verdict::cause(&all),
        /// Seconds that the first side covers. `null`: its files do not say.
        #[schemars(extend("exclusiveMinimum" = 0))]
        before_s: Option<f64> = views[0].model.interval_s,
        /// Seconds that the second side covers. `null`: its files do not say.
        #[schemars(extend("exclusiveMinimum" = 0))]
        after_s: Option<f64> = views[1].model.interval_s,
        /// The guests; guests of the first side come first.
        domains: Vec<DomainDiff> = all,
        /// Guests that were matched by a weak sign, or not at all because several could be it: a sentence each.
        unsure: Vec<String> = remarks,
        /// What became of the findings.
        findings: FindingsDiff = found,
    }
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
    let (domains, unsure) = lines::domains(views);
    let findings = findings(views, &domains);
    Diff::new(views, domains, unsure, findings)
}

/// Pairs the findings of both inputs: the same rule and target, about guests that were paired. A rule that a finding of
/// the other input covers counts as present there.
fn findings([before, after]: [&View<'_>; 2], domains: &[DomainDiff]) -> FindingsDiff {
    let partners: HashMap<_, _> =
        domains.iter().filter_map(|d| Some((d.before.as_ref()?, d.after.as_ref()?))).collect();
    let concern_one = |old: &Finding, new: &Finding| match &old.domain {
        Some(guest) => new.domain.as_ref() == Some(partners.get(guest).copied().unwrap_or(guest)),
        None => new.domain.is_none(),
    };
    let (old, new): (Vec<_>, Vec<_>) = (before.selected_findings().collect(), after.selected_findings().collect());
    let mut diff = FindingsDiff::default();
    let mut is_paired = vec![false; new.len()];
    for f in &old {
        let is_same = |n: &&Finding| n.rule == f.rule && n.target == f.target && concern_one(f, n);
        let covers = |n: &&Finding| n.folded.contains(&f.rule) && concern_one(f, n);
        match new.iter().position(is_same).or_else(|| new.iter().position(covers)) {
            None => diff.gone.push((*f).clone()),
            Some(at) if std::mem::replace(&mut is_paired[at], true) => {}
            Some(at) if new[at].severity == f.severity => diff.same.push(new[at].clone()),
            Some(at) => diff.changed.push(ChangedFinding { before: (*f).clone(), after: new[at].clone() }),
        }
    }
    for (n, _) in new.iter().zip(is_paired).filter(|(_, is_paired)| !is_paired) {
        let is_covered = old.iter().any(|f| f.folded.contains(&n.rule) && concern_one(f, n));
        if is_covered { &mut diff.same } else { &mut diff.new }.push((*n).clone());
    }
    diff
}
