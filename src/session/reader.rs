//! A recording as a whole: its file, and the older parts beside it.

use super::cursor::Cursor;
use super::facts::Header;
use super::files::{MOST_PARTS, part_path};
use super::part::{CHECKED_WHOLE, Part};
use super::scan::End;
use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// An opened recording.
#[derive(Debug)]
pub struct Session {
    /// Oldest first; each with its name.
    pub(super) parts: Vec<(PathBuf, Part)>,
}

impl Session {
    /// Opens a recording: the file, and the older parts FILE.1, FILE.2, … of the same recording beside it.
    ///
    /// # Errors
    /// When the file cannot be read, is no session or is of a newer version. A file that is cut or damaged opens up to there:
    /// see [`Session::damage`].
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display();
        let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
        if !file.metadata().with_context(|| format!("cannot read {name}"))?.is_file() {
            bail!("cannot open {name}: it is not a file");
        }
        let part = Part::open(file, CHECKED_WHOLE).with_context(|| format!("cannot read {name}"))?;
        let mut checked = CHECKED_WHOLE.saturating_sub(part.length);
        let mut parts = vec![(path.to_path_buf(), part)];
        for older in (1..MOST_PARTS).map(|n| part_path(path, n)) {
            match older_part(&older, &parts, checked) {
                Older::Part(part) => {
                    checked = checked.saturating_sub(part.length);
                    parts.push((older, *part));
                }
                Older::Same => {}
                Older::None => break,
            }
        }
        parts.reverse();
        Ok(Self { parts })
    }

    /// Opens one file alone.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn from_file(file: File, name: &Path) -> Result<Self> {
        let part = Part::open(file, CHECKED_WHOLE).with_context(|| format!("cannot read {}", name.display()))?;
        Ok(Self { parts: vec![(name.into(), part)] })
    }

    /// The same files once more.
    pub(super) fn again(&self) -> Result<Self> {
        let parts = self.parts.iter().map(|(path, part)| Ok((path.clone(), part.again()?))).collect::<Result<_>>()?;
        Ok(Self { parts })
    }

    /// Looks for samples that were added since. Answers whether there are any.
    pub fn refresh(&mut self) -> bool {
        self.parts.last_mut().is_some_and(|(_, p)| p.go_on())
    }

    /// What the recorder said of itself and its host when it began.
    pub fn header(&self) -> Option<&Header> {
        self.parts.iter().find_map(|(_, p)| p.header.as_ref())
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|(_, p)| p.samples as usize).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Times of the first and last sample, milliseconds since the epoch.
    pub fn range_ms(&self) -> Option<(i64, i64)> {
        let mut with_samples = self.parts.iter().filter(|(_, p)| p.samples > 0).map(|(_, p)| p);
        let first = with_samples.clone().next()?;
        let last = with_samples.next_back()?;
        Some((first.chunks.first()?.time_ms, last.last_ms))
    }

    /// Where and why the recording is not read to its end, in a sentence each.
    pub fn damage(&self) -> Option<String> {
        let sentences: Vec<String> = self.parts.iter().filter_map(|(path, part)| damage(path, part)).collect();
        Some(sentences.join("; ")).filter(|s| !s.is_empty())
    }

    /// Reads samples.
    pub fn cursor(self) -> Cursor {
        Cursor::new(self)
    }

    /// The part that holds a sample, and the sample's number in it.
    pub(super) fn place(&self, index: usize) -> Option<(usize, u32)> {
        let mut left = index;
        for (i, (_, p)) in self.parts.iter().enumerate() {
            if left < p.samples as usize {
                return Some((i, left as u32));
            }
            left -= p.samples as usize;
        }
        None
    }
}

/// What a file beside a recording is.
enum Older {
    /// An older part of it.
    Part(Box<Part>),
    /// A second name of a file that is there already: a recorder was killed between two steps of beginning a part.
    Same,
    /// Nothing of it.
    None,
}

fn older_part(path: &Path, newer: &[(PathBuf, Part)], checked: u64) -> Older {
    let identity = |f: &File| f.metadata().ok().map(|m| (m.dev(), m.ino()));
    let Ok(file) = File::open(path) else { return Older::None };
    if newer.iter().any(|(_, p)| identity(&p.file) == identity(&file)) {
        return Older::Same;
    }
    let Ok(part) = Part::open(file, checked) else { return Older::None };
    let recording = |p: &Part| p.header.as_ref().map(|h| h.recording.clone());
    let same = recording(&part).is_some() && newer.first().is_some_and(|(_, p)| recording(p) == recording(&part));
    if same { Older::Part(Box::new(part)) } else { Older::None }
}

fn damage(path: &Path, part: &Part) -> Option<String> {
    let what = match part.stop {
        End::Whole => return None,
        // The frame that a recorder at work is about to finish.
        End::Cut if is_being_written(&part.file) => return None,
        End::Cut => "is cut off",
        End::Unreadable => "cannot be read",
        End::Damaged => "is damaged",
    };
    let lost = part.length.saturating_sub(part.end);
    let samples = match part.samples {
        0 => "no sample stands before that".to_string(),
        1 => "the one sample before is there".to_string(),
        n => format!("the {n} samples before are there"),
    };
    Some(format!("{} {what} at byte {}: {samples}, the last {lost} bytes are lost", path.display(), part.end))
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
