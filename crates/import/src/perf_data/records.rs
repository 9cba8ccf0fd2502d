//! Reads the records of a `perf.data` one by one, recorded to a file or to a pipe, compressed or not.
//!
//! The formats and header parts that a pipe has between its records are stored on the way. The limits here bound the
//! memory that a damaged file can make kvmtop use.

use super::header::{PartReader, PerfDataHeader};
use linux_perf_data::linux_perf_event_reader::RecordType;
use linux_perf_data::{Feature, UserRecordType};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Take, Write};
use zstd::stream::write::Decoder;

/// Limit of the formats of a kernel, which take a few MiB.
const MAX_TRACING_DATA: u64 = 64 << 20;
/// Limit of the parts of a header.
const MAX_PARTS: usize = 64;
/// Bytes read at a time.
const BUFFER: usize = 512 * 1024;
/// Compressed records need a window of at most 2^25 bytes (`perf record -z20`).
const WINDOW_LOG: u32 = 25;
const CUT: &str = "the file ends within a record: it was cut off";
const SIZE: &str = "a record has an impossible size; the rest is left out";
const COMPRESSION: &str = "compressed records cannot be decompressed; the rest is left out";

/// Reads the records.
pub(super) struct Records {
    source: Take<BufReader<File>>,
    /// The header, its parts from the file or from the stream.
    pub header: PerfDataHeader,
    /// Why the records end early: within a record, at an impossible size, or at damaged compressed data.
    pub damaged: Option<&'static str>,
    /// The current record without its header.
    pub body: Vec<u8>,
    zstd: Option<Decompression>,
    ended: bool,
}

/// Decompression of records.
struct Decompression {
    decoder: Decoder<'static, Vec<u8>>,
    packed: Vec<u8>,
    /// The position of the first byte of `packed` that was not decompressed yet; beyond it once all was flushed.
    at: usize,
    /// Decompressed bytes that were used.
    used: usize,
}

impl Records {
    /// From the first record on.
    pub fn new(source: File, header: PerfDataHeader) -> Self {
        let source = BufReader::with_capacity(BUFFER, source).take(header.data_len.unwrap_or(u64::MAX));
        Self { source, header, damaged: None, body: Vec::new(), zstd: None, ended: false }
    }

    /// Reads the next record into `body`; returns its type, or `None` at the end.
    pub fn next(&mut self) -> io::Result<Option<RecordType>> {
        loop {
            if let Some(kind) = self.decompressed() {
                return Ok(Some(kind));
            }
            if self.ended {
                return Ok(None);
            }
            let Some(kind) = self.plain()? else { continue };
            if !self.handle(kind)? {
                return Ok(Some(kind));
            }
        }
    }

    /// The next record of the file itself.
    fn plain(&mut self) -> io::Result<Option<RecordType>> {
        if self.source.fill_buf()?.is_empty() {
            let is_short = self.header.data_len.is_some() && self.source.limit() > 0;
            self.end(is_short.then_some(CUT));
            return Ok(None);
        }
        let mut start = [0; 8];
        let mut read = self.source.read_exact(&mut start);
        let (kind, size) = head(&start).unwrap_or((RecordType(0), 0));
        if read.is_ok() {
            let Some(length) = size.checked_sub(start.len()) else {
                self.end(Some(SIZE));
                return Ok(None);
            };
            self.body.resize(length, 0);
            read = self.source.read_exact(&mut self.body);
        }
        match read {
            Ok(()) => Ok(Some(kind)),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                self.end(Some(CUT));
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Handles records about the file itself. Returns false for all others.
    fn handle(&mut self, kind: RecordType) -> io::Result<bool> {
        let Some(kind) = UserRecordType::try_from(kind) else { return Ok(false) };
        let word = PartReader(&self.body).u64().unwrap_or(0);
        let rest = self.body.get(8..).unwrap_or_default();
        match kind {
            UserRecordType::PERF_HEADER_TRACING_DATA => {
                let size = u64::from(PartReader(&self.body).u32().unwrap_or(0)).next_multiple_of(8);
                if size > MAX_TRACING_DATA {
                    self.end(Some("its kernel event formats have an impossible size"));
                    return Ok(true);
                }
                let mut formats = Vec::new();
                self.source.by_ref().take(size).read_to_end(&mut formats)?;
                self.keep(Feature::TRACING_DATA, formats);
            }
            UserRecordType::PERF_HEADER_FEATURE => {
                let part = rest.to_vec();
                self.keep(Feature(u32::try_from(word).unwrap_or(u32::MAX)), part);
            }
            // The data of a processor trace follows the record.
            UserRecordType::PERF_AUXTRACE => drop(io::copy(&mut self.source.by_ref().take(word), &mut io::sink())?),
            UserRecordType::PERF_COMPRESSED => self.decompress(self.body.clone())?,
            UserRecordType::PERF_COMPRESSED2 => {
                let size = usize::try_from(word).unwrap_or(usize::MAX).min(rest.len());
                self.decompress(rest.get(..size).unwrap_or_default().to_vec())?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn end(&mut self, damage: Option<&'static str>) {
        self.ended = true;
        self.damaged = damage.or(self.damaged);
    }

    fn keep(&mut self, feature: Feature, part: Vec<u8>) {
        if self.header.parts.len() < MAX_PARTS {
            self.header.parts.entry(feature).or_insert(part);
        }
    }

    fn decompress(&mut self, packed: Vec<u8>) -> io::Result<()> {
        if let Some(zstd) = &mut self.zstd {
            (zstd.packed, zstd.at) = (packed, 0);
        } else {
            let mut decoder = Decoder::new(Vec::new())?;
            decoder.window_log_max(WINDOW_LOG)?;
            self.zstd = Some(Decompression { decoder, packed, at: 0, used: 0 });
        }
        Ok(())
    }

    /// The next decompressed record. Bytes after the last complete record are the beginning of one that continues in
    /// the next compressed record.
    fn decompressed(&mut self) -> Option<RecordType> {
        loop {
            let zstd = self.zstd.as_mut()?;
            let rest = zstd.decoder.get_ref().get(zstd.used..).unwrap_or_default();
            let damage = match head(rest) {
                Some((_, size)) if size < 8 => SIZE,
                Some((kind, size)) if rest.len() >= size => {
                    self.body.clear();
                    self.body.extend_from_slice(&rest[8..size]);
                    zstd.used += size;
                    return Some(kind);
                }
                _ => match zstd.piece() {
                    Ok(true) => continue,
                    Ok(false) => return None,
                    Err(_) => COMPRESSION,
                },
            };
            self.zstd = None;
            self.end(Some(damage));
        }
    }
}

impl Decompression {
    /// Decompresses at most some 100 KiB more, after the unused bytes. Returns false at the end.
    fn piece(&mut self) -> io::Result<bool> {
        if self.at > self.packed.len() {
            return Ok(false);
        }
        self.decoder.get_mut().drain(..self.used);
        self.used = 0;
        if self.at < self.packed.len() {
            self.at += self.decoder.write(&self.packed[self.at..])?;
        } else {
            self.decoder.flush()?;
            self.at += 1;
        }
        Ok(true)
    }
}

/// Type and size of the record that starts here.
fn head(bytes: &[u8]) -> Option<(RecordType, usize)> {
    let [k0, k1, k2, k3, _, _, s0, s1] = *bytes.first_chunk::<8>()?;
    Some((RecordType(u32::from_le_bytes([k0, k1, k2, k3])), u16::from_le_bytes([s0, s1]).into()))
}
