//! A whole recording as one interval with its findings.

use super::{JudgedInterval, Pipeline};
use crate::figures::listed;
use crate::lint::{self, Finding};
use crate::model::ModelSum;
use sample::{EngineKind, EngineLevel, Sample, SourceId, SourceStatus};
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of changes of the engine that are listed.
const MAX_ENGINES: usize = 8;

/// Adds up the intervals of a recording, sample by sample. Its figures cover all intervals, including guests and
/// threads that ended on the way and all runs of the recorder. A finding that held only for a while is included as it
/// was when it weighed most.
#[derive(Debug, Default)]
pub struct SessionSummary {
    pipeline: Pipeline,
    sum: ModelSum,
    report: lint::Report,
    heaviest: HeaviestFindings,
    runs: Vec<RecorderRun>,
    /// The engines that counted, each with the time of its first sample.
    engines: Vec<(EngineKind, EngineLevel, i64)>,
    /// The last sample, for a recording without an interval.
    last: Option<Arc<Sample>>,
}

/// One run of the recorder: a recording to which `kvmtop record` appended again has several. Nothing was counted in
/// between.
#[derive(Debug)]
struct RecorderRun {
    /// Time of the first sample, milliseconds since the epoch.
    begin_ms: i64,
    samples: usize,
    /// From the first to the last sample.
    seconds: f64,
}

impl SessionSummary {
    /// A summary of nothing, with the pipeline that judges the intervals.
    pub fn new(pipeline: Pipeline) -> Self {
        Self { pipeline, ..Self::default() }
    }

    /// Adds a sample, and shows the interval that it ends before it is added up. The first sample of a run of the
    /// recorder ends none.
    pub fn add_watched(&mut self, sample: Arc<Sample>, begins_run: bool, watch: impl FnOnce(&JudgedInterval)) {
        let begins_run = begins_run || self.runs.is_empty() || !self.pipeline.continues(&sample);
        if begins_run {
            self.runs.push(RecorderRun { begin_ms: sample.time_ms, samples: 0, seconds: 0.0 });
        }
        let engine = (sample.engine.kind, sample.engine.level);
        let is_other = self.engines.last().is_none_or(|(kind, level, _)| (*kind, *level) != engine);
        if is_other && self.engines.len() < MAX_ENGINES {
            self.engines.push((engine.0, engine.1, sample.time_ms));
        }
        self.last = Some(sample.clone());
        let interval = self.pipeline.follow(sample, begins_run);
        if let Some(run) = self.runs.last_mut() {
            run.samples += 1;
            run.seconds += interval.as_ref().and_then(|i| i.model.interval_s).unwrap_or(0.0);
        }
        let Some(interval) = interval else { return };
        if !begins_run {
            watch(&interval);
            self.sum.add(interval.model);
        }
        let report = interval.report;
        report.findings.into_iter().for_each(|finding| self.heaviest.add(finding));
        self.report.cannot_tell = report.cannot_tell;
        // The longest run tells whether enough was seen.
        let longest = self.runs.iter().map(|run| run.seconds).reduce(f64::max);
        if self.runs.last().map(|run| run.seconds) >= longest {
            self.report.watching = report.watching;
        }
    }

    /// The whole recording as one interval. Several runs are reported as a source of it.
    pub fn finish(mut self) -> JudgedInterval {
        let notes = several_runs(&self.runs).into_iter().chain(several_engines(&self.engines));
        self.report.findings = self.heaviest.finish();
        let mut interval = match self.last.filter(|_| self.sum.seconds() <= 0.0) {
            Some(only) => {
                self.pipeline.restart();
                self.pipeline.next_or_first(only)
            }
            None => JudgedInterval { model: self.sum.finish(), report: self.report },
        };
        interval.model.sources.extend(notes);
        interval.report.findings.sort_by(lint::order);
        interval
    }
}

/// What a reader must know about a recording of several runs.
fn several_runs(runs: &[RecorderRun]) -> Option<SourceStatus> {
    if runs.len() < 2 {
        return None;
    }
    let each = |run: &RecorderRun| {
        let begin = jiff::Timestamp::from_millisecond(run.begin_ms).unwrap_or_default();
        format!("{:.0} s from {} ({} samples)", run.seconds, begin.strftime("%FT%TZ"), run.samples)
    };
    let cause = format!(
        "the recorder ran {} times and counted nothing in between; figures are of all runs together, {:.0} s, {}",
        runs.len(),
        runs.iter().map(|r| r.seconds).sum::<f64>(),
        listed(runs.iter().map(each).collect())
    );
    Some(SourceStatus::degraded(SourceId::Session, cause, "use --at TIME for one interval of a run"))
}

/// What a reader must know about a recording whose engine changed on the way.
fn several_engines(engines: &[(EngineKind, EngineLevel, i64)]) -> Option<SourceStatus> {
    let first_ms = engines.first()?.2;
    let name = |(kind, level, at_ms): &(EngineKind, EngineLevel, i64)| {
        let after_s = at_ms.saturating_sub(first_ms) / 1000;
        format!("{} ({}) from {after_s} s on", kind.as_str(), level.as_str())
    };
    let list: Vec<String> = engines.iter().map(name).collect();
    let cause = format!(
        "the engine changed on the way: {}; each counts at another cost, which changes the guest's rates and times",
        list.join(", ")
    );
    let fix = "use --at TIME for one interval, and record with the same --engine throughout";
    (engines.len() > 1).then(|| SourceStatus::degraded(SourceId::Session, cause, fix))
}

/// The findings of many intervals. A cause is reported once: by the finding that covers the other, else as it was when
/// it weighed most.
#[derive(Debug, Default)]
struct HeaviestFindings {
    /// By guest; `None` is the host.
    by_domain: HashMap<Option<String>, Vec<Finding>>,
    count: usize,
    text: usize,
}

impl HeaviestFindings {
    fn add(&mut self, new: Finding) {
        let weight = |f: &Finding| (f.severity, f.cost.unwrap_or(0.0));
        let covers = |a: &Finding, b: &Finding| a.covers(b.rule) && (a.rule != b.rule || a.target == b.target);
        let kept = self.by_domain.entry(new.domain.clone()).or_default();
        if kept.iter().any(|old| covers(old, &new) && (!covers(&new, old) || weight(old) >= weight(&new))) {
            return;
        }
        kept.retain(|old| {
            let stays = !covers(&new, old);
            if !stays {
                self.count -= 1;
                self.text -= old.text_len();
            }
            stays
        });
        // As many as one interval may have.
        if self.count < lint::MAX_FINDINGS && self.text + new.text_len() <= lint::MAX_TEXT {
            self.count += 1;
            self.text += new.text_len();
            kept.push(new);
        }
    }

    fn finish(self) -> Vec<Finding> {
        let mut all: Vec<Finding> = self.by_domain.into_values().flatten().collect();
        all.sort_by(lint::order);
        all
    }
}

#[cfg(test)]
mod tests;
