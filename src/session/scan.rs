//! Going through the frames of a file one after another.

use super::frame::{FrameKind, HEAD, Head};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes read at a time.
const BLOCK: usize = 1 << 20;

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

    /// The next frame's place and payload.
    pub fn next(&mut self) -> Result<(u64, FrameKind, &[u8]), End> {
        if self.at >= self.length {
            return Err(End::Whole);
        }
        let left = self.length - self.at;
        let seen = self.bytes(self.at, HEAD.min(left as usize)).map_err(|_| End::Unreadable)?;
        if seen.len() < HEAD {
            // A frame begins with its kind: what cannot be one was not cut, but damaged.
            return Err(if seen.first().is_some_and(|b| (1..=7).contains(b)) { End::Cut } else { End::Damaged });
        }
        let head = Head::parse(seen).ok_or(End::Damaged)?;
        if (head.length + HEAD) as u64 > left {
            return Err(End::Cut);
        }
        let place = self.at;
        self.at += (head.length + HEAD) as u64;
        let payload = match self.bytes(place + HEAD as u64, head.length) {
            Ok(p) if head.fits(p) => head.length,
            Ok(_) => {
                self.at = place;
                return Err(End::Damaged);
            }
            Err(_) => {
                self.at = place;
                return Err(End::Unreadable);
            }
        };
        Ok((place, head.kind, self.bytes(place + HEAD as u64, payload).map_err(|_| End::Unreadable)?))
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

/// One frame's payload.
pub fn read_frame(file: &File, length: u64, at: u64) -> Option<(FrameKind, Vec<u8>)> {
    let mut head = [0; HEAD];
    if at.checked_add(HEAD as u64)? > length {
        return None;
    }
    file.read_exact_at(&mut head, at).ok()?;
    let head = Head::parse(&head)?;
    if at + (HEAD + head.length) as u64 > length {
        return None;
    }
    let mut payload = vec![0; head.length];
    file.read_exact_at(&mut payload, at + HEAD as u64).ok()?;
    head.fits(&payload).then_some((head.kind, payload))
}
