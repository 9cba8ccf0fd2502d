//! Samples of a recording that are worth a look: a new finding, a profile, or a jump of the exit rate.

use super::{DomainFilter, Pipeline};
use crate::lint;
use sample::Sample;
use std::collections::HashSet;
use std::sync::Arc;

/// The exit rate jumps when it is this many times what it was, or the reverse.
const JUMP: f64 = 2.0;
/// Below this many exits per second nothing jumps.
const QUIET: f64 = 500.0;

/// Says of each sample of a recording, in order, whether it is worth a look. The rules judge all guests; findings and
/// exits of the selected guests count.
#[derive(Debug)]
pub struct MarkFinder {
    pipeline: Pipeline,
    filter: DomainFilter,
    findings: HashSet<lint::FindingId>,
    exit_rate: Option<f64>,
}

impl MarkFinder {
    /// A finder that has seen nothing.
    pub fn new(options: lint::Options, filter: DomainFilter) -> Self {
        Self { pipeline: Pipeline::new(options), filter, findings: HashSet::new(), exit_rate: None }
    }

    /// The next sample does not continue what came before.
    pub fn restart(&mut self) {
        self.pipeline.restart();
        self.exit_rate = None;
    }

    /// Whether this sample is worth a look.
    pub fn is_mark(&mut self, sample: Arc<Sample>) -> bool {
        let Some(mut interval) = self.pipeline.next(sample) else { return false };
        interval.keep_only(&self.filter);
        let findings: HashSet<lint::FindingId> = interval.report.findings.iter().map(lint::Finding::id).collect();
        let is_new = findings.iter().any(|f| !self.findings.contains(f));
        self.findings = findings;
        let rate: f64 = interval.model.domains.iter().filter_map(|d| d.exit_rate.0).sum();
        let before = self.exit_rate.replace(rate);
        let has_profile = interval.model.domains.iter().any(|d| d.profile.as_ref().is_some_and(|p| p.is_new));
        is_new || has_profile || before.is_some_and(|b| rate.max(b) > QUIET && (rate > b * JUMP || rate * JUMP < b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Fixture;

    #[test]
    fn a_jump_of_the_exit_rate_and_a_new_finding_are_marks() {
        let fixture = Fixture::busy_host();
        let mut finder = MarkFinder::new(lint::Options::default(), DomainFilter::default());
        // Counters are linear in time: the counters of double the time within one second are a jump.
        let at = |second: f64, of: f64| {
            let clock = fixture.sample(second);
            Arc::new(Sample {
                time_ms: clock.time_ms,
                mono_ns: clock.mono_ns,
                boot_ns: clock.boot_ns,
                ..fixture.sample(of)
            })
        };
        let marks: Vec<bool> =
            (0..40).map(f64::from).map(|s| finder.is_mark(at(s, if s < 30.0 { s } else { 3.0 * s - 60.0 }))).collect();
        assert!(!marks[0], "the first sample has no interval");
        assert!(marks[1..10].contains(&true), "findings begin");
        assert!(marks[12..31].iter().all(|m| !m), "nothing new: {marks:?}");
        assert!(marks[31], "three times as many exits");
        assert!(!marks[32], "{marks:?}");
        finder.restart();
        assert!(!finder.is_mark(at(50.0, 50.0)), "a first sample again");
    }
}
