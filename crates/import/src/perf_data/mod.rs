//! Reads a `perf.data` of `perf kvm stat record`, or of any `perf record` with kvm tracepoints: of any age
//! and machine, written to a file or a pipe, compressed or not. It is read as a stream, whatever its size.
//!
//! Counts are perf's own (`counters`); times cover the whole exit.

mod counters;
mod event_reader;
mod header;
mod records;

use crate::file_name;
use crate::files::Files;
use counters::PerfDataCounters;
use event_reader::{EventReader, kernel_formats, no_event};
use kvm::topology::CPU_MODEL;
use linux_perf_data::Feature;
use records::Records;
use sample::{HostFacts, SourceId};
use std::fs::File;
use std::io::Seek;
use std::path::Path;

/// How to record what is missing.
const RECORD: &str = "record with 'perf kvm stat record -p PID sleep 10' while the guest runs";

/// A `perf.data` that is being read.
struct PerfData {
    reader: EventReader,
    counters: PerfDataCounters,
}

/// Reads a whole file.
pub(crate) fn read(path: &Path, file: File, files: &mut Files) -> Result<(), String> {
    let mut data = PerfData::open(file)?;
    data.count()?;
    if data.counters.covered.first.is_none() {
        return Err(data.why_empty());
    }
    let name = file_name(path);
    files.notes.extend(data.notes().into_iter().map(|note| format!("{name}: {note}")));
    files.seconds.push((SourceId::PerfData, data.counters.covered.seconds()));
    files.count_events(data.reader.samples, data.counters.lost, data.counters.counted().overflow);
    files.measured.extend(data.counters.guests(&data.reader.comms));
    files.host.get_or_insert(data.host());
    files.types.insert(SourceId::PerfData);
    Ok(())
}

impl PerfData {
    /// Opens a file. Whether it holds kvm events turns out when it is read.
    fn open(mut file: File) -> Result<Self, String> {
        // The beginning was read before, to detect the file's type.
        file.rewind().map_err(|_| "a perf.data is read from a file, not from a pipe: save it first".to_owned())?;
        Ok(Self { reader: EventReader::open(file)?, counters: PerfDataCounters::default() })
    }

    /// Counts all events.
    fn count(&mut self) -> Result<(), String> {
        while let Some(item) = self.reader.next()? {
            if let Some(formats) = &self.reader.formats {
                self.counters.begin(formats);
            }
            self.counters.item(&item);
        }
        Ok(())
    }

    /// Why no kvm event was counted.
    fn why_empty(&self) -> String {
        let none_came = "kvm events were enabled, and none came: no guest ran where and while perf recorded";
        kernel_formats(&self.reader.records.header).map_or_else(|why| why, |_| no_event(none_came))
    }

    /// The host that was recorded.
    fn host(&self) -> HostFacts {
        let header = &self.reader.records.header;
        let text = |feature| header.text(feature).unwrap_or_default();
        HostFacts {
            hostname: text(Feature::HOSTNAME),
            kernel: text(Feature::OSRELEASE),
            arch: text(Feature::ARCH),
            params: header.text(Feature::CPUDESC).map(|model| (CPU_MODEL.to_owned(), model)).into_iter().collect(),
            ..HostFacts::default()
        }
    }

    /// What is to be said of the counts, a sentence each.
    fn notes(&self) -> Vec<String> {
        let (reader, counters) = (&self.reader, &self.counters);
        let Records { header, damaged, .. } = &reader.records;
        let came = |event: &str| counters.kvm_events().any(|(_, _, name, _)| name == event);
        let what = match (came("kvm_exit"), came("kvm_entry")) {
            (true, true) => None,
            (true, false) => Some(format!("no kvm:kvm_entry came, which ends an exit; {RECORD}")),
            (false, _) if counters.enabled().iter().any(|name| name == "kvm_exit") => Some(
                "kvm:kvm_exit was enabled and never came, though other kvm events did: the KVM of this kernel does not \
                 fire it, as kvm_pvm does not, or no vCPU left the guest; the exits to the VMM (kvm_userspace_exit) \
                 are all there is"
                    .to_owned(),
            ),
            (false, _) => Some(format!("kvm:kvm_exit was not recorded; {RECORD}")),
        };
        let mut notes: Vec<String> = what.into_iter().map(|why| format!("no table of exits: {why}")).collect();
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
            notes.push(format!(
                "{} events were lost while it was recorded; exits around the gaps are left out, whereas perf pairs \
                 across them",
                counters.lost
            ));
        }
        let count = counters.uncounted();
        if count > 0 {
            notes.push(format!("{count} accesses are not counted, as in perf: they share an exit with another access"));
        }
        notes
    }
}
