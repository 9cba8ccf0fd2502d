//! Reads the records of a `perf.data` one by one, recorded to a file or to a pipe, compressed or not.
//!
//! A record is handed out in place, without a copy. The formats and header parts that a pipe has between its records
//! are stored on the way. The limits here bound the memory that a damaged file can make kvmtop use.

use super::header::{self, PerfDataHeader};
use std::io::{self, Read, Take};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe::DParameter;

/// Types of records (tools/lib/perf/include/perf/event.h, `include/uapi/linux/perf_event.h`).
pub(super) mod kind {
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const SAMPLE: u32 = 9;
    pub const LOST_SAMPLES: u32 = 13;
    pub const HEADER_ATTR: u32 = 64;
    pub const HEADER_TRACING_DATA: u32 = 66;
    pub const FINISHED_ROUND: u32 = 68;
    pub const AUXTRACE: u32 = 71;
    pub const HEADER_FEATURE: u32 = 80;
    pub const COMPRESSED: u32 = 81;
    pub const COMPRESSED2: u32 = 83;
}

/// Limit of the formats of a kernel, which take a few MiB.
const MAX_TRACING_DATA: u64 = 64 << 20;
/// Bytes read or decompressed at a time. A record has at most 64 KiB.
const PIECE: usize = 512 * 1024;
/// Compressed records need a window of at most 2^25 bytes (`perf record -z20`).
const WINDOW_LOG: u32 = 25;
const CUT: &str = "the file ends within a record: it was cut off";
const SIZE: &str = "a record has an impossible size; the rest is left out";

/// What reading the records has found so far.
#[derive(Debug, Default)]
pub(super) struct ReadState {
    /// The header, its parts from the file or from the stream.
    pub header: PerfDataHeader,
    /// Why the records end early: within a record, at an impossible size, or at damaged compressed data.
    pub damaged: Option<&'static str>,
}

/// The state, shared with the users of the records.
pub(super) type SharedState = Arc<Mutex<ReadState>>;

/// Locks the state, even after a panic of another user.
pub(super) fn lock(shared: &SharedState) -> std::sync::MutexGuard<'_, ReadState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A record: its type and the bytes after its header.
#[derive(Debug, Clone, Copy)]
pub(super) struct PerfRecord<'a> {
    pub kind: u32,
    pub body: &'a [u8],
}

/// Reads the records.
pub(super) struct Records<R> {
    source: Take<R>,
    big_endian: bool,
    /// Whether the header states the number of bytes of records.
    sized: bool,
    buffer: Vec<u8>,
    /// The unread part of `buffer`.
    unread: Range<usize>,
    zstd: Option<Decompression>,
    state: SharedState,
    ended: bool,
}

/// Decompression of records.
struct Decompression {
    decoder: Decoder<'static>,
    packed: Vec<u8>,
    at: usize,
    plain: Vec<u8>,
    used: usize,
}

impl<R: Read> Records<R> {
    /// From the first record on. `state` holds the header.
    pub fn new(source: R, state: &SharedState) -> Self {
        let (big_endian, length) = {
            let state = lock(state);
            (state.header.big_endian, state.header.data_len)
        };
        Self {
            source: source.take(length.unwrap_or(u64::MAX)),
            big_endian,
            sized: length.is_some(),
            buffer: vec![0; 2 * PIECE],
            unread: 0..0,
            zstd: None,
            state: state.clone(),
            ended: false,
        }
    }

    /// The next record.
    pub fn next(&mut self) -> io::Result<Option<PerfRecord<'_>>> {
        loop {
            if let Some((kind, body)) = self.decompressed() {
                let plain = self.zstd.as_ref().map(|z| z.plain.as_slice()).unwrap_or_default();
                return Ok(Some(PerfRecord { kind, body: &plain[body] }));
            }
            if self.ended {
                return Ok(None);
            }
            let Some((kind, body)) = self.plain()? else { continue };
            if !self.handle(kind, &body)? {
                return Ok(Some(PerfRecord { kind, body: &self.buffer[body] }));
            }
        }
    }

    /// The next record of the source, as its type and range in the buffer.
    fn plain(&mut self) -> io::Result<Option<(u32, Range<usize>)>> {
        if !self.ensure(8)? {
            let cut = !self.unread.is_empty() || self.sized && self.source.limit() > 0;
            self.end(cut.then_some(CUT));
            return Ok(None);
        }
        let (kind, size) = head(&self.buffer[self.unread.clone()], self.big_endian).unwrap_or_default();
        if size < 8 {
            self.end(Some(SIZE));
            return Ok(None);
        }
        if !self.ensure(size)? {
            self.end(Some(CUT));
            return Ok(None);
        }
        let start = self.unread.start;
        self.unread.start += size;
        Ok(Some((kind, start + 8..start + size)))
    }

    /// Reads until the buffer holds this number of unread bytes. Returns false at the end of the source.
    fn ensure(&mut self, size: usize) -> io::Result<bool> {
        while self.unread.len() < size {
            if self.buffer.len() - self.unread.end < PIECE {
                self.buffer.copy_within(self.unread.clone(), 0);
                self.unread = 0..self.unread.len();
            }
            match self.source.read(&mut self.buffer[self.unread.end..]) {
                Ok(0) => return Ok(false),
                Ok(n) => self.unread.end += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Handles records about the file itself. Returns false for all others.
    fn handle(&mut self, kind: u32, body: &Range<usize>) -> io::Result<bool> {
        let bytes = &self.buffer[body.clone()];
        let word = |bytes: &[u8]| bytes.first_chunk::<8>().map_or(0, |b| header::u64_of(*b, self.big_endian));
        match kind {
            kind::HEADER_TRACING_DATA => {
                let size = bytes
                    .first_chunk::<4>()
                    .map_or(0, |b| if self.big_endian { u32::from_be_bytes(*b) } else { u32::from_le_bytes(*b) });
                let formats = self.attached(u64::from(size).next_multiple_of(8))?;
                self.keep(header::TRACING_DATA, formats);
            }
            kind::HEADER_FEATURE => {
                let (feature, part) = (word(bytes), bytes.get(8..).unwrap_or_default().to_vec());
                self.keep(u32::try_from(feature).unwrap_or(u32::MAX), part);
            }
            // The data of a processor trace follows the record.
            kind::AUXTRACE => self.skip(word(bytes))?,
            kind::COMPRESSED => self.start_decompression(&body.clone())?,
            kind::COMPRESSED2 => {
                let size = usize::try_from(word(bytes)).unwrap_or(usize::MAX).min(body.len().saturating_sub(8));
                self.start_decompression(&(body.start + 8..body.start + 8 + size))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn end(&mut self, damage: Option<&'static str>) {
        self.ended = true;
        if damage.is_some() {
            lock(&self.state).damaged = damage;
        }
    }

    fn keep(&mut self, feature: u32, part: Vec<u8>) {
        let parts = &mut lock(&self.state).header.parts;
        if parts.len() < 64 && !parts.iter().any(|p| p.0 == feature) {
            parts.push((feature, part));
        }
    }

    /// Reads the bytes attached to a record.
    fn attached(&mut self, size: u64) -> io::Result<Vec<u8>> {
        if size > MAX_TRACING_DATA {
            self.end(Some("its kernel event formats have an impossible size"));
            return Ok(Vec::new());
        }
        let buffered = self.buffered(size);
        let mut bytes = self.buffer[buffered].to_vec();
        self.source.by_ref().take(size - bytes.len() as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn skip(&mut self, size: u64) -> io::Result<()> {
        let buffered = self.buffered(size).len() as u64;
        io::copy(&mut self.source.by_ref().take(size - buffered), &mut io::sink())?;
        Ok(())
    }

    /// Takes at most this number of the bytes that were read already.
    fn buffered(&mut self, size: u64) -> Range<usize> {
        let n = self.unread.len().min(usize::try_from(size).unwrap_or(usize::MAX));
        let taken = self.unread.start..self.unread.start + n;
        self.unread.start += n;
        taken
    }

    fn start_decompression(&mut self, body: &Range<usize>) -> io::Result<()> {
        if self.zstd.is_none() {
            let mut decoder = Decoder::new()?;
            decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG))?;
            self.zstd = Some(Decompression { decoder, packed: Vec::new(), at: 0, plain: Vec::new(), used: 0 });
        }
        if let Some(zstd) = &mut self.zstd {
            zstd.packed.clear();
            zstd.packed.extend_from_slice(self.buffer.get(body.clone()).unwrap_or_default());
            zstd.at = 0;
        }
        Ok(())
    }

    /// The next decompressed record, as its type and range in the decompressed bytes. Bytes after the last complete
    /// record are the beginning of one that continues in the next compressed record.
    fn decompressed(&mut self) -> Option<(u32, Range<usize>)> {
        loop {
            let zstd = self.zstd.as_mut()?;
            let rest = zstd.plain.get(zstd.used..).unwrap_or_default();
            if let Some((kind, size)) = head(rest, self.big_endian) {
                if size < 8 {
                    self.zstd = None;
                    self.end(Some(SIZE));
                    return None;
                }
                if rest.len() >= size {
                    let start = zstd.used;
                    zstd.used += size;
                    return Some((kind, start + 8..start + size));
                }
            }
            if zstd.at >= zstd.packed.len() {
                return None;
            }
            if !zstd.piece() {
                self.zstd = None;
                self.end(Some("compressed records cannot be decompressed; the rest is left out"));
                return None;
            }
        }
    }
}

impl Decompression {
    /// Decompresses another piece after the unused bytes. Returns false if that fails.
    fn piece(&mut self) -> bool {
        self.plain.drain(..self.used);
        self.used = 0;
        let old = self.plain.len();
        self.plain.resize(old + PIECE, 0);
        let mut input = InBuffer::around(self.packed.get(self.at..).unwrap_or_default());
        let (done, written) = {
            let mut output = OutBuffer::around(self.plain.get_mut(old..).unwrap_or_default());
            (self.decoder.run(&mut input, &mut output), output.pos())
        };
        let read = input.pos;
        self.at += read;
        self.plain.truncate(old + written);
        match done {
            // The end of a frame; another one can follow.
            Ok(0) => self.at >= self.packed.len() || self.decoder.reinit().is_ok(),
            Ok(_) => read > 0 || written > 0,
            Err(_) => false,
        }
    }
}

/// Type and size of the record that starts here.
fn head(bytes: &[u8], big_endian: bool) -> Option<(u32, usize)> {
    let [k0, k1, k2, k3, _, _, s0, s1] = *bytes.first_chunk::<8>()?;
    Some(if big_endian {
        (u32::from_be_bytes([k0, k1, k2, k3]), usize::from(u16::from_be_bytes([s0, s1])))
    } else {
        (u32::from_le_bytes([k0, k1, k2, k3]), usize::from(u16::from_le_bytes([s0, s1])))
    })
}
