//! Writes frames into one file. Knows nothing of paths and locks.

use crate::format::{self, FrameKind, Header, MAX_FACTS, SegmentWriter, Stamp};
use crate::read::PartReader;
use crate::{MAX_SEGMENT_BYTES, MAX_SEGMENT_SAMPLES};
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
    /// The open segment's stream.
    open: Option<SegmentWriter>,
    /// Whether the next sample is the first of a run.
    pub begins_run: bool,
}

impl PartWriter {
    /// Begins an empty file.
    pub fn new(file: Arc<File>) -> Self {
        Self {
            file,
            end: 0,
            samples: 0,
            first_ms: None,
            open: None,
            begins_run: true,
        }
    }

    /// Continues after the whole frames of a file.
    pub fn after(part: PartReader) -> Self {
        Self {
            end: part.end,
            samples: part.next_number(),
            first_ms: part.times.first().copied(),
            ..Self::new(part.file)
        }
    }

    /// Begins a run.
    pub fn begin(&mut self, header: &Header) -> Result<()> {
        if self.end == 0 {
            self.put(&format::prologue())?;
        }
        self.put(&header.pack()?)
    }

    /// Adds a sample. After an error the file ends where it ended before, and the next sample
    /// begins a segment.
    pub fn append(&mut self, sample: &Sample) -> Result<()> {
        let open = self.open.take().filter(|open| {
            open.samples < MAX_SEGMENT_SAMPLES
                && open.raw < MAX_SEGMENT_BYTES
                && open.facts < MAX_FACTS
        });
        let (kind, mut writer) = match open {
            Some(writer) => (FrameKind::Next, writer),
            None => (FrameKind::First, SegmentWriter::new()?),
        };
        let stamp = Stamp {
            number: self.samples,
            time_ms: sample.time_ms,
            begins_run: self.begins_run,
        };
        let bytes = writer.pack(kind, stamp, sample)?;
        self.put(&bytes)?;
        self.open = Some(writer);
        self.first_ms.get_or_insert(sample.time_ms);
        self.begins_run = false;
        self.samples += 1;
        Ok(())
    }

    /// Brings the file to disk.
    pub fn close(&mut self) -> Result<()> {
        self.open = None;
        self.file
            .sync_data()
            .context("cannot bring the recording to disk")
    }

    /// Appends bytes, or nothing if that fails.
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if let Err(e) = (&*self.file).write_all(bytes) {
            // This only keeps the file tidy: readers skip a torn frame anyway.
            let _ = self.file.set_len(self.end);
            return Err(e.into());
        }
        self.end += bytes.len() as u64;
        Ok(())
    }
}
