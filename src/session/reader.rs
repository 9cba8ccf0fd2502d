//! A recording as a whole: its file, and the older parts beside it.

use super::cursor::Cursor;
use super::facts::Header;
use super::part::Part;
use super::scan::End;
use anyhow::{Context, Result};
use std::fs::File;
use std::path::{Path, PathBuf};

/// An opened recording.
#[derive(Debug)]
pub struct Session {
    pub(super) path: PathBuf,
    pub(super) parts: Vec<Part>,
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
            anyhow::bail!("cannot open {name}: it is not a file");
        }
        let part = Part::open(file).with_context(|| format!("cannot read {name}"))?;
        Ok(Self { path: path.into(), parts: vec![part] })
    }

    /// What the recorder said of itself and its host.
    pub fn header(&self) -> Option<&Header> {
        self.parts.iter().find_map(|p| p.header.as_ref())
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|p| p.samples as usize).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where and why the recording is not read to its end, in a sentence.
    pub fn damage(&self) -> Option<String> {
        let stopped = self.parts.iter().filter(|p| p.stop != End::Whole);
        let sentences: Vec<String> = stopped
            .map(|p| {
                let what = match p.stop {
                    End::Cut => "is cut off",
                    End::Unreadable => "cannot be read",
                    _ => "is damaged",
                };
                let name = self.path.display();
                let lost = p.length.saturating_sub(p.end);
                format!(
                    "{name} {what} at byte {}: the {} samples before are shown, {lost} bytes are not",
                    p.end, p.samples
                )
            })
            .collect();
        Some(sentences.join("; ")).filter(|s| !s.is_empty())
    }

    /// Reads samples.
    pub fn cursor(self) -> Cursor {
        Cursor::new(self)
    }

    /// The part that holds a sample, and the sample's number in it.
    pub(super) fn place(&self, index: usize) -> Option<(usize, u32)> {
        let mut left = index;
        for (i, p) in self.parts.iter().enumerate() {
            if left < p.samples as usize {
                return Some((i, left as u32));
            }
            left -= p.samples as usize;
        }
        None
    }
}
