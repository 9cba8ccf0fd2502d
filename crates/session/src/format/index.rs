//! Index frames: where a segment is. Each points to the previous one, so that a long file opens by
//! following them from its end.

use super::codec::append;
use super::frame::{self, FrameKind, HEAD, MARK_LENGTH, Stamp};
use anyhow::Result;
use sample::calendar_ms;
use serde::{Deserialize, Serialize};

/// What the payload of an index frame begins with.
pub const INDEX_MARK: [u8; MARK_LENGTH] = *b"KVMTOPix";

/// A stretch of samples that can be read without the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Segment {
    /// Byte of the file at which its first frame begins.
    pub offset: u64,
    /// Samples before it in the file, damaged ones included.
    pub number: u32,
    /// How many samples it has.
    pub samples: u32,
    /// Time of its first sample, milliseconds since the epoch.
    pub first_ms: i64,
    /// Time of its last sample, milliseconds since the epoch.
    pub last_ms: i64,
    /// Whether a run of the recorder begins with it: nothing was counted since the previous sample.
    pub run: bool,
}

/// What an index frame holds.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct IndexFrame {
    before: u64,
    segment: Segment,
}

impl Segment {
    /// One with this first sample, whose frame begins at `offset`.
    pub fn beginning(
        offset: u64,
        Stamp {
            number,
            time_ms,
            run,
        }: Stamp,
    ) -> Self {
        Self {
            offset,
            number,
            samples: 1,
            first_ms: time_ms,
            last_ms: time_ms,
            run,
        }
    }

    /// The segment as an index frame; `before` is the offset of the previous index frame, 0 for
    /// none.
    pub fn pack(self, before: u64) -> Result<Vec<u8>> {
        let mut out = vec![0; HEAD];
        out.extend(INDEX_MARK);
        frame::seal(
            FrameKind::Index,
            append(
                &IndexFrame {
                    before,
                    segment: self,
                },
                out,
            )?,
        )
    }

    /// The segment of an index frame's payload, and the offset of the previous index frame.
    pub fn unpack(payload: &[u8]) -> Option<(u64, Self)> {
        let IndexFrame { before, segment } =
            rmp_serde::from_slice(payload.strip_prefix(&INDEX_MARK)?).ok()?;
        let (first_ms, last_ms) = (calendar_ms(segment.first_ms), calendar_ms(segment.last_ms));
        Some((
            before,
            Self {
                first_ms,
                last_ms,
                ..segment
            },
        ))
    }
}
