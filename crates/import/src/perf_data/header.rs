//! Reads the header of a `perf.data` (tools/perf/util/header.h): the layout of its samples, and the
//! `format` files of the recorded kernel (tools/perf/util/trace-event-info.c).
//!
//! Memory is allocated for what the file holds, whatever sizes it states.

use crate::cannot;
use engine::pairing::{EVENTS, EventDecoder};
use foldhash::fast::RandomState;
use kvm::format;
use linux_perf_data::linux_perf_event_reader::{
    PerfEventType, RawData, RecordParseInfo, SampleFormat, SoftwareCounterType,
};
use linux_perf_data::{Endianness, Feature, RawUserRecord, UserRecord, UserRecordType};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// Limit of attributes (events) in a file.
const MAX_ATTRS: u64 = 4096;
/// The largest formats of a kernel that are read. They take a few MiB.
pub(super) const MAX_FORMATS: u64 = 64 << 20;
/// Size of the header of a file; that of a stream is shorter.
const FILE_HEADER: u64 = 104;

const DAMAGED: &str = "its header is damaged: a part lies outside the file";
const AMBIGUOUS: &str = "its events have different layouts: record those of KVM and of the \
    scheduler alone";

/// What a file says of its records.
#[derive(Debug, Default)]
pub(super) struct PerfDataHeader {
    /// The layout of its samples (`perf_event_open(2)`, `PERF_RECORD_SAMPLE`).
    pub layout: Option<RecordParseInfo>,
    /// Bytes of records; `None`: up to the end of the file.
    pub data_len: Option<u64>,
    /// The formats of the kernel's events. A stream has them among its records.
    pub formats: Option<Vec<u8>>,
}

impl PerfDataHeader {
    /// Adds the attribute of an event. perf's dummy event has no samples.
    pub fn add_attribute(&mut self, attribute: &[u8]) -> Result<(), String> {
        let endian = Endianness::LittleEndian;
        let record = RawUserRecord {
            record_type: UserRecordType::PERF_HEADER_ATTR,
            endian,
            misc: 0,
            data: RawData::Single(attribute),
        }
        .parse();
        let Ok(UserRecord::HeaderAttr(header)) = record else {
            return Err(DAMAGED.into());
        };
        if matches!(
            header.attr.type_,
            PerfEventType::Software(SoftwareCounterType::Dummy)
        ) {
            return Ok(());
        }
        let new = RecordParseInfo::new(&header.attr, endian);
        let layout = self.layout.get_or_insert(new);
        // Samples of all events are read by one layout, so their formats have to be equal.
        if layout.sample_format != new.sample_format
            || !new.sample_format.contains(SampleFormat::RAW)
        {
            return Err(AMBIGUOUS.into());
        }
        Ok(())
    }
}

/// Reads the values of one part of the file, one after the other.
#[derive(Debug)]
pub(super) struct PartReader<'a>(pub &'a [u8]);

impl<'a> PartReader<'a> {
    /// The next bytes.
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.take(4)?
            .first_chunk()
            .map(|bytes| u32::from_le_bytes(*bytes))
    }

    /// A number of eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.take(8)?
            .first_chunk()
            .map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// A text after its length of eight bytes.
    fn sized(&mut self) -> Option<&'a [u8]> {
        let length = self.u64()?;
        self.take(usize::try_from(length).ok()?)
    }

    /// A text that ends with NUL.
    fn line(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().take(4096).position(|byte| *byte == 0)?;
        self.take(end + 1)?.split_last().map(|(_, text)| text)
    }
}

/// Reads the header, and moves to the first record.
pub(super) fn read(file: &mut File) -> Result<PerfDataHeader, String> {
    let mut head = Vec::new();
    file.take(FILE_HEADER)
        .read_to_end(&mut head)
        .map_err(cannot("read it"))?;
    let (words, _) = head.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let mut header = PerfDataHeader::default();
    let first_record = match words[..] {
        // A stream: its header is a magic and its own size, and the records follow.
        [_, size, ..] if size < FILE_HEADER => size.max(16),
        // `struct perf_file_header`: magic, size, attribute size, then the position and size of the
        // attributes, of the records and of the event types, and a bit for each further part.
        [
            _,
            _,
            attr_size,
            attrs,
            attrs_size,
            data,
            data_size,
            _,
            _,
            parts,
            ..,
        ] => {
            if !(80..=4096).contains(&attr_size) || attrs_size / attr_size > MAX_ATTRS {
                return Err(DAMAGED.into());
            }
            for number in 0..attrs_size / attr_size {
                let position = attrs.saturating_add(number * attr_size);
                let mut attr = read_bytes(file, position, attr_size).ok_or(DAMAGED)?;
                // The last 16 bytes are the place of the event's ids, which are not needed.
                attr.truncate(attr_size as usize - 16);
                header.add_attribute(&attr)?;
            }
            // A killed recorder leaves the size at 0: the records then extend to the end of the
            // file.
            header.data_len = Some(data_size).filter(|size| *size > 0);
            if parts >> Feature::TRACING_DATA.0 & 1 == 1 {
                header.formats = read_formats(file, data.saturating_add(data_size));
            }
            data
        }
        _ => return Err("the file ends within its header".into()),
    };
    file.seek(SeekFrom::Start(first_record))
        .map_err(cannot("read it"))?;
    Ok(header)
}

/// The formats of the kernel's events: the first part in the table of parts, which follows the
/// records.
fn read_formats(file: &mut File, table: u64) -> Option<Vec<u8>> {
    let entry = read_bytes(file, table, 16)?;
    let mut entry = PartReader(&entry);
    let position = entry.u64()?;
    let size = entry.u64().filter(|size| *size <= MAX_FORMATS)?;
    read_bytes(file, position, size)
}

/// Bytes of the file; `None` if it ends before. The caller bounds their number.
fn read_bytes(file: &mut File, position: u64, size: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(position)).ok()?;
    let read = file.take(size).read_to_end(&mut bytes).ok()?;
    if read as u64 == size {
        Some(bytes)
    } else {
        None
    }
}

/// The event formats of the recorded kernel.
#[derive(Debug, Default)]
pub(super) struct KernelFormats {
    /// Decodes the records of the events that pairing uses.
    pub decoder: EventDecoder,
    /// Names of all `kvm` events, by the event id in the records.
    pub names: HashMap<u16, String, RandomState>,
    /// Whether `sched_migrate_task` was recorded.
    pub migrations: bool,
}

impl KernelFormats {
    /// Reads the formats of `kvm` and `sched` events.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let mut bytes = PartReader(data);
        bytes
            .take(10)
            .filter(|magic| *magic == b"\x17\x08\x44tracing")?;
        bytes.line()?;
        // Byte order (0 is little-endian), size of a word, size of a page.
        bytes.take(6).filter(|machine| machine[0] == 0)?;
        for header in [&b"header_page"[..], b"header_event"] {
            if bytes.line()? != header {
                return None;
            }
            bytes.sized()?;
        }
        // The formats of ftrace's own events are skipped.
        for _ in 0..bytes.u32()? {
            bytes.sized()?;
        }
        let mut formats = Self::default();
        for _ in 0..bytes.u32()? {
            let system = bytes.line()?;
            for _ in 0..bytes.u32()? {
                formats.add(system, &String::from_utf8_lossy(bytes.sized()?));
            }
        }
        Some(formats)
    }

    fn add(&mut self, system: &[u8], text: &str) {
        let Ok(format) = format::parse(text) else {
            return;
        };
        if system == b"kvm"
            && let Ok(id) = u16::try_from(format.id)
        {
            self.names.insert(id, format.name.clone());
        }
        if EVENTS
            .iter()
            .any(|event| event.group.as_bytes() == system && event.name == format.name)
        {
            self.decoder.add_format(&format);
            self.migrations |= format.name == "sched_migrate_task";
        }
    }
}
