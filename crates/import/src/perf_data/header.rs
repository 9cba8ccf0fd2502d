//! Reads the header of a `perf.data` (tools/perf/util/header.h): the positions of its parts, and the few parts that are
//! needed, among them the `format` files of the recorded kernel (tools/perf/util/trace-event-info.c).
//!
//! Memory is allocated for what the file holds, whatever sizes it states.

use crate::cannot;
use engine::pairing::{EVENTS, EventDecoder};
use foldhash::fast::RandomState;
use kvm::format;
use linux_perf_data::Feature;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

/// Limits of attributes (events) in a file, and of ids of an attribute (one for each CPU or thread).
const MAX_ATTRS: u64 = 4096;
const MAX_IDS: u64 = 1 << 20;
/// The largest part that is read. The kernel's formats take a few MiB.
const MAX_PART: u64 = 64 << 20;
/// Limits of systems, and of events in a system.
const MAX_SYSTEMS: u32 = 10_000;
const MAX_EVENTS: u32 = 20_000;
/// Sizes of the header of a file and of a stream.
const FILE_HEADER: u64 = 104;
const STREAM_HEADER: u64 = 16;

/// The features that are read.
const USED: [Feature; 6] = [
    Feature::TRACING_DATA,
    Feature::HOSTNAME,
    Feature::OSRELEASE,
    Feature::ARCH,
    Feature::CPUDESC,
    Feature::SAMPLE_TIME,
];

/// Positions and formats of the records.
#[derive(Debug, Default)]
pub(super) struct PerfDataHeader {
    /// The attributes, each followed by its ids. Empty for a stream, which has them among its records.
    pub attrs: Vec<Vec<u8>>,
    /// Bytes of records; `None`: up to the end of the file.
    pub data_len: Option<u64>,
    /// Whether it was written to a pipe.
    pub stream: bool,
    /// Its parts.
    pub parts: HashMap<Feature, Vec<u8>>,
    /// Whether parts listed in the header are missing, as in a file that was cut off.
    pub cut: bool,
}

impl PerfDataHeader {
    /// A part that holds a text: its length, then the padded text.
    pub fn text(&self, feature: Feature) -> Option<String> {
        PartReader(self.parts.get(&feature)?).text().filter(|text| !text.is_empty())
    }
}

/// Reads the values of a part one after the other.
#[derive(Debug)]
pub(super) struct PartReader<'a>(pub &'a [u8]);

impl<'a> PartReader<'a> {
    /// The next bytes.
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    /// A number of eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.take(8)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// A padded text after its length of four bytes.
    pub fn text(&mut self) -> Option<String> {
        let length = self.u32()? as usize;
        // The last part of a header that was cut off is shorter than it says.
        let text = self.take(length.min(self.0.len()))?.split(|b| *b == 0).next()?;
        Some(kvm::sanitize(&String::from_utf8_lossy(text), 128))
    }
}

const DAMAGED: &str = "its header is damaged: a part lies outside the file";

/// Reads the header, and moves to the first record.
pub(super) fn read(file: &mut File) -> Result<PerfDataHeader, String> {
    let mut head = Vec::new();
    file.take(FILE_HEADER).read_to_end(&mut head).map_err(cannot("read it"))?;
    let words: Vec<u64> = head.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let mut header = PerfDataHeader::default();
    match words[..] {
        [_, size, ..] if size < FILE_HEADER => {
            header.stream = true;
            file.seek(SeekFrom::Start(size.max(STREAM_HEADER))).map_err(cannot("read it"))?;
        }
        [_, _, attr_size, attrs, attrs_size, data, data_size, _, _, a, b, c, d] => {
            let len = file.metadata().map_err(cannot("read it"))?.len();
            if data > len || !(80..=4096).contains(&attr_size) || attrs_size / attr_size > MAX_ATTRS {
                return Err(DAMAGED.into());
            }
            for attr in 0..attrs_size / attr_size {
                // The attribute itself, then position and size of its ids.
                let mut attr = bytes(file, attrs.saturating_add(attr * attr_size), attr_size).ok_or(DAMAGED)?;
                let place = attr.split_off(attr_size as usize - 16);
                let (at, size) = section(&place).filter(|(_, size)| *size <= 8 * MAX_IDS).ok_or(DAMAGED)?;
                attr.extend(bytes(file, at, size).ok_or(DAMAGED)?);
                header.attrs.push(attr);
            }
            // A killed recorder leaves the size at 0: the records then extend to the end of the file.
            header.data_len = Some(data_size).filter(|size| *size > 0);
            let end = data.saturating_add(data_size);
            header.cut = data_size == 0 || end > len;
            if data_size > 0 {
                parts(file, [a, b, c, d], end..len, &mut header);
            }
            file.seek(SeekFrom::Start(data)).map_err(cannot("read it"))?;
        }
        _ => return Err("the file ends within its header".into()),
    }
    Ok(header)
}

/// Reads the parts. Their table follows the records and has an entry for each feature bit, in order. `rest`: what
/// follows the records.
fn parts(file: &mut File, features: [u64; 4], rest: Range<u64>, header: &mut PerfDataHeader) {
    let set = (0..256_u32).filter(|bit| features[*bit as usize / 64] >> (bit % 64) & 1 == 1);
    for (entry, bit) in (0_u64..).zip(set) {
        let place = bytes(file, rest.start.saturating_add(16 * entry), 16).and_then(|place| section(&place));
        let Some((at, size)) = place.filter(|(at, size)| at.saturating_add(*size) <= rest.end) else {
            header.cut = true;
            continue;
        };
        if USED.contains(&Feature(bit)) && size <= MAX_PART {
            header.parts.extend(bytes(file, at, size).map(|part| (Feature(bit), part)));
        }
    }
}

/// Position and size of a part.
fn section(place: &[u8]) -> Option<(u64, u64)> {
    let mut place = PartReader(place);
    Some((place.u64()?, place.u64()?))
}

/// Bytes of the file; `None` if it ends before. The caller bounds their number.
fn bytes(file: &mut File, at: u64, size: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(at)).ok()?;
    let read = file.take(size).read_to_end(&mut bytes).ok()?;
    (read as u64 == size).then_some(bytes)
}

/// The event formats of the recorded kernel.
#[derive(Debug, Default)]
pub(super) struct KernelFormats {
    /// Decodes the records of the events that pairing uses.
    pub decoder: EventDecoder,
    /// Names of all `kvm` events.
    pub names: Vec<String>,
    /// Positions in `names`, by the event id in the records.
    positions: HashMap<u16, u16, RandomState>,
    /// Whether `sched_migrate_task` was recorded.
    pub migrations: bool,
}

/// Reads the formats of `kvm` and `sched` events.
pub(super) fn parse_formats(data: &[u8]) -> Option<KernelFormats> {
    let mut bytes = PartReader(data);
    bytes.take(10).filter(|magic| *magic == b"\x17\x08\x44tracing")?;
    text(&mut bytes)?;
    // Byte order, size of a word, size of a page.
    bytes.take(6).filter(|machine| machine[0] == 0)?;
    for header in [&b"header_page"[..], b"header_event"] {
        (text(&mut bytes)? == header).then_some(())?;
        sized(&mut bytes)?;
    }
    for _ in 0..bytes.u32()?.min(MAX_EVENTS) {
        sized(&mut bytes)?;
    }
    let mut formats = KernelFormats::default();
    for _ in 0..bytes.u32()?.min(MAX_SYSTEMS) {
        let system = text(&mut bytes)?;
        for _ in 0..bytes.u32()?.min(MAX_EVENTS) {
            let text = sized(&mut bytes)?;
            if system == b"kvm" || system == b"sched" {
                formats.add(system, &String::from_utf8_lossy(text));
            }
        }
    }
    Some(formats)
}

/// A text after its length.
fn sized<'a>(bytes: &mut PartReader<'a>) -> Option<&'a [u8]> {
    let length = bytes.u64()?;
    bytes.take(usize::try_from(length).ok()?)
}

/// A text that ends with NUL.
fn text<'a>(bytes: &mut PartReader<'a>) -> Option<&'a [u8]> {
    let end = bytes.0.iter().take(4096).position(|b| *b == 0)?;
    bytes.take(end + 1)?.split_last().map(|(_, text)| text)
}

impl KernelFormats {
    fn add(&mut self, system: &[u8], text: &str) {
        let Ok(format) = format::parse(text) else { return };
        if system == b"kvm"
            && let (Ok(id), Ok(at)) = (u16::try_from(format.id), u16::try_from(self.names.len()))
        {
            self.positions.insert(id, at);
            self.names.push(format.name.clone());
        }
        if EVENTS.iter().any(|event| event.group.as_bytes() == system && event.name == format.name) {
            self.decoder.add_format(&format);
            self.migrations |= format.name == "sched_migrate_task";
        }
    }

    /// The position in `names` of a record's event, if it is one of `kvm`.
    pub fn name_of(&self, raw: &[u8]) -> Option<u16> {
        let id = u16::from_le_bytes(*raw.first_chunk()?);
        self.positions.get(&id).copied()
    }
}
