//! One file of a recording, for reading: where its segments are, and what of it is damaged.

use super::scan::{End, Frame, MAX_TRIES, find_marked, read_frame};
use crate::format::{
    self, FrameKind, HEAD, Header, INDEX_MARK, PROLOGUE, SEGMENT_MARK, Segment, Stamp,
};
use anyhow::{Context, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Recordings up to this size are checked from the first byte to the last when they are opened.
/// Longer ones are opened by their index, and what is damaged of them is found when it is read.
pub const CHECKED_WHOLE: u64 = 16 << 20;
/// How far from the end of a file that was not closed an index is looked for.
const SEARCHED: u64 = 128 << 20;

/// A damaged stretch of a file, after which reading continues at the next segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// Where the damaged bytes begin.
    pub at: u64,
    /// Samples lost with them.
    pub samples: u32,
    /// Time of the last sample before them, milliseconds since the epoch.
    pub after_ms: Option<i64>,
    /// Time of the first sample after them.
    pub before_ms: Option<i64>,
}

/// What is known of a file.
#[derive(Debug, Clone)]
pub struct PartReader {
    /// The file.
    pub file: Arc<File>,
    /// Its length when it was last looked at.
    pub length: u64,
    /// Where its whole frames end.
    pub end: u64,
    /// Its segments in order.
    pub segments: Vec<Segment>,
    /// What all parts of the recording have in common, by the first run's header.
    pub recording: Option<String>,
    /// Where the last index frame is; 0 for none.
    pub last_index: u64,
    /// Where it is damaged in the middle.
    pub holes: Vec<Hole>,
    /// Why it is read no further than `end`.
    pub stop: End,
}

impl PartReader {
    /// Opens a file and finds its samples. `checked` is how many bytes may be checked from the
    /// first to the last; a longer file is opened by its index.
    pub fn open(file: impl Into<Arc<File>>, checked: u64) -> Result<Self> {
        let file = file.into();
        let length = file.metadata().context("its size is unknown")?.len();
        let mut first = [0; PROLOGUE];
        let n = first.len().min(length as usize);
        file.read_exact_at(&mut first[..n], 0)
            .context("cannot read it")?;
        format::check_prologue(&first[..n])?;
        let mut part = Self {
            recording: recording_of(&file),
            file,
            length,
            end: PROLOGUE as u64,
            segments: Vec::new(),
            last_index: 0,
            holes: Vec::new(),
            stop: End::Whole,
        };
        if length > checked
            && let Some((segments, last, end)) = part.indexed()
        {
            (part.segments, part.last_index, part.end) = (segments, last, end);
        }
        part.refresh();
        Ok(part)
    }

    /// The number of samples that can be read.
    pub fn samples(&self) -> usize {
        self.segments.iter().map(|s| s.samples as usize).sum()
    }

    /// Number that the next sample in the file has.
    pub fn next_number(&self) -> u32 {
        self.segments
            .last()
            .map_or(0, |s| s.number.saturating_add(s.samples))
    }

    /// Looks for frames after the last known one. Returns whether there are any.
    pub fn refresh(&mut self) -> bool {
        self.length = self.file.metadata().map_or(self.length, |m| m.len());
        let (before, mut at) = (self.end, self.end);
        let (mut damaged, mut tries) = (None, MAX_TRIES);
        self.stop = loop {
            let end = match read_frame(&self.file, self.length, at) {
                Ok(frame) if self.take(at, &frame, &mut damaged) => {
                    at += (HEAD + frame.1.len()) as u64;
                    self.end = at;
                    continue;
                }
                Ok(_) => End::Damaged,
                Err(End::Whole) => break End::Whole,
                Err(end) => end,
            };
            let next = find_marked(
                &self.file,
                at + 1..self.length,
                SEGMENT_MARK,
                false,
                &mut tries,
            );
            let Some((next, _)) = next else { break end };
            damaged.get_or_insert(self.end);
            at = next;
        };
        self.end > before
    }

    /// Notes a frame; false if it cannot follow the previous ones. `damaged` is where damage before
    /// it begins.
    fn take(&mut self, at: u64, (kind, payload): &Frame, damaged: &mut Option<u64>) -> bool {
        match kind {
            FrameKind::Header => true,
            FrameKind::First => {
                let Some((stamp, _)) = Stamp::split(*kind, payload) else {
                    return false;
                };
                let Some(samples) = stamp.number.checked_sub(self.next_number()) else {
                    return false;
                };
                if let Some(at) = damaged.take() {
                    let after_ms = self.segments.last().map(|s| s.last_ms);
                    self.holes.push(Hole {
                        at,
                        samples,
                        after_ms,
                        before_ms: Some(stamp.time_ms),
                    });
                } else if samples > 0 {
                    return false;
                }
                self.segments.push(Segment::beginning(at, stamp));
                true
            }
            FrameKind::Next => {
                let next = self.next_number();
                let Some((stamp, _)) = Stamp::split(*kind, payload) else {
                    return false;
                };
                let Some(segment) = self.segments.last_mut().filter(|_| stamp.number == next)
                else {
                    return false;
                };
                segment.samples += 1;
                segment.last_ms = stamp.time_ms;
                true
            }
            FrameKind::Index => {
                self.last_index = at;
                Segment::unpack(payload).is_some()
            }
        }
    }

    /// The segments by the index frames, the place of the last one and where it ends; `None` where
    /// they do not fit together.
    fn indexed(&self) -> Option<(Vec<Segment>, u64, u64)> {
        let near_end = self.length.saturating_sub(SEARCHED).max(PROLOGUE as u64)..self.length;
        let (last, mut payload) = find_marked(
            &self.file,
            near_end,
            INDEX_MARK,
            true,
            &mut MAX_TRIES.clone(),
        )?;
        let end = last + (HEAD + payload.len()) as u64;
        let (mut at, mut segments) = (last, Vec::<Segment>::new());
        loop {
            let (before, segment) = Segment::unpack(&payload)?;
            let fits = segments.last().is_none_or(|later| {
                segment.number.checked_add(segment.samples) == Some(later.number)
                    && segment.offset < later.offset
            });
            if !fits || segment.offset >= at || segment.samples == 0 || before >= at {
                return None;
            }
            segments.push(segment);
            at = before;
            if at == 0 {
                break;
            }
            payload = read_frame(&self.file, self.length, at)
                .ok()
                .filter(|f| f.0 == FrameKind::Index)?
                .1;
        }
        segments.reverse();
        (segments.first()?.number == 0).then_some((segments, last, end))
    }
}

/// What all parts of a recording have in common; `None` for another kind of file.
pub fn recording_of(file: &File) -> Option<String> {
    let length = file.metadata().ok()?.len();
    let (kind, payload) = read_frame(file, length, PROLOGUE as u64).ok()?;
    Header::unpack(&payload)
        .filter(|_| kind == FrameKind::Header)
        .map(|header| header.recording)
}
