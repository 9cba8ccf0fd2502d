//! Reading samples in any order, at the cost of decompressing at most a segment.

use super::part::Hole;
use super::scan::read_frame;
use super::session::{Place, Session};
use crate::format::{FrameHead, FrameKind, HEAD, Segment, SegmentReader, Stamp};
use anyhow::{Result, anyhow};
use sample::Sample;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

/// Samples kept.
const SAMPLES_KEPT: usize = 4;
/// Parts with a longer time between them are separated by a gap, milliseconds.
const GAP_MS: i64 = 120_000;

/// Reads the samples of a recording.
pub struct Cursor {
    session: Session,
    /// The segment that was read last, and where in it.
    open: Option<Open>,
    recent: Vec<(usize, Arc<Sample>)>,
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
    pub fn cursor(self) -> Cursor {
        Cursor { session: self, open: None, recent: Vec::new(), broken: Vec::new() }
    }
}

impl Cursor {
    /// Another cursor over the same files.
    ///
    /// # Errors
    /// When the process may open no more files.
    pub fn again(&self) -> Result<Self> {
        Ok(self.session.again()?.cursor())
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
    /// If the number is too large, or the file is damaged there; [`Cursor::readable_from`] continues after the damage.
    pub fn at(&mut self, index: usize) -> Result<Arc<Sample>> {
        if let Some((_, s)) = self.recent.iter().find(|(i, _)| *i == index) {
            return Ok(s.clone());
        }
        let place = self
            .session
            .place(index)
            .ok_or_else(|| anyhow!("the recording has {} samples, there is no number {index}", self.len()))?;
        self.enter(place)?;
        loop {
            let read = self.advance()?;
            // The previous sample usually comes first, and is usually wanted next.
            if read.sample + 1 < place.sample {
                continue;
            }
            let first = index - (place.sample - read.sample) as usize;
            let sample = match self.open.as_ref().map(|open| open.reader.sample()) {
                Some(Ok(sample)) => Arc::new(sample),
                _ => return Err(self.damaged(read)),
            };
            self.recent.retain(|(i, _)| *i != first);
            if self.recent.len() >= SAMPLES_KEPT {
                self.recent.remove(0);
            }
            self.recent.push((first, sample.clone()));
            if read == place {
                return Ok(sample);
            }
        }
    }

    /// The sample of this number, or the first later one that is not damaged, with its number.
    pub fn readable_from(&mut self, mut index: usize) -> Option<(usize, Arc<Sample>)> {
        loop {
            let place = self.session.place(index)?;
            if let Ok(sample) = self.at(index) {
                return Some((index, sample));
            }
            let segment = self.session.parts[place.part].1.segments[place.segment];
            index += (segment.samples - place.sample) as usize;
        }
    }

    /// The stretches of samples without a gap: runs of the recorder, cut where damage lies between two segments.
    pub fn runs(&self) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (_, segment, first) in self.session.segments() {
            let end = first + segment.samples as usize;
            match runs.last_mut().filter(|_| !self.begins_run(first)) {
                Some(run) => run.end = end,
                None => runs.push(first..end),
            }
        }
        runs
    }

    /// The time of a sample, milliseconds since the epoch, without reading the sample.
    pub fn time_ms(&self, index: usize) -> Option<i64> {
        let place = self.session.place(index)?;
        let segment = self.session.parts[place.part].1.segments[place.segment];
        if place.sample == 0 {
            return Some(segment.first_ms);
        }
        if place.sample + 1 == segment.samples {
            return Some(segment.last_ms);
        }
        self.segment_times(place.part, place.segment).get(place.sample as usize).copied()
    }

    /// The last sample at or before a time; the first when all are later.
    pub fn index_at(&self, time_ms: i64) -> usize {
        self.last_at(time_ms, 0..self.len()).unwrap_or(0)
    }

    /// The last sample within `ms` milliseconds after another, or, if negative, before it. Where the clock was set back
    /// in between, it is the last sample on the near side.
    pub fn index_beside(&self, index: usize, ms: i64) -> usize {
        let stretch = self.stretch(index);
        let to_ms = self.time_ms(index).unwrap_or(0).saturating_add(ms);
        let latest = stretch.end.checked_sub(1).and_then(|last| self.time_ms(last));
        if latest.is_some_and(|latest| latest < to_ms) {
            return stretch.end.min(self.len().saturating_sub(1));
        }
        let begin = stretch.start;
        self.last_at(to_ms, stretch).unwrap_or_else(|| begin.saturating_sub(1))
    }

    /// The last sample at or before a time whose segment begins within these samples.
    fn last_at(&self, time_ms: i64, within: Range<usize>) -> Option<usize> {
        let fits = |(_, s, first): &(Place, &Segment, usize)| within.contains(first) && s.first_ms <= time_ms;
        // A clock that was set back leaves later segments with earlier times: the one that comes closest.
        let found = self.session.segments().filter(fits).max_by_key(|(_, s, _)| s.last_ms.min(time_ms));
        let (Place { part, segment, .. }, _, first) = found?;
        let times = self.segment_times(part, segment);
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

    /// The first sample at or after a time, whose interval the time is in; the last when all are earlier.
    pub fn index_from(&self, time_ms: i64) -> usize {
        let at = self.index_at(time_ms);
        let before = self.time_ms(at).is_some_and(|ms| ms < time_ms);
        if before { (at + 1).min(self.len().saturating_sub(1)) } else { at }
    }

    /// The sample from which all of the time before a sample is read, for a moment of this length. It may be an
    /// earlier one, so that a clock that was set forward shortens nothing.
    pub fn index_before(&self, index: usize, length: Duration) -> usize {
        let length_ms = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
        let seconds = usize::try_from(length.as_secs()).unwrap_or(usize::MAX);
        let by_time = self.time_ms(index).map_or(0, |ms| self.index_at(ms.saturating_sub(length_ms)));
        by_time.min(index.saturating_sub(seconds)).max(index.saturating_sub(MAX_BEFORE))
    }

    /// Whether a sample is the first after a gap: of a run of the recorder, of a part, or after damage.
    pub fn begins_run(&self, index: usize) -> bool {
        let Some(Place { part, segment, sample: 0 }) = self.session.place(index) else { return false };
        let segments = &self.session.parts[part].1.segments;
        let Some(before) = segment.checked_sub(1) else {
            return segments[0].run || !self.continues(part);
        };
        let missing = segments[before].number.saturating_add(segments[before].samples) != segments[segment].number;
        segments[segment].run || missing || self.broken.contains(&(part, before))
    }

    /// Whether a part continues the previous one without a gap.
    fn continues(&self, part: usize) -> bool {
        let last = part.checked_sub(1).and_then(|before| self.session.parts[before].1.segments.last());
        let first = self.session.parts[part].1.segments.first();
        last.zip(first).is_some_and(|(last, first)| (0..GAP_MS).contains(&first.first_ms.saturating_sub(last.last_ms)))
    }

    /// Times of the samples of a segment, as far as they can be read.
    fn segment_times(&self, part: usize, segment: usize) -> Vec<i64> {
        let reader = &self.session.parts[part].1;
        let Segment { offset: mut at, samples, .. } = reader.segments[segment];
        let mut times = Vec::new();
        let mut bytes = [0; Stamp::LONGEST];
        while times.len() < samples as usize && at < reader.end {
            let n = bytes.len().min((reader.end - at) as usize);
            let read = reader.file.read_exact_at(&mut bytes[..n], at).ok().and_then(|()| {
                let head = FrameHead::parse(&bytes[..n])?;
                Some((head, Stamp::split(head.kind, &bytes[HEAD..n])))
            });
            let Some((head, stamp)) = read else { break };
            times.extend(stamp.map(|(stamp, _)| stamp.time_ms));
            at += (HEAD + head.length) as u64;
        }
        times
    }

    /// Looks for samples that were added since. Returns whether there are any.
    pub fn refresh(&mut self) -> bool {
        self.session.refresh()
    }

    /// Opens the segment of a sample, unless it is open already.
    fn enter(&mut self, place: Place) -> Result<()> {
        let near = |at: Place| (at.part, at.segment) == (place.part, place.segment) && at.sample <= place.sample;
        if self.open.as_ref().is_some_and(|open| near(open.next)) {
            return Ok(());
        }
        let at = self.session.parts[place.part].1.segments[place.segment].offset;
        let reader = SegmentReader::new(self.open.take().map(|open| open.reader))?;
        self.open = Some(Open { next: Place { sample: 0, ..place }, at, time_ms: None, reader });
        Ok(())
    }

    /// Decompresses the next sample of the open segment. Returns where it is.
    fn advance(&mut self) -> Result<Place> {
        let Some(open) = &mut self.open else { return Err(anyhow!("no segment is open")) };
        let place = open.next;
        let part = &self.session.parts[place.part].1;
        let kind = if place.sample == 0 { FrameKind::First } else { FrameKind::Next };
        let number = part.segments[place.segment].number.saturating_add(place.sample);
        let frame = read_frame(&part.file, part.end, open.at).ok().filter(|f| f.0 == kind);
        let read = frame.as_ref().and_then(|(kind, payload)| {
            let (stamp, packed) = Stamp::split(*kind, payload).filter(|(stamp, _)| stamp.number == number)?;
            open.reader.advance(packed).ok()?;
            Some((stamp.time_ms, payload.len()))
        });
        let Some((time_ms, length)) = read else { return Err(self.damaged(place)) };
        open.at += (HEAD + length) as u64;
        open.time_ms = Some(time_ms);
        open.next.sample += 1;
        Ok(place)
    }

    /// Notes that a segment cannot be read from this sample on.
    fn damaged(&mut self, place: Place) -> anyhow::Error {
        let open = self.open.take();
        let Some((path, part)) = self.session.parts.get_mut(place.part) else { return anyhow!("no such part") };
        let segment = part.segments[place.segment];
        let at = open.as_ref().map_or(segment.offset, |open| open.at);
        if !self.broken.contains(&(place.part, place.segment)) {
            self.broken.push((place.part, place.segment));
            let before_ms = part.segments.get(place.segment + 1).map(|s| s.first_ms);
            let after_ms = open.and_then(|open| open.time_ms);
            part.holes.push(Hole { at, samples: segment.samples - place.sample, after_ms, before_ms });
        }
        anyhow!("{} is damaged at byte {at}", path.display())
    }
}
