//! From records to events in order of time.
//!
//! perf writes what each CPU's ring holds, one after the other, and marks the end of each such round: what comes two rounds later is
//! younger than all before (tools/perf/util/ordered-events.c). Events are decoded where they lie and sorted as small values, a round
//! at a time.

use super::layout::Layouts;
use super::records::{Met, Records, Shared, kind, lock};
use super::tracing::{self, Formats};
use super::{AMBIGUOUS, NO_EVENTS, header, reason};
use crate::source::pairing::{Event, Kind, RawSample};
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// Events of which no order is known yet; beyond that the older half is taken to be in order. A file without marks would else be
/// held in memory as a whole.
const MAX_WAITING: usize = 600_000;
/// The number of an event that is none of `kvm`.
pub(super) const NO_NAME: u16 = u16::MAX;

/// Something that happened at an instant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    /// Nanoseconds of the recorder's clock.
    pub time: u64,
    /// The thread it happened to.
    pub tid: i32,
    /// Its process.
    pub pid: i32,
    /// The CPU.
    pub cpu: u32,
    /// The place of the event's name in [`Formats::names`].
    pub name: u16,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    /// Something to be paired.
    Kind(Kind),
    /// Another kvm event, to be counted.
    Other,
    /// So many events are missing.
    Lost(u64),
}

impl Item {
    /// As an event, if it is one.
    pub fn event(&self) -> Option<Event> {
        match self.what {
            What::Kind(kind) => Some(Event { tid: self.tid, pid: self.pid, time: self.time, cpu: self.cpu, kind }),
            What::Other | What::Lost(_) => None,
        }
    }
}

/// What one round gives.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// In order of time.
    pub items: Vec<Item>,
    /// Names of threads.
    pub comms: Vec<(i32, String)>,
    /// Records that could not be read.
    pub broken: u64,
    /// Samples read.
    pub samples: u64,
    /// The formats, once they are known.
    pub formats: Option<Arc<Formats>>,
}

/// Reads batches.
pub(super) struct Reader {
    records: Records<File>,
    met: Shared,
    layouts: Layouts,
    formats: Option<Arc<Formats>>,
    waiting: Vec<Item>,
    /// The latest instant of all rounds but the one at work, and of all.
    settled: u64,
    latest: u64,
    spare: Receiver<Vec<Item>>,
    batch: Batch,
    ended: bool,
}

impl Reader {
    /// From a file that stands at its first record. Items that were used up may be sent back.
    pub fn new(file: File, met: &Shared, spare: Receiver<Vec<Item>>) -> Result<Self, String> {
        let (mut layouts, stream) = {
            let met = lock(met);
            (Layouts::new(met.header.big_endian), met.header.stream)
        };
        for (attr, ids) in std::mem::take(&mut lock(met).header.attrs) {
            let body: Vec<u8> = attr.iter().chain(&ids).copied().collect();
            layouts.learn(&body);
        }
        if !stream && layouts.is_empty() {
            return Err(NO_EVENTS.into());
        }
        Ok(Self {
            records: Records::new(file, met),
            met: met.clone(),
            layouts,
            formats: None,
            waiting: Vec::new(),
            settled: 0,
            latest: 0,
            spare,
            batch: Batch::default(),
            ended: false,
        })
    }

    /// What comes next; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Batch>, String> {
        while !self.ended {
            let Some(record) = self.records.next().map_err(|e| format!("cannot read it: {}", reason(&e)))? else {
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
                        let formats = Arc::new(learnt(&lock(&self.met))?);
                        self.batch.formats = Some(formats.clone());
                        self.formats.insert(formats)
                    };
                    self.batch.samples += 1;
                    let put = |item: Item| {
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
                        self.waiting.push(Item { time, tid: 0, pid: 0, cpu: 0, name: NO_NAME, what: What::Lost(lost) });
                    }
                }
                kind::HEADER_ATTR => {
                    self.layouts.learn(record.body);
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

    /// Hands out all up to this instant.
    fn settle(&mut self, until: u64) {
        // Runs that are sorted already, one a CPU, are merged as such; equal instants keep the file's order.
        self.waiting.sort_by_key(|item| item.time);
        let n = self.waiting.partition_point(|item| item.time <= until);
        if !self.batch.items.is_empty() {
            self.batch.items.extend(self.waiting.drain(..n));
            return;
        }
        // The used-up items of an earlier batch lend their room.
        let mut rest = self.spare.try_recv().unwrap_or_default();
        rest.clear();
        rest.extend_from_slice(self.waiting.get(n..).unwrap_or_default());
        self.waiting.truncate(n);
        self.batch.items = std::mem::replace(&mut self.waiting, rest);
    }
}

/// The events of one sample: at least one for any kvm event.
fn decode(formats: &Formats, sample: &RawSample<'_>, mut put: impl FnMut(Item)) {
    let RawSample { pid, tid, time, cpu, .. } = *sample;
    let name = formats.name_of(sample.raw);
    let mut counted = false;
    formats.decoder.decode(sample, |event| {
        let name = if counted { NO_NAME } else { name };
        counted = true;
        put(Item { time, tid: event.tid, pid: event.pid, cpu, name, what: What::Kind(event.kind) });
    });
    if !counted && name != NO_NAME {
        put(Item { time, tid, pid, cpu, name, what: What::Other });
    }
}

/// The recorded kernel's formats, which stand before the first sample.
fn learnt(met: &Met) -> Result<Formats, String> {
    let Some(data) = met.header.part(header::TRACING_DATA) else {
        return Err(if met.header.cut {
            "it was cut off, or 'perf record' was not ended properly: the kernel's event formats at its end are missing"
                .into()
        } else {
            "it holds no tracepoints; expected a recording of 'perf kvm stat record'".to_owned()
        });
    };
    let formats =
        tracing::parse(data, met.header.big_endian).ok_or("the kernel's event formats in it cannot be read")?;
    if formats.names.is_empty() {
        return Err("it holds no kvm events; expected a recording of 'perf kvm stat record'".into());
    }
    Ok(formats)
}
