//! The recorder: a file that nobody else writes, within limits.

use super::facts::Header;
use super::frame::SCHEMA;
use super::writer::Writer;
use crate::sample::Sample;
use anyhow::{Context, Result};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all parts together.
    pub size: Option<u64>,
    /// Age of the oldest sample.
    pub age: Option<Duration>,
}

/// Writes samples into a recording.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    limits: Limits,
    writer: Writer,
    begun: bool,
}

impl Recorder {
    /// Begins a recording.
    ///
    /// # Errors
    /// When the file cannot be made, is somebody else's or of another kind.
    pub fn create(path: &Path, limits: Limits) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .with_context(|| format!("cannot record into {}", path.display()))?;
        Ok(Self { path: path.into(), limits, writer: Writer::new(file, 0, 0, 0), begun: false })
    }

    /// Adds a sample. It is in the file when this returns.
    ///
    /// # Errors
    /// When it cannot be written; what was written before stays whole, and a later sample may be tried.
    pub fn append(&mut self, sample: &Sample) -> Result<()> {
        if !self.begun {
            self.writer.begin(&Header {
                tool: concat!("kvmtop ", env!("CARGO_PKG_VERSION")).into(),
                schema: SCHEMA,
                started_ms: sample.time_ms,
                host: (*sample.host.facts).clone(),
                ..Header::default()
            })?;
            self.begun = true;
        }
        self.writer.append(sample).with_context(|| format!("cannot write to {}", self.path.display()))
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.writer.len()
    }

    /// Ends the recording so that it opens at once.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn close(mut self) -> Result<()> {
        self.writer.close()
    }
}
