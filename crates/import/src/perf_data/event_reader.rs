//! Reads records and yields events in order of time.
//!
//! perf writes the content of each CPU's ring, one after the other, and marks the end of each such round. Events two
//! rounds later are younger than all before (tools/perf/util/ordered-events.c). Events are decoded in place and sorted
//! as small values, one round at a time.

use super::RECORD;
use super::header::{self, KernelFormats, PartReader, PerfDataHeader};
use super::records::Records;
use crate::cannot;
use engine::pairing::{EventKind, RawSample};
use foldhash::fast::RandomState;
use linux_perf_data::linux_perf_event_reader::{
    EventRecord, RawData, RawEventRecord, RecordParseInfo, RecordType, SampleFormat, SampleRecord,
};
use linux_perf_data::{Endianness, Feature, RawUserRecord, UserRecord, UserRecordType};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::sync::Arc;

/// Limit of the events that wait to be sorted. Beyond it the older half is handed out; a file without marks would
/// otherwise be held in memory completely.
const MAX_WAITING: usize = 600_000;
/// Limit of the thread names that are kept.
const MAX_COMMS: usize = 262_144;
/// Limits of attributes and of event ids in a file.
const MAX_ATTRS: usize = 4096;
const MAX_IDS: usize = 1 << 20;
const NO_EVENTS: &str = "it describes no event: 'perf record' was not ended properly, or the file is damaged";
const AMBIGUOUS: &str = "its events have different layouts, and its records do not identify theirs";

/// One event, or a gap of lost events.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BatchItem {
    /// Nanoseconds of the recorder's clock.
    pub time: u64,
    /// Thread id.
    pub tid: i32,
    /// Process id.
    pub pid: i32,
    /// The CPU.
    pub cpu: u32,
    /// The position of the event's name in [`KernelFormats::names`].
    pub name: Option<u16>,
    /// The event for the pairing; without it a kvm event is only counted.
    pub kind: Option<EventKind>,
    /// Number of events that are missing here.
    pub lost: u64,
}

/// Reads a file's events.
pub(super) struct EventReader {
    pub records: Records,
    layouts: SampleLayouts,
    /// The formats, once the first sample is read.
    pub formats: Option<Arc<KernelFormats>>,
    /// Names of threads.
    pub comms: HashMap<i32, String, RandomState>,
    /// Samples read.
    pub samples: u64,
    /// Records that could not be read.
    pub broken: u64,
    /// Lost events by records of losses, and by those that perf adds at the end (Linux 6.0) and that count them again.
    lost: [u64; 2],
    waiting: Vec<BatchItem>,
    /// Events in order of time, before all that wait.
    ready: VecDeque<BatchItem>,
    /// The latest time of all rounds before the current one.
    settled: u64,
    /// The latest time of all rounds.
    latest: u64,
    ended: bool,
}

impl EventReader {
    /// From a file at its beginning.
    pub fn open(mut file: File) -> Result<Self, String> {
        let header = header::read(&mut file)?;
        let mut layouts = SampleLayouts::default();
        for attr in &header.attrs {
            layouts.add(attr);
        }
        if !header.stream && layouts.infos.is_empty() {
            return Err(NO_EVENTS.into());
        }
        Ok(Self {
            records: Records::new(file, header),
            layouts,
            formats: None,
            comms: HashMap::default(),
            samples: 0,
            broken: 0,
            lost: [0; 2],
            waiting: Vec::new(),
            ready: VecDeque::new(),
            settled: 0,
            latest: 0,
            ended: false,
        })
    }

    /// The next event; `None` at the end.
    pub fn next(&mut self) -> Result<Option<BatchItem>, String> {
        while self.ready.is_empty() && !self.ended {
            self.record()?;
        }
        Ok(self.ready.pop_front())
    }

    fn record(&mut self) -> Result<(), String> {
        let Some(kind) = self.records.next().map_err(cannot("read it"))? else {
            self.ended = true;
            self.settle(u64::MAX);
            return if self.layouts.infos.is_empty() { Err(NO_EVENTS.into()) } else { Ok(()) };
        };
        match kind {
            RecordType::SAMPLE => self.sample()?,
            RecordType::COMM | RecordType::LOST | RecordType::LOST_SAMPLES => self.other(kind),
            _ => match UserRecordType::try_from(kind) {
                Some(UserRecordType::PERF_FINISHED_ROUND) => {
                    let settled = std::mem::replace(&mut self.settled, self.latest);
                    self.settle(settled);
                }
                Some(UserRecordType::PERF_HEADER_ATTR) => self.layouts.add(&self.records.body),
                _ => {}
            },
        }
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.sort_by_key(|item| item.time);
            let middle = self.waiting.get(MAX_WAITING / 2).map_or(0, |item| item.time);
            self.settle(middle);
        }
        Ok(())
    }

    fn sample(&mut self) -> Result<(), String> {
        let formats = if let Some(formats) = &self.formats {
            formats
        } else {
            if self.layouts.is_ambiguous() {
                return Err(AMBIGUOUS.into());
            }
            self.formats.insert(Arc::new(kernel_formats(&self.records.header)?))
        };
        self.samples += 1;
        let record = self.layouts.record(RecordType::SAMPLE, &self.records.body);
        let Some(EventRecord::Sample(SampleRecord {
            pid: Some(pid),
            tid: Some(tid),
            timestamp: Some(time),
            cpu,
            raw: Some(raw),
            ..
        })) = record.and_then(|record| record.parse().ok())
        else {
            self.broken += 1;
            return Ok(());
        };
        let (cpu, raw) = (cpu.unwrap_or(0), raw.as_slice());
        self.latest = self.latest.max(time);
        let mut name = formats.name_of(&raw);
        formats.decoder.decode(&RawSample { pid, tid, time, cpu, raw: &raw }, |event| {
            let (tid, pid) = (event.tid, event.pid);
            let kind = Some(event.kind);
            self.waiting.push(BatchItem { time, tid, pid, cpu, name: name.take(), kind, lost: 0 });
        });
        if name.is_some() {
            self.waiting.push(BatchItem { time, tid, pid, cpu, name, ..BatchItem::default() });
        }
        Ok(())
    }

    /// Reads a thread's name, or how many events were lost.
    fn other(&mut self, kind: RecordType) {
        let body = &self.records.body;
        let Some(record) = self.layouts.record(kind, body) else { return };
        let lost = match record.parse() {
            Ok(EventRecord::Comm(comm)) => {
                if self.comms.len() < MAX_COMMS || self.comms.contains_key(&comm.tid) {
                    let name = kvm::sanitize(&String::from_utf8_lossy(&comm.name.as_slice()), 15);
                    self.comms.insert(comm.tid, name);
                }
                None
            }
            Ok(EventRecord::Lost(lost)) => Some((0, lost.count)),
            _ if kind == RecordType::LOST_SAMPLES => PartReader(body).u64().map(|count| (1, count)),
            _ => None,
        };
        let time = record.timestamp().unwrap_or(self.latest);
        if let Some((account, count)) = lost {
            let known = self.lost[0].max(self.lost[1]);
            self.lost[account] = self.lost[account].saturating_add(count);
            let lost = self.lost[account].saturating_sub(known);
            self.waiting.push(BatchItem { time, lost, ..BatchItem::default() });
        }
    }

    /// Hands out all events up to this time.
    fn settle(&mut self, until: u64) {
        // The sort is stable and merges runs that are sorted already, one for each CPU; equal times keep the file's
        // order.
        self.waiting.sort_by_key(|item| item.time);
        let n = self.waiting.partition_point(|item| item.time <= until);
        self.ready.extend(self.waiting.drain(..n));
    }
}

/// Explains why the file holds no kvm event.
pub(super) fn no_event(why: &str) -> String {
    format!("it holds no kvm event: {why}; {RECORD}")
}

/// The recorded kernel's formats, which precede the first sample: at least one of a kvm event.
pub(super) fn kernel_formats(header: &PerfDataHeader) -> Result<KernelFormats, String> {
    let data = header.parts.get(&Feature::TRACING_DATA);
    if data.is_none() && header.cut {
        let what = "the kernel's event formats at its end are missing";
        return Err(format!("it was cut off, or 'perf record' was not ended properly: {what}"));
    }
    let formats = data.map_or_else(|| Some(KernelFormats::default()), |data| header::parse_formats(data));
    let formats = formats.ok_or("the kernel's event formats in it cannot be read")?;
    if formats.names.is_empty() { Err(no_event("no event of KVM was enabled")) } else { Ok(formats) }
}

/// The layouts of a file's samples (`perf_event_open(2)`, `PERF_RECORD_SAMPLE`), from the attributes of its events.
#[derive(Debug, Default)]
struct SampleLayouts {
    infos: Vec<RecordParseInfo>,
    by_id: HashMap<u64, usize>,
    /// Whether events have different layouts.
    differ: bool,
}

impl SampleLayouts {
    /// Adds an attribute in the form that a stream has: the attribute, then the ids of its events. One that cannot be
    /// read is left out.
    fn add(&mut self, body: &[u8]) {
        if self.infos.len() >= MAX_ATTRS {
            return;
        }
        let endian = Endianness::LittleEndian;
        let record_type = UserRecordType::PERF_HEADER_ATTR;
        let attr = RawUserRecord { record_type, endian, misc: 0, data: RawData::Single(body) }.parse();
        let Ok(UserRecord::HeaderAttr(attr)) = attr else { return };
        let info = RecordParseInfo::new(&attr.attr, endian);
        let first = self.infos.first().unwrap_or(&info);
        self.differ |= first.sample_format != info.sample_format
            || first.nonsample_record_time_offset_from_end != info.nonsample_record_time_offset_from_end;
        for id in attr.ids.into_iter().take(MAX_IDS.saturating_sub(self.by_id.len())) {
            self.by_id.insert(id, self.infos.len());
        }
        self.infos.push(info);
    }

    /// Whether there are different layouts and the records do not identify theirs.
    fn is_ambiguous(&self) -> bool {
        self.differ && self.infos.iter().any(|info| !info.sample_format.contains(SampleFormat::IDENTIFIER))
    }

    fn record<'a>(&self, record_type: RecordType, body: &'a [u8]) -> Option<RawEventRecord<'a>> {
        let parse_info = *self.infos.first()?;
        let record = RawEventRecord { record_type, misc: 0, data: RawData::Single(body), parse_info };
        // PERF_SAMPLE_IDENTIFIER has the same place in records of every layout.
        let at = if self.differ { record.id().and_then(|id| self.by_id.get(&id)) } else { None };
        let own = at.and_then(|at| self.infos.get(*at));
        Some(RawEventRecord { parse_info: own.copied().unwrap_or(parse_info), ..record })
    }
}
