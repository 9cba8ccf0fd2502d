//! Findings on a live screen: they keep their places and their headings for some seconds, so that a
//! list can be read. Their evidence is always that of the interval whose figures the tables show.
//! New findings and changed severities appear immediately.

use super::table::is_due;
use judge::lint::{Finding, FindingId};
use std::cmp::Reverse;
use std::collections::HashMap;

/// When the findings on the screen were taken over.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeldFindings {
    taken_ms: Option<i64>,
}

impl HeldFindings {
    /// The findings to show at a time: those that are new or judged differently as they are now,
    /// the others as they are shown but for their evidence, and in that order, until their time is
    /// over.
    pub fn settle(&mut self, shown: &[Finding], now: Vec<Finding>, now_ms: i64) -> Vec<Finding> {
        if is_due(self.taken_ms, now_ms) {
            self.taken_ms = Some(now_ms);
            return now;
        }
        let places: HashMap<FindingId, usize> = shown
            .iter()
            .enumerate()
            .map(|(at, f)| (f.id(), at))
            .collect();
        let mut settled = Vec::new();
        for finding in now {
            match places.get(&finding.id()).map(|at| &shown[*at]) {
                Some(shown) if is_judged_alike(shown, &finding) => settled.push(Finding {
                    evidence: finding.evidence,
                    marks: finding.marks,
                    ..shown.clone()
                }),
                _ => settled.push(finding),
            }
        }
        settled.sort_by_key(|f| {
            let place = places.get(&f.id()).copied();
            (Reverse(f.severity), place.unwrap_or(usize::MAX))
        });
        settled
    }
}

fn is_judged_alike(a: &Finding, b: &Finding) -> bool {
    a.severity == b.severity
        && a.confidence == b.confidence
        && a.title == b.title
        && a.folded == b.folded
}

#[cfg(test)]
mod tests {
    use super::*;
    use judge::lint::{RuleId, Severity};

    fn finding(rule: RuleId, severity: Severity, figure: &str) -> Finding {
        Finding {
            rule,
            severity,
            problem: figure.into(),
            evidence: vec![figure.into()],
            ..Finding::default()
        }
    }

    #[test]
    fn headings_stand_for_some_seconds_and_evidence_is_of_now() {
        use Severity::{Critical, Warning};
        let (mut held, mut shown) = (HeldFindings::default(), Vec::new());
        let mut at = |ms: i64, now: Vec<Finding>| {
            shown = held.settle(&shown, now, ms);
            shown
                .iter()
                .map(|f| format!("{} {}", f.problem, f.evidence[0]))
                .collect::<Vec<_>>()
        };
        assert_eq!(at(0, vec![finding(RuleId::RtcTick, Warning, "1")]), ["1 1"]);
        assert_eq!(
            at(
                1000,
                vec![
                    finding(RuleId::PinOverlap, Critical, "9"),
                    finding(RuleId::RtcTick, Warning, "2")
                ]
            ),
            ["9 9", "1 2"]
        );
        assert_eq!(
            at(2000, vec![finding(RuleId::RtcTick, Critical, "3")]),
            ["3 3"],
            "worse than it was"
        );
        assert_eq!(
            at(4700, vec![finding(RuleId::RtcTick, Critical, "4")]),
            ["3 4"]
        );
        assert_eq!(
            at(4900, vec![finding(RuleId::RtcTick, Critical, "5")]),
            ["5 5"]
        );
        assert_eq!(
            at(3000, vec![finding(RuleId::RtcTick, Critical, "6")]),
            ["6 6"],
            "the clock was set"
        );
        assert_eq!(at(3100, Vec::new()), [""; 0]);
    }
}
