//! The answer of all rules to one interval.

use super::finding::Finding;
use crate::figures::seconds;
use crate::lint::rule_id::RuleId;
use serde::Serialize;

/// A rule that could not be judged, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CannotTell {
    /// The rule, or [`RuleId::Every`].
    pub rule: RuleId,
    /// The guest; `None` for the host.
    pub domain: Option<String>,
    /// What is missing, in a sentence.
    pub because: String,
}

/// Something of which not enough has been seen to tell whether it is a finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StillWatched {
    /// A rule whose pattern shows and has not lasted, or [`RuleId::Every`].
    pub rule: RuleId,
    /// The guest; `None` for the host.
    pub domain: Option<String>,
    /// What is still missing, in a sentence.
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
