//! The fixed words of a finding. Each family keeps its own in `texts.rs`, apart from the detection.

use super::finding::Finding;
use crate::lint::context::totals::EventTotals;

/// A finding's title and explanation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prose {
    /// One line, the guest or host as its subject.
    pub title: &'static str,
    /// Why the evidence points to this cause, and what it costs.
    pub why: &'static str,
}

impl Prose {
    /// A finding with these words and nothing else.
    pub fn finding(self) -> Finding {
        Finding { title: self.title.into(), why: self.why.into(), ..Finding::default() }
    }

    /// The same with what these events cost and where they are shown.
    pub fn caused_by(self, events: EventTotals) -> Finding {
        Finding { cost: events.cost, marks: events.marks, ..self.finding() }
    }
}
