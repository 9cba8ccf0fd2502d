//! Findings: what is wrong, how one knows, what to paste. Pure: over the model only, no I/O, no clock.
//!
//! A rule looks at one interval and answers nothing, a [`Finding`], or that it cannot tell and why. [`run`] asks all rules,
//! keeps only what lasts (on a running host), folds findings of one cause into one, and sorts them.

mod finding;
mod memory;
mod options;
mod rules;
mod thresholds;

pub use finding::{Confidence, Finding, Fix, FixKind, Mark, Severity, Target, order};
pub use memory::Memory;
pub use options::{Options, Source};
pub use rules::{RULES, RuleInfo, rank, rule};
pub use thresholds::{Steps, Thresholds};

use crate::model::Model;
use serde::Serialize;

/// A rule that could not be judged, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CannotTell {
    /// The rule.
    pub rule: &'static str,
    /// The guest; `None` for the host.
    pub domain: Option<String>,
    /// What is missing, in a sentence.
    pub because: String,
}

/// The answer of all rules.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// What was found, worst first.
    pub findings: Vec<Finding>,
    /// What could not be judged.
    pub cannot_tell: Vec<CannotTell>,
}

impl Report {
    /// The worst severity found.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|f| f.severity).max()
    }

    /// The findings of one guest.
    pub fn of_domain<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Finding> {
        self.findings.iter().filter(move |f| f.domain.as_deref() == Some(name))
    }
}

/// Judges one interval.
pub fn run(_model: &Model, _memory: &mut Memory, _options: &Options) -> Report {
    Report::default()
}
