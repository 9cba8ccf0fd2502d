//! A whole recording as one interval with its findings.

use super::{JudgedInterval, Pipeline};
use crate::lint::{self, Finding};
use crate::model::ModelSum;
use sample::{Sample, SourceId, SourceStatus};
use std::collections::HashMap;
use std::sync::Arc;

/// Adds up the intervals of a recording, sample by sample. Its figures cover all intervals,
/// including guests and threads that ended on the way and all runs of the recorder. A finding that
/// held only for a while is included as it was when it weighed most.
#[derive(Debug, Default)]
pub struct SessionSummary {
    pipeline: Pipeline,
    sum: ModelSum,
    report: lint::Report,
    heaviest: HeaviestFindings,
    /// Runs of the recorder: a recording to which `kvmtop record` appended again has several.
    /// Nothing was counted in between.
    runs: usize,
    /// The last sample, for a recording without an interval.
    last: Option<Arc<Sample>>,
}

impl SessionSummary {
    /// A summary of nothing, with the pipeline that judges the intervals.
    pub fn new(pipeline: Pipeline) -> Self {
        Self {
            pipeline,
            ..Self::default()
        }
    }

    /// Adds a sample, and shows the interval that it ends before it is added up. The first sample
    /// of a run of the recorder ends none.
    pub fn add_watched(
        &mut self,
        sample: Arc<Sample>,
        begins_run: bool,
        watch: impl FnOnce(&JudgedInterval),
    ) {
        let begins_run = begins_run || self.runs == 0 || !self.pipeline.continues(&sample);
        if begins_run {
            self.runs += 1;
        }
        self.last = Some(sample.clone());
        let interval = self.pipeline.follow(sample, begins_run);
        let Some(interval) = interval else { return };
        if !begins_run {
            watch(&interval);
            self.sum.add(interval.model);
        }
        let report = interval.report;
        report
            .findings
            .into_iter()
            .for_each(|finding| self.heaviest.add(finding));
        self.report.cannot_tell = report.cannot_tell;
        self.report.watching = report.watching;
    }

    /// The whole recording as one interval. Several runs are reported as a source of it.
    pub fn finish(mut self) -> JudgedInterval {
        self.report.findings = self.heaviest.finish();
        let mut interval = match self.last {
            Some(only) if self.sum.seconds() <= 0.0 => {
                self.pipeline.restart();
                self.pipeline.next_or_first(only)
            }
            _ => JudgedInterval {
                model: self.sum.finish(),
                report: self.report,
            },
        };
        if self.runs > 1 {
            let cause = format!(
                "the recorder ran {} times and counted nothing in between; figures are of all runs",
                self.runs
            );
            let fix = "use --at TIME for one interval of a run";
            interval
                .model
                .sources
                .push(SourceStatus::degraded(SourceId::Session, cause, fix));
        }
        interval.report.findings.sort_by(lint::order);
        interval
    }
}

/// The findings of many intervals. A cause is reported once: by the finding that covers the other,
/// else as it was when it weighed most.
#[derive(Debug, Default)]
struct HeaviestFindings {
    /// By guest; `None` is the host.
    by_domain: HashMap<Option<String>, Vec<Finding>>,
    count: usize,
    text: usize,
}

/// Whether one finding says what another one says.
fn covers(a: &Finding, b: &Finding) -> bool {
    a.covers(b.rule) && (a.rule != b.rule || a.target == b.target)
}

impl HeaviestFindings {
    fn add(&mut self, new: Finding) {
        let weight = (new.severity, new.cost.unwrap_or(0.0));
        let kept = self.by_domain.entry(new.domain.clone()).or_default();
        let mut covering = kept.iter().filter(|old| covers(old, &new));
        if covering
            .any(|old| !covers(&new, old) || (old.severity, old.cost.unwrap_or(0.0)) >= weight)
        {
            return;
        }
        for old in kept.extract_if(.., |old| covers(&new, old)) {
            self.count -= 1;
            self.text -= old.text_len();
        }
        // As many as one interval may have.
        if self.count < lint::MAX_FINDINGS && self.text + new.text_len() <= lint::MAX_TEXT {
            self.count += 1;
            self.text += new.text_len();
            kept.push(new);
        }
    }

    fn finish(self) -> Vec<Finding> {
        self.by_domain.into_values().flatten().collect()
    }
}

#[cfg(test)]
mod tests;
