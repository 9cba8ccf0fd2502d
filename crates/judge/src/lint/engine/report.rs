//! The answer of all rules to one interval.

use super::finding::Finding;
use crate::lint::context::guest::GuestContext;
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

impl CannotTell {
    /// Every rule about a guest, or all rules.
    pub(crate) fn every(guest: Option<&GuestContext<'_>>, because: impl Into<String>) -> Self {
        Self { rule: RuleId::Every, domain: guest.map(|g| g.name().to_owned()), because: because.into() }
    }
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
    /// A guest or the host, for all rules.
    pub(crate) fn every(guest: Option<&GuestContext<'_>>, because: String, seen_s: f64, needed_s: f64) -> Self {
        Self { rule: RuleId::Every, domain: guest.map(|g| g.name().to_owned()), because, seen_s, needed_s }
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
