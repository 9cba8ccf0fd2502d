//! The answer of all rules to one interval.

use super::finding::Finding;
use crate::figures::seconds;
use crate::lint::rule_id::RuleId;
use schemars::JsonSchema;
use serde::Serialize;

/// A rule that could not be judged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct CannotTell {
    /// Name of the rule; `*`: every rule about the guest's behaviour.
    pub rule: RuleId,
    /// The guest. `null`: the host.
    pub domain: Option<String>,
    /// What is missing.
    pub because: String,
}

/// Something of which not enough has been seen to tell whether it is a finding: a guest that runs or is watched for too
/// short a time, or a pattern that shows and has not lasted.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StillWatched {
    /// Name of the rule whose pattern shows; `*`: every rule.
    pub rule: RuleId,
    /// The guest. `null`: the host.
    pub domain: Option<String>,
    /// What is still missing.
    pub because: String,
    /// For how long it was seen, seconds.
    pub seen_s: f64,
    /// From how many seconds on it is judged.
    pub needed_s: f64,
}

impl StillWatched {
    /// A guest or the host that has been watched for less time than a rule needs.
    pub(crate) fn young(domain: Option<String>, seen_s: f64, needed_s: f64) -> Self {
        let because = format!("watched for {}; rules look at up to {}", seconds(seen_s), seconds(needed_s));
        Self { rule: RuleId::Every, domain, because, seen_s, needed_s }
    }

    /// A pattern that has shown for some seconds and is reported after others, within a window.
    pub(crate) fn pattern(
        rule: RuleId,
        domain: Option<String>,
        (seen_s, needed_s, window_s): (f64, f64, f64),
        figure: Option<&str>,
    ) -> Self {
        let figure = figure.map(|f| format!(" ({f})")).unwrap_or_default();
        let because = format!(
            "{rule} shows for {}{figure}; it is reported after {needed_s} of the last {window_s} s",
            seconds(seen_s)
        );
        Self { rule, domain, because, seen_s, needed_s }
    }

    /// Whether it is about all rules: no finding says nothing yet.
    pub fn is_every_rule(&self) -> bool {
        self.rule == RuleId::Every
    }
}

/// The answer of all rules.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// What was found, worst first.
    pub findings: Vec<Finding>,
    /// What could not be judged.
    pub cannot_tell: Vec<CannotTell>,
    /// Where not enough has been seen yet.
    pub watching: Vec<StillWatched>,
}
