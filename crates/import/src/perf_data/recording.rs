//! A `perf.data` that is read from its beginning to its end.

use super::counters::PerfDataCounters;
use super::event_formats;
use super::event_reader::EventReader;
use super::header;
use super::no_exits::Recorded;
use super::records::Records;
use crate::gathered::Gathered;
use crate::imported::file_name;
use kvm::topology::CPU_MODEL;
use sample::{DomainSample, EngineStatus, HostFacts, SourceId};
use std::fs::File;
use std::io::Seek;
use std::path::Path;

/// A `perf.data` that is being read.
pub(super) struct PerfData {
    pub(super) reader: EventReader,
    pub(super) counters: PerfDataCounters,
}

/// Reads a whole file.
pub(crate) fn read(path: &Path, file: File, gathered: &mut Gathered) -> Result<(), String> {
    let mut data = PerfData::open(file, gathered.perf_times)?;
    while data.count_before(None)? {}
    if data.counters.first.is_none() {
        return Err(data.why_empty());
    }
    let host = data.host();
    let name = file_name(path);
    gathered.notes.extend(data.notes(&host.kernel).into_iter().map(|note| format!("{name}: {note}")));
    gathered.seconds.push((SourceId::PerfData, data.counters.covered.seconds()));
    let (counts, engine) = (data.engine(), &mut gathered.engine);
    engine.lost = engine.lost.saturating_add(counts.lost);
    engine.overflow = engine.overflow.saturating_add(counts.overflow);
    engine.events = engine.events.saturating_add(counts.events);
    gathered.guests.extend(data.guests());
    gathered.host.get_or_insert(host);
    gathered.types.insert(SourceId::PerfData);
    Ok(())
}

impl PerfData {
    /// Opens a file. Whether it holds kvm events turns out when it is read.
    pub fn open(mut file: File, perf_times: bool) -> Result<Self, String> {
        // The beginning was read before, to detect the file's type.
        file.rewind().map_err(|_| "a perf.data is read from a file, not from a pipe: save it first".to_owned())?;
        Ok(Self { reader: EventReader::open(file)?, counters: PerfDataCounters::new(perf_times) })
    }

    /// Counts the next event if it is before an instant. Returns false if it is not, or at the end of the file.
    pub fn count_before(&mut self, until: Option<u64>) -> Result<bool, String> {
        let is_before = self.next_time()?.is_some_and(|time| until.is_none_or(|until| time < until));
        if is_before && let Some(item) = self.reader.take() {
            if let Some(formats) = &self.reader.formats {
                self.counters.begin(formats);
            }
            self.counters.item(&item);
        }
        Ok(is_before)
    }

    /// The time of the next event; `None` at the end of the file.
    pub fn next_time(&mut self) -> Result<Option<u64>, String> {
        Ok(self.reader.peek()?.map(|item| item.time))
    }

    /// The guests with their counts so far.
    pub fn guests(&mut self) -> Vec<DomainSample> {
        self.counters.guests(&self.reader.comms)
    }

    /// What was read so far.
    pub fn engine(&self) -> EngineStatus {
        let (lost, overflow) = (self.counters.lost, self.counters.counted().overflow());
        EngineStatus { lost, overflow, events: self.reader.samples, ..EngineStatus::default() }
    }

    /// Why no kvm event was counted.
    pub fn why_empty(&self) -> String {
        let header = &self.reader.records.header;
        let formats = header.part(header::TRACING_DATA).and_then(|part| event_formats::parse(part, header.big_endian));
        Recorded::of(header).no_event(&formats.unwrap_or_default().names)
    }

    /// The host that was recorded.
    pub fn host(&self) -> HostFacts {
        let header = &self.reader.records.header;
        let text = |feature| header.text(feature).unwrap_or_default();
        HostFacts {
            hostname: text(header::HOSTNAME),
            kernel: text(header::OSRELEASE),
            arch: text(header::ARCH),
            params: header.text(header::CPUDESC).map(|model| (CPU_MODEL.to_owned(), model)).into_iter().collect(),
            ..HostFacts::default()
        }
    }

    /// What is to be said of the counts, a sentence each.
    fn notes(&self, kernel: &str) -> Vec<String> {
        let (reader, counters) = (&self.reader, &self.counters);
        let Records { header, damaged, .. } = &reader.records;
        let (enabled, came) = counters.kvm_events();
        let mut notes: Vec<String> = Recorded::of(header).no_exits(enabled, &came, kernel).into_iter().collect();
        if let Some(damage) = damaged {
            notes.push(format!("{damage}; the events before it are used"));
        } else if header.cut {
            notes.push("it was cut off after its records, which are all used".into());
        }
        notes.extend(counters.covered.note());
        if reader.broken > 0 {
            notes.push(format!("{} of its records cannot be read and are left out", reader.broken));
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
        notes
    }
}
