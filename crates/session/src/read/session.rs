//! A recording as a whole: its file, and its older parts in the same folder.

use super::part::PartReader;
use super::scan::End;
use anyhow::{Context, Result};
use rights::open_regular;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Maximum number of parts of a recording.
pub const MAX_PARTS: u32 = 1000;

/// An opened recording.
#[derive(Debug, Clone)]
pub struct Session {
    /// Oldest first.
    pub(crate) parts: Vec<NamedPart>,
}

/// A file of a recording.
#[derive(Debug, Clone)]
pub struct NamedPart {
    /// Its name.
    pub path: PathBuf,
    /// What it holds.
    pub reader: PartReader,
}

impl Session {
    /// Opens a recording: the file, and the older parts FILE.1, FILE.2, … of the same recording.
    ///
    /// # Errors
    /// If the file cannot be read, is not a session, or has a newer version. A cut or damaged file
    /// opens with what can be read: see [`Session::damage`].
    pub fn open(path: &Path) -> Result<Self> {
        let file = open_regular(path).with_context(|| format!("cannot open {}", path.display()))?;
        let mut session = Self::from_file(file, path)?;
        let recording_id = session.parts[0].reader.recording_id.clone();
        for path in (1..MAX_PARTS).map(|n| part_path(path, n)) {
            let Ok(file) = open_regular(&path) else { break };
            let Ok(reader) = PartReader::open(file) else {
                break;
            };
            if reader.recording_id.is_none() || reader.recording_id != recording_id {
                break;
            }
            session.parts.push(NamedPart { path, reader });
        }
        session.parts.reverse();
        Ok(session)
    }

    /// Opens one file alone.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn from_file(file: File, name: &Path) -> Result<Self> {
        let reader =
            PartReader::open(file).with_context(|| format!("cannot read {}", name.display()))?;
        let path = name.into();
        Ok(Self {
            parts: vec![NamedPart { path, reader }],
        })
    }

    /// Looks for samples that were added since. Returns whether there are any.
    pub fn refresh(&mut self) -> bool {
        let newest = self.parts.last_mut();
        newest.is_some_and(|part| part.reader.refresh())
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.reader.times.len()).sum()
    }

    /// Whether the recording is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The earliest and the latest time, milliseconds since the epoch: of the first and the last
    /// sample unless the clock was set back.
    pub fn range_ms(&self) -> Option<(i64, i64)> {
        Some((self.times().min()?, self.times().max()?))
    }

    /// The time of each sample, milliseconds since the epoch.
    pub(crate) fn times(&self) -> impl Iterator<Item = i64> {
        self.parts
            .iter()
            .flat_map(|part| part.reader.times.iter().copied())
    }

    /// What of the recording cannot be read and why, in a sentence each.
    pub fn damage(&self) -> Option<String> {
        let mut sentences = Vec::new();
        for NamedPart { path, reader } in &self.parts {
            for hole in &reader.holes {
                sentences.push(format!(
                    "{} is damaged at byte {}: samples missing: {}",
                    path.display(),
                    hole.offset,
                    hole.samples
                ));
            }
            sentences.extend(damaged_end(path, reader));
        }
        if sentences.is_empty() {
            None
        } else {
            Some(sentences.join("; "))
        }
    }

    /// The number of the part that a sample is in, and its index in that part.
    pub(super) fn part_of(&self, mut index: usize) -> Option<(usize, usize)> {
        for (number, part) in self.parts.iter().enumerate() {
            let samples = part.reader.times.len();
            if index < samples {
                return Some((number, index));
            }
            index -= samples;
        }
        None
    }

    /// Where a sample is.
    pub(super) fn place(&self, index: usize) -> Option<Place> {
        let (part, index) = self.part_of(index)?;
        let segments = &self.parts[part].reader.segments;
        let segment = segments.partition_point(|segment| segment.first_index <= index) - 1;
        Some(Place {
            part,
            segment,
            sample: (index - segments[segment].first_index) as u32,
        })
    }
}

/// Where a sample is in a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Number of the part.
    pub part: usize,
    /// Number of the segment in the part.
    pub segment: usize,
    /// Number of the sample in the segment.
    pub sample: u32,
}

/// The name of a part; 0 is the one being written, 1 the newest of the others.
pub fn part_path(path: &Path, number: u32) -> PathBuf {
    if number == 0 {
        return path.into();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

fn damaged_end(path: &Path, part: &PartReader) -> Option<String> {
    let what = match part.stop {
        End::Whole => return None,
        // A recorder at work is about to finish this frame: that is no damage.
        End::Cut if is_being_written(&part.file) => return None,
        End::Cut => "is cut off",
        End::Unreadable => "cannot be read",
        End::Damaged => "is damaged",
    };
    let lost = part.length.saturating_sub(part.end);
    Some(format!(
        "{} {what} at byte {}: samples before that: {}, lost bytes: {lost}",
        path.display(),
        part.end,
        part.times.len()
    ))
}

/// Whether a recorder holds the file.
fn is_being_written(file: &File) -> bool {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            // The lock is given back at once, because a recorder may want it.
            let _ = flock(file, FlockOperation::Unlock);
            false
        }
        Err(e) => e == rustix::io::Errno::WOULDBLOCK,
    }
}
