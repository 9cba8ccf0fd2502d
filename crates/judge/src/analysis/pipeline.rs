//! From samples to judged intervals: the previous sample, the rules' memory, gaps.

use super::DomainFilter;
use crate::lint;
use crate::model::{Base, Model};
use sample::Sample;
use std::sync::Arc;
use std::time::Duration;

/// What happened between two samples, and what the rules say about it.
#[derive(Debug, Clone, Default)]
pub struct JudgedInterval {
    /// Rates and shares.
    pub model: Model,
    /// Findings, and the rules that could not be judged.
    pub report: lint::Report,
}

impl JudgedInterval {
    /// Leaves out what is not about the host or a guest that the filter selects. The rules have
    /// judged all guests by then: a guest is often slow because of another one.
    pub fn keep_only(&mut self, filter: &DomainFilter) {
        if filter.is_empty() {
            return;
        }
        let Self { model, report } = self;
        report
            .cannot_tell
            .retain(|about| filter.is_about(model, about.domain.as_ref()));
        report
            .watching
            .retain(|about| filter.is_about(model, about.domain.as_ref()));
        report
            .findings
            .retain(|finding| filter.has_finding(model, finding));
        model.sources = filter.sources(model);
        self.model.retain(|facts| filter.matches(facts));
    }
}

/// Judges the interval between each sample and the previous one. The rules remember earlier
/// intervals.
#[derive(Debug, Default)]
pub struct Pipeline {
    options: lint::Options,
    memory: lint::RuleMemory,
    previous: Option<Arc<Sample>>,
}

impl Pipeline {
    /// A pipeline that has seen nothing.
    pub fn new(options: lint::Options) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// How far back samples have to be judged for the findings of one sample, however it is
    /// reached.
    pub fn look_back(&self) -> Duration {
        self.options.look_back()
    }

    /// The interval that ends with this sample; `None` for the first sample, and for the first
    /// after [`Pipeline::restart`].
    pub fn next(&mut self, sample: Arc<Sample>) -> Option<JudgedInterval> {
        if !self.continues(&sample) {
            self.restart();
        }
        let interval = self
            .previous
            .take()
            .map(|previous| self.judge(&sample, Base::Previous(&previous)));
        self.previous = Some(sample);
        interval
    }

    /// As [`Pipeline::next`], but a first sample is shown as well: with names and states, without
    /// any rate.
    pub fn next_or_first(&mut self, sample: Arc<Sample>) -> JudgedInterval {
        let first = sample.clone();
        self.next(sample)
            .unwrap_or_else(|| self.judge(&first, Base::Start))
    }

    /// The next sample of a recording that is played or passed over. The first sample of a run of
    /// the recorder, and the first after a jump of the clock, is judged alone; the very first
    /// sample is only the base of an interval.
    pub fn follow(&mut self, sample: Arc<Sample>, begins_run: bool) -> Option<JudgedInterval> {
        if begins_run {
            self.restart();
        }
        if begins_run || !self.continues(&sample) {
            Some(self.next_or_first(sample))
        } else {
            self.next(sample)
        }
    }

    /// Whether a sample can follow the previous one: the host's clock did not go back.
    pub fn continues(&self, sample: &Sample) -> bool {
        self.previous
            .as_ref()
            .is_none_or(|previous| sample.mono_ns >= previous.mono_ns)
    }

    /// Forgets the previous sample and what the rules remember: what follows does not continue what
    /// came before.
    pub fn restart(&mut self) {
        self.previous = None;
        self.memory.clear();
    }

    /// The interval of a sample and its base.
    pub fn judge(&mut self, sample: &Sample, base: Base<'_>) -> JudgedInterval {
        let model = Model::new(sample, base);
        let report = lint::run(&model, &mut self.memory, &self.options);
        JudgedInterval { model, report }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Fixture;

    #[test]
    fn an_interval_needs_two_samples_without_a_gap_between_them() {
        let sample = |second: f64| Arc::new(Fixture::busy_host().sample(second));
        let mut pipeline = Pipeline::default();
        assert!(pipeline.next(sample(1.0)).is_none());
        assert_eq!(
            pipeline.next(sample(3.0)).unwrap().model.interval_s,
            Some(2.0)
        );
        pipeline.restart();
        let first = pipeline.next_or_first(sample(9.0));
        assert_eq!(
            (first.model.interval_s, first.model.domains.is_empty()),
            (None, false)
        );
        assert_eq!(
            pipeline.next_or_first(sample(10.0)).model.interval_s,
            Some(1.0)
        );
    }

    #[test]
    fn rules_remember_until_a_restart() {
        let sample = |second: f64| Arc::new(Fixture::busy_host().sample(second));
        let rules = |pipeline: &mut Pipeline, seconds: std::ops::Range<u32>| {
            seconds
                .filter_map(|s| pipeline.next(sample(f64::from(s))))
                .last()
                .unwrap()
                .report
                .findings
                .len()
        };
        let mut pipeline = Pipeline::default();
        let after_long = rules(&mut pipeline, 0..30);
        pipeline.restart();
        assert!(
            rules(&mut pipeline, 30..32) < after_long,
            "patterns have to last before they are reported"
        );
    }
}
