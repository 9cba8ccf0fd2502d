//! Frames: the units by which a file grows, each with its checksum. `docs/session-format.md` has
//! the layout.

use anyhow::{Result, bail, ensure};
use sample::calendar_ms;

/// The first bytes of every session file. The first one occurs in no text, and the last one shows
/// whether a file was copied as text.
pub const MAGIC: [u8; 8] = *b"\x89KVMTOP\n";
/// The version of everything after the magic.
pub const SCHEMA: u32 = 2;
/// Bytes before the first frame.
pub const PROLOGUE_BYTES: usize = 16;
/// Bytes of a frame before its payload.
pub const HEAD_BYTES: usize = 8;
/// The longest payload: three bytes hold its length.
const MAX_PAYLOAD: usize = (1 << 24) - 1;

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FrameKind {
    /// A [`super::Header`]: a run of the recorder begins.
    Header = 1,
    /// The first sample of a segment.
    First = 2,
    /// A further sample of the segment.
    Next = 3,
    /// Where a segment is, as earlier recorders wrote it. Skipped.
    Index = 4,
}

impl FrameKind {
    /// By the first byte of a frame.
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Self::Header, Self::First, Self::Next, Self::Index]
            .into_iter()
            .find(|k| *k as u8 == byte)
    }
}

/// The first bytes of a file.
pub fn prologue() -> [u8; PROLOGUE_BYTES] {
    let mut out = [0; PROLOGUE_BYTES];
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

/// The number of four bytes at `offset`.
fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes
        .get(offset..offset + 4)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}

/// Checks the first bytes of a file. The error says in a sentence why this version cannot read it.
pub fn check_prologue(bytes: &[u8]) -> Result<()> {
    ensure!(
        prologue().starts_with(bytes) || looks_like(bytes),
        "this is not a kvmtop session (its first bytes are not those of `kvmtop record`)"
    );
    let Some(bytes) = bytes.get(..PROLOGUE_BYTES) else {
        bail!("the file is empty or was cut off before its first frame: it holds no sample");
    };
    ensure!(
        crc32fast::hash(&bytes[..12]) == u32_at(bytes, 12),
        "the first 16 bytes of the file are damaged: its version is unknown"
    );
    let schema = u32_at(bytes, 8);
    let version = env!("CARGO_PKG_VERSION");
    ensure!(
        schema == SCHEMA,
        "the session has schema version {schema}, and this kvmtop ({version}) reads {SCHEMA}: \
            use another kvmtop"
    );
    Ok(())
}

/// A frame as bytes. `payload` must begin with [`HEAD_BYTES`] spare bytes. Fails if it is longer
/// than a frame may be.
pub fn seal(kind: FrameKind, mut payload: Vec<u8>) -> Result<Vec<u8>> {
    let length = payload.len().saturating_sub(HEAD_BYTES);
    ensure!(
        length <= MAX_PAYLOAD,
        "a frame of {length} bytes is longer than the format allows ({MAX_PAYLOAD})"
    );
    // The first byte is the kind, the next three are the length.
    let word = (length as u32) << 8 | kind as u32;
    payload[..4].copy_from_slice(&word.to_le_bytes());
    let crc = checksum(&payload[..4], &payload[HEAD_BYTES..]);
    payload[4..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
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
pub struct FrameHead {
    /// What it holds.
    pub kind: FrameKind,
    /// Length of the payload.
    pub length: usize,
    /// Kind and length as they are written.
    word: [u8; 4],
    crc: u32,
}

impl FrameHead {
    /// From the first bytes of a frame; `None` for what no writer writes.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let word: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
        let kind = FrameKind::from_byte(word[0])?;
        Some(Self {
            kind,
            length: (u32::from_le_bytes(word) >> 8) as usize,
            word,
            crc: u32_at(bytes.get(..HEAD_BYTES)?, 4),
        })
    }

    /// Whether this is the payload that was written.
    pub fn fits(&self, payload: &[u8]) -> bool {
        payload.len() == self.length && checksum(&self.word, payload) == self.crc
    }
}

/// The uncompressed beginning of a sample's frame. The first frame of a segment begins with
/// [`SEGMENT_MARK`] and a byte that is 1 where a run begins; then every sample has its number (u32)
/// and its time (i64).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stamp {
    /// Samples before it in the file, damaged ones included.
    pub number: u32,
    /// Milliseconds since the epoch.
    pub time_ms: i64,
    /// Whether a run of the recorder begins with it. Only a first frame has it.
    pub begins_run: bool,
}

/// Length of the mark by which segments are found in a damaged file.
pub const MARK_LENGTH: usize = 8;
/// What the payload of a segment's first frame begins with.
pub const SEGMENT_MARK: [u8; MARK_LENGTH] = *b"KVMTOPsg";

const STAMP_LENGTH: usize = 12;

impl Stamp {
    /// The beginning of a frame, with spare bytes for the head.
    pub fn begin(self, kind: FrameKind) -> Vec<u8> {
        let mut out = vec![0; HEAD_BYTES];
        if kind == FrameKind::First {
            out.extend(SEGMENT_MARK);
            out.push(u8::from(self.begins_run));
        }
        out.extend(self.number.to_le_bytes());
        out.extend(self.time_ms.to_le_bytes());
        out
    }

    /// The stamp of a sample's frame, and the compressed bytes after it; `None` for what no
    /// recorder writes.
    pub fn split(kind: FrameKind, payload: &[u8]) -> Option<(Self, &[u8])> {
        let mut begins_run = false;
        let mut rest = payload;
        match kind {
            FrameKind::First => {
                let (mark, after) = payload.strip_prefix(&SEGMENT_MARK)?.split_first()?;
                begins_run = *mark == 1;
                rest = after;
            }
            FrameKind::Next => {}
            _ => return None,
        }
        let (stamp, packed) = rest.split_at_checked(STAMP_LENGTH)?;
        let time_ms = i64::from_le_bytes(stamp[4..].try_into().ok()?);
        let stamp = Self {
            number: u32_at(stamp, 0),
            time_ms: calendar_ms(time_ms),
            begins_run,
        };
        Some((stamp, packed))
    }
}
