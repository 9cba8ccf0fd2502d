//! Reading samples in any order, at the cost of decompressing at most a segment.

use super::part::Hole;
use super::scan::read_frame;
use super::session::{Place, Session};
use crate::format::{FrameHead, FrameKind, HEAD, Segment, SegmentReader, Stamp};
use anyhow::{Result, anyhow};
use sample::{Sample, SourceId, SourceState, SourceStatus};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Parts with a longer time between them are separated by a gap, milliseconds.
const GAP_MS: i64 = 120_000;

/// How often a file that is still being written is read for further samples.
const REFRESH: Duration = Duration::from_secs(1);

/// Adds facts from elsewhere to a sample.
type DescribeSample<'a> = Box<dyn FnMut(&mut Sample) + Send + 'a>;

/// Reads the samples of a recording.
pub struct Cursor<'a> {
    session: Session,
    refreshed: Instant,
    describe: Option<DescribeSample<'a>>,
    /// The segment that was read last, and where in it.
    open: Option<Open>,
    /// Segments that cannot be read to their end: part, segment.
    broken: Vec<(usize, usize)>,
}

/// Maximum number of samples that a look back reads.
const MAX_BEFORE: usize = 2000;

/// A segment being read.
struct Open {
    /// Place of the next sample.
    next: Place,
    /// Where its frame begins.
    at: u64,
    time_ms: Option<i64>,
    reader: SegmentReader,
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
        self.enter(place)?;
        while self.advance()? != place {}
        let sample = self
            .open
            .as_ref()
            .and_then(|open| open.reader.sample().ok());
        let Some(mut sample) = sample else {
            return Err(self.damaged(place));
        };
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
        if index + 1 >= self.len() && self.refreshed.elapsed() > REFRESH {
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
            index += (self.session.segment(place).samples - place.sample) as usize;
        }
    }

    /// The time of a sample, milliseconds since the epoch, without reading the sample.
    pub fn time_ms(&self, index: usize) -> Option<i64> {
        let place = self.session.place(index)?;
        let segment = self.session.segment(place);
        match place.sample {
            0 => Some(segment.first_ms),
            n if n + 1 == segment.samples => Some(segment.last_ms),
            n => self.segment_times(place).get(n as usize).copied(),
        }
    }

    /// The last sample at or before a time; the first when all are later.
    pub fn index_at(&self, time_ms: i64) -> usize {
        self.last_at(time_ms, 0..self.len()).unwrap_or(0)
    }

    /// The last sample within `ms` milliseconds after another, or, if negative, before it. Where
    /// the clock was set back in between, it is the last sample on the near side.
    pub fn index_beside(&self, index: usize, ms: i64) -> usize {
        let stretch = self.stretch(index);
        let to_ms = self.time_ms(index).unwrap_or(0).saturating_add(ms);
        let latest = stretch
            .end
            .checked_sub(1)
            .and_then(|last| self.time_ms(last));
        if latest.is_some_and(|latest| latest < to_ms) {
            return stretch.end.min(self.len().saturating_sub(1));
        }
        let begin = stretch.start;
        self.last_at(to_ms, stretch)
            .unwrap_or_else(|| begin.saturating_sub(1))
    }

    /// The last sample at or before a time whose segment begins within these samples.
    fn last_at(&self, time_ms: i64, within: Range<usize>) -> Option<usize> {
        let fits = |(_, s, first): &(Place, &Segment, usize)| {
            within.contains(first) && s.first_ms <= time_ms
        };
        // A clock that was set back leaves later segments with earlier times: the one that comes
        // closest.
        let found = self
            .session
            .segments()
            .filter(fits)
            .max_by_key(|(_, s, _)| s.last_ms.min(time_ms));
        let (place, _, first) = found?;
        let times = self.segment_times(place);
        Some(first + times.iter().rposition(|t| *t <= time_ms).unwrap_or(0))
    }

    /// The samples around one between which the clock was not set back.
    fn stretch(&self, index: usize) -> Range<usize> {
        let (mut begin, mut last_ms) = (0, i64::MIN);
        for (_, segment, first) in self.session.segments() {
            if segment.first_ms < last_ms {
                if first > index {
                    return begin..first;
                }
                begin = first;
            }
            last_ms = segment.last_ms;
        }
        begin..self.len()
    }

    /// The first sample at or after a time, whose interval the time is in; the last when all are
    /// earlier.
    pub fn index_from(&self, time_ms: i64) -> usize {
        let at = self.index_at(time_ms);
        let before = self.time_ms(at).is_some_and(|ms| ms < time_ms);
        if before {
            (at + 1).min(self.len().saturating_sub(1))
        } else {
            at
        }
    }

    /// The sample from which all of the time before a sample is read, for a moment of this length.
    /// It may be an earlier one, so that a clock that was set forward shortens nothing.
    pub fn index_before(&self, index: usize, length: Duration) -> usize {
        let length_ms = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
        let seconds = usize::try_from(length.as_secs()).unwrap_or(usize::MAX);
        let by_time = self
            .time_ms(index)
            .map_or(0, |ms| self.index_at(ms.saturating_sub(length_ms)));
        by_time
            .min(index.saturating_sub(seconds))
            .max(index.saturating_sub(MAX_BEFORE))
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
        let segments = &self.session.parts[part].1.segments;
        let Some(before) = segment.checked_sub(1) else {
            return segments[0].run || !self.continues(part);
        };
        let missing = segments[before]
            .number
            .saturating_add(segments[before].samples)
            != segments[segment].number;
        segments[segment].run || missing || self.broken.contains(&(part, before))
    }

    /// Whether a part continues the previous one without a gap.
    fn continues(&self, part: usize) -> bool {
        let last = part
            .checked_sub(1)
            .and_then(|before| self.session.parts[before].1.segments.last());
        let first = self.session.parts[part].1.segments.first();
        last.zip(first).is_some_and(|(last, first)| {
            (0..GAP_MS).contains(&first.first_ms.saturating_sub(last.last_ms))
        })
    }

    /// Times of the samples of a segment, as far as they can be read.
    fn segment_times(&self, place: Place) -> Vec<i64> {
        let reader = &self.session.parts[place.part].1;
        let Segment {
            offset: mut at,
            samples,
            ..
        } = self.session.segment(place);
        let mut times = Vec::new();
        let mut bytes = [0; Stamp::LONGEST];
        while times.len() < samples as usize && at < reader.end {
            let n = bytes.len().min((reader.end - at) as usize);
            let read = reader
                .file
                .read_exact_at(&mut bytes[..n], at)
                .ok()
                .and_then(|()| {
                    let head = FrameHead::parse(&bytes[..n])?;
                    Some((head, Stamp::split(head.kind, &bytes[HEAD..n])))
                });
            let Some((head, stamp)) = read else { break };
            times.extend(stamp.map(|(stamp, _)| stamp.time_ms));
            at += (HEAD + head.length) as u64;
        }
        times
    }

    /// Opens the segment of a sample, unless it is open already.
    fn enter(&mut self, place: Place) -> Result<()> {
        let near = |at: Place| {
            (at.part, at.segment) == (place.part, place.segment) && at.sample <= place.sample
        };
        if self.open.as_ref().is_some_and(|open| near(open.next)) {
            return Ok(());
        }
        let (at, reader) = (self.session.segment(place).offset, SegmentReader::new()?);
        self.open = Some(Open {
            next: Place { sample: 0, ..place },
            at,
            time_ms: None,
            reader,
        });
        Ok(())
    }

    /// Decompresses the next sample of the open segment. Returns where it is.
    fn advance(&mut self) -> Result<Place> {
        let Some(open) = &mut self.open else {
            return Err(anyhow!("no segment is open"));
        };
        let place = open.next;
        let part = &self.session.parts[place.part].1;
        let kind = if place.sample == 0 {
            FrameKind::First
        } else {
            FrameKind::Next
        };
        let number = self
            .session
            .segment(place)
            .number
            .saturating_add(place.sample);
        let read = read_frame(&part.file, part.end, open.at)
            .ok()
            .filter(|frame| frame.0 == kind)
            .and_then(|(_, payload)| {
                let (stamp, packed) =
                    Stamp::split(kind, &payload).filter(|(stamp, _)| stamp.number == number)?;
                open.reader.advance(packed).ok()?;
                open.at += (HEAD + payload.len()) as u64;
                (open.time_ms, open.next.sample) = (Some(stamp.time_ms), place.sample + 1);
                Some(place)
            });
        read.ok_or_else(|| self.damaged(place))
    }

    /// Notes that a segment cannot be read from this sample on.
    fn damaged(&mut self, place: Place) -> anyhow::Error {
        let open = self.open.take();
        let Some((path, part)) = self.session.parts.get_mut(place.part) else {
            return anyhow!("no such part");
        };
        let segment = part.segments[place.segment];
        let at = open.as_ref().map_or(segment.offset, |open| open.at);
        if !self.broken.contains(&(place.part, place.segment)) {
            self.broken.push((place.part, place.segment));
            let before_ms = part.segments.get(place.segment + 1).map(|s| s.first_ms);
            let after_ms = open.and_then(|open| open.time_ms);
            part.holes.push(Hole {
                at,
                samples: segment.samples - place.sample,
                after_ms,
                before_ms,
            });
        }
        anyhow!("{} is damaged at byte {at}", path.display())
    }
}
