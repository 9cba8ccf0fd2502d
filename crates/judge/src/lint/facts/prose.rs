//! The fixed words of a finding. Each family keeps its own beside its checks.

use super::finding::{Confidence, Finding, Fix, Mark, Severity, Target};
use crate::lint::facts::totals::EventTotals;
use crate::model::ThreadModel;

/// A finding's title and explanation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prose {
    /// One line, the guest or host as its subject.
    pub title: &'static str,
    /// The title in at most 26 characters; empty: the rule's.
    pub problem: &'static str,
    /// Why the evidence points to this cause, and what it costs.
    pub why: &'static str,
}

impl Finding {
    /// A finding with the title, explanation and links of its rule.
    pub(crate) fn new(
        severity: Severity,
        confidence: Confidence,
        evidence: Vec<String>,
        fix: Vec<Fix>,
    ) -> Self {
        Self {
            severity,
            confidence,
            evidence,
            fix,
            ..Self::default()
        }
    }

    /// The same in other words.
    pub(crate) fn saying(self, prose: Prose) -> Self {
        Self {
            title: prose.title.into(),
            problem: prose.problem.into(),
            why: prose.why.into(),
            ..self
        }
    }

    /// The same with what these events cost and where they are shown.
    pub(crate) fn caused_by(self, events: EventTotals) -> Self {
        Self {
            cost: events.cost,
            marks: events.marks,
            ..self
        }
    }

    /// The same about a vCPU, which is marked.
    pub(crate) fn about_vcpu(self, thread: &ThreadModel) -> Self {
        let marks = thread
            .index
            .map(Mark::Vcpu)
            .into_iter()
            .chain(self.marks)
            .collect();
        Self {
            target: Target::Vcpu(thread.index.unwrap_or_default()),
            marks,
            ..self
        }
    }
}
