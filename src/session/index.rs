//! Index frames: where a segment's key and branch frames are. Each points to the one before, so that a long file opens by
//! following a few of them from its end.

use super::frame::{self, FrameKind};
use anyhow::Result;

/// What an index frame's payload begins with: found when searching backwards from the end of a file that was not closed.
pub const MARK: [u8; 8] = *b"KVMTOPix";

/// A stretch of samples that is read from its beginning: a key or branch frame and the deltas behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Where its first frame is.
    pub offset: u64,
    /// Samples before it in the file.
    pub number: u32,
    /// Time of its first sample.
    pub time_ms: i64,
    /// Whether it begins with a key frame.
    pub key: bool,
    /// Whether a run of the recorder begins with it: nothing before it is to be compared with.
    pub run: bool,
}

/// The payload of an index frame.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Index {
    /// Where the index frame before is; 0 for none.
    pub before: u64,
    /// Samples in the file up to here.
    pub samples: u32,
    /// Time of the last of them.
    pub last_ms: i64,
    /// The chunks since the index before.
    pub chunks: Vec<Chunk>,
}

const FIXED: usize = 28;
const ENTRY: usize = 21;

impl Index {
    /// As a frame.
    ///
    /// # Errors
    /// Never for an index of one segment.
    pub fn pack(&self) -> Result<Vec<u8>> {
        let mut out = frame::blank();
        out.extend(MARK);
        out.extend(self.before.to_le_bytes());
        out.extend(self.samples.to_le_bytes());
        out.extend(self.last_ms.to_le_bytes());
        for c in &self.chunks {
            out.extend(c.offset.to_le_bytes());
            out.extend(c.number.to_le_bytes());
            out.extend(c.time_ms.to_le_bytes());
            out.push(u8::from(c.key) | u8::from(c.run) << 1);
        }
        frame::seal(FrameKind::Index, out)
    }

    /// Out of a frame's payload.
    pub fn unpack(payload: &[u8]) -> Option<Self> {
        let rest = payload.strip_prefix(&MARK)?;
        let (fixed, entries) = rest.split_at_checked(FIXED - MARK.len())?;
        let eight = |b: &[u8], at: usize| b.get(at..at + 8).and_then(|b| b.try_into().ok());
        let four = |b: &[u8], at: usize| b.get(at..at + 4).and_then(|b| b.try_into().ok());
        let chunks = entries
            .chunks_exact(ENTRY)
            .map(|e| {
                Some(Chunk {
                    offset: u64::from_le_bytes(eight(e, 0)?),
                    number: u32::from_le_bytes(four(e, 8)?),
                    time_ms: i64::from_le_bytes(eight(e, 12)?),
                    key: e[20] & 1 != 0,
                    run: e[20] & 2 != 0,
                })
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Self {
            before: u64::from_le_bytes(eight(fixed, 0)?),
            samples: u32::from_le_bytes(four(fixed, 8)?),
            last_ms: i64::from_le_bytes(eight(fixed, 12)?),
            chunks,
        })
    }
}
