//! The answer of all rules to one interval.

use super::finding::Finding;
use serde::Serialize;

/// In [`CannotTell::rule`]: no rule about the guest's behaviour can be judged.
pub const EVERY_RULE: &str = "*";

/// A rule that could not be judged, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CannotTell {
    /// The rule, or [`EVERY_RULE`].
    pub rule: &'static str,
    /// The guest; `None` for the host.
    pub domain: Option<String>,
    /// What is missing, in a sentence.
    pub because: String,
}

/// The answer of all rules.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// What was found, worst first.
    pub findings: Vec<Finding>,
    /// What could not be judged.
    pub cannot_tell: Vec<CannotTell>,
}
