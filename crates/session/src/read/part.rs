//! One file of a recording, for reading: where its segments are, and what of it is damaged.

use super::scan::{End, Frame, MAX_TRIES, find_segment, read_frame};
use crate::format::{self, FrameKind, Header, PROLOGUE_BYTES, Stamp};
use anyhow::{Context, Result};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A damaged stretch of a file, after which reading continues at the next segment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hole {
    /// Where the damaged bytes begin.
    pub offset: u64,
    /// Samples lost with them.
    pub samples: u32,
}

/// A stretch of samples that can be read without the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segment {
    /// Byte of the file at which its first frame begins.
    pub offset: u64,
    /// Number of its first sample: the samples before it in the file, damaged ones included.
    pub number: u32,
    /// Index of its first sample in [`PartReader::times`].
    pub first_index: usize,
    /// Whether a run of the recorder begins with it: nothing was counted since the previous sample.
    pub begins_run: bool,
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
    /// The id that all parts of the recording share, by the first run's header.
    pub recording_id: Option<String>,
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
        format::check_prologue(&first_bytes(&file, length).context("cannot read it")?)?;
        let mut part = Self {
            recording_id: recording_id_of(&file),
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
                .saturating_add((self.times.len() - last.first_index) as u32),
            None => 0,
        }
    }

    /// The number of samples of a segment.
    pub fn samples_of(&self, segment: usize) -> usize {
        let next = self.segments.get(segment + 1);
        let end = next.map_or(self.times.len(), |next| next.first_index);
        end - self.segments[segment].first_index
    }

    /// Looks for frames after the last known one. Returns whether there are any.
    pub fn refresh(&mut self) -> bool {
        self.length = self.file.metadata().map_or(self.length, |m| m.len());
        let before = self.end;
        let mut offset = self.end;
        let mut damage_begin = None;
        let mut tries = MAX_TRIES;
        self.stop = loop {
            let stop = match read_frame(&self.file, self.length, offset) {
                Ok(frame) if self.note_frame(offset, &frame, &mut damage_begin) => {
                    offset += frame.length();
                    self.end = offset;
                    continue;
                }
                Ok(_) => End::Damaged,
                Err(End::Whole) => break End::Whole,
                Err(stop) => stop,
            };
            let Some(next) = find_segment(&self.file, offset + 1..self.length, &mut tries) else {
                break stop;
            };
            damage_begin.get_or_insert(self.end);
            offset = next;
        };
        self.end > before
    }

    /// Notes the frame at `offset`; false if it cannot follow the previous ones. `damage_begin` is
    /// where damage before it begins; the first frame of a segment ends the damage.
    fn note_frame(&mut self, offset: u64, frame: &Frame, damage_begin: &mut Option<u64>) -> bool {
        if matches!(frame.kind, FrameKind::Header | FrameKind::Index) {
            return true;
        }
        let Some((stamp, _)) = Stamp::split(frame.kind, &frame.payload) else {
            return false;
        };
        let Some(missing) = stamp.number.checked_sub(self.next_number()) else {
            return false;
        };
        if frame.kind == FrameKind::First {
            if let Some(begin) = damage_begin.take() {
                self.holes.push(Hole {
                    offset: begin,
                    samples: missing,
                });
            } else if missing > 0 {
                return false;
            }
            self.segments.push(Segment {
                offset,
                number: stamp.number,
                first_index: self.times.len(),
                begins_run: stamp.begins_run,
            });
        } else if missing > 0 || self.segments.is_empty() {
            return false;
        }
        self.times.push(stamp.time_ms);
        true
    }
}

/// The beginning of a file of this length, up to the first frame.
pub fn first_bytes(file: &File, length: u64) -> io::Result<Vec<u8>> {
    let mut first = vec![0; PROLOGUE_BYTES.min(length as usize)];
    file.read_exact_at(&mut first, 0)?;
    Ok(first)
}

/// The id that all parts of a recording share; `None` for another kind of file.
pub fn recording_id_of(file: &File) -> Option<String> {
    let length = file.metadata().ok()?.len();
    let frame = read_frame(file, length, PROLOGUE_BYTES as u64).ok()?;
    if frame.kind != FrameKind::Header {
        return None;
    }
    Header::unpack(&frame.payload).map(|header| header.recording)
}
