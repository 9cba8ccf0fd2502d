//! Frames: the units that a file grows by, and that survive or perish as a whole.
//!
//! ```text
//! file    = magic (8) | schema u32 | crc32 of these 12 bytes | frame …
//! frame   = kind u8 | length u24 | crc32 of kind, length and payload | payload
//! ```
//! All numbers are little-endian.

use anyhow::{Result, bail};

/// What every session file begins with. The first byte is no text in any encoding, the last shows a file copied as text.
pub const MAGIC: [u8; 8] = *b"\x89KVMTOP\n";
/// The version of everything behind the magic.
pub const SCHEMA: u32 = 4;
/// Bytes before the first frame.
pub const PROLOGUE: usize = 16;
/// Bytes of a frame before its payload.
pub const HEAD: usize = 8;
/// No payload is longer: what three bytes can say.
pub const LONGEST: usize = (1 << 24) - 1;

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// The beginning of a run of the recorder: JSON of [`super::Header`], zstd.
    Header = 1,
    /// JSON of `HostFacts`, zstd.
    HostFacts = 2,
    /// JSON of `DomainFacts`, zstd. From schema 4 on the place of the frame stands before it whose JSON is the dictionary, 8 bytes; 0
    /// for none.
    DomainFacts = 3,
    /// A sample that stands alone.
    Key = 4,
    /// A sample told against the key frame before it.
    Branch = 5,
    /// A sample told against the one before.
    Delta = 6,
    /// Where the key and branch frames since the index before are.
    Index = 7,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Header, Self::HostFacts, Self::DomainFacts, Self::Key, Self::Branch, Self::Delta, Self::Index]
            .into_iter()
            .find(|k| *k as u8 == byte)
    }

    /// Whether it is a sample.
    pub fn is_sample(self) -> bool {
        matches!(self, Self::Key | Self::Branch | Self::Delta)
    }
}

/// The first bytes of a file.
pub fn prologue() -> [u8; PROLOGUE] {
    let mut out = [0; PROLOGUE];
    out[..8].copy_from_slice(&MAGIC);
    out[8..12].copy_from_slice(&SCHEMA.to_le_bytes());
    let crc = crc32fast::hash(&out[..12]);
    out[12..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Whether these bytes begin a session file.
pub fn looks_like(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Whether these bytes begin a session file of a later version.
pub fn newer(bytes: &[u8]) -> bool {
    let schema = bytes.get(8..12).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    let crc = bytes.get(12..16).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    looks_like(bytes) && schema > SCHEMA && bytes.get(..12).is_some_and(|b| crc32fast::hash(b) == crc)
}

/// Judges the first bytes of a file and answers with its schema version.
///
/// # Errors
/// A sentence when this is no session file, or one that this version cannot read.
pub fn check_prologue(bytes: &[u8]) -> Result<u32> {
    if bytes.is_empty() {
        bail!("the file is empty: nothing was recorded into it");
    }
    if MAGIC.starts_with(bytes) {
        bail!("the file was cut off before its first frame: it holds no sample");
    }
    if !looks_like(bytes) {
        bail!("this is not a kvmtop session (its first bytes are not those of `kvmtop record`)");
    }
    let Some(bytes) = bytes.get(..PROLOGUE) else {
        bail!("the file was cut off before its first frame: it holds no sample");
    };
    let word = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    let (schema, crc) = (word(8), word(12));
    if crc32fast::hash(&bytes[..12]) != crc {
        if schema.swap_bytes() < schema {
            bail!("the file was written in the other byte order, which no kvmtop does: it is damaged or foreign");
        }
        bail!("the first 16 bytes of the file are damaged: its version cannot be told");
    }
    match schema {
        0 => bail!("the file says schema version 0, which never existed"),
        1..=SCHEMA => Ok(schema),
        newer if newer.swap_bytes() < newer => {
            bail!("the file was written in the other byte order, which no kvmtop does: it is damaged or foreign")
        }
        newer => bail!(
            "the session has schema version {newer}, and this kvmtop ({}) reads up to {SCHEMA}: use a newer kvmtop",
            env!("CARGO_PKG_VERSION")
        ),
    }
}

/// A frame as bytes. `payload` must begin with [`HEAD`] spare bytes.
///
/// # Errors
/// When the payload is longer than a frame may be.
pub fn seal(kind: FrameKind, mut payload: Vec<u8>) -> Result<Vec<u8>> {
    let length = payload.len().saturating_sub(HEAD);
    if length > LONGEST {
        bail!("a frame of {length} bytes is longer than the format allows ({LONGEST})");
    }
    payload[..4].copy_from_slice(&((length as u32) << 8 | kind as u32).to_le_bytes());
    let crc = checksum(&payload[..4], &payload[HEAD..]);
    payload[4..8].copy_from_slice(&crc.to_le_bytes());
    Ok(payload)
}

fn checksum(head: &[u8], payload: &[u8]) -> u32 {
    let mut h = crc32fast::Hasher::new();
    h.update(head);
    h.update(payload);
    h.finalize()
}

/// The head of a frame.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    /// What it holds.
    pub kind: FrameKind,
    /// Length of the payload.
    pub length: usize,
    word: [u8; 4],
    crc: u32,
}

impl Head {
    /// From the first bytes of a frame; `None` for what no writer writes.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let word: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
        let crc = u32::from_le_bytes(bytes.get(4..HEAD)?.try_into().ok()?);
        let kind = FrameKind::from_byte(word[0])?;
        Some(Self { kind, length: (u32::from_le_bytes(word) >> 8) as usize, word, crc })
    }

    /// Whether this is the payload that was written.
    pub fn fits(&self, payload: &[u8]) -> bool {
        payload.len() == self.length && checksum(&self.word, payload) == self.crc
    }
}

/// Room for a frame's head.
pub fn blank() -> Vec<u8> {
    vec![0; HEAD]
}
