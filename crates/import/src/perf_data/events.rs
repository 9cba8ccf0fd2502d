//! Reads records and counts their events in order of time.
//!
//! perf writes the content of each CPU's ring, one after the other, and marks the end of each such
//! round. Events two rounds later are younger than all before (tools/perf/util/ordered-events.c).
//! Events are decoded in place and sorted as small values, one round at a time.

use super::header::{self, KernelFormats, PartReader};
use super::records::Records;
use super::{PerfDataCounters, RECORD};
use crate::cannot;
use engine::pairing::{RawSample, TracedEvent};
use foldhash::fast::RandomState;
use linux_perf_data::UserRecordType;
use linux_perf_data::linux_perf_event_reader::{
    EventRecord, RawData, RawEventRecord, RecordType, SampleRecord,
};
use std::collections::HashMap;
use std::fs::File;

/// Limit of the events that wait to be sorted. Beyond it the older half is counted; a file without
/// marks would otherwise be held in memory completely.
const MAX_WAITING: usize = 600_000;
/// Limit of the thread names that are kept.
const MAX_COMMS: usize = 262_144;
const NO_EVENTS: &str = "it describes no event: 'perf record' was not ended properly, or the file \
    is damaged";

/// One event, or a gap of lost events.
#[derive(Debug, Clone, Copy)]
pub(super) struct PerfEvent {
    /// Nanoseconds of the recorder's clock.
    pub time: u64,
    pub kind: PerfEventKind,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum PerfEventKind {
    /// A kvm event of this id.
    Kvm { id: u16, tid: i32, pid: i32 },
    /// An event for the pairing.
    Traced(TracedEvent),
    /// Number of events that are missing here.
    Lost(u64),
}

/// Reads a file's events.
pub(super) struct EventReader {
    pub records: Records,
    /// The formats, once the first sample is read.
    formats: KernelFormats,
    pub counters: PerfDataCounters,
    /// Names of threads.
    pub comms: HashMap<i32, String, RandomState>,
    /// Samples read.
    pub samples: u64,
    /// Samples that could not be read.
    pub broken: u64,
    /// Lost events by `LOST` records.
    lost: u64,
    /// The same lost events by `LOST_SAMPLES` records, which perf adds at the end (Linux 6.0). The
    /// larger of both sums counts.
    lost_again: u64,
    /// Events that are not counted yet: earlier ones may still come.
    waiting: Vec<PerfEvent>,
    /// The latest time of all rounds before the current one: no earlier event comes after the next
    /// mark.
    settled: u64,
    /// The latest time of all rounds.
    latest: u64,
}

impl EventReader {
    /// From a file at its beginning.
    pub fn open(mut file: File) -> Result<Self, String> {
        let header = header::read(&mut file)?;
        Ok(Self {
            records: Records::new(file, header).map_err(cannot("read it"))?,
            formats: KernelFormats::default(),
            counters: PerfDataCounters::default(),
            comms: HashMap::default(),
            samples: 0,
            broken: 0,
            lost: 0,
            lost_again: 0,
            waiting: Vec::new(),
            settled: 0,
            latest: 0,
        })
    }

    /// Counts all events.
    pub fn count(&mut self) -> Result<(), String> {
        while let Some(kind) = self.records.next().map_err(cannot("read it"))? {
            let body = std::mem::take(&mut self.records.body);
            match kind {
                RecordType::SAMPLE => self.sample(&body)?,
                RecordType::COMM | RecordType::LOST | RecordType::LOST_SAMPLES => {
                    self.name_or_loss(kind, &body);
                }
                _ => match UserRecordType::try_from(kind) {
                    Some(UserRecordType::PERF_FINISHED_ROUND) => {
                        let settled = std::mem::replace(&mut self.settled, self.latest);
                        self.count_until(settled);
                    }
                    Some(UserRecordType::PERF_HEADER_ATTR) => {
                        self.records.header.add_attribute(&body)?;
                    }
                    _ => {}
                },
            }
            self.records.body = body;
            if self.waiting.len() >= MAX_WAITING {
                self.waiting.sort_by_key(|event| event.time);
                self.count_until(self.waiting[MAX_WAITING / 2].time);
            }
        }
        self.count_until(u64::MAX);
        if self.records.header.layout.is_some() {
            Ok(())
        } else {
            Err(NO_EVENTS.into())
        }
    }

    fn sample(&mut self, body: &[u8]) -> Result<(), String> {
        if self.formats.names.is_empty() {
            self.formats = self.kernel_formats()?;
            self.counters.begin(&self.formats);
        }
        let record = self
            .raw_record(RecordType::SAMPLE, body)
            .and_then(|record| record.parse().ok());
        self.samples += 1;
        let Some(EventRecord::Sample(SampleRecord {
            pid: Some(pid),
            tid: Some(tid),
            timestamp: Some(time),
            cpu,
            raw: Some(raw),
            ..
        })) = record
        else {
            self.broken += 1;
            return Ok(());
        };
        let raw = raw.as_slice();
        self.latest = self.latest.max(time);
        if let Some(id) = raw.first_chunk().map(|id| u16::from_le_bytes(*id))
            && self.formats.names.contains_key(&id)
        {
            self.waiting.push(PerfEvent {
                time,
                kind: PerfEventKind::Kvm { id, tid, pid },
            });
        }
        self.formats.decoder.decode(
            &RawSample {
                pid,
                tid,
                time,
                cpu: cpu.unwrap_or(0),
                raw: &raw,
            },
            |event| {
                self.waiting.push(PerfEvent {
                    time,
                    kind: PerfEventKind::Traced(event),
                });
            },
        );
        Ok(())
    }

    fn raw_record<'a>(
        &self,
        record_type: RecordType,
        body: &'a [u8],
    ) -> Option<RawEventRecord<'a>> {
        let parse_info = self.records.header.layout?;
        Some(RawEventRecord {
            record_type,
            misc: 0,
            data: RawData::Single(body),
            parse_info,
        })
    }

    /// The recorded kernel's formats, which precede the first sample.
    fn kernel_formats(&self) -> Result<KernelFormats, String> {
        let data = self.records.header.formats.as_ref();
        let data = data.ok_or(
            "it holds no formats of the kernel's events: none was recorded, or it was cut off",
        )?;
        let formats =
            KernelFormats::parse(data).ok_or("the kernel's event formats in it cannot be read")?;
        if formats.names.is_empty() {
            return Err(format!("it holds no kvm event: none was enabled; {RECORD}"));
        }
        Ok(formats)
    }

    /// Reads a thread's name, or how many events were lost.
    fn name_or_loss(&mut self, kind: RecordType, body: &[u8]) {
        let Some(record) = self.raw_record(kind, body) else {
            return;
        };
        let time = record.timestamp().unwrap_or(self.latest);
        let counted = self.lost.max(self.lost_again);
        let (lost, count) = match record.parse() {
            Ok(EventRecord::Comm(comm)) => {
                let name = kvm::sanitize(&String::from_utf8_lossy(&comm.name.as_slice()), 15);
                if self.comms.len() < MAX_COMMS || self.comms.contains_key(&comm.tid) {
                    self.comms.insert(comm.tid, name);
                }
                return;
            }
            Ok(EventRecord::Lost(record)) => (&mut self.lost, record.count),
            _ => {
                let count = PartReader(body).u64().unwrap_or(0);
                (&mut self.lost_again, count)
            }
        };
        *lost = lost.saturating_add(count);
        self.waiting.push(PerfEvent {
            time,
            // What the other kind of record counted already is no new gap.
            kind: PerfEventKind::Lost(lost.saturating_sub(counted)),
        });
    }

    /// Counts all events up to this time.
    fn count_until(&mut self, until: u64) {
        // The sort is stable and merges runs that are sorted already, one for each CPU; equal times
        // keep the file's order.
        self.waiting.sort_by_key(|event| event.time);
        let end = self.waiting.partition_point(|event| event.time <= until);
        for event in self.waiting.drain(..end) {
            self.counters.event(&event, &self.formats);
        }
    }
}
