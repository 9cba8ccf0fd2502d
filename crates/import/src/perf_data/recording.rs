//! A `perf.data` that is read from its beginning to its end.
//!
//! One thread reads and decodes (`event_reader`), another pairs and counts (`counters`).

use super::counters::PerfDataCounters;
use super::event_formats;
use super::event_reader::{BatchItem, EventBatch, EventReader};
use super::header;
use super::no_exits::Recorded;
use super::records::{self, SharedState};
use crate::guest::ImportedGuest;
use crate::imported::io_message;
use kvm::topology::CPU_MODEL;
use sample::HostFacts;
use std::fs::File;
use std::io::Seek;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Limit of the batches that wait for the pairing.
const MAX_QUEUED: usize = 4;

/// A `perf.data` that is being read.
pub(super) struct PerfData {
    batches: Receiver<Result<EventBatch, String>>,
    /// Items that were received.
    waiting: Vec<BatchItem>,
    /// Position of the next item in `waiting`.
    at: usize,
    /// Returns used buffers to the reader.
    spare: SyncSender<Vec<BatchItem>>,
    pub(super) state: SharedState,
    pub(super) counters: PerfDataCounters,
}

/// The content of a file.
#[derive(Debug, Default)]
pub(crate) struct PerfDataContent {
    /// The guests.
    pub guests: Vec<ImportedGuest>,
    /// From the first to the last kvm event, seconds.
    pub seconds: f64,
    /// Events that the recorder lost.
    pub lost: u64,
    /// Events that found no room in a bounded table.
    pub overflow: u64,
    /// Samples read.
    pub events: u64,
    /// The host that was recorded.
    pub host: HostFacts,
    /// Remarks, a sentence each.
    pub notes: Vec<String>,
}

/// Reads a whole file.
pub(crate) fn read(file: File, perf_times: bool) -> Result<PerfDataContent, String> {
    let mut data = PerfData::open(file, perf_times)?;
    while data.step(u64::MAX)? {}
    data.finish()
}

/// Whether any kvm event was counted.
///
/// # Errors
/// Why there is none.
pub(super) fn counted(data: &PerfData) -> Result<u64, String> {
    let state = records::lock(&data.state);
    let enabled = || {
        let part = state.header.part(header::TRACING_DATA)?;
        Some(event_formats::parse(part, state.header.big_endian)?.names)
    };
    data.counters.first.ok_or_else(|| Recorded::of(&state.header).no_event(&enabled().unwrap_or_default()))
}

impl PerfData {
    /// Opens a file. Whether it holds kvm events turns out when it is read.
    pub fn open(mut file: File, perf_times: bool) -> Result<Self, String> {
        // The beginning was read before, to detect the file's type.
        file.rewind().map_err(|_| "a perf.data is read from a file, not from a pipe: save it first".to_owned())?;
        let state = SharedState::default();
        let header = header::read(&mut file)?;
        records::lock(&state).header = header;
        let (spare, used) = sync_channel(MAX_QUEUED);
        let mut reader = EventReader::new(file, &state, used)?;
        let (sender, batches) = sync_channel(MAX_QUEUED);
        let read = move || {
            // A send fails when the receiver is gone.
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
            .map_err(|e| format!("cannot start a thread to read it: {}", io_message(&e)))?;
        Ok(Self { batches, waiting: Vec::new(), at: 0, spare, state, counters: PerfDataCounters::new(perf_times) })
    }

    /// Counts events before an instant, at most one batch of them. Returns false at the end of the file.
    pub fn step(&mut self, until: u64) -> Result<bool, String> {
        if self.at >= self.waiting.len() {
            match self.batches.recv() {
                Ok(batch) => {
                    let mut batch = batch?;
                    self.counters.begin(&mut batch);
                    let used = std::mem::replace(&mut self.waiting, batch.items);
                    self.at = 0;
                    let _ = self.spare.try_send(used);
                }
                // The reader has ended.
                Err(_) => return Ok(false),
            }
        }
        while let Some(item) = self.waiting.get(self.at).filter(|item| item.time < until) {
            self.counters.item(item);
            self.at += 1;
        }
        Ok(true)
    }

    /// The time of the next event, if it was read already.
    pub fn next_time(&self) -> Option<u64> {
        self.waiting.get(self.at).map(|item| item.time)
    }

    /// The host that was recorded.
    pub fn host(&self) -> HostFacts {
        let state = records::lock(&self.state);
        let text = |feature| state.header.text(feature).unwrap_or_default();
        HostFacts {
            hostname: text(header::HOSTNAME),
            kernel: text(header::OSRELEASE),
            arch: text(header::ARCH),
            params: state.header.text(header::CPUDESC).map(|model| (CPU_MODEL.to_owned(), model)).into_iter().collect(),
            ..HostFacts::default()
        }
    }

    /// All counts.
    pub fn finish(mut self) -> Result<PerfDataContent, String> {
        counted(&self)?;
        let kernel = self.host().kernel;
        let counters = &mut self.counters;
        let (enabled, came) = counters.kvm_events();
        let recorded = Recorded::of(&records::lock(&self.state).header);
        let mut notes: Vec<String> = recorded.no_exits(enabled, &came, &kernel).into_iter().collect();
        let (damaged, cut) = {
            let state = records::lock(&self.state);
            (state.damaged, state.header.cut)
        };
        if let Some(damage) = damaged {
            notes.push(format!("{damage}; the events before it are used"));
        } else if cut {
            notes.push("it was cut off after its records, which are all used".into());
        }
        notes.extend(counters.covered.note());
        if counters.broken > 0 {
            notes.push(format!("{} of its records cannot be read and are left out", counters.broken));
        }
        if counters.lost > 0 {
            let how = if counters.as_perf() {
                "exits are paired across the gaps as in perf, so some are too long"
            } else {
                "exits around the gaps are left out, whereas perf pairs across them"
            };
            notes.push(format!("{} events were lost while it was recorded; {how}", counters.lost));
        }
        if counters.uncounted() > 0 {
            let count = counters.uncounted();
            notes.push(format!("{count} accesses are not counted, as in perf: they share an exit with another access"));
        }
        Ok(PerfDataContent {
            seconds: counters.covered.seconds(),
            lost: counters.lost,
            overflow: counters.counted().overflow(),
            events: counters.samples,
            guests: counters.guests(),
            host: self.host(),
            notes,
        })
    }
}
