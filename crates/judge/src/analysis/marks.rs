//! Samples of a recording that are worth a look: those with a new finding.

use super::{DomainFilter, Pipeline};
use crate::lint;
use sample::Sample;
use std::collections::HashSet;
use std::sync::Arc;

/// Says of each sample of a recording, in order, whether it is worth a look. The rules judge all guests; findings of
/// the selected guests count.
#[derive(Debug)]
pub struct MarkFinder {
    pipeline: Pipeline,
    filter: DomainFilter,
    findings: HashSet<lint::FindingId>,
}

impl MarkFinder {
    /// A finder that has seen nothing.
    pub fn new(options: lint::Options, filter: DomainFilter) -> Self {
        Self { pipeline: Pipeline::new(options), filter, findings: HashSet::new() }
    }

    /// The next sample does not continue what came before.
    pub fn restart(&mut self) {
        self.pipeline.restart();
    }

    /// Whether this sample is worth a look.
    pub fn is_mark(&mut self, sample: Arc<Sample>) -> bool {
        let Some(mut interval) = self.pipeline.next(sample) else { return false };
        interval.keep_only(&self.filter);
        let findings = interval.report.findings.iter().map(lint::Finding::id).collect();
        let before = std::mem::replace(&mut self.findings, findings);
        !self.findings.is_subset(&before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Fixture;

    #[test]
    fn a_new_finding_is_a_mark() {
        let fixture = Fixture::busy_host();
        let mut finder = MarkFinder::new(lint::Options::default(), DomainFilter::default());
        let mut is_mark = |second: f64| finder.is_mark(Arc::new(fixture.sample(second)));
        let marks: Vec<bool> = (0..31).map(|second| is_mark(f64::from(second))).collect();
        assert!(!marks[0], "the first sample has no interval");
        assert!(marks[1..10].contains(&true), "findings begin");
        assert!(marks[12..31].iter().all(|m| !m), "nothing new: {marks:?}");
        finder.restart();
        assert!(!finder.is_mark(Arc::new(fixture.sample(50.0))), "a first sample again");
    }
}
