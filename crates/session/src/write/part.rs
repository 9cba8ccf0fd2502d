//! Writes frames into one file. Knows nothing of paths and locks.

use crate::format::{self, FrameKind, Header, MAX_FACTS, Segment, SegmentWriter, Stamp};
use crate::read::PartReader;
use crate::{SEGMENT, SEGMENT_BYTES};
use anyhow::{Context, Result};
use sample::Sample;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

/// A file being written.
pub struct PartWriter {
    /// The file.
    pub file: Arc<File>,
    /// Length of the file: whole frames only.
    pub end: u64,
    /// Samples in the file.
    pub samples: u32,
    /// The first sample's time.
    pub first_ms: Option<i64>,
    /// Segments without an index frame; the last one may be open.
    unindexed: Vec<Segment>,
    /// Where the last index frame is; 0 for none.
    last_index: u64,
    /// The open segment's stream.
    open: Option<SegmentWriter>,
    /// Whether the next sample is the first of a run.
    pub run: bool,
}

impl PartWriter {
    /// Begins an empty file.
    pub fn new(file: Arc<File>) -> Self {
        Self {
            file,
            end: 0,
            samples: 0,
            first_ms: None,
            unindexed: Vec::new(),
            last_index: 0,
            open: None,
            run: true,
        }
    }

    /// Continues after the whole frames of a file.
    pub fn after(part: PartReader) -> Self {
        Self {
            end: part.end,
            samples: part.next_number(),
            first_ms: part.segments.first().map(|s| s.first_ms),
            unindexed: part
                .segments
                .iter()
                .filter(|s| s.offset > part.last_index)
                .copied()
                .collect(),
            last_index: part.last_index,
            ..Self::new(part.file)
        }
    }

    /// Begins a run.
    pub fn begin(&mut self, header: &Header) -> Result<()> {
        if self.end == 0 {
            self.put(&format::prologue())?;
        }
        self.put(&header.pack()?).map(drop)
    }

    /// One sample. After an error the file ends where it ended before, and the next sample begins a
    /// segment. So does one whose clock was set back: within a segment times never fall.
    pub fn append(&mut self, sample: &Sample) -> Result<()> {
        let open = self.open.take();
        let full = |open: &SegmentWriter, segment: &Segment| {
            let is_long =
                segment.samples >= SEGMENT || open.raw >= SEGMENT_BYTES || open.facts >= MAX_FACTS;
            is_long || sample.time_ms < segment.last_ms
        };
        let open = open.filter(|open| {
            self.unindexed
                .last()
                .is_some_and(|segment| !full(open, segment))
        });
        let (kind, mut writer) = match open {
            Some(writer) => (FrameKind::Next, writer),
            None => {
                self.write_index()?;
                (FrameKind::First, SegmentWriter::new()?)
            }
        };
        let stamp = Stamp {
            number: self.samples,
            time_ms: sample.time_ms,
            run: self.run,
        };
        let bytes = writer.pack(kind, stamp, sample)?;
        let offset = self.put(&bytes)?;
        self.open = Some(writer);
        match self
            .unindexed
            .last_mut()
            .filter(|_| kind == FrameKind::Next)
        {
            Some(segment) => {
                (segment.samples, segment.last_ms) = (segment.samples + 1, stamp.time_ms);
            }
            None => self.unindexed.push(Segment::beginning(offset, stamp)),
        }
        self.first_ms.get_or_insert(sample.time_ms);
        self.run = false;
        self.samples += 1;
        Ok(())
    }

    fn write_index(&mut self) -> Result<()> {
        while let Some(segment) = self.unindexed.first() {
            let frame = segment.pack(self.last_index)?;
            self.last_index = self.put(&frame)?;
            self.unindexed.remove(0);
        }
        Ok(())
    }

    /// Ends the file so that it opens at once.
    pub fn close(&mut self) -> Result<()> {
        self.open = None;
        self.write_index()?;
        self.file
            .sync_data()
            .context("cannot bring the recording to disk")
    }

    /// Appends bytes, or nothing if that fails. Returns where they begin.
    fn put(&mut self, bytes: &[u8]) -> Result<u64> {
        let at = self.end;
        if let Err(e) = (&*self.file).write_all(bytes) {
            // Readers skip a torn frame anyway: it only keeps the file whole.
            let _ = self.file.set_len(at);
            return Err(e.into());
        }
        self.end += bytes.len() as u64;
        Ok(at)
    }
}
