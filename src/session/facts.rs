//! Facts: what seldom changes and is told once. JSON, so that a field more or less in a later version does no harm.

use super::frame::{self, FrameKind};
use crate::sample::HostFacts;
use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};

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
/// How hard zstd tries.
const LEVEL: i32 = 9;

/// Facts as a frame.
///
/// # Errors
/// When they are larger than a frame may be.
pub fn pack<T: Serialize>(kind: FrameKind, facts: &T) -> Result<Vec<u8>> {
    let mut payload = frame::blank();
    let json = serde_json::to_vec(facts)?;
    zstd::stream::copy_encode(json.as_slice(), &mut payload, LEVEL)?;
    frame::seal(kind, payload)
}

/// Facts out of a frame's payload.
///
/// # Errors
/// When the payload is not what a writer writes.
pub fn unpack<T: DeserializeOwned>(payload: &[u8]) -> Result<T> {
    parse(&inflate(payload, &[])?)
}

/// Facts that others of their kind are told against, since guests of one host are much alike.
#[derive(Debug, Clone, Default)]
pub struct Base {
    /// Where their frame is.
    pub at: u64,
    /// Their JSON.
    pub json: Vec<u8>,
}

/// The same with a base, which makes the first ones the base of those that follow: their place stands before what is packed, 0
/// where there was none.
///
/// # Errors
/// When they are larger than a frame may be.
pub fn pack_like<T: Serialize>(kind: FrameKind, facts: &T, at: u64, base: &mut Option<Base>) -> Result<Vec<u8>> {
    let json = serde_json::to_vec(facts)?;
    let (place, like) = base.as_ref().map_or((0, &[][..]), |b| (b.at, &b.json));
    let mut payload = frame::blank();
    payload.extend(place.to_le_bytes());
    let mut encoder = zstd::Encoder::with_dictionary(&mut payload, LEVEL, like)?;
    encoder.write_all(&json)?;
    encoder.finish()?;
    base.get_or_insert(Base { at, json });
    frame::seal(kind, payload)
}

/// The JSON of such facts. `base` reads the payload at the place where those are that they are told against.
///
/// # Errors
/// When the payload is not what a writer writes.
pub fn json_like(payload: &[u8], base: &dyn Fn(u64) -> Result<Vec<u8>>) -> Result<Vec<u8>> {
    let (place, packed) = payload.split_first_chunk().context("facts without their base")?;
    let like = match u64::from_le_bytes(*place) {
        0 => Vec::new(),
        at => json_like(&base(at)?, &|_| bail!("facts are told against others that are themselves"))?,
    };
    inflate(packed, &like)
}

/// Facts from their JSON.
///
/// # Errors
/// When they are not what a writer writes.
pub fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T> {
    serde_json::from_slice(json).context("facts are not what a recorder writes")
}

fn inflate(packed: &[u8], like: &[u8]) -> Result<Vec<u8>> {
    let mut json = Vec::new();
    zstd::Decoder::with_dictionary(packed, like)?
        .take(LONGEST)
        .read_to_end(&mut json)
        .context("facts do not unpack")?;
    Ok(json)
}
