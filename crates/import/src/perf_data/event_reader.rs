//! Reads records and yields events in order of time.
//!
//! perf writes the content of each CPU's ring, one after the other, and marks the end of each such round. Events two
//! rounds later are younger than all before (tools/perf/util/ordered-events.c). Events are decoded in place and sorted
//! as small values, one round at a time.

use super::event_formats::{self, KernelFormats, NO_NAME};
use super::header;
use super::no_exits::Recorded;
use super::records::{ReadState, Records, SharedState, kind, lock};
use super::sample_layout::SampleLayouts;
use crate::imported::io_message;
use engine::pairing::{EventKind, RawSample, TracedEvent};
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// Limit of the events that wait to be sorted. Beyond it the older half is handed out; a file without marks would
/// otherwise be held in memory completely.
const MAX_WAITING: usize = 600_000;
const NO_EVENTS: &str = "it describes no event: 'perf record' was not ended properly, or the file is damaged";
const AMBIGUOUS: &str = "its events have different layouts, and its records do not identify theirs";

/// One event, or a gap of lost events.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchItem {
    /// Nanoseconds of the recorder's clock.
    pub time: u64,
    /// Thread id.
    pub tid: i32,
    /// Process id.
    pub pid: i32,
    /// The CPU.
    pub cpu: u32,
    /// The position of the event's name in [`KernelFormats::names`], or [`NO_NAME`].
    pub name: u16,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    /// An event for the pairing.
    Kind(EventKind),
    /// Another kvm event, which is only counted.
    Other,
    /// This number of events is missing.
    Lost(u64),
}

impl BatchItem {
    /// The event for the pairing.
    pub fn event(&self) -> Option<TracedEvent> {
        match self.what {
            What::Kind(kind) => {
                Some(TracedEvent { tid: self.tid, pid: self.pid, time: self.time, cpu: self.cpu, kind })
            }
            What::Other | What::Lost(_) => None,
        }
    }
}

/// The content of one round.
#[derive(Debug, Default)]
pub(super) struct EventBatch {
    /// Events in order of time.
    pub items: Vec<BatchItem>,
    /// Thread ids and names.
    pub comms: Vec<(i32, String)>,
    /// Records that could not be read.
    pub broken: u64,
    /// Samples read.
    pub samples: u64,
    /// The formats, in the batch with which they become known.
    pub formats: Option<Arc<KernelFormats>>,
}

/// Reads batches.
pub(super) struct EventReader {
    records: Records<File>,
    state: SharedState,
    layouts: SampleLayouts,
    formats: Option<Arc<KernelFormats>>,
    waiting: Vec<BatchItem>,
    /// The latest time of all rounds before the current one.
    settled: u64,
    /// The latest time of all rounds.
    latest: u64,
    spare: Receiver<Vec<BatchItem>>,
    batch: EventBatch,
    ended: bool,
}

impl EventReader {
    /// From a file at the position of its first record. `spare` returns used buffers.
    pub fn new(file: File, state: &SharedState, spare: Receiver<Vec<BatchItem>>) -> Result<Self, String> {
        let (mut layouts, stream) = {
            let state = lock(state);
            (SampleLayouts::new(state.header.big_endian), state.header.stream)
        };
        for (attr, ids) in std::mem::take(&mut lock(state).header.attrs) {
            let body: Vec<u8> = attr.iter().chain(&ids).copied().collect();
            layouts.add(&body);
        }
        if !stream && layouts.is_empty() {
            return Err(NO_EVENTS.into());
        }
        Ok(Self {
            records: Records::new(file, state),
            state: state.clone(),
            layouts,
            formats: None,
            waiting: Vec::new(),
            settled: 0,
            latest: 0,
            spare,
            batch: EventBatch::default(),
            ended: false,
        })
    }

    /// The next batch; `None` at the end.
    pub fn next(&mut self) -> Result<Option<EventBatch>, String> {
        while !self.ended {
            let Some(record) = self.records.next().map_err(|e| format!("cannot read it: {}", io_message(&e)))? else {
                self.ended = true;
                if self.layouts.is_empty() {
                    return Err(NO_EVENTS.into());
                }
                self.settle(u64::MAX);
                break;
            };
            match record.kind {
                kind::SAMPLE => {
                    let formats = if let Some(formats) = &self.formats {
                        formats
                    } else {
                        if self.layouts.is_ambiguous() {
                            return Err(AMBIGUOUS.into());
                        }
                        let formats = Arc::new(kernel_formats(&lock(&self.state))?);
                        self.batch.formats = Some(formats.clone());
                        self.formats.insert(formats)
                    };
                    self.batch.samples += 1;
                    let put = |item: BatchItem| {
                        self.latest = self.latest.max(item.time);
                        self.waiting.push(item);
                    };
                    if let Some(sample) = self.layouts.sample(record.body) {
                        decode(formats, &sample, put);
                    } else if let Some((raw, sample)) = self.layouts.any_sample(record.body) {
                        decode(formats, &RawSample { raw: &raw, ..sample }, put);
                    } else {
                        self.batch.broken += 1;
                    }
                }
                kind::FINISHED_ROUND => {
                    let settled = std::mem::replace(&mut self.settled, self.latest);
                    self.settle(settled);
                }
                kind::COMM => self.batch.comms.extend(self.layouts.comm(record.body)),
                kind::LOST | kind::LOST_SAMPLES => {
                    if let Some(lost) = self.layouts.lost(record.kind, record.body) {
                        let time = self.layouts.time(record.kind, record.body).unwrap_or(self.latest);
                        self.waiting.push(BatchItem {
                            time,
                            tid: 0,
                            pid: 0,
                            cpu: 0,
                            name: NO_NAME,
                            what: What::Lost(lost),
                        });
                    }
                }
                kind::HEADER_ATTR => {
                    self.layouts.add(record.body);
                }
                _ => {}
            }
            if self.waiting.len() >= MAX_WAITING {
                self.waiting.sort_by_key(|item| item.time);
                let middle = self.waiting.get(MAX_WAITING / 2).map_or(0, |item| item.time);
                self.settle(middle);
            }
            if !self.batch.items.is_empty() || self.batch.comms.len() > 4096 {
                return Ok(Some(std::mem::take(&mut self.batch)));
            }
        }
        let last = std::mem::take(&mut self.batch);
        let empty = last.items.is_empty() && last.comms.is_empty() && last.broken == 0 && last.formats.is_none();
        Ok(if empty { None } else { Some(last) })
    }

    /// Moves all events up to this time to the batch.
    fn settle(&mut self, until: u64) {
        // The sort is stable and merges runs that are sorted already, one for each CPU; equal times keep the file's
        // order.
        self.waiting.sort_by_key(|item| item.time);
        let n = self.waiting.partition_point(|item| item.time <= until);
        if !self.batch.items.is_empty() {
            self.batch.items.extend(self.waiting.drain(..n));
            return;
        }
        // The buffer of an earlier batch is used again.
        let mut rest = self.spare.try_recv().unwrap_or_default();
        rest.clear();
        rest.extend_from_slice(self.waiting.get(n..).unwrap_or_default());
        self.waiting.truncate(n);
        self.batch.items = std::mem::replace(&mut self.waiting, rest);
    }
}

/// Decodes one sample: at least one item for any kvm event.
fn decode(formats: &KernelFormats, sample: &RawSample<'_>, mut put: impl FnMut(BatchItem)) {
    let RawSample { pid, tid, time, cpu, .. } = *sample;
    let name = formats.name_of(sample.raw);
    let mut counted = false;
    formats.decoder.decode(sample, |event| {
        let name = if counted { NO_NAME } else { name };
        counted = true;
        put(BatchItem { time, tid: event.tid, pid: event.pid, cpu, name, what: What::Kind(event.kind) });
    });
    if !counted && name != NO_NAME {
        put(BatchItem { time, tid, pid, cpu, name, what: What::Other });
    }
}

/// The recorded kernel's formats, which precede the first sample.
fn kernel_formats(state: &ReadState) -> Result<KernelFormats, String> {
    let Some(data) = state.header.part(header::TRACING_DATA) else {
        return Err(if state.header.cut {
            "it was cut off, or 'perf record' was not ended properly: the kernel's event formats at its end are missing"
                .into()
        } else {
            Recorded::of(&state.header).no_event(&[])
        });
    };
    let formats =
        event_formats::parse(data, state.header.big_endian).ok_or("the kernel's event formats in it cannot be read")?;
    if formats.names.is_empty() {
        return Err(Recorded::of(&state.header).no_event(&[]));
    }
    Ok(formats)
}
