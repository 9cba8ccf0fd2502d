//! Going through the frames of a file, and finding frames again behind damage.

use crate::session::format::{Frame, FrameHead, FrameKind, HEAD, MARK_LENGTH};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes read at a time.
const BLOCK: usize = 1 << 20;
/// After so many places that look like a frame and are none, a search ends: a hostile file could have millions.
const MOST_TRIES: usize = 64;

/// Why a walk over the frames ended.
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

/// A walk over the frames.
#[derive(Debug)]
pub struct Scan<'a> {
    file: &'a File,
    length: u64,
    /// Where the next frame begins.
    pub at: u64,
    block: Vec<u8>,
    block_at: u64,
}

impl<'a> Scan<'a> {
    /// Begins at a frame.
    pub fn new(file: &'a File, length: u64, at: u64) -> Self {
        Self { file, length, at, block: Vec::new(), block_at: 0 }
    }

    /// The next frame. The walk stays where it is when there is none.
    pub fn next(&mut self) -> Result<Frame<'_>, End> {
        let at = self.at;
        let left = self.length.saturating_sub(at);
        if left == 0 {
            return Err(End::Whole);
        }
        let seen = self.bytes(at, HEAD.min(left as usize)).map_err(|_| End::Unreadable)?;
        if seen.len() < HEAD {
            // A frame begins with its kind: what cannot be one was not cut, but damaged.
            return Err(if seen.first().is_some_and(|b| FrameKind::may_begin_with(*b)) {
                End::Cut
            } else {
                End::Damaged
            });
        }
        let head = FrameHead::parse(seen).ok_or(End::Damaged)?;
        if (head.length + HEAD) as u64 > left {
            return Err(End::Cut);
        }
        let payload = self.bytes(at + HEAD as u64, head.length).map_err(|_| End::Unreadable)?;
        if !head.fits(payload) {
            return Err(End::Damaged);
        }
        self.at = at + (HEAD + head.length) as u64;
        // Borrowed once more: the walk's place could not be moved meanwhile.
        let start = (at + HEAD as u64 - self.block_at) as usize;
        Ok(Frame { at, kind: head.kind, payload: &self.block[start..start + head.length] })
    }

    fn bytes(&mut self, at: u64, n: usize) -> io::Result<&[u8]> {
        let end = at + n as u64;
        if at < self.block_at || end > self.block_at + self.block.len() as u64 {
            let want = n.max(BLOCK).min((self.length - at) as usize);
            self.block.resize(want, 0);
            self.block_at = at;
            if let Err(e) = self.file.read_exact_at(&mut self.block, at) {
                self.block.clear();
                return Err(e);
            }
        }
        let start = (at - self.block_at) as usize;
        Ok(&self.block[start..start + n])
    }
}

/// One frame: what it holds and its payload; `None` where there is no whole one.
pub fn read_frame(file: &File, length: u64, at: u64) -> Option<(FrameKind, Vec<u8>)> {
    let mut head = [0; HEAD];
    if at.checked_add(HEAD as u64)? > length {
        return None;
    }
    file.read_exact_at(&mut head, at).ok()?;
    let head = FrameHead::parse(&head)?;
    if at + (HEAD + head.length) as u64 > length {
        return None;
    }
    let mut payload = vec![0; head.length];
    file.read_exact_at(&mut payload, at + HEAD as u64).ok()?;
    head.fits(&payload).then_some((head.kind, payload))
}

/// The first whole frame between two places whose payload begins with this mark.
pub fn first_marked(file: &File, range: (u64, u64), mark: [u8; MARK_LENGTH]) -> Option<u64> {
    let (mut from, length) = range;
    let mut tries = 0;
    while from < length {
        let block = block(file, from, length)?;
        for i in places(&block, mark) {
            let at = (from + i as u64).checked_sub(HEAD as u64)?;
            if at >= range.0 && read_frame(file, length, at).is_some() {
                return Some(at);
            }
            tries += 1;
            if tries > MOST_TRIES {
                return None;
            }
        }
        from += BLOCK as u64;
    }
    None
}

/// The last whole frame within so many bytes before the end of a file whose payload begins with this mark.
pub fn last_marked(file: &File, length: u64, within: u64, mark: [u8; MARK_LENGTH]) -> Option<(u64, Vec<u8>)> {
    let mut upto = length;
    let mut tries = 0;
    while upto > 0 && length - upto < within {
        let from = upto.saturating_sub(BLOCK as u64);
        let block = block(file, from, length)?;
        let places: Vec<usize> = places(&block, mark).filter(|i| from + (*i as u64) < upto).collect();
        for i in places.into_iter().rev() {
            let at = (from + i as u64).checked_sub(HEAD as u64)?;
            if let Some((_, payload)) = read_frame(file, length, at) {
                return Some((at, payload));
            }
            tries += 1;
            if tries > MOST_TRIES {
                return None;
            }
        }
        upto = from;
    }
    None
}

/// A block and as much of the next as a mark across their border needs.
fn block(file: &File, from: u64, length: u64) -> Option<Vec<u8>> {
    let mut block = vec![0; (BLOCK + MARK_LENGTH - 1).min((length - from) as usize)];
    file.read_exact_at(&mut block, from).ok()?;
    Some(block)
}

fn places(block: &[u8], mark: [u8; MARK_LENGTH]) -> impl Iterator<Item = usize> {
    block
        .windows(MARK_LENGTH)
        .enumerate()
        .filter(move |(_, bytes)| bytes[0] == mark[0] && **bytes == mark)
        .map(|(i, _)| i)
}
