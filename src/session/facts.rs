//! Facts: what seldom changes and is told once. JSON, so that a field more or less in a later version does no harm.

use super::frame::{self, FrameKind};
use crate::sample::HostFacts;
use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::Read;

/// What a run of the recorder says of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// The program and its version.
    pub tool: String,
    /// Schema version.
    pub schema: u32,
    /// When the run began, milliseconds since the epoch.
    pub started_ms: i64,
    /// What makes the parts of one recording known to each other: the time and process that began it.
    pub recording: String,
    /// Number of the part of the recording, from 0.
    pub part: u32,
    /// The host.
    pub host: HostFacts,
}

/// No facts are longer than this when unpacked.
const LONGEST: u64 = 32 << 20;

/// Facts as a frame.
///
/// # Errors
/// When they are larger than a frame may be.
pub fn pack<T: Serialize>(kind: FrameKind, facts: &T) -> Result<Vec<u8>> {
    let mut payload = frame::blank();
    let json = serde_json::to_vec(facts)?;
    zstd::stream::copy_encode(json.as_slice(), &mut payload, 9)?;
    frame::seal(kind, payload)
}

/// Facts out of a frame's payload.
///
/// # Errors
/// When the payload is not what a writer writes.
pub fn unpack<T: DeserializeOwned>(payload: &[u8]) -> Result<T> {
    let mut json = Vec::new();
    zstd::Decoder::with_buffer(payload)?.take(LONGEST).read_to_end(&mut json).context("facts do not unpack")?;
    serde_json::from_slice(&json).context("facts are not what a recorder writes")
}
