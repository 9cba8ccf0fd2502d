//! When findings began and ended.

use judge::lint::{Finding, FindingId, RuleId, Severity, Target};
use serde::Serialize;
use std::collections::HashMap;

/// Limit of spans; further ones are counted.
const MAX_SPANS: usize = 2000;

/// A time during which a finding held, as the page's data have it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct FindingSpan {
    /// Its index in the report's findings, once the findings are linked.
    pub finding: Option<usize>,
    pub rule: RuleId,
    pub domain: Option<String>,
    #[serde(skip)]
    pub target: Target,
    /// The worst within the span.
    pub severity: Severity,
    pub title: String,
    /// Milliseconds since the epoch.
    pub begin_ms: i64,
    pub end_ms: i64,
}

/// The spans of all findings of a recording.
#[derive(Debug, Default)]
pub(super) struct FindingSpans {
    pub all: Vec<FindingSpan>,
    /// Spans that did not fit.
    pub left_out: usize,
    /// Each finding of the last interval, with the index of its span; `None` if that did not fit.
    holding: HashMap<FindingId, Option<usize>>,
}

impl FindingSpans {
    /// Adds the findings of an interval. Findings about a configuration have no beginning and so no
    /// span.
    pub fn add<'f>(&mut self, findings: impl Iterator<Item = &'f Finding>, end_ms: i64) {
        let before = std::mem::take(&mut self.holding);
        for f in findings {
            let Some(since_ms) = f.since_ms else { continue };
            let id = f.id();
            let index = match before.get(&id) {
                Some(index) => *index,
                None if self.all.len() < MAX_SPANS => {
                    self.all.push(FindingSpan {
                        finding: None,
                        rule: f.rule,
                        domain: f.domain.clone(),
                        target: f.target,
                        severity: f.severity,
                        title: f.title.clone(),
                        begin_ms: since_ms.min(end_ms),
                        end_ms,
                    });
                    Some(self.all.len() - 1)
                }
                None => {
                    self.left_out += 1;
                    None
                }
            };
            if let Some(span) = index.and_then(|index| self.all.get_mut(index)) {
                span.end_ms = span.end_ms.max(end_ms);
                span.severity = span.severity.max(f.severity);
            }
            self.holding.insert(id, index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(rule: RuleId, severity: Severity, since_ms: Option<i64>) -> Finding {
        Finding {
            rule,
            severity,
            since_ms,
            domain: Some("g".into()),
            ..Finding::default()
        }
    }

    #[test]
    fn a_finding_that_comes_back_has_two_spans() {
        let mut spans = FindingSpans::default();
        let warning = |since| finding(RuleId::VcpuWait, Severity::Warning, Some(since));
        spans.add([warning(1000)].iter(), 3000);
        spans.add(
            [finding(RuleId::VcpuWait, Severity::Critical, Some(1000))].iter(),
            4000,
        );
        spans.add(
            [finding(RuleId::PinOverlap, Severity::Info, None)].iter(),
            5000,
        );
        spans.add([warning(5500)].iter(), 6000);
        let times: Vec<_> = spans
            .all
            .iter()
            .map(|s| (s.severity, s.begin_ms, s.end_ms))
            .collect();
        assert_eq!(
            times,
            [
                (Severity::Critical, 1000, 4000),
                (Severity::Warning, 5500, 6000)
            ]
        );
    }

    #[test]
    fn spans_are_bounded() {
        let mut spans = FindingSpans::default();
        for i in 0..5000 {
            spans.add(
                [finding(RuleId::VcpuWait, Severity::Info, Some(i))].iter(),
                i,
            );
            spans.add([].iter(), i);
        }
        assert_eq!((spans.all.len(), spans.left_out), (MAX_SPANS, 3000));
    }
}
