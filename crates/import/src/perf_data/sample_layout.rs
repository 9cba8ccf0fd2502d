//! The layout of a file's samples (`perf_event_open(2)`, `PERF_RECORD_SAMPLE`), derived from the attributes of its
//! events.

use super::header::PartReader;
use super::records::kind;
use engine::pairing::RawSample;
use linux_perf_data::linux_perf_event_reader::{
    EventRecord, RawData, RawEventRecord, RecordParseInfo, RecordType, SampleFormat,
};
use linux_perf_data::{Endianness, RawUserRecord, UserRecord, UserRecordType};
use std::borrow::Cow;
use std::collections::HashMap;

/// Limits of attributes and of event ids in a file.
const MAX_ATTRS: usize = 4096;
const MAX_IDS: usize = 1 << 20;

/// The layouts of a file's events.
#[derive(Debug, Default)]
pub(super) struct SampleLayouts {
    infos: Vec<RecordParseInfo>,
    by_id: HashMap<u64, usize>,
    /// Whether events have different layouts.
    differ: bool,
}

impl SampleLayouts {
    /// Adds an attribute in the form that a stream has: the attribute, then the ids of its events. Returns false if it
    /// cannot be used.
    pub fn add(&mut self, body: &[u8]) -> bool {
        if self.infos.len() >= MAX_ATTRS {
            return false;
        }
        let endian = Endianness::LittleEndian;
        let record_type = UserRecordType::PERF_HEADER_ATTR;
        let attr = RawUserRecord { record_type, endian, misc: 0, data: RawData::Single(body) }.parse();
        let Ok(UserRecord::HeaderAttr(attr)) = attr else { return false };
        let info = RecordParseInfo::new(&attr.attr, endian);
        let first = self.infos.first().unwrap_or(&info);
        self.differ |= first.sample_format != info.sample_format
            || first.nonsample_record_time_offset_from_end != info.nonsample_record_time_offset_from_end;
        for id in attr.ids.into_iter().take(MAX_IDS.saturating_sub(self.by_id.len())) {
            self.by_id.insert(id, self.infos.len());
        }
        self.infos.push(info);
        true
    }

    /// Whether no layout was added.
    pub fn is_empty(&self) -> bool {
        self.infos.is_empty()
    }

    /// Whether there are different layouts and the records do not identify theirs.
    pub fn is_ambiguous(&self) -> bool {
        self.differ && self.infos.iter().any(|info| !info.sample_format.contains(SampleFormat::IDENTIFIER))
    }

    /// The position of a record's event.
    fn index(&self, record: RecordType, body: &[u8]) -> usize {
        if !self.differ {
            return 0;
        }
        // PERF_SAMPLE_IDENTIFIER is at the beginning of a sample and at the end of every other record.
        let id = if record == RecordType::SAMPLE { body.first_chunk::<8>() } else { body.last_chunk::<8>() };
        id.and_then(|id| self.by_id.get(&u64::from_le_bytes(*id))).copied().unwrap_or(0)
    }

    /// Reads a sample: its raw bytes, and the rest.
    pub fn sample<'a>(&self, body: &'a [u8]) -> Option<(Cow<'a, [u8]>, RawSample<'static>)> {
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

    /// The time of a record other than a sample.
    pub fn time(&self, kind: u32, body: &[u8]) -> Option<u64> {
        self.record(kind, body)?.timestamp()
    }

    /// Thread id and name of a `COMM` record.
    pub fn comm(&self, body: &[u8]) -> Option<(i32, String)> {
        let EventRecord::Comm(comm) = self.record(kind::COMM, body)?.parse().ok()? else { return None };
        Some((comm.tid, kvm::sanitize(&String::from_utf8_lossy(&comm.name.as_slice()), 15)))
    }

    /// The number of lost events that a record states.
    pub fn lost(&self, kind: u32, body: &[u8]) -> Option<u64> {
        if kind == kind::LOST_SAMPLES {
            return PartReader(body).u64();
        }
        let EventRecord::Lost(lost) = self.record(kind, body)?.parse().ok()? else { return None };
        Some(lost.count)
    }
}
