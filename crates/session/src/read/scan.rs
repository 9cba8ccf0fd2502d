//! Reads a frame, and finds the next segment after damage.

use crate::format::{FrameHead, FrameKind, HEAD_BYTES, MARK_LENGTH, SEGMENT_MARK};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes searched at a time.
const BLOCK_BYTES: usize = 1 << 20;
/// Maximum number of searches after damage, and of false marks of a segment, in one file: a hostile
/// file could have millions of both.
pub const MAX_TRIES: usize = 256;

/// Why a frame cannot be read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End {
    /// At the end of the file.
    Whole,
    /// In the middle of a frame: the recorder was stopped while it wrote, or the file was cut.
    Cut,
    /// At bytes that no recorder wrote.
    Damaged,
    /// The file could not be read.
    Unreadable,
}

/// A whole frame.
pub struct Frame {
    /// What it holds.
    pub kind: FrameKind,
    /// Its bytes after the head.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Its length in the file.
    pub fn length(&self) -> u64 {
        (HEAD_BYTES + self.payload.len()) as u64
    }
}

/// The frame that begins at byte `offset` of a file of this length; the error says why there is
/// none.
pub fn read_frame(file: &File, length: u64, offset: u64) -> Result<Frame, End> {
    let left = length.saturating_sub(offset);
    if left == 0 {
        return Err(End::Whole);
    }
    let mut head = [0; HEAD_BYTES];
    let n = HEAD_BYTES.min(left as usize);
    file.read_exact_at(&mut head[..n], offset)
        .map_err(|_| End::Unreadable)?;
    if n < HEAD_BYTES {
        // A frame begins with its kind. Any other byte is damage, not the begin of a cut frame.
        return Err(if FrameKind::from_byte(head[0]).is_some() {
            End::Cut
        } else {
            End::Damaged
        });
    }
    let head = FrameHead::parse(&head).ok_or(End::Damaged)?;
    if (head.length + HEAD_BYTES) as u64 > left {
        return Err(End::Cut);
    }
    let mut payload = vec![0; head.length];
    file.read_exact_at(&mut payload, offset + HEAD_BYTES as u64)
        .map_err(|_| End::Unreadable)?;
    if head.fits(&payload) {
        Ok(Frame {
            kind: head.kind,
            payload,
        })
    } else {
        Err(End::Damaged)
    }
}

/// Where the first whole segment of a stretch of the file begins. `tries` falls by one for the
/// search and for each false mark; at 0 nothing more is found.
pub fn find_segment(file: &File, stretch: Range<u64>, tries: &mut usize) -> Option<u64> {
    *tries = tries.checked_sub(1)?;
    for from in stretch.clone().step_by(BLOCK_BYTES) {
        // With so much of the next block that a mark across the border is found as well.
        let mut block = vec![0; (BLOCK_BYTES + MARK_LENGTH - 1).min((stretch.end - from) as usize)];
        file.read_exact_at(&mut block, from).ok()?;
        for (i, bytes) in block.windows(MARK_LENGTH).enumerate() {
            if bytes != SEGMENT_MARK {
                continue;
            }
            let mark = from + i as u64;
            if mark < stretch.start + HEAD_BYTES as u64 {
                continue;
            }
            let begin = mark - HEAD_BYTES as u64;
            if read_frame(file, stretch.end, begin).is_ok() {
                return Some(begin);
            }
            *tries = tries.checked_sub(1)?;
        }
    }
    None
}
