//! One file of a recording, for reading.

use super::facts::{self, Header};
use super::frame::{self, FrameKind, HEAD, PROLOGUE};
use super::index::{Chunk, Index, MARK};
use super::sample_frame::Stamp;
use super::scan::{End, Scan, read_frame};
use anyhow::{Context, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Recordings up to this size are checked from the first byte to the last when they are opened; longer ones by their index, and
/// the rest of them when it is read.
pub const CHECKED_WHOLE: u64 = 32 << 20;
/// How far from the end of a file that was not closed an index is looked for.
const SEARCHED: u64 = 128 << 20;

/// What is known of a file.
#[derive(Debug)]
pub(super) struct Part {
    /// Its schema version.
    pub schema: u32,
    /// The file.
    pub file: File,
    /// Its length when it was last looked at.
    pub length: u64,
    /// Where its whole frames end.
    pub end: u64,
    /// Samples in it.
    pub samples: u32,
    /// Time of the last.
    pub last_ms: i64,
    /// Its chunks in order.
    pub chunks: Vec<Chunk>,
    /// What the first run said of itself.
    pub header: Option<Header>,
    /// Where the last index frame is; 0 for none.
    pub last_index: u64,
    /// Why it is read no further than `end`.
    pub stop: End,
    run: bool,
}

impl Part {
    /// Opens a file and finds its samples.
    ///
    /// # Errors
    /// When it is no session, of a newer version, or cannot be read.
    /// `checked` is how many bytes may be checked from the first to the last; a longer file is opened by its index.
    pub fn open(file: File, checked: u64) -> Result<Self> {
        let length = file.metadata().context("cannot tell its size")?.len();
        let mut first = [0; PROLOGUE];
        let n = first.len().min(length as usize);
        file.read_exact_at(&mut first[..n], 0).context("cannot read it")?;
        let schema = frame::check_prologue(&first[..n])?;
        let mut part = Self {
            schema,
            file,
            length,
            end: PROLOGUE as u64,
            samples: 0,
            last_ms: 0,
            chunks: Vec::new(),
            header: None,
            last_index: 0,
            stop: End::Whole,
            run: false,
        };
        if length > checked {
            part.by_index();
        }
        part.go_on();
        Ok(part)
    }

    /// The same once more, with a file of its own.
    pub fn again(&self) -> Result<Self> {
        let (chunks, header) = (self.chunks.clone(), self.header.clone());
        Ok(Self { file: self.file.try_clone().context("cannot open the file once more")?, chunks, header, ..*self })
    }

    /// Looks for frames behind the last one known. Answers whether there were any.
    pub fn go_on(&mut self) -> bool {
        self.length = self.file.metadata().map_or(self.length, |m| m.len());
        let before = self.end;
        // The walk borrows the file while it fills the rest of the part.
        let Ok(file) = self.file.try_clone() else { return false };
        let mut scan = Scan::new(&file, self.length, self.end);
        self.stop = loop {
            match scan.next() {
                Ok((at, kind, payload)) => {
                    if !self.take(at, kind, payload) {
                        break End::Damaged;
                    }
                }
                Err(end) => break end,
            }
            self.end = scan.at;
        };
        self.end > before
    }

    /// Takes note of a frame; false for one that cannot follow those before.
    fn take(&mut self, at: u64, kind: FrameKind, payload: &[u8]) -> bool {
        match kind {
            FrameKind::Header => {
                self.run = true;
                if self.header.is_none() {
                    self.header = facts::unpack(payload).ok();
                }
            }
            FrameKind::HostFacts | FrameKind::DomainFacts => {}
            FrameKind::Key | FrameKind::Branch => {
                let Some(stamp) = Stamp::parse(payload) else { return false };
                let key = kind == FrameKind::Key;
                if stamp.number != self.samples || (!key && self.chunks.is_empty()) {
                    return false;
                }
                let run = std::mem::take(&mut self.run);
                self.chunks.push(Chunk { offset: at, number: stamp.number, time_ms: stamp.time_ms, key, run });
                self.samples += 1;
                self.last_ms = stamp.time_ms;
            }
            FrameKind::Delta => {
                if self.chunks.is_empty() {
                    return false;
                }
                self.samples += 1;
            }
            FrameKind::Index => {
                let Some(index) = Index::unpack(payload) else { return false };
                self.last_index = at;
                self.last_ms = index.last_ms;
            }
        }
        true
    }

    /// Fills the part from its index frames; leaves it as it was when they do not fit together.
    fn by_index(&mut self) {
        let Some((last, end)) = self.find_index() else { return };
        let mut indexes: Vec<Index> = Vec::new();
        let mut at = last;
        while at != 0 {
            let Some((FrameKind::Index, payload)) = read_frame(&self.file, self.length, at) else { return };
            let Some(index) = Index::unpack(&payload) else { return };
            if index.before >= at {
                return;
            }
            at = index.before;
            indexes.push(index);
        }
        let (Some(samples), Some(last_ms)) = (indexes.first().map(|i| i.samples), indexes.first().map(|i| i.last_ms))
        else {
            return;
        };
        let chunks: Vec<Chunk> = indexes.into_iter().rev().flat_map(|i| i.chunks).collect();
        let sorted = chunks.windows(2).all(|w| w[0].offset < w[1].offset && w[0].number < w[1].number);
        let fits = chunks.first().is_some_and(|c| c.key && c.number == 0)
            && chunks.last().is_some_and(|c| c.number < samples && c.offset < last);
        if !sorted || !fits {
            return;
        }
        let first = read_frame(&self.file, self.length, PROLOGUE as u64);
        self.header = first.filter(|f| f.0 == FrameKind::Header).and_then(|f| facts::unpack(&f.1).ok());
        (self.chunks, self.samples, self.last_ms) = (chunks, samples, last_ms);
        (self.last_index, self.end) = (last, end);
    }

    /// The last whole index frame: where it is and where it ends.
    fn find_index(&self) -> Option<(u64, u64)> {
        const STEP: u64 = 1 << 20;
        let mut block = Vec::new();
        let mut upto = self.length;
        while upto > PROLOGUE as u64 && self.length - upto < SEARCHED {
            let from = upto.saturating_sub(STEP).max(PROLOGUE as u64);
            // A mark may lie across the border of two steps.
            let to = (upto + MARK.len() as u64).min(self.length);
            block.resize((to - from) as usize, 0);
            self.file.read_exact_at(&mut block, from).ok()?;
            for i in (0..block.len().saturating_sub(MARK.len() - 1)).rev() {
                if block[i] == MARK[0] && block[i..].starts_with(&MARK) {
                    let at = (from + i as u64).checked_sub(HEAD as u64)?;
                    if let Some((FrameKind::Index, payload)) = read_frame(&self.file, self.length, at) {
                        return Some((at, at + (HEAD + payload.len()) as u64));
                    }
                }
            }
            upto = from;
        }
        None
    }

    /// Number of the chunk that holds a sample.
    pub fn chunk_of(&self, number: u32) -> usize {
        self.chunks.partition_point(|c| c.number <= number).saturating_sub(1)
    }
}
