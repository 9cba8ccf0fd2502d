//! The records of a `perf.data` as one plain stream, whatever the file is: recorded to a file or to a pipe, compressed or not.
//!
//! What comes out is what `perf record -o -` writes, less what is not needed: attributes, samples, names, losses and the marks of
//! finished rounds. `linux-perf-data` reads that. This stands before it because it does not know the formats that a pipe carries
//! between its records, and so that a damaged file can ask for no more memory than what is set here.

use super::header::{self, Header};
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe::DParameter;

/// Types of records (tools/lib/perf/include/perf/event.h, `include/uapi/linux/perf_event.h`).
mod kind {
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

/// Formats of a kernel take some MiB at most.
const MAX_TRACING_DATA: u64 = 64 << 20;
/// Compressed records are unpacked in pieces of this size, with a window of at most 2^25 bytes (`perf record -z20`).
const PIECE: usize = 256 * 1024;
const WINDOW_LOG: u32 = 25;
/// Ids that fit into one record of an attribute, whose size has 16 bits.
const IDS_BYTES: usize = 60_000;

const CUT: &str = "the file ends within a record: it was cut off";

/// What is met on the way.
#[derive(Debug, Default)]
pub(super) struct Met {
    /// Parts by feature bit, from the file's header or from the stream.
    pub header: Header,
    /// The records end within one, or one has a size that cannot be, or cannot be unpacked.
    pub damaged: Option<&'static str>,
}

/// What is met on the way, shared with whoever reads the stream.
pub(super) type Shared = Arc<Mutex<Met>>;

/// A lock that no panic can spoil.
pub(super) fn lock(shared: &Shared) -> std::sync::MutexGuard<'_, Met> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stream.
pub(super) struct Stream<R> {
    source: R,
    big_endian: bool,
    left: Option<u64>,
    out: Vec<u8>,
    at: usize,
    body: Vec<u8>,
    zstd: Option<Unpack>,
    met: Shared,
    ended: bool,
}

/// A compressed record at work.
struct Unpack {
    decoder: Decoder<'static>,
    packed: Vec<u8>,
    at: usize,
    /// Unpacked bytes that are no whole record yet.
    plain: Vec<u8>,
}

impl<R: Read> Stream<R> {
    /// From the first record on, `met` holding the header.
    pub fn new(source: R, met: &Shared) -> Self {
        let (big_endian, left, mut out) = {
            let met = lock(met);
            (met.header.big_endian, met.header.data_len, Vec::new())
        };
        out.extend_from_slice(if big_endian { b"2ELIFREP" } else { b"PERFILE2" });
        out.extend_from_slice(&if big_endian { 16u64.to_be_bytes() } else { 16u64.to_le_bytes() });
        let mut stream =
            Self { source, big_endian, left, out, at: 0, body: Vec::new(), zstd: None, met: met.clone(), ended: false };
        for (attr, ids) in std::mem::take(&mut lock(met).header.attrs) {
            for ids in ids.chunks(IDS_BYTES).chain(ids.is_empty().then_some(&[] as &[u8])) {
                let body: Vec<u8> = attr.iter().chain(ids).copied().collect();
                stream.emit(kind::HEADER_ATTR, 0, &body);
            }
        }
        stream
    }

    /// Type, flags and size: the header of each record.
    fn head(&self, bytes: [u8; 8]) -> (u32, u16, u16) {
        let [k0, k1, k2, k3, m0, m1, s0, s1] = bytes;
        if self.big_endian {
            (u32::from_be_bytes([k0, k1, k2, k3]), u16::from_be_bytes([m0, m1]), u16::from_be_bytes([s0, s1]))
        } else {
            (u32::from_le_bytes([k0, k1, k2, k3]), u16::from_le_bytes([m0, m1]), u16::from_le_bytes([s0, s1]))
        }
    }

    fn emit(&mut self, kind: u32, misc: u16, body: &[u8]) {
        let size = body.len() as u16 + 8;
        if self.big_endian {
            self.out.extend_from_slice(&kind.to_be_bytes());
            self.out.extend_from_slice(&misc.to_be_bytes());
            self.out.extend_from_slice(&size.to_be_bytes());
        } else {
            self.out.extend_from_slice(&kind.to_le_bytes());
            self.out.extend_from_slice(&misc.to_le_bytes());
            self.out.extend_from_slice(&size.to_le_bytes());
        }
        self.out.extend_from_slice(body);
    }

    fn end(&mut self, damage: Option<&'static str>) {
        self.ended = true;
        if damage.is_some() {
            lock(&self.met).damaged = damage;
        }
    }

    /// Reads the next record of the source into `out`.
    fn next(&mut self) -> io::Result<()> {
        if self.unpack() {
            return Ok(());
        }
        if self.left == Some(0) {
            self.end(None);
            return Ok(());
        }
        let mut head = [0; 8];
        match self.fill(&mut head)? {
            0 => {
                self.end(self.left.map(|_| "the file ends before its records do: it was cut off"));
                return Ok(());
            }
            8 => {}
            _ => {
                self.end(Some(CUT));
                return Ok(());
            }
        }
        let (kind, misc, size) = self.head(head);
        let Some(length) = usize::from(size).checked_sub(8) else {
            self.end(Some("a record has a size that cannot be; what follows is left out"));
            return Ok(());
        };
        let mut body = std::mem::take(&mut self.body);
        body.resize(length, 0);
        if self.fill(&mut body)? < length {
            self.end(Some(CUT));
            return Ok(());
        }
        self.record(kind, misc, &body)?;
        self.body = body;
        Ok(())
    }

    fn record(&mut self, kind: u32, misc: u16, body: &[u8]) -> io::Result<()> {
        match kind {
            kind::HEADER_TRACING_DATA => {
                let size = match body.first_chunk::<4>() {
                    Some(bytes) if self.big_endian => u64::from(u32::from_be_bytes(*bytes)),
                    Some(bytes) => u64::from(u32::from_le_bytes(*bytes)),
                    None => 0,
                };
                let formats = self.attached(size.next_multiple_of(8))?;
                self.keep(header::TRACING_DATA, formats);
            }
            // Bulk data of processor traces follows the record.
            kind::AUXTRACE => {
                let size = body.first_chunk::<8>().map_or(0, |b| header::u64_of(*b, self.big_endian));
                let skipped = io::copy(&mut self.source.by_ref().take(size), &mut io::sink())?;
                self.left = self.left.map(|left| left.saturating_sub(skipped));
            }
            kind::HEADER_FEATURE => {
                if let Some((feature, part)) = body.split_first_chunk::<8>() {
                    let feature = header::u64_of(*feature, self.big_endian);
                    self.keep(u32::try_from(feature).unwrap_or(u32::MAX), part.to_vec());
                }
            }
            kind::COMPRESSED => self.packed(body)?,
            kind::COMPRESSED2 => {
                let packed = body
                    .split_first_chunk::<8>()
                    .and_then(|(size, rest)| rest.get(..usize::try_from(header::u64_of(*size, self.big_endian)).ok()?));
                self.packed(packed.unwrap_or_default())?;
            }
            kind if wanted(kind) => self.emit(kind, misc, body),
            _ => {}
        }
        Ok(())
    }

    fn keep(&mut self, feature: u32, part: Vec<u8>) {
        let parts = &mut lock(&self.met).header.parts;
        if parts.len() < 64 && !parts.iter().any(|p| p.0 == feature) {
            parts.push((feature, part));
        }
    }

    /// Bytes that follow a record without being one.
    fn attached(&mut self, size: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if size > MAX_TRACING_DATA {
            self.end(Some("the kernel's event formats in it have a size that cannot be"));
            return Ok(bytes);
        }
        let read = self.source.by_ref().take(size).read_to_end(&mut bytes)?;
        self.left = self.left.map(|left| left.saturating_sub(read as u64));
        Ok(bytes)
    }

    /// Reads as much as there is, up to the buffer's size.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = self.left.map_or(buffer.len(), |left| buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..room).filter(|r| !r.is_empty()) {
            match self.source.read(rest) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.left = self.left.map(|left| left - done as u64);
        Ok(done)
    }

    fn packed(&mut self, body: &[u8]) -> io::Result<()> {
        if self.zstd.is_none() {
            let mut decoder = Decoder::new()?;
            decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG))?;
            self.zstd = Some(Unpack { decoder, packed: Vec::new(), at: 0, plain: Vec::new() });
        }
        if let Some(zstd) = &mut self.zstd {
            zstd.packed.clear();
            zstd.packed.extend_from_slice(body);
            zstd.at = 0;
        }
        self.unpack();
        Ok(())
    }

    /// Unpacks a piece; false when there is nothing to unpack.
    fn unpack(&mut self) -> bool {
        let Some(mut zstd) = self.zstd.take() else { return false };
        let more = zstd.at < zstd.packed.len();
        if more {
            let whole = zstd.piece();
            let mut rest = zstd.plain.as_slice();
            while let Some((head, after)) = rest.split_first_chunk::<8>() {
                let (kind, misc, size) = self.head(*head);
                let Some(length) = usize::from(size).checked_sub(8) else {
                    self.end(Some("a compressed record has a size that cannot be; what follows is left out"));
                    break;
                };
                let Some((body, after)) = after.split_at_checked(length) else { break };
                if wanted(kind) {
                    self.emit(kind, misc, body);
                }
                rest = after;
            }
            let used = zstd.plain.len() - rest.len();
            zstd.plain.drain(..used);
            if !whole {
                self.end(Some("compressed records cannot be unpacked; what follows is left out"));
            }
        }
        self.zstd = Some(zstd);
        more
    }
}

impl Unpack {
    /// Unpacks up to a piece; false when it cannot be.
    fn piece(&mut self) -> bool {
        let old = self.plain.len();
        self.plain.resize(old + PIECE, 0);
        let packed = self.packed.get(self.at..).unwrap_or_default();
        let mut input = InBuffer::around(packed);
        let (done, written) = {
            let mut output = OutBuffer::around(self.plain.get_mut(old..).unwrap_or_default());
            let done = self.decoder.run(&mut input, &mut output);
            (done, output.pos())
        };
        self.at += input.pos;
        self.plain.truncate(old + written);
        match done {
            // The end of a frame; another may follow.
            Ok(0) => self.at >= self.packed.len() || self.decoder.reinit().is_ok(),
            Ok(_) => input.pos > 0 || written > 0,
            Err(_) => false,
        }
    }
}

/// Records that are passed on.
fn wanted(kind: u32) -> bool {
    use kind::{COMM, FINISHED_ROUND, HEADER_ATTR, LOST, LOST_SAMPLES, SAMPLE};
    matches!(kind, LOST | COMM | SAMPLE | LOST_SAMPLES | HEADER_ATTR | FINISHED_ROUND)
}

impl<R: Read> Read for Stream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at >= self.out.len() && !self.ended {
            self.out.clear();
            self.at = 0;
            self.next()?;
        }
        let ready = self.out.get(self.at..).unwrap_or_default();
        let n = ready.len().min(buffer.len());
        buffer[..n].copy_from_slice(&ready[..n]);
        self.at += n;
        Ok(n)
    }
}
