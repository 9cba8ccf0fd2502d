//! Reads the header of a `perf.data` (tools/perf/util/header.h): the positions of its parts, and the few parts that are
//! needed.
//!
//! Every size is checked before it is used, so that a damaged file cannot make kvmtop allocate memory.

use crate::imported::io_message;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// Limits of attributes (events) in a file, and of ids of an attribute (one for each CPU or thread).
const MAX_ATTRS: u64 = 4096;
const MAX_IDS: u64 = 1 << 20;
/// The largest part that is read. The kernel's formats take a few MiB.
const MAX_PART: u64 = 64 << 20;
/// Sizes of the header of a file and of a stream.
const FILE_HEADER: u64 = 104;
const STREAM_HEADER: u64 = 16;

/// Bits of the features that are read (tools/perf/util/header.h, `HEADER_*`).
pub(super) const TRACING_DATA: u32 = 1;
pub(super) const HOSTNAME: u32 = 3;
pub(super) const OSRELEASE: u32 = 4;
pub(super) const ARCH: u32 = 6;
pub(super) const CPUDESC: u32 = 8;
pub(super) const CMDLINE: u32 = 11;
pub(super) const EVENT_DESC: u32 = 12;
const SAMPLE_TIME: u32 = 21;

/// Positions and formats of the records.
#[derive(Debug, Default)]
pub(super) struct PerfDataHeader {
    /// Byte order of the machine that recorded.
    pub big_endian: bool,
    /// The attributes as in the file, each with its ids. Empty for a stream, which has them among its records.
    pub attrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes of records; `None`: up to the end of the file.
    pub data_len: Option<u64>,
    /// Whether it was written to a pipe.
    pub stream: bool,
    /// Parts by their feature bit.
    pub parts: Vec<(u32, Vec<u8>)>,
    /// Whether parts listed in the header are missing, as in a file that was cut off.
    pub cut: bool,
}

impl PerfDataHeader {
    /// A part.
    pub fn part(&self, feature: u32) -> Option<&[u8]> {
        self.parts.iter().find(|p| p.0 == feature).map(|p| p.1.as_slice())
    }

    /// A part that holds a text: its length, then the padded text.
    pub fn text(&self, feature: u32) -> Option<String> {
        text_of(self.part(feature)?)
    }

    /// The time of the last event, if the header has it.
    pub fn last_time(&self) -> Option<u64> {
        let bytes = *self.part(SAMPLE_TIME)?.get(8..16)?.first_chunk::<8>()?;
        Some(u64_of(bytes, self.big_endian)).filter(|t| *t > 0)
    }
}

/// A text after a length of four bytes.
pub(super) fn text_of(part: &[u8]) -> Option<String> {
    let text = part.get(4..)?;
    let text = text.split(|b| *b == 0).next()?;
    Some(kvm::sanitize(&String::from_utf8_lossy(text), 128)).filter(|t| !t.is_empty())
}

/// A number in the file's byte order.
pub(super) fn u64_of(bytes: [u8; 8], big_endian: bool) -> u64 {
    if big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) }
}

/// A number of four bytes in the file's byte order.
pub(super) fn u32_of(bytes: [u8; 4], big_endian: bool) -> u32 {
    if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

/// The error for a damaged header.
pub(super) const DAMAGED: &str = "its header is damaged: a part lies outside the file";

/// Reads the header. The file's position is then that of the first record.
pub(super) fn read(file: &mut File) -> Result<PerfDataHeader, String> {
    let io = |e: io::Error| match e.kind() {
        io::ErrorKind::UnexpectedEof => "the file ends within its header".to_owned(),
        _ => format!("cannot read it: {}", io_message(&e)),
    };
    let mut magic = [0; 8];
    file.read_exact(&mut magic).map_err(io)?;
    let mut header = PerfDataHeader { big_endian: &magic == b"2ELIFREP", ..PerfDataHeader::default() };
    let mut reader = HeaderReader { file, big_endian: header.big_endian };
    let size = reader.u64().map_err(io)?;
    if size < FILE_HEADER {
        header.stream = true;
        io::copy(&mut reader.file.by_ref().take(size.saturating_sub(STREAM_HEADER)), &mut io::sink()).map_err(io)?;
        return Ok(header);
    }
    let len = reader.file.metadata().map_err(io)?.len();
    let inside = |at: u64, size: u64| at.checked_add(size).is_some_and(|end| end <= len);
    let attr_size = reader.u64().map_err(io)?;
    let attrs = (reader.u64().map_err(io)?, reader.u64().map_err(io)?);
    let data = (reader.u64().map_err(io)?, reader.u64().map_err(io)?);
    reader.u64().map_err(io)?;
    reader.u64().map_err(io)?;
    let features =
        [reader.u64().map_err(io)?, reader.u64().map_err(io)?, reader.u64().map_err(io)?, reader.u64().map_err(io)?];
    if !inside(attrs.0, attrs.1) || data.0 > len || !(80..=4096).contains(&attr_size) || attrs.1 / attr_size > MAX_ATTRS
    {
        return Err(DAMAGED.into());
    }
    for i in 0..attrs.1 / attr_size {
        let attr = reader.bytes(attrs.0 + i * attr_size, attr_size).map_err(io)?;
        // The attribute itself, then position and size of its ids.
        let (attr, place) = attr.split_at_checked(attr_size as usize - 16).ok_or(DAMAGED)?;
        let place: Vec<u64> = place.as_chunks::<8>().0.iter().map(|b| u64_of(*b, header.big_endian)).collect();
        let [at, size] = place[..] else { return Err(DAMAGED.into()) };
        if !inside(at, size) || size > 8 * MAX_IDS {
            return Err(DAMAGED.into());
        }
        header.attrs.push((attr.to_vec(), reader.bytes(at, size).map_err(io)?));
    }
    // A killed recorder leaves the size at 0: the records then extend to the end of the file.
    header.data_len = Some(data.1).filter(|size| *size > 0);
    if let Some(size) = header.data_len {
        header.cut = !inside(data.0, size);
        parts(&mut reader, features, data.0.saturating_add(size), len, &mut header);
    } else {
        header.cut = true;
    }
    reader.file.seek(SeekFrom::Start(data.0)).map_err(io)?;
    Ok(header)
}

/// Reads the parts. Their table follows the records and has an entry for each feature bit, in order.
fn parts(reader: &mut HeaderReader, features: [u64; 4], table: u64, len: u64, header: &mut PerfDataHeader) {
    let set =
        (0..256u32).filter(|bit| features.get(*bit as usize / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1));
    for (entry, bit) in (0u64..).zip(set) {
        let place = reader.bytes(table.saturating_add(16 * entry), 16).ok().and_then(|place| {
            let at = u64_of(*place.first_chunk::<8>()?, header.big_endian);
            let size = u64_of(*place.get(8..)?.first_chunk::<8>()?, header.big_endian);
            at.checked_add(size).is_some_and(|end| end <= len).then_some((at, size))
        });
        header.cut |= place.is_none();
        let wanted =
            [TRACING_DATA, HOSTNAME, OSRELEASE, ARCH, CPUDESC, CMDLINE, EVENT_DESC, SAMPLE_TIME].contains(&bit);
        if let Some((at, size)) = place.filter(|(_, size)| wanted && *size <= MAX_PART)
            && let Ok(part) = reader.bytes(at, size)
        {
            header.parts.push((bit, part));
        }
    }
}

struct HeaderReader<'a> {
    file: &'a mut File,
    big_endian: bool,
}

impl HeaderReader<'_> {
    fn u64(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact(&mut bytes)?;
        Ok(u64_of(bytes, self.big_endian))
    }

    /// Reads bytes; the caller has checked their number.
    fn bytes(&mut self, at: u64, size: u64) -> io::Result<Vec<u8>> {
        self.file.seek(SeekFrom::Start(at))?;
        let mut bytes = vec![0; usize::try_from(size).map_err(|_| io::ErrorKind::InvalidData)?];
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}
