//! A recording as a whole: its file, and its older parts in the same folder.

use super::part::{CHECKED_WHOLE, Hole, PartReader};
use super::scan::End;
use crate::format::Segment;
use anyhow::{Context, Result};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rights::open_regular;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum number of parts of a recording.
pub const MAX_PARTS: u32 = 1000;

/// An opened recording.
#[derive(Debug, Clone)]
pub struct Session {
    /// Oldest first; each with its name.
    pub(super) parts: Vec<(PathBuf, PartReader)>,
}

impl Session {
    /// Opens a recording: the file, and the older parts FILE.1, FILE.2, … of the same recording.
    ///
    /// # Errors
    /// If the file cannot be read, is not a session, or has a newer version. A cut or damaged file
    /// opens with what can be read: see [`Session::damage`].
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display();
        let file = open_regular(path).with_context(|| format!("cannot open {name}"))?;
        let part =
            PartReader::open(file, CHECKED_WHOLE).with_context(|| format!("cannot read {name}"))?;
        let mut checked = CHECKED_WHOLE.saturating_sub(part.length);
        let mut parts = vec![(path.to_path_buf(), part)];
        for path in (1..MAX_PARTS).map(|n| part_path(path, n)) {
            let Ok(file) = open_regular(&path) else { break };
            let identity = |f: &File| f.metadata().ok().map(|m| (m.dev(), m.ino()));
            if parts
                .iter()
                .any(|(_, p)| identity(&p.file) == identity(&file))
            {
                // A second name of a part: a recorder was killed between two steps of beginning the
                // next.
                continue;
            }
            let same =
                |p: &PartReader| p.recording.is_some() && p.recording == parts[0].1.recording;
            let Some(part) = PartReader::open(file, checked).ok().filter(same) else {
                break;
            };
            checked = checked.saturating_sub(part.length);
            parts.push((path, part));
        }
        parts.reverse();
        Ok(Self { parts })
    }

    /// Opens one file alone.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn from_file(file: File, name: &Path) -> Result<Self> {
        let part = PartReader::open(file, CHECKED_WHOLE)
            .with_context(|| format!("cannot read {}", name.display()))?;
        Ok(Self {
            parts: vec![(name.into(), part)],
        })
    }

    /// Looks for samples that were added since. Returns whether there are any.
    pub fn refresh(&mut self) -> bool {
        self.parts.last_mut().is_some_and(|(_, p)| p.refresh())
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|(_, p)| p.samples()).sum()
    }

    /// Whether the recording is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The earliest and the latest time, milliseconds since the epoch: of the first and the last
    /// sample unless the clock was set back.
    pub fn range_ms(&self) -> Option<(i64, i64)> {
        let earliest = self
            .segments()
            .map(|(_, s, _)| s.first_ms.min(s.last_ms))
            .min();
        earliest.zip(
            self.segments()
                .map(|(_, s, _)| s.first_ms.max(s.last_ms))
                .max(),
        )
    }

    /// What of the recording cannot be read and why, in a sentence each. A long file is only
    /// checked as it is read: this is what was found so far.
    pub fn damage(&self) -> Option<String> {
        let sentences = self.parts.iter().flat_map(|(path, part)| {
            part.holes
                .iter()
                .map(|hole| missing(path, hole))
                .chain(damaged_end(path, part))
        });
        Some(sentences.chain(self.alone()).collect::<Vec<_>>().join("; ")).filter(|s| !s.is_empty())
    }

    /// What is to be said of a part whose older ones are not beside it.
    fn alone(&self) -> Option<String> {
        let [(path, part)] = &self.parts[..] else {
            return None;
        };
        let begins_within = part.segments.first().is_some_and(|segment| !segment.run);
        let name = path.display();
        begins_within.then(|| {
            format!(
                "{name} is one part of a recording: FILE, FILE.1, FILE.2, … belong together, and \
                    the older are not here"
            )
        })
    }

    /// The segments in order: where each begins, what it holds, and the number of its first sample.
    pub(super) fn segments(&self) -> impl Iterator<Item = (Place, &Segment, usize)> {
        let parts = self.parts.iter().enumerate();
        let all = parts.flat_map(|(part, (_, p))| {
            p.segments
                .iter()
                .enumerate()
                .map(move |(n, s)| (part, n, s))
        });
        all.scan(0, |next, (part, segment, s)| {
            let first = *next;
            *next += s.samples as usize;
            Some((
                Place {
                    part,
                    segment,
                    sample: 0,
                },
                s,
                first,
            ))
        })
    }

    /// The segment of a place.
    pub(super) fn segment(&self, place: Place) -> Segment {
        self.parts[place.part].1.segments[place.segment]
    }

    /// Where a sample is.
    pub(super) fn place(&self, index: usize) -> Option<Place> {
        let (place, _, first) = self
            .segments()
            .find(|(_, s, first)| index < first + s.samples as usize)?;
        Some(Place {
            sample: (index - first) as u32,
            ..place
        })
    }
}

/// Where a sample is in a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Number of the file.
    pub part: usize,
    /// Number of the segment in it.
    pub segment: usize,
    /// Number of the sample in that.
    pub sample: u32,
}

/// The name of an older part; 1 is the newest of them.
pub fn part_path(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

fn missing(path: &Path, hole: &Hole) -> String {
    let clock = |ms: i64| {
        Timestamp::from_millisecond(ms)
            .ok()
            .map(|t| t.to_zoned(TimeZone::system()).strftime("%T"))
    };
    let between = match (
        hole.after_ms.and_then(clock),
        hole.before_ms.and_then(clock),
    ) {
        (Some(after), Some(before)) => format!(" between {after} and {before}"),
        (None, Some(before)) => format!(" before {before}"),
        (Some(after), None) => format!(" after {after}"),
        (None, None) => String::new(),
    };
    let samples = match hole.samples {
        0 => "no sample is missing".to_string(),
        1 => format!("one sample{between} is missing"),
        n => format!("{n} samples{between} are missing"),
    };
    format!(
        "{} is damaged at byte {}: {samples}",
        path.display(),
        hole.at
    )
}

fn damaged_end(path: &Path, part: &PartReader) -> Option<String> {
    let what = match part.stop {
        End::Whole => return None,
        // The frame that a recorder at work is about to finish.
        End::Cut if is_being_written(&part.file) => return None,
        End::Cut => "is cut off",
        End::Unreadable => "cannot be read",
        End::Damaged => "is damaged",
    };
    let lost = part.length.saturating_sub(part.end);
    let samples = match part.samples() {
        0 => "it holds no sample before that".to_string(),
        1 => "the one sample before can be read".to_string(),
        n => format!("the {n} samples before can be read"),
    };
    Some(format!(
        "{} {what} at byte {}: {samples}, the last {lost} bytes are lost",
        path.display(),
        part.end
    ))
}

/// Whether a recorder holds the file.
fn is_being_written(file: &File) -> bool {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            // Let go at once: a recorder may want it.
            let _ = flock(file, FlockOperation::Unlock);
            false
        }
        Err(e) => e == rustix::io::Errno::WOULDBLOCK,
    }
}
