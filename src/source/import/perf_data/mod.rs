//! `perf.data` of `perf kvm stat record`, or of any `perf record` with kvm tracepoints: of any age, byte order and machine, written to a
//! file or a pipe, compressed or not. It is read as a stream, whatever its size.
//!
//! Counts are perf's own (`rule`), times are the whole exit's unless perf's are asked for. One thread reads and decodes (`reader`),
//! another pairs (`tally`).

mod feed;
mod header;
mod layout;
mod reader;
mod records;
mod rule;
mod tally;
mod tracing;

pub use feed::PerfDataFeed;

use super::join::Guest;
use super::reason;
use crate::sample::HostFacts;
use reader::{Batch, Item, Reader};
use records::Shared;
use std::fs::File;
use std::io::Seek;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tally::Tally;

const NO_EVENTS: &str = "it describes no event: 'perf record' was not ended properly, or the file is damaged";
const NO_KVM: &str = "it holds no kvm event; expected a recording of 'perf kvm stat record'";
const AMBIGUOUS: &str = "its events have different layouts and nothing in its records tells them apart";
/// Batches that may wait for the pairing.
const QUEUE: usize = 4;

/// A `perf.data` at work.
pub(super) struct PerfData {
    batches: Receiver<Result<Batch, String>>,
    /// Items that were received, and the place of the next one to be taken.
    waiting: Vec<Item>,
    at: usize,
    /// Takes what is used up back to the reader.
    spare: SyncSender<Vec<Item>>,
    met: Shared,
    tally: Tally,
}

/// What came out.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The guests.
    pub guests: Vec<Guest>,
    /// From the first to the last kvm event, seconds.
    pub seconds: f64,
    /// Events lost, and events that found no room.
    pub lost: u64,
    /// See `lost`.
    pub overflow: u64,
    /// Samples read.
    pub events: u64,
    /// The host that was recorded.
    pub host: HostFacts,
    /// What is worth saying.
    pub notes: Vec<String>,
}

/// Reads a file to its end.
pub(super) fn read(file: File, perf_times: bool) -> Result<Outcome, String> {
    let mut data = PerfData::open(file, perf_times)?;
    while data.step(u64::MAX)? {}
    data.finish()
}

impl PerfData {
    /// Opens a file; whether it holds kvm events shows when it is read.
    pub fn open(mut file: File, perf_times: bool) -> Result<Self, String> {
        // What was looked at to tell the kind of file is to be read again.
        file.rewind().map_err(|e| format!("cannot read it: {}", reason(&e)))?;
        let met = Shared::default();
        let header = header::read(&mut file)?;
        records::lock(&met).header = header;
        let (spare, used) = sync_channel(QUEUE);
        let mut reader = Reader::new(file, &met, used)?;
        let (sender, batches) = sync_channel(QUEUE);
        let read = move || {
            // The end of the receiver ends this as well.
            while let Some(batch) = reader.next().transpose() {
                let failed = batch.is_err();
                if sender.send(batch).is_err() || failed {
                    break;
                }
            }
        };
        std::thread::Builder::new()
            .name("perf.data".into())
            .spawn(read)
            .map_err(|e| format!("cannot start a thread to read it: {}", reason(&e)))?;
        Ok(Self { batches, waiting: Vec::new(), at: 0, spare, met, tally: Tally::new(perf_times) })
    }

    /// Takes events up to an instant, at most one batch; false at the end of the file.
    pub fn step(&mut self, until: u64) -> Result<bool, String> {
        if self.at >= self.waiting.len() {
            match self.batches.recv() {
                Ok(batch) => {
                    let mut batch = batch?;
                    self.tally.begin(&mut batch);
                    let used = std::mem::replace(&mut self.waiting, batch.items);
                    self.at = 0;
                    let _ = self.spare.try_send(used);
                }
                // The reader is done.
                Err(_) => return Ok(false),
            }
        }
        while let Some(item) = self.waiting.get(self.at).filter(|item| item.time < until) {
            self.tally.item(item);
            self.at += 1;
        }
        Ok(true)
    }

    /// The instant of the next event that is at hand.
    pub fn next_time(&self) -> Option<u64> {
        self.waiting.get(self.at).map(|item| item.time)
    }

    /// The host that was recorded.
    pub fn host(&self) -> HostFacts {
        let met = records::lock(&self.met);
        let text = |feature| met.header.text(feature).unwrap_or_default();
        HostFacts {
            hostname: text(header::HOSTNAME),
            kernel: text(header::OSRELEASE),
            arch: text(header::ARCH),
            ..HostFacts::default()
        }
    }

    /// All that was counted.
    pub fn finish(mut self) -> Result<Outcome, String> {
        let tally = &mut self.tally;
        let first = tally.first.ok_or(NO_KVM)?;
        let mut notes = Vec::new();
        let (damaged, cut) = {
            let met = records::lock(&self.met);
            (met.damaged, met.header.cut)
        };
        if let Some(damage) = damaged {
            notes.push(format!("{damage}; the events before it are used"));
        } else if cut {
            notes.push("it was cut off behind its records, which are all used".into());
        }
        if tally.broken > 0 {
            notes.push(format!("{} records of it cannot be read and are left out", tally.broken));
        }
        if tally.lost > 0 {
            let how = if tally.as_perf() {
                "exits are paired across the gaps, as perf does, and some are too long"
            } else {
                "exits around the gaps are left out, where perf pairs across them"
            };
            notes.push(format!("{} events were lost while it was recorded; {how}", tally.lost));
        }
        if tally.uncounted() > 0 {
            let count = tally.uncounted();
            notes.push(format!(
                "{count} accesses are not counted, as in perf: they share an exit with another one that is"
            ));
        }
        Ok(Outcome {
            seconds: tally.last.saturating_sub(first) as f64 / 1e9,
            lost: tally.lost,
            overflow: tally.counted().overflow(),
            events: tally.samples,
            guests: tally.guests(),
            host: self.host(),
            notes,
        })
    }
}
