//! Reads the records of a `perf.data` one by one, recorded to a file or to a pipe, compressed or
//! not.
//!
//! The formats that a pipe has between its records are stored on the way. The limits here bound the
//! memory that a damaged file can make kvmtop use.

use super::header::{MAX_FORMATS, PartReader, PerfDataHeader};
use linux_perf_data::UserRecordType;
use linux_perf_data::linux_perf_event_reader::RecordType;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Take};
use zstd::stream::raw::{Decoder, Operation};
use zstd::zstd_safe::DParameter;

/// Bytes read and decompressed at a time.
const BUFFER: usize = 512 * 1024;
/// Limit of the bytes that wait in decompressed form. A compressed record has less than 64 KiB.
const MAX_PLAIN: usize = 64 << 20;
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
    /// Why the records end early: within a record, at an impossible size, or at damaged compressed
    /// data.
    pub damaged: Option<&'static str>,
    /// The current record without its header.
    pub body: Vec<u8>,
    decoder: Decoder<'static>,
    /// Decompressed records. The last one may continue in the next compressed record.
    plain: Vec<u8>,
    /// Bytes of `plain` that were used.
    used: usize,
    ended: bool,
}

impl Records {
    /// From the first record on.
    pub fn new(source: File, header: PerfDataHeader) -> io::Result<Self> {
        let source =
            BufReader::with_capacity(BUFFER, source).take(header.data_len.unwrap_or(u64::MAX));
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG))?;
        Ok(Self {
            source,
            header,
            damaged: None,
            body: Vec::new(),
            decoder,
            plain: Vec::new(),
            used: 0,
            ended: false,
        })
    }

    /// Reads the next record into `body`; returns its type, or `None` at the end.
    pub fn next(&mut self) -> io::Result<Option<RecordType>> {
        while !self.ended {
            let rest = self.plain.get(self.used..).unwrap_or_default();
            match record_head(rest) {
                Some((_, size)) if size < 8 => self.end(Some(SIZE)),
                Some((kind, size)) if size <= rest.len() => {
                    self.body.clear();
                    self.body.extend_from_slice(&rest[8..size]);
                    self.used += size;
                    return Ok(Some(kind));
                }
                _ => {
                    if let Some(kind) = self.plain_record()?
                        && !self.handle(kind)?
                    {
                        return Ok(Some(kind));
                    }
                }
            }
        }
        Ok(None)
    }

    /// The next record of the file itself.
    fn plain_record(&mut self) -> io::Result<Option<RecordType>> {
        if self.source.fill_buf()?.is_empty() {
            let is_short = self.header.data_len.is_some() && self.source.limit() > 0;
            self.end(if is_short { Some(CUT) } else { None });
            return Ok(None);
        }
        let mut start = [0; 8];
        let mut read = self.source.read_exact(&mut start);
        let (kind, size) = record_head(&start).unwrap_or((RecordType(0), 0));
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
        let Some(kind) = UserRecordType::try_from(kind) else {
            return Ok(false);
        };
        let body = std::mem::take(&mut self.body);
        match kind {
            UserRecordType::PERF_HEADER_TRACING_DATA => {
                let size = u64::from(PartReader(&body).u32().unwrap_or(0)).next_multiple_of(8);
                let mut formats = Vec::new();
                self.source
                    .by_ref()
                    .take(size.min(MAX_FORMATS))
                    .read_to_end(&mut formats)?;
                self.header.formats = Some(formats);
            }
            UserRecordType::PERF_COMPRESSED => self.decompress(&body),
            UserRecordType::PERF_COMPRESSED2 => {
                let size =
                    usize::try_from(PartReader(&body).u64().unwrap_or(0)).unwrap_or(usize::MAX);
                let packed = body.get(8..).unwrap_or_default();
                self.decompress(&packed[..size.min(packed.len())]);
            }
            _ => {
                self.body = body;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn end(&mut self, damage: Option<&'static str>) {
        self.ended = true;
        self.damaged = damage.or(self.damaged);
    }

    fn decompress(&mut self, mut packed: &[u8]) {
        self.plain.drain(..self.used);
        self.used = 0;
        let mut buffer = vec![0; BUFFER];
        while self.plain.len() < MAX_PLAIN {
            let Ok(done) = self.decoder.run_on_buffers(packed, &mut buffer) else {
                break;
            };
            self.plain.extend_from_slice(&buffer[..done.bytes_written]);
            packed = &packed[done.bytes_read..];
            if packed.is_empty() && done.bytes_written < buffer.len() {
                return;
            }
        }
        self.end(Some(COMPRESSION));
    }
}

/// Type and size of the record that starts here.
fn record_head(bytes: &[u8]) -> Option<(RecordType, usize)> {
    let [k0, k1, k2, k3, _, _, s0, s1] = *bytes.first_chunk::<8>()?;
    Some((
        RecordType(u32::from_le_bytes([k0, k1, k2, k3])),
        u16::from_le_bytes([s0, s1]).into(),
    ))
}
