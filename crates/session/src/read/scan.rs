//! Reads a frame, and finds the next one after damage.

use crate::format::{FrameHead, FrameKind, HEAD, MARK_LENGTH};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes searched at a time.
const BLOCK: usize = 1 << 20;
/// Maximum number of searches after damage, and of false marks of a frame, in one file: a hostile
/// file could have millions of both.
pub const MAX_TRIES: usize = 256;
/// Maximum payload of an index frame, bytes: a hostile chain of longer ones would take minutes to
/// follow.
const MAX_INDEX: usize = 256;

/// Why a frame cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// What a frame holds, and its payload.
pub type Frame = (FrameKind, Vec<u8>);

/// The frame that begins at `at`; the error says why there is none.
pub fn read_frame(file: &File, length: u64, at: u64) -> Result<Frame, End> {
    let left = length.saturating_sub(at);
    if left == 0 {
        return Err(End::Whole);
    }
    let mut head = [0; HEAD];
    let n = HEAD.min(left as usize);
    file.read_exact_at(&mut head[..n], at)
        .map_err(|_| End::Unreadable)?;
    if n < HEAD {
        // A frame begins with its kind: what cannot be one was not cut, but damaged.
        return Err(if FrameKind::from_byte(head[0]).is_some() {
            End::Cut
        } else {
            End::Damaged
        });
    }
    let head = FrameHead::parse(&head).ok_or(End::Damaged)?;
    if head.kind == FrameKind::Index && head.length > MAX_INDEX {
        return Err(End::Damaged);
    }
    if (head.length + HEAD) as u64 > left {
        return Err(End::Cut);
    }
    let mut payload = vec![0; head.length];
    file.read_exact_at(&mut payload, at + HEAD as u64)
        .map_err(|_| End::Unreadable)?;
    if head.fits(&payload) {
        Ok((head.kind, payload))
    } else {
        Err(End::Damaged)
    }
}

/// The first whole frame of a stretch of the file whose payload begins with this mark, or the last
/// one. The search and each false mark count in `tries`.
pub fn find_marked(
    file: &File,
    stretch: Range<u64>,
    mark: [u8; MARK_LENGTH],
    last: bool,
    tries: &mut usize,
) -> Option<(u64, Vec<u8>)> {
    let length = stretch.end;
    let blocks = (stretch.end - stretch.start).div_ceil(BLOCK as u64);
    *tries = tries.checked_sub(1)?;
    for n in 0..blocks {
        let from = stretch.start + if last { blocks - 1 - n } else { n } * BLOCK as u64;
        // As much of the next block as a mark across their border needs.
        let mut block = vec![0; (BLOCK + MARK_LENGTH - 1).min((length - from) as usize)];
        file.read_exact_at(&mut block, from).ok()?;
        let found = block
            .windows(MARK_LENGTH)
            .enumerate()
            .filter(|(_, bytes)| bytes[0] == mark[0] && **bytes == mark);
        let mut places: Vec<u64> = found.map(|(i, _)| from + i as u64).collect();
        if last {
            places.reverse();
        }
        for at in places
            .into_iter()
            .filter_map(|mark| mark.checked_sub(HEAD as u64))
        {
            if at >= stretch.start
                && let Ok((_, payload)) = read_frame(file, length, at)
            {
                return Some((at, payload));
            }
            *tries = tries.checked_sub(1)?;
        }
    }
    None
}
