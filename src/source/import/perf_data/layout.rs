//! How the samples of a file are laid out (`perf_event_open(2)`, `PERF_RECORD_SAMPLE`), from the attributes of its events.
//!
//! Tracepoints are recorded with the same few fields, which stand at fixed places: those are read in place. Anything else goes the
//! long way through `linux-perf-data`.

use super::header::u64_of;
use super::records::kind;
use crate::source::pairing::RawSample;
use linux_perf_data::linux_perf_event_reader::{
    EventRecord, RawData, RawEventRecord, RecordParseInfo, RecordType, SampleFormat,
};
use linux_perf_data::{Endianness, RawUserRecord, UserRecord, UserRecordType};
use std::borrow::Cow;
use std::collections::HashMap;

/// Attributes of one file.
const MAX_ATTRS: usize = 4096;
const MAX_IDS: usize = 1 << 20;

/// Where a tracepoint's fields stand in the body of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Places {
    pid: usize,
    time: usize,
    cpu: Option<usize>,
    raw: usize,
}

/// The layouts of a file's events.
#[derive(Debug, Default)]
pub(super) struct Layouts {
    big_endian: bool,
    infos: Vec<RecordParseInfo>,
    places: Vec<Option<Places>>,
    by_id: HashMap<u64, usize>,
    /// All events are laid out alike.
    alike: bool,
}

impl Layouts {
    /// None yet.
    pub fn new(big_endian: bool) -> Self {
        Self { big_endian, alike: true, ..Self::default() }
    }

    /// Learns an attribute as it stands in a stream: the attribute, then the ids of its events.
    pub fn learn(&mut self, body: &[u8]) -> bool {
        if self.infos.len() >= MAX_ATTRS {
            return false;
        }
        let endian = if self.big_endian { Endianness::BigEndian } else { Endianness::LittleEndian };
        let record_type = UserRecordType::PERF_HEADER_ATTR;
        let attr = RawUserRecord { record_type, endian, misc: 0, data: RawData::Single(body) }.parse();
        let Ok(UserRecord::HeaderAttr(attr)) = attr else { return false };
        let info = RecordParseInfo::new(&attr.attr, endian);
        self.places.push(places(info.sample_format));
        let first = self.infos.first().unwrap_or(&info);
        self.alike &= first.sample_format == info.sample_format
            && first.nonsample_record_time_offset_from_end == info.nonsample_record_time_offset_from_end;
        for id in attr.ids.into_iter().take(MAX_IDS.saturating_sub(self.by_id.len())) {
            self.by_id.insert(id, self.infos.len());
        }
        self.infos.push(info);
        true
    }

    /// Whether nothing was learnt.
    pub fn is_empty(&self) -> bool {
        self.infos.is_empty()
    }

    /// Whether several layouts cannot be told apart by the records themselves.
    pub fn is_ambiguous(&self) -> bool {
        !self.alike && self.infos.iter().any(|info| !info.sample_format.contains(SampleFormat::IDENTIFIER))
    }

    /// The event that a record is of.
    fn index(&self, record: RecordType, body: &[u8]) -> usize {
        if self.alike {
            return 0;
        }
        // PERF_SAMPLE_IDENTIFIER stands at the beginning of a sample and at the end of every other record.
        let id = if record == RecordType::SAMPLE { body.first_chunk::<8>() } else { body.last_chunk::<8>() };
        id.and_then(|id| self.by_id.get(&u64_of(*id, self.big_endian))).copied().unwrap_or(0)
    }

    /// Reads a sample in place.
    pub fn sample<'a>(&self, body: &'a [u8]) -> Option<RawSample<'a>> {
        let places = (*self.places.get(self.index(RecordType::SAMPLE, body))?)?;
        let u32_at = |at: usize| {
            let bytes = *body.get(at..)?.first_chunk::<4>()?;
            Some(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
        };
        let size = u32_at(places.raw)? as usize;
        Some(RawSample {
            pid: u32_at(places.pid)?.cast_signed(),
            tid: u32_at(places.pid + 4)?.cast_signed(),
            time: u64_of(*body.get(places.time..)?.first_chunk::<8>()?, self.big_endian),
            cpu: places.cpu.and_then(u32_at).unwrap_or(0),
            raw: body.get(places.raw + 4..)?.get(..size)?,
        })
    }

    /// Reads a sample whose fields have no fixed places.
    pub fn any_sample<'a>(&self, body: &'a [u8]) -> Option<(Cow<'a, [u8]>, RawSample<'static>)> {
        let EventRecord::Sample(sample) = self.record(kind::SAMPLE, body)?.parse().ok()? else { return None };
        let raw = sample.raw?.as_slice();
        let (pid, tid, time, cpu) = (sample.pid?, sample.tid?, sample.timestamp?, sample.cpu.unwrap_or(0));
        Some((raw, RawSample { pid, tid, time, cpu, raw: &[] }))
    }

    fn record<'a>(&self, kind: u32, body: &'a [u8]) -> Option<RawEventRecord<'a>> {
        let record_type = RecordType(kind);
        let parse_info = *self.infos.get(self.index(record_type, body))?;
        Some(RawEventRecord { record_type, misc: 0, data: RawData::Single(body), parse_info })
    }

    /// When a record that is no sample was written.
    pub fn time(&self, kind: u32, body: &[u8]) -> Option<u64> {
        self.record(kind, body)?.timestamp()
    }

    /// The name of a thread.
    pub fn comm(&self, body: &[u8]) -> Option<(i32, String)> {
        let EventRecord::Comm(comm) = self.record(kind::COMM, body)?.parse().ok()? else { return None };
        Some((comm.tid, crate::kvm::sanitize(&String::from_utf8_lossy(&comm.name.as_slice()), 15)))
    }

    /// How many events a record says were lost.
    pub fn lost(&self, kind: u32, body: &[u8]) -> Option<u64> {
        if kind == kind::LOST_SAMPLES {
            return body.first_chunk::<8>().map(|b| u64_of(*b, self.big_endian));
        }
        let EventRecord::Lost(lost) = self.record(kind, body)?.parse().ok()? else { return None };
        Some(lost.count)
    }
}

/// The places of the fields, if all stand at fixed ones up to the raw bytes.
fn places(format: SampleFormat) -> Option<Places> {
    // In this order they are written.
    let fields = [
        SampleFormat::IDENTIFIER,
        SampleFormat::IP,
        SampleFormat::TID,
        SampleFormat::TIME,
        SampleFormat::ADDR,
        SampleFormat::ID,
        SampleFormat::STREAM_ID,
        SampleFormat::CPU,
        SampleFormat::PERIOD,
    ];
    if format.intersects(SampleFormat::READ | SampleFormat::CALLCHAIN) || !format.contains(SampleFormat::RAW) {
        return None;
    }
    let place = |wanted: SampleFormat| {
        let before = fields.iter().take_while(|f| **f != wanted).filter(|f| format.contains(**f)).count();
        format.contains(wanted).then_some(8 * before)
    };
    Some(Places {
        pid: place(SampleFormat::TID)?,
        time: place(SampleFormat::TIME)?,
        cpu: place(SampleFormat::CPU),
        raw: 8 * fields.iter().filter(|f| format.contains(**f)).count(),
    })
}
