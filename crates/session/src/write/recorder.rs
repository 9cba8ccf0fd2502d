//! The recorder: a file that nobody else writes, within limits.

use super::part::PartWriter;
use super::rotation::{self, LockedFile};
use crate::format::Header;
use crate::read::{MAX_PARTS, part_path};
use anyhow::{Context, Result, ensure};
use sample::Sample;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What a header says of the program.
const TOOL: &str = concat!("kvmtop ", env!("CARGO_PKG_VERSION"));

/// How much is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// Bytes of all parts together.
    pub size: Option<u64>,
    /// Age of the oldest sample.
    pub age: Option<Duration>,
}

/// Parts that a limit is shared out over: one of them is deleted at a time.
pub const PARTS_PER_LIMIT: u32 = 8;
/// A smaller `--max-size` would leave no room for samples.
const MIN_SIZE_BYTES: u64 = 256 << 10;

/// Writes samples into a recording.
///
/// An existing recording is continued: a new run begins after its last whole sample. A damaged one
/// is kept as FILE.1. With limits the recording is cut into parts: FILE is being written, FILE.1 is
/// the newest complete part, and the oldest is deleted as a whole.
pub struct Recorder {
    path: PathBuf,
    limits: Limits,
    writer: PartWriter,
    header: Header,
    /// Whether the part has the header of this recorder: a part that is continued has another's.
    has_header: bool,
    /// What the user should know about how the recording began.
    note: Option<String>,
}

impl Recorder {
    /// Begins a recording.
    ///
    /// # Errors
    /// If the file cannot be created, another recorder holds it, or it is not a session: it is
    /// never overwritten.
    pub fn create(path: &Path, limits: Limits) -> Result<Self> {
        ensure!(
            limits.size.is_none_or(|s| s >= MIN_SIZE_BYTES),
            "--max-size must be at least {} KiB: a recording of less would hold no samples",
            MIN_SIZE_BYTES >> 10
        );
        rotation::survive_file_size_limits();
        let LockedFile {
            writer,
            recording_id,
            note,
        } = rotation::lock(path)?;
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let recording_id = recording_id
            .unwrap_or_else(|| format!("{:x}-{:x}", now.as_nanos(), std::process::id()));
        let header = Header {
            tool: TOOL.into(),
            recording: recording_id,
            ..Header::default()
        };
        Ok(Self {
            path: path.into(),
            limits,
            writer,
            header,
            has_header: false,
            note,
        })
    }

    /// What the user should know: that an existing recording is continued, or was moved aside.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The number of older parts, and the bytes of all parts.
    pub fn size(&self) -> (usize, u64) {
        let older = (1..MAX_PARTS).map_while(|n| fs::metadata(part_path(&self.path, n)).ok());
        older.fold((0, self.writer.end), |(parts, bytes), part| {
            (parts + 1, bytes + part.len())
        })
    }

    /// Whether nothing more can be added: another program deleted, moved or cut the file.
    pub fn is_lost(&self) -> bool {
        self.check_file().is_err()
    }

    /// Adds a sample. It is in the file when this returns, and stays there however this process
    /// ends.
    ///
    /// # Errors
    /// When it cannot be written; what was written before stays whole, and a later sample may be
    /// tried. When the file was deleted or moved away.
    pub fn append(&mut self, sample: &Sample) -> Result<()> {
        self.check_file()?;
        if self.part_is_full(sample) {
            self.next_part()?;
        }
        self.write(sample).with_context(|| {
            format!(
                "cannot write to {}; the samples recorded before are safe",
                self.path.display()
            )
        })
    }

    /// Fails if another program deleted, moved or cut the file since it was opened.
    fn check_file(&self) -> Result<()> {
        let name = self.path.display();
        let ours = self
            .writer
            .file
            .metadata()
            .with_context(|| format!("cannot record into {name}"))?;
        let there = fs::symlink_metadata(&self.path)
            .map(|meta| (meta.dev(), meta.ino()))
            .ok();
        ensure!(
            there == Some((ours.dev(), ours.ino())),
            "{name} was deleted or moved away while it was being recorded into"
        );
        ensure!(
            ours.len() >= self.writer.end,
            "{name} was cut while it was being recorded into: samples are lost"
        );
        Ok(())
    }

    /// Writes a sample, and this recorder's header before it where the part lacks that.
    fn write(&mut self, sample: &Sample) -> Result<()> {
        if !self.has_header {
            self.header.started_ms = sample.time_ms;
            self.writer.begin(&self.header)?;
            self.has_header = true;
        }
        self.writer.append(sample)
    }

    fn part_is_full(&self, now: &Sample) -> bool {
        let is_large = self
            .limits
            .size
            .is_some_and(|size| self.writer.end >= size / u64::from(PARTS_PER_LIMIT));
        // The age is by the wall clock, because an earlier recorder may have begun the part. Where
        // that clock was set back, the difference counts as well: else the part would grow until
        // the clock is as late as before.
        let first_ms = self.writer.first_ms.unwrap_or(now.time_ms);
        let age = Duration::from_millis(now.time_ms.abs_diff(first_ms));
        let limit = self.limits.age;
        let is_old = limit.is_some_and(|limit| age >= limit / PARTS_PER_LIMIT);
        self.writer.samples > 0 && (is_large || is_old)
    }

    /// Closes the part, begins the next, and deletes what is beyond the limits.
    fn next_part(&mut self) -> Result<()> {
        self.writer.close()?;
        let file = rotation::rotate(&self.path)
            .with_context(|| format!("cannot begin the next part of {}", self.path.display()))?;
        // The new part goes on with the run.
        let begins_run = self.writer.begins_run;
        self.writer = PartWriter::new(file);
        self.has_header = false;
        self.writer.begins_run = begins_run;
        // Older parts get what the new part leaves of the limit when it is full.
        let room = self.limits.size.map(|s| s - s / u64::from(PARTS_PER_LIMIT));
        rotation::delete_old(&self.path, &self.header.recording, room, self.limits.age);
        Ok(())
    }

    /// Ends the recording and brings it to disk.
    ///
    /// # Errors
    /// When the disk does not take it, or the file is no longer there.
    pub fn close(mut self) -> Result<()> {
        self.writer
            .close()
            .with_context(|| format!("cannot close {}", self.path.display()))?;
        self.check_file()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Dropped after an error, a recorder ends its file as well as it can.
        let _ = self.writer.close();
    }
}
