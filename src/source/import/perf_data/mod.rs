//! `perf.data` of `perf kvm stat record`, or of any `perf record` with kvm tracepoints: of any age, byte order and machine, written to a
//! file or a pipe, compressed or not. It is read as a stream, whatever its size.
//!
//! Counts are perf's own (`rule`), times are the whole exit's unless perf's are asked for.

mod feed;
mod header;
mod rule;
mod stream;
mod tracing;

pub use feed::PerfDataFeed;

use super::guests::{Counts, guests};
use super::join::Guest;
use super::reason;
use crate::kvm::topology::HostTopology;
use crate::kvm::{Space, sanitize};
use crate::sample::{Direction, HostFacts, Timing};
use crate::source::live::events::TracedThread;
use crate::source::pairing::{Event, Kind, Pairing, RawSample};
use linux_perf_data::linux_perf_event_reader::{EventRecord, RawEventRecord, RecordType};
use linux_perf_data::{Error, PerfFile, PerfFileReader, PerfFileRecord, PerfRecordIter};
use rule::{Counted, Rule, Step};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Seek};
use stream::{Shared, Stream};
use tracing::Formats;

/// Names of threads that are kept.
const MAX_COMMS: usize = 262_144;
/// Different addresses with perf's times, over all threads.
const MAX_TIMES: usize = 262_144;
/// Lost samples without a number of their own (`include/uapi/linux/perf_event.h`, `PERF_RECORD_LOST_SAMPLES`).
const LOST_SAMPLES: RecordType = RecordType(13);

type AccessKey = (i32, Space, u64, Direction);

/// A `perf.data` at work.
pub(super) struct PerfData {
    file: PerfFile,
    records: PerfRecordIter<BufReader<Stream<BufReader<File>>>>,
    met: Shared,
    formats: Option<Formats>,
    tally: Tally,
}

/// What was counted so far.
struct Tally {
    pairing: Pairing,
    /// All events as they are, until the first entry: a kernel that fires none shows its accesses all the same.
    unpaired: Option<Pairing>,
    rule: Rule,
    counts: Counts,
    comms: HashMap<i32, String>,
    /// perf's times, where they are asked for.
    times: Option<HashMap<AccessKey, Timing>>,
    first: Option<u64>,
    last: u64,
    lost: u64,
    /// Records that could not be read.
    broken: u64,
    samples: u64,
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
    /// Events paired.
    pub events: u64,
    /// The last event, milliseconds since the epoch.
    pub time_ms: Option<i64>,
    /// The host that was recorded.
    pub host: HostFacts,
    /// What is worth saying.
    pub notes: Vec<String>,
}

/// Reads a file to its end.
pub(super) fn read(file: File, perf_times: bool) -> Result<Outcome, String> {
    let mut data = PerfData::open(file, perf_times)?;
    while data.step()? {}
    data.finish()
}

impl PerfData {
    /// Opens a file; whether it holds kvm events shows when it is read.
    pub fn open(mut file: File, perf_times: bool) -> Result<Self, String> {
        // A pipe cannot be rewound, and what was looked at is gone: such a path is refused by whoever opens it.
        file.rewind().map_err(|e| format!("cannot read it: {}", reason(&e)))?;
        let header = header::read(&mut file)?;
        if !header.stream && header.attrs.is_empty() {
            return Err("it describes no event: 'perf record' was not ended properly, or the file is damaged".into());
        }
        let met = Shared::default();
        stream::lock(&met).header = header;
        let stream = Stream::new(BufReader::with_capacity(1 << 20, file), &met);
        let PerfFileReader { perf_file, record_iter } =
            PerfFileReader::parse_pipe(BufReader::with_capacity(1 << 18, stream)).map_err(|e| sentence(&e))?;
        let tally = Tally {
            pairing: Pairing::default(),
            unpaired: None,
            rule: Rule::default(),
            counts: Counts::default(),
            comms: HashMap::new(),
            times: perf_times.then(HashMap::new),
            first: None,
            last: 0,
            lost: 0,
            broken: 0,
            samples: 0,
        };
        Ok(Self { file: perf_file, records: record_iter, met, formats: None, tally })
    }

    /// Takes the next record; false at the end.
    pub fn step(&mut self) -> Result<bool, String> {
        let record = match self.records.next_record(&mut self.file) {
            Ok(Some(PerfFileRecord::EventRecord { record, .. })) => record,
            Ok(Some(PerfFileRecord::UserRecord(_))) => return Ok(true),
            Ok(None) => return Ok(false),
            Err(e) => return Err(sentence(&e)),
        };
        if self.formats.is_none() && record.record_type == RecordType::SAMPLE {
            let formats = met_formats(&self.met)?;
            self.tally.begin(&formats);
            self.formats = Some(formats);
        }
        self.tally.record(&record, self.formats.as_ref());
        Ok(true)
    }

    /// Time of the last event so far, nanoseconds of the recorder's clock.
    pub fn now(&self) -> u64 {
        self.tally.last
    }

    /// The host that was recorded.
    pub fn host(&self) -> HostFacts {
        let met = stream::lock(&self.met);
        let text = |feature| met.header.text(feature).unwrap_or_default();
        HostFacts {
            hostname: text(header::HOSTNAME),
            kernel: text(header::OSRELEASE),
            arch: text(header::ARCH),
            ..HostFacts::default()
        }
    }

    /// The guests as counted so far.
    pub fn guests(&mut self) -> Vec<Guest> {
        self.tally.guests()
    }

    /// All that was counted.
    pub fn finish(mut self) -> Result<Outcome, String> {
        let Some(first) = self.tally.first else {
            return Err("it holds no kvm event; expected a recording of 'perf kvm stat record'".into());
        };
        let mut notes = Vec::new();
        let tally = &mut self.tally;
        let (damaged, cut) = {
            let met = stream::lock(&self.met);
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
            let how = if tally.times.is_some() {
                "exits are paired across the gaps, as perf does, and some are too long"
            } else {
                "exits around the gaps are left out, where perf pairs across them"
            };
            notes.push(format!("{} events were lost while it was recorded; {how}", tally.lost));
        }
        if tally.rule.uncounted > 0 {
            notes.push(format!(
                "{} accesses are not counted, as in perf: they share an exit with another one that is",
                tally.rule.uncounted
            ));
        }
        Ok(Outcome {
            seconds: (tally.last - first) as f64 / 1e9,
            lost: tally.lost,
            overflow: tally.counted().overflow(),
            events: tally.samples,
            time_ms: None,
            guests: tally.guests(),
            host: self.host(),
            notes,
        })
    }
}

impl Tally {
    fn begin(&mut self, formats: &Formats) {
        let pairing = || {
            let names = formats.decoder.reason_names().clone();
            let pairing = Pairing::new(names, HostTopology::default()).exactly();
            if formats.migrations { pairing.with_migrations() } else { pairing }
        };
        self.pairing = pairing();
        self.unpaired = Some(pairing());
    }

    fn record(&mut self, record: &RawEventRecord<'_>, formats: Option<&Formats>) {
        if record.record_type == LOST_SAMPLES {
            let endian = record.parse_info.endian == linux_perf_data::Endianness::BigEndian;
            let count = record.data.as_slice().first_chunk::<8>().map_or(0, |b| header::u64_of(*b, endian));
            self.lose(count, record.timestamp());
            return;
        }
        match record.parse() {
            Ok(EventRecord::Sample(sample)) => {
                let (Some(pid), Some(tid), Some(time), Some(raw)) =
                    (sample.pid, sample.tid, sample.timestamp, &sample.raw)
                else {
                    self.broken += 1;
                    return;
                };
                let raw = raw.as_slice();
                let Some(formats) = formats else { return };
                self.sample(&RawSample { pid, tid, time, cpu: sample.cpu.unwrap_or(0), raw: &raw }, formats);
            }
            Ok(EventRecord::Comm(comm)) => {
                let room = self.comms.len() < MAX_COMMS;
                if room || self.comms.contains_key(&comm.tid) {
                    self.comms.insert(comm.tid, sanitize(&String::from_utf8_lossy(&comm.name.as_slice()), 15));
                }
            }
            Ok(EventRecord::Lost(lost)) => self.lose(lost.count, record.timestamp()),
            Ok(_) => {}
            Err(_) => self.broken += 1,
        }
    }

    fn sample(&mut self, raw: &RawSample<'_>, formats: &Formats) {
        self.samples += 1;
        if let Some(name) = formats.kvm_name(raw.raw) {
            self.first = Some(self.first.map_or(raw.time, |first| first.min(raw.time)));
            self.last = self.last.max(raw.time);
            self.counts.add(raw.tid, raw.pid, name);
        }
        formats.decoder.decode(raw, |event| {
            if let Some(unpaired) = &mut self.unpaired {
                unpaired.event(&event);
                if matches!(event.kind, Kind::Entry { .. }) {
                    self.unpaired = None;
                }
            }
            let (pairing, times) = (&mut self.pairing, &mut self.times);
            self.rule.event(&event, |step| match step {
                Step::Event => pairing.event(&event),
                Step::InKernel => pairing.in_kernel(event.tid, event.time),
                Step::Count(counted) => count(&event, &counted, pairing, times.as_mut()),
            });
        });
    }

    fn lose(&mut self, count: u64, time: Option<u64>) {
        self.lost = self.lost.saturating_add(count);
        // perf pairs across gaps; so does this where perf's times are asked for.
        if self.times.is_some() {
            return;
        }
        let time = time.unwrap_or(self.last);
        self.pairing.gap(self.last.min(time), time);
        if let Some(unpaired) = &mut self.unpaired {
            unpaired.gap(self.last.min(time), time);
        }
    }

    /// The pairing that tells most: without a single entry in the file, nothing is paired.
    fn counted(&self) -> &Pairing {
        self.unpaired.as_ref().unwrap_or(&self.pairing)
    }

    fn guests(&mut self) -> Vec<Guest> {
        let pairing = self.unpaired.as_mut().unwrap_or(&mut self.pairing);
        for (tid, _) in pairing.threads().collect::<Vec<_>>() {
            if let Some(comm) = self.comms.get(&tid) {
                pairing.name(tid, comm);
            }
        }
        let mut threads = pairing.snapshot();
        if let Some(times) = &self.times {
            for (tid, thread) in &mut threads {
                perf_times(*tid, thread, times);
            }
        }
        guests(threads, &self.counts, |pid| self.comms.get(&pid).cloned())
    }
}

fn count(event: &Event, counted: &Counted, pairing: &mut Pairing, times: Option<&mut HashMap<AccessKey, Timing>>) {
    let access = counted.access;
    pairing.event(&Event { time: counted.seen, kind: Kind::Access(access), ..*event });
    if let Some(times) = times {
        let key = (counted.tid, access.space, access.address, access.direction);
        if times.len() < MAX_TIMES || times.contains_key(&key) {
            times.entry(key).or_default().add_exact(counted.ns);
        }
    }
}

/// Puts perf's times in place of the exits'.
fn perf_times(tid: i32, thread: &mut TracedThread, times: &HashMap<AccessKey, Timing>) {
    for cell in &mut thread.events.accesses {
        if let Some(time) = cell.address.and_then(|a| times.get(&(tid, cell.space, a, cell.direction))) {
            cell.time = time.clone();
        }
    }
}

/// The recorded kernel's formats, which stand before the first sample.
fn met_formats(met: &Shared) -> Result<Formats, String> {
    let met = stream::lock(met);
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
    if formats.kvm.is_empty() {
        return Err("it holds no kvm events; expected a recording of 'perf kvm stat record'".into());
    }
    Ok(formats)
}

/// What the container's reader says, in a sentence.
fn sentence(error: &Error) -> String {
    match error {
        Error::NoAttributes => {
            "it describes no event: 'perf record' was not ended properly, or the file is damaged".into()
        }
        Error::NoIdentifierDespiteMultiEvent(_) | Error::InconsistentSampleIdAllWithMultiEvent(_) => {
            "its events have different layouts and nothing in its records tells them apart".into()
        }
        Error::IoError(e) => format!("cannot read it: {}", reason(e)),
        other => format!("it is damaged: {}", sanitize(&other.to_string(), 200)),
    }
}
