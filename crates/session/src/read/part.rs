//! One file of a recording, for reading: where its segments are, and what of it is damaged.

use super::scan::{End, Frame, MAX_TRIES, find_segment, read_frame};
use crate::format::{self, FrameKind, Header, PROLOGUE_BYTES, Stamp};
use anyhow::{Context, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A damaged stretch of a file, after which reading continues at the next segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// Where the damaged bytes begin.
    pub at: u64,
    /// Samples lost with them.
    pub samples: u32,
}

/// A stretch of samples that can be read without the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Byte of the file at which its first frame begins.
    pub offset: u64,
    /// Samples before it in the file, damaged ones included.
    pub number: u32,
    /// Samples before it in the file that can be read.
    pub first: usize,
    /// Whether a run of the recorder begins with it: nothing was counted since the previous sample.
    pub run: bool,
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
    /// The time of each sample that can be read, milliseconds since the epoch.
    pub times: Vec<i64>,
    /// What all parts of the recording have in common, by the first run's header.
    pub recording: Option<String>,
    /// Where it is damaged in the middle.
    pub holes: Vec<Hole>,
    /// Why it is read no further than `end`.
    pub stop: End,
}

impl PartReader {
    /// Opens a file, checks each of its frames, and finds its samples.
    pub fn open(file: impl Into<Arc<File>>) -> Result<Self> {
        let file = file.into();
        let length = file.metadata().context("its size is unknown")?.len();
        let mut first = [0; PROLOGUE_BYTES];
        let n = first.len().min(length as usize);
        file.read_exact_at(&mut first[..n], 0)
            .context("cannot read it")?;
        format::check_prologue(&first[..n])?;
        let mut part = Self {
            recording: recording_of(&file),
            file,
            length,
            end: PROLOGUE_BYTES as u64,
            segments: Vec::new(),
            times: Vec::new(),
            holes: Vec::new(),
            stop: End::Whole,
        };
        part.refresh();
        Ok(part)
    }

    /// Number that the next sample in the file has.
    pub fn next_number(&self) -> u32 {
        match self.segments.last() {
            Some(last) => last
                .number
                .saturating_add((self.times.len() - last.first) as u32),
            None => 0,
        }
    }

    /// The number of samples of a segment.
    pub fn samples_of(&self, segment: usize) -> usize {
        let next = self.segments.get(segment + 1);
        next.map_or(self.times.len(), |next| next.first) - self.segments[segment].first
    }

    /// Looks for frames after the last known one. Returns whether there are any.
    pub fn refresh(&mut self) -> bool {
        self.length = self.file.metadata().map_or(self.length, |m| m.len());
        let before = self.end;
        let mut at = self.end;
        let mut damaged = None;
        let mut tries = MAX_TRIES;
        self.stop = loop {
            let end = match read_frame(&self.file, self.length, at) {
                Ok(frame) if self.take(at, &frame, &mut damaged) => {
                    at += frame.length();
                    self.end = at;
                    continue;
                }
                Ok(_) => End::Damaged,
                Err(End::Whole) => break End::Whole,
                Err(end) => end,
            };
            let Some(next) = find_segment(&self.file, at + 1..self.length, &mut tries) else {
                break end;
            };
            damaged.get_or_insert(self.end);
            at = next;
        };
        self.end > before
    }

    /// Notes a frame; false if it cannot follow the previous ones. `damaged` is where damage before
    /// it begins.
    fn take(&mut self, at: u64, frame: &Frame, damaged: &mut Option<u64>) -> bool {
        if matches!(frame.kind, FrameKind::Header | FrameKind::Index) {
            return true;
        }
        let Some((stamp, _)) = Stamp::split(frame.kind, &frame.payload) else {
            return false;
        };
        let Some(samples) = stamp.number.checked_sub(self.next_number()) else {
            return false;
        };
        if frame.kind == FrameKind::First {
            if let Some(at) = damaged.take() {
                self.holes.push(Hole { at, samples });
            } else if samples > 0 {
                return false;
            }
            self.segments.push(Segment {
                offset: at,
                number: stamp.number,
                first: self.times.len(),
                run: stamp.run,
            });
        } else if samples > 0 || self.segments.is_empty() {
            return false;
        }
        self.times.push(stamp.time_ms);
        true
    }
}

/// What all parts of a recording have in common; `None` for another kind of file.
pub fn recording_of(file: &File) -> Option<String> {
    let length = file.metadata().ok()?.len();
    let frame = read_frame(file, length, PROLOGUE_BYTES as u64).ok()?;
    if frame.kind != FrameKind::Header {
        return None;
    }
    Header::unpack(&frame.payload).map(|header| header.recording)
}
