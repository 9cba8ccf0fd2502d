//! The intervals of a recording by number, each with the same findings however it is reached.

use crate::ui::Passed;
use anyhow::Context as _;
use jiff::tz::TimeZone;
use judge::analysis::{DomainFilter, JudgedInterval, Pipeline, RecordingTime};
use judge::lint;
use judge::model::Model;
use session::{Cursor, KeptSamples};
use std::ops::Range;

/// Maximum number of intervals before a sample that are kept: the screen's history.
const MAX_PASSED: usize = 60;
/// A jump forward over at most this many samples judges all of them; others look back as far as the
/// rules do.
const MAX_STEP: usize = 60;

/// The milliseconds of a time that an option gives, within a recording.
///
/// # Errors
/// A sentence, after the option's name, for a time that the recording does not cover.
pub fn time_ms(
    range: (i64, i64),
    time: Option<RecordingTime>,
    option: &'static str,
) -> anyhow::Result<Option<i64>> {
    time.map(|time| time.within(range, &TimeZone::system()).context(option))
        .transpose()
}

/// Judges the intervals of a recording in any order.
pub struct RecordedIntervals<'a> {
    /// The samples.
    pub samples: Cursor<'a>,
    pipeline: Pipeline,
    filter: DomainFilter,
    /// The number of the last sample that the pipeline took.
    judged: Option<usize>,
}

impl<'a> RecordedIntervals<'a> {
    /// The intervals of these samples; the filter selects guests after the rules have judged all of
    /// them.
    pub fn new(samples: Cursor<'a>, findings: lint::Options, filter: DomainFilter) -> Self {
        let pipeline = Pipeline::new(lint::Options {
            input: lint::InputKind::Recording,
            ..findings
        });
        Self {
            samples,
            pipeline,
            filter,
            judged: None,
        }
    }

    /// The interval that ends with a sample. The first sample of a run ends none: it is judged
    /// alone.
    ///
    /// # Errors
    /// When the sample is damaged.
    pub fn at(&mut self, index: usize) -> anyhow::Result<(JudgedInterval, Passed)> {
        let next = self
            .judged
            .map(|judged| judged + 1)
            .filter(|next| (*next..*next + MAX_STEP).contains(&index));
        let sample = self.samples.sample(index)?;
        if next.is_none() {
            self.pipeline.restart();
        }
        let look_back = self.pipeline.look_back();
        let first = next.unwrap_or_else(|| self.samples.index_before(index, look_back));
        let before = self.judge(first..index);
        if self.samples.begins_run(index) {
            self.pipeline.restart();
        }
        let mut interval = self.pipeline.next_or_first(sample);
        interval.keep_only(&self.filter);
        self.judged = Some(index);
        Ok((
            interval,
            Passed {
                before,
                is_jump: next.is_none(),
            },
        ))
    }

    /// Continues with the samples that are kept in memory now. Returns how many of those known so
    /// far were dropped.
    pub fn renew(&mut self, kept: &KeptSamples) -> usize {
        let dropped = self.samples.renew(kept);
        self.judged = self.judged.and_then(|judged| judged.checked_sub(dropped));
        dropped
    }

    /// The first interval of known length that ends with this sample or a later one, and the number
    /// of that sample.
    pub fn first_from(&mut self, mut index: usize) -> Option<(usize, JudgedInterval)> {
        while index < self.samples.len() {
            match self.at(index) {
                Ok((interval, _)) if interval.model.interval_s.is_some() => {
                    return Some((index, interval));
                }
                _ => index += 1,
            }
        }
        None
    }

    /// Judges samples that are passed over. After a jump the first of them is only the base of an
    /// interval, unless a run of the recorder begins with it.
    fn judge(&mut self, range: Range<usize>) -> Vec<Model> {
        let mut passed = Vec::new();
        for index in range {
            let Ok(sample) = self.samples.sample(index) else {
                continue;
            };
            if let Some(mut interval) = self.pipeline.follow(sample, self.samples.begins_run(index))
            {
                interval.keep_only(&self.filter);
                passed.push(interval.model);
            }
        }
        passed.drain(..passed.len().saturating_sub(MAX_PASSED));
        passed
    }
}
