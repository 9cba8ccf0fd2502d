//! Reads a `perf.data` of `perf kvm stat record`, or of any `perf record` with kvm tracepoints: of any age
//! and machine, written to a file or a pipe, compressed or not. It is read as a stream, whatever its size.
//!
//! Counts are perf's own (`counters`). Times cover the whole exit unless perf's times are requested.

mod counters;
mod event_reader;
mod header;
mod records;

use crate::gathered::Gathered;
use crate::{cannot, file_name, guest};
use counters::PerfDataCounters;
use event_reader::{EventReader, kernel_formats, no_event};
use kvm::topology::CPU_MODEL;
use linux_perf_data::Feature;
use records::Records;
use rights::open_regular;
use sample::{EngineStatus, Feed, HostFacts, HostSample, Sample, SourceId, SourceState, SourceStatus};
use std::fs::File;
use std::io::Seek;
use std::path::Path;
use std::sync::Arc;

/// The most successive intervals without an event that each become a sample.
const MAX_EMPTY: u64 = 60;

/// How to record what is missing.
const RECORD: &str = "record with 'perf kvm stat record -p PID sleep 10' while the guest runs";

/// A `perf.data` that is being read.
struct PerfData {
    reader: EventReader,
    counters: PerfDataCounters,
}

/// Yields a sample at the end of each interval of a `perf.data`, with cumulative counters, after a first one without
/// guests.
pub struct PerfDataFeed {
    data: PerfData,
    interval_ns: u64,
    /// End of the current interval by the recorder's clock; `None` before the first sample.
    end: Option<u64>,
    /// The time of the last sample.
    shown: u64,
    /// Intervals without an event that the next sample covers.
    empty: u64,
    /// Wall clock at the zero of the recorder's clock, milliseconds since the epoch.
    zero_ms: i64,
    done: bool,
}

/// Reads a whole file.
pub(crate) fn read(path: &Path, file: File, gathered: &mut Gathered) -> Result<(), String> {
    let mut data = PerfData::open(file, gathered.perf_times)?;
    while data.count_before(None)? {}
    if data.counters.covered.first.is_none() {
        return Err(data.why_empty());
    }
    let name = file_name(path);
    gathered.notes.extend(data.notes().into_iter().map(|note| format!("{name}: {note}")));
    gathered.seconds.push((SourceId::PerfData, data.counters.covered.seconds()));
    let (counts, engine) = (data.engine(), &mut gathered.engine);
    engine.lost = engine.lost.saturating_add(counts.lost);
    engine.overflow = engine.overflow.saturating_add(counts.overflow);
    engine.events = engine.events.saturating_add(counts.events);
    gathered.guests.extend(data.counters.guests(&data.reader.comms));
    gathered.host.get_or_insert(data.host());
    gathered.types.insert(SourceId::PerfData);
    Ok(())
}

impl PerfData {
    /// Opens a file. Whether it holds kvm events turns out when it is read.
    fn open(mut file: File, perf_times: bool) -> Result<Self, String> {
        // The beginning was read before, to detect the file's type.
        file.rewind().map_err(|_| "a perf.data is read from a file, not from a pipe: save it first".to_owned())?;
        Ok(Self { reader: EventReader::open(file)?, counters: PerfDataCounters::new(perf_times) })
    }

    /// Counts the next event if it is before an instant. Returns false if it is not, or at the end of the file.
    fn count_before(&mut self, until: Option<u64>) -> Result<bool, String> {
        let Some(item) = self.reader.next_before(until)? else { return Ok(false) };
        if let Some(formats) = &self.reader.formats {
            self.counters.begin(formats);
        }
        self.counters.item(&item);
        Ok(true)
    }

    /// What was read so far.
    fn engine(&self) -> EngineStatus {
        let (lost, overflow) = (self.counters.lost, self.counters.counted().overflow);
        EngineStatus { lost, overflow, events: self.reader.samples, ..EngineStatus::default() }
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
            let how = if counters.as_perf() {
                "exits are paired across the gaps as in perf, so some are too long"
            } else {
                "exits around the gaps are left out, whereas perf pairs across them"
            };
            notes.push(format!("{} events were lost while it was recorded; {how}", counters.lost));
        }
        let count = counters.uncounted();
        if count > 0 {
            notes.push(format!("{count} accesses are not counted, as in perf: they share an exit with another access"));
        }
        notes
    }
}

impl PerfDataFeed {
    /// Opens a file. `interval_s` is the length of an interval in seconds; `perf_times` as in
    /// [`ImportOptions`](crate::ImportOptions).
    ///
    /// # Errors
    /// One sentence that names the file and what is wrong with it.
    pub fn open(path: &Path, interval_s: f64, perf_times: bool) -> anyhow::Result<Self> {
        let error = |what: String| anyhow::anyhow!("{}: {what}", path.display());
        let file = open_regular(path).map_err(cannot("open it")).map_err(error)?;
        let modified = file.metadata().and_then(|m| m.modified()).ok();
        let mut data = PerfData::open(file, perf_times).map_err(error)?;
        // The first kvm event shows that the file can be used.
        while data.counters.covered.first.is_none() {
            if !data.count_before(None).map_err(error)? {
                return Err(error(data.why_empty()));
            }
        }
        let first = data.counters.covered.last;
        let last = data.reader.records.header.last_time();
        let wall =
            modified.and_then(|m| m.duration_since(std::time::UNIX_EPOCH).ok()).map_or(0, |d| d.as_millis() as i64);
        // The file was last written at the time of its last event.
        let zero_ms = wall.saturating_sub((last.unwrap_or(first) / 1_000_000) as i64);
        let interval_ns = ((interval_s * 1e9) as u64).max(1_000_000);
        Ok(Self { data, interval_ns, end: None, shown: 0, empty: 0, zero_ms, done: false })
    }

    fn sample(&mut self, now: u64) -> Sample {
        self.shown = now;
        let mut source = SourceStatus::ok(SourceId::PerfData);
        if self.empty > 1 {
            let seconds = self.empty as f64 * self.interval_ns as f64 / 1e9;
            source.state = SourceState::Degraded;
            source.cause = Some(format!("there is no event in the file for {seconds:.0} s: this interval is as long"));
        }
        let mut guests = self.data.counters.guests(&self.data.reader.comms);
        guest::name_unnamed(&mut guests);
        let mut sample = Sample {
            time_ms: self.zero_ms.saturating_add((now / 1_000_000) as i64),
            mono_ns: now,
            boot_ns: now,
            host: HostSample { facts: Arc::new(self.data.host()), ..HostSample::default() },
            engine: guest::engine(&guests, self.data.engine()),
            domains: guests,
            sources: vec![source],
            ..Sample::default()
        };
        sample.normalise();
        sample
    }
}

impl Feed for PerfDataFeed {
    fn next(&mut self) -> anyhow::Result<Option<Sample>> {
        if self.done {
            return Ok(None);
        }
        let first = self.data.counters.covered.first.unwrap_or_default();
        let Some(end) = self.end else {
            self.end = Some(first.saturating_add(self.interval_ns));
            // Nothing happened before the first interval.
            let start = Sample { domains: Vec::new(), ..self.sample(first) };
            return Ok(Some(start));
        };
        while self.data.count_before(Some(end)).map_err(anyhow::Error::msg)? {}
        let Some(next) = self.data.reader.next_time().map_err(anyhow::Error::msg)? else {
            self.done = true;
            // A clock that jumped and came back leaves the last event before the end of an interval.
            return Ok(Some(self.sample(self.data.counters.covered.last.max(self.shown))));
        };
        let sample = self.sample(end);
        // A damaged time stamp may be centuries away: intervals without an event are one, if there are many.
        let empty = next.saturating_sub(end) / self.interval_ns;
        self.empty = if empty > MAX_EMPTY { empty } else { 1 };
        self.end = Some(end.saturating_add(self.interval_ns.saturating_mul(self.empty)));
        Ok(Some(sample))
    }
}
