//! Reading samples in any order, at the cost of decompressing at most a segment.

use super::part::{Hole, PartReader};
use super::scan::read_frame;
use super::session::{NamedPart, Place, Session};
use crate::KeptSamples;
use crate::format::{FrameKind, SegmentReader, Stamp};
use anyhow::{Result, anyhow};
use sample::{Sample, SourceId, SourceState, SourceStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Parts with a longer time between them are separated by a gap, milliseconds.
const GAP_MS: i64 = 120_000;

/// How often a file that is still being written is read for further samples.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Adds facts from elsewhere to a sample.
type DescribeSample<'a> = Box<dyn FnMut(&mut Sample) + Send + 'a>;

/// Reads the samples of a recording.
pub struct Cursor<'a> {
    session: Session,
    refreshed: Instant,
    describe: Option<DescribeSample<'a>>,
    /// The segment that was read last.
    open: Option<OpenSegment>,
    /// Segments that cannot be read to their end, by numbers of part and segment.
    broken: Vec<(usize, usize)>,
}

/// Maximum number of samples that [`Cursor::index_before`] goes back.
const MAX_SAMPLES_BEFORE: usize = 2000;

/// A segment being read.
struct OpenSegment {
    /// Place of the next sample.
    next: Place,
    /// The byte of the file at which the next sample's frame begins.
    offset: u64,
    reader: SegmentReader,
}

impl OpenSegment {
    /// Decompresses the next sample, which has this number in its file; `None` if it is damaged.
    fn advance(&mut self, part: &PartReader, number: u32) -> Option<()> {
        let kind = if self.next.sample == 0 {
            FrameKind::First
        } else {
            FrameKind::Next
        };
        let frame = read_frame(&part.file, part.end, self.offset).ok()?;
        if frame.kind != kind {
            return None;
        }
        let (stamp, packed) = Stamp::split(kind, &frame.payload)?;
        if stamp.number != number {
            return None;
        }
        self.reader.advance(packed).ok()?;
        self.offset += frame.length();
        self.next.sample += 1;
        Some(())
    }
}

impl Session {
    /// Reads samples.
    pub fn cursor<'a>(self) -> Cursor<'a> {
        Cursor {
            session: self,
            refreshed: Instant::now(),
            describe: None,
            open: None,
            broken: Vec::new(),
        }
    }
}

impl<'a> Cursor<'a> {
    /// Adds facts about the guests from elsewhere to each sample.
    #[must_use]
    pub fn described_by(self, describe: impl FnMut(&mut Sample) + Send + 'a) -> Self {
        Self {
            describe: Some(Box::new(describe)),
            ..self
        }
    }

    /// Continues with the samples that are kept in memory now. Returns how many of the samples that
    /// this cursor knew were dropped.
    pub fn renew(&mut self, kept: &KeptSamples) -> usize {
        let newer = kept.session();
        let first = newer.parts.first();
        let mut dropped = 0;
        for part in &self.session.parts {
            if first.is_some_and(|first| Arc::ptr_eq(&first.reader.file, &part.reader.file)) {
                break;
            }
            dropped += part.reader.times.len();
            self.open = None;
            self.broken.clear();
        }
        self.session = newer;
        self.refreshed = Instant::now();
        dropped
    }

    /// The recording.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.session.len()
    }

    /// Whether the recording is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A sample by its number.
    ///
    /// # Errors
    /// If the number is too large, or the file is damaged there; [`Cursor::readable_from`]
    /// continues after the damage.
    pub fn at(&mut self, index: usize) -> Result<Arc<Sample>> {
        let place = self.session.place(index).ok_or_else(|| {
            anyhow!(
                "the recording has {} samples, there is no number {index}",
                self.len()
            )
        })?;
        let mut open = self.open_segment(place)?;
        let part = &self.session.parts[place.part].reader;
        let first = part.segments[place.segment].number;
        while open.next.sample <= place.sample {
            let next = open.next;
            if open
                .advance(part, first.saturating_add(next.sample))
                .is_none()
            {
                return Err(self.damaged(next, open.offset));
            }
        }
        let Ok(mut sample) = open.reader.sample() else {
            return Err(self.damaged(place, open.offset));
        };
        self.open = Some(open);
        if let Some(describe) = &mut self.describe {
            describe(&mut sample);
        }
        Ok(Arc::new(sample))
    }

    /// A sample by its number, as the screen shows it: with what is damaged in the file as a
    /// source. At the end of a file that is being written it looks for further samples.
    ///
    /// # Errors
    /// As [`Cursor::at`].
    pub fn sample(&mut self, index: usize) -> Result<Arc<Sample>> {
        if index + 1 >= self.len() && self.refreshed.elapsed() > REFRESH_INTERVAL {
            self.refreshed = Instant::now();
            self.session.refresh();
        }
        let mut sample = self.at(index)?;
        if let Some(damage) = self.damage() {
            Arc::make_mut(&mut sample).sources.push(damage);
        }
        Ok(sample)
    }

    /// What of the recording cannot be read, as far as it is known.
    pub fn damage(&self) -> Option<SourceStatus> {
        let cause = Some(self.session.damage()?);
        Some(SourceStatus {
            id: SourceId::Session,
            state: SourceState::Degraded,
            cause,
            fix: None,
        })
    }

    /// The sample of this number, or the first later one that is not damaged, with its number.
    pub fn readable_from(&mut self, mut index: usize) -> Option<(usize, Arc<Sample>)> {
        loop {
            let place = self.session.place(index)?;
            if let Ok(sample) = self.at(index) {
                return Some((index, sample));
            }
            let reader = &self.session.parts[place.part].reader;
            index += reader.samples_of(place.segment) - place.sample as usize;
        }
    }

    /// The time of a sample, milliseconds since the epoch, without reading the sample.
    pub fn time_ms(&self, index: usize) -> Option<i64> {
        let (part, index) = self.session.part_of(index)?;
        Some(self.session.parts[part].reader.times[index])
    }

    /// The latest sample at or before a time; the first when all are later.
    pub fn index_at(&self, time_ms: i64) -> usize {
        let mut latest = 0;
        let mut latest_ms = i64::MIN;
        for (index, ms) in self.session.times().enumerate() {
            if ms <= time_ms && ms >= latest_ms {
                latest = index;
                latest_ms = ms;
            }
        }
        latest
    }

    /// The sample `ms` milliseconds from another: the last one within that time after it or, where
    /// `ms` is negative, the last one at least that long before it. The search ends early at the
    /// first sample beyond a point where the clock was set back.
    pub fn index_beside(&self, index: usize, ms: i64) -> usize {
        let to_ms = self.time_or_zero(index).saturating_add(ms);
        let mut beside = index;
        if ms < 0 {
            while beside > 0 && self.time_or_zero(beside) > to_ms {
                beside -= 1;
                if self.time_or_zero(beside) > self.time_or_zero(beside + 1) {
                    break;
                }
            }
        } else {
            while beside + 1 < self.len() && self.time_or_zero(beside + 1) <= to_ms {
                beside += 1;
                if self.time_or_zero(beside) < self.time_or_zero(beside - 1) {
                    break;
                }
            }
        }
        beside
    }

    fn time_or_zero(&self, index: usize) -> i64 {
        self.time_ms(index).unwrap_or(0)
    }

    /// The first sample at or after a time: the one whose interval the time is in. The last sample
    /// when all are earlier.
    pub fn index_from(&self, time_ms: i64) -> usize {
        let latest = self.index_at(time_ms);
        let is_before = self.time_ms(latest).is_some_and(|ms| ms < time_ms);
        if is_before {
            (latest + 1).min(self.len().saturating_sub(1))
        } else {
            latest
        }
    }

    /// The first sample to read for the time of this length before a sample. At least one sample is
    /// taken for each second, in case the clock was set forward meanwhile.
    pub fn index_before(&self, index: usize, length: Duration) -> usize {
        let length_ms = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
        let seconds = usize::try_from(length.as_secs()).unwrap_or(usize::MAX);
        let by_time = self
            .time_ms(index)
            .map_or(0, |ms| self.index_at(ms.saturating_sub(length_ms)));
        by_time
            .min(index.saturating_sub(seconds))
            .max(index.saturating_sub(MAX_SAMPLES_BEFORE))
    }

    /// Whether a sample is the first after a gap: of a run of the recorder, of a part, or after
    /// damage.
    pub fn begins_run(&self, index: usize) -> bool {
        let Some(Place {
            part,
            segment,
            sample: 0,
        }) = self.session.place(index)
        else {
            return false;
        };
        let reader = &self.session.parts[part].reader;
        let begin = &reader.segments[segment];
        let Some(before) = segment.checked_sub(1) else {
            return begin.begins_run || !self.continues(part);
        };
        // Where numbers are missing between the segments, samples are damaged.
        let end = reader.segments[before].number as usize + reader.samples_of(before);
        begin.begins_run || end != begin.number as usize || self.broken.contains(&(part, before))
    }

    /// Whether a part continues the previous one without a gap.
    fn continues(&self, part: usize) -> bool {
        let Some(before) = part.checked_sub(1) else {
            return false;
        };
        let last = self.session.parts[before].reader.times.last();
        let first = self.session.parts[part].reader.times.first();
        match (last, first) {
            (Some(last), Some(first)) => (0..GAP_MS).contains(&first.saturating_sub(*last)),
            _ => false,
        }
    }

    /// Takes the open segment if it leads to this sample, or opens the sample's segment.
    fn open_segment(&mut self, place: Place) -> Result<OpenSegment> {
        if let Some(open) = self.open.take() {
            let is_same = open.next.part == place.part && open.next.segment == place.segment;
            if is_same && open.next.sample <= place.sample {
                return Ok(open);
            }
        }
        Ok(OpenSegment {
            next: Place { sample: 0, ..place },
            offset: self.session.parts[place.part].reader.segments[place.segment].offset,
            reader: SegmentReader::new()?,
        })
    }

    /// Notes that a segment cannot be read from this sample on, whose frame begins at `offset`.
    fn damaged(&mut self, place: Place, offset: u64) -> anyhow::Error {
        let NamedPart { path, reader } = &mut self.session.parts[place.part];
        if !self.broken.contains(&(place.part, place.segment)) {
            self.broken.push((place.part, place.segment));
            let samples = reader.samples_of(place.segment) as u32 - place.sample;
            reader.holes.push(Hole { offset, samples });
        }
        anyhow!("{} is damaged at byte {offset}", path.display())
    }
}
