//! Compares two inputs: what changed, and which changes are more than noise.
//!
//! Rates are compared as Poisson counts over their times, means by Welch's test from count, mean and standard error.
//! Real guests come in bursts and are not Poisson, so a change counts as one only if it is both beyond chance (3.3
//! standard errors, one in a thousand) and large enough to matter (a tenth of the value, half a percent of all exits).

mod lines;
mod stats;
mod verdict;

pub use lines::{AccessLine, Change, DomainDiff, ExitLine};
pub use stats::{Compared, Verdict};
pub use verdict::Cause;

use super::View;
use super::json;
use crate::lint;
use serde::Serialize;

/// Two inputs compared: what `diff --json` writes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diff {
    /// Number of the JSON schema: 1.
    pub schema: u32,
    /// Program and version, such as `kvmtop 0.1.0`.
    pub tool: &'static str,
    /// The answer in one sentence.
    pub summary: String,
    /// What all changes together mean.
    pub cause: Cause,
    /// Seconds that the first input covers. `null` where it does not say.
    pub before_s: Option<f64>,
    /// Seconds that the second input covers. `null` where it does not say.
    pub after_s: Option<f64>,
    /// Guests, those of the first input first.
    pub domains: Vec<DomainDiff>,
    /// Findings of both inputs.
    pub findings: FindingsDiff,
}

/// The findings of both inputs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FindingsDiff {
    /// Only in the first input.
    pub gone: Vec<super::document::JsonFinding>,
    /// Only in the second input.
    pub new: Vec<super::document::JsonFinding>,
    /// In both, with another severity.
    pub changed: Vec<ChangedFinding>,
    /// In both, with the same severity, as they stand in the second input.
    pub same: Vec<super::document::JsonFinding>,
}

/// A finding whose severity changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChangedFinding {
    /// As in the first input.
    pub before: super::document::JsonFinding,
    /// As in the second input.
    pub after: super::document::JsonFinding,
}

/// Compares two inputs.
pub fn compare(before: &View<'_>, after: &View<'_>) -> Diff {
    let domains = lines::domains(before, after);
    let findings = findings(before, after, &domains);
    let cause = verdict::cause(&domains);
    Diff {
        schema: super::document::SCHEMA,
        tool: json::TOOL,
        summary: verdict::summary(before, after, &domains, cause, &findings),
        cause,
        before_s: before.model.interval_s,
        after_s: after.model.interval_s,
        domains,
        findings,
    }
}

/// Pairs the findings of both inputs: the same rule and target, about guests that were paired. A rule that a finding of
/// the other input covers counts as present there.
fn findings(before: &View<'_>, after: &View<'_>, domains: &[DomainDiff]) -> FindingsDiff {
    let paired = |a: Option<&str>, b: Option<&str>| {
        a == b
            || domains.iter().any(|d| a.is_some() && b.is_some() && d.before.as_deref() == a && d.after.as_deref() == b)
    };
    let of_one = |old: &lint::Finding, new: &lint::Finding| paired(old.domain.as_deref(), new.domain.as_deref());
    let (old, new): (Vec<_>, Vec<_>) = (before.selected_findings().collect(), after.selected_findings().collect());
    let mut diff = FindingsDiff::default();
    let mut lined_up = vec![false; new.len()];
    for f in &old {
        let twin = |n: &&lint::Finding| f.rule == n.rule && f.target == n.target && of_one(f, n);
        let covered = |n: &&lint::Finding| n.folded.contains(&f.rule) && of_one(f, n);
        let Some(at) = new.iter().position(twin).or_else(|| new.iter().position(covered)) else {
            diff.gone.push(json::finding(f));
            continue;
        };
        if std::mem::replace(&mut lined_up[at], true) {
            continue;
        }
        let n = new[at];
        if n.severity == f.severity {
            diff.same.push(json::finding(n));
        } else {
            diff.changed.push(ChangedFinding { before: json::finding(f), after: json::finding(n) });
        }
    }
    for (n, _) in new.iter().zip(lined_up).filter(|(_, lined_up)| !lined_up) {
        let covered = old.iter().any(|f| f.folded.contains(&n.rule) && of_one(f, n));
        if covered { &mut diff.same } else { &mut diff.new }.push(json::finding(n));
    }
    diff
}
