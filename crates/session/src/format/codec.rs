//! A sample as the bytes of a frame and back: serde's description of it, in postcard's encoding, compressed by zstd.
//!
//! A segment is one zstd stream, flushed behind each sample: what a frame holds repeats most of the frames before it. A
//! sample carries the facts of the host and of guests only where they are new in the segment.

use super::budget;
use super::frame::{self, FrameKind, HEAD, Stamp};
use crate::SEGMENT_BYTES;
use anyhow::{Context, Result, bail, ensure};
use sample::{DomainFacts, GuestInterrupts, HostDisk, HostFacts, Sample};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;
use zstd::stream::write::{Decoder, Encoder};

/// zstd's level: higher ones take twice the time for 1 % fewer bytes.
const LEVEL: i32 = 3;
/// zstd looks back so many bytes, as a power of two; a reader refuses streams that want more.
const WINDOW_LOG: u32 = 21;
/// The most that a frame may hold uncompressed, bytes. A guest with its XML and its devices is some 60 KB.
const LONGEST: usize = 64 << 20;

/// The memory that the values of a sample may take, bytes: a sample of 5,000 vCPUs at work takes 75 MB.
const SAMPLE_MEMORY: usize = 256 << 20;
/// The memory that the facts of a segment may take, bytes.
const FACTS_MEMORY: usize = 512 << 20;

/// A sample's bytes or what stands behind them are damaged.
const DAMAGED: &str = "a sample is not what a recorder writes";

/// Facts of guests in a segment: a segment with more of them ends.
pub const MAX_FACTS: u32 = 8192;
/// Facts of guests in a segment that a reader takes: those of the last sample come on top.
const MAX_FACTS_READ: usize = 8 * MAX_FACTS as usize;

/// What a run of the recorder says of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The program and its version.
    pub tool: String,
    /// When the run began, milliseconds since the epoch.
    pub started_ms: i64,
    /// The same for all parts of one recording: the time and process that began it.
    pub recording: String,
}

/// A header as a frame.
pub fn pack_header(header: &Header) -> Result<Vec<u8>> {
    frame::seal(FrameKind::Header, postcard::to_extend(header, vec![0; HEAD])?)
}

/// A header out of a frame's payload.
pub fn unpack_header(payload: &[u8]) -> Option<Header> {
    postcard::from_bytes(payload).ok()
}

/// What stands before the sample in a frame.
type NewFacts = (Option<HostFacts>, Vec<DomainFacts>, Vec<u32>);

/// What stands behind the sample, if anything, for each guest: its block devices of the host, then its interrupts.
/// Recorders once wrote nothing there, then only the former, and their readers pass over what they do not know.
type OfEachGuest<T> = Vec<Option<T>>;

/// What makes a guest the same in two samples: PID, start of the process, name.
type FactsKey = (Option<i32>, u64, String);

/// Compresses the samples of one segment.
pub struct SegmentWriter {
    stream: Encoder<'static, Vec<u8>>,
    host: Option<Arc<HostFacts>>,
    /// The latest facts of each guest, by PID and start of the process, and their number in the segment.
    domains: HashMap<FactsKey, (u32, Arc<DomainFacts>)>,
    /// Facts of guests written.
    pub facts: u32,
    /// The uncompressed sample before: its memory serves the next.
    buffer: Vec<u8>,
    /// Bytes taken in.
    pub raw: usize,
}

impl SegmentWriter {
    /// Begins a segment.
    pub fn new() -> Result<Self> {
        let mut stream = Encoder::new(Vec::new(), LEVEL)?;
        stream.window_log(WINDOW_LOG)?;
        Ok(Self { stream, host: None, domains: HashMap::new(), facts: 0, buffer: Vec::new(), raw: 0 })
    }

    /// The next sample as a frame. Fails for a sample that is larger than a frame may be; the segment is unusable then.
    pub fn pack(&mut self, kind: FrameKind, stamp: Stamp, sample: &Sample) -> Result<Vec<u8>> {
        let host = &sample.host.facts;
        let new_host = self.host.as_ref().is_none_or(|known| !same(known, host)).then_some(&**host);
        self.host = Some(host.clone());
        let mut new_domains = Vec::new();
        let mut numbers = Vec::with_capacity(sample.domains.len());
        for facts in sample.domains.iter().map(|d| &d.facts) {
            let guest = key(facts);
            let known = self.domains.get(&guest).filter(|(_, known)| same(known, facts));
            numbers.push(known.map_or(self.facts, |(number, _)| *number));
            if known.is_none() {
                new_domains.push(&**facts);
                self.domains.insert(guest, (self.facts, facts.clone()));
                self.facts += 1;
            }
        }
        self.buffer.clear();
        let sample = (new_host, new_domains, numbers, sample);
        let mut bytes = postcard::to_extend(&sample, std::mem::take(&mut self.buffer))?;
        let domains = &sample.3.domains;
        let disks: OfEachGuest<&[HostDisk]> = domains.iter().map(|d| d.host_disks.as_deref()).collect();
        let interrupts: OfEachGuest<&GuestInterrupts> = domains.iter().map(|d| d.interrupts.as_ref()).collect();
        let interrupted = interrupts.iter().any(Option::is_some);
        if interrupted || disks.iter().any(Option::is_some) {
            bytes = postcard::to_extend(&disks, bytes)?;
        }
        if interrupted {
            bytes = postcard::to_extend(&interrupts, bytes)?;
        }
        ensure!(bytes.len() <= LONGEST, "a sample of {} bytes is larger than the format allows", bytes.len());
        self.raw += bytes.len();
        *self.stream.get_mut() = stamp.begin(kind);
        self.stream.write_all(&bytes)?;
        self.stream.flush()?;
        self.buffer = bytes;
        frame::seal(kind, std::mem::take(self.stream.get_mut()))
    }
}

fn key(facts: &DomainFacts) -> FactsKey {
    (facts.pid, facts.start_ticks, facts.name.value.clone())
}

/// What makes a guest the same within a sample: its process, or its name if it has none.
fn identity(facts: &DomainFacts) -> (Option<i32>, u64, &str) {
    let name = if facts.pid.is_some() { "" } else { &facts.name.value };
    (facts.pid, facts.start_ticks, name)
}

fn same<T: PartialEq>(a: &Arc<T>, b: &Arc<T>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

/// Decompresses the samples of one segment, in order.
pub struct SegmentReader {
    stream: Decoder<'static, Bounded>,
    host: Arc<HostFacts>,
    domains: Vec<Arc<DomainFacts>>,
    /// Facts of the segment read before, which are shared where they are the same.
    known: HashMap<FactsKey, Arc<DomainFacts>>,
    /// Facts of the sample read last, by their numbers.
    numbers: Vec<u32>,
    /// Where the sample begins in the bytes of its frame.
    begin: usize,
    /// Bytes taken in, uncompressed.
    raw: usize,
    /// Memory that further facts may take.
    facts_memory: usize,
}

impl SegmentReader {
    /// Begins a segment; `before` has read another one of the recording.
    pub fn new(before: Option<Self>) -> Result<Self> {
        let mut stream = Decoder::new(Bounded(Vec::new()))?;
        stream.window_log_max(WINDOW_LOG)?;
        let (host, known) = before.map(|b| (b.host, b.domains)).unwrap_or_default();
        let known = known.into_iter().map(|facts| (key(&facts), facts)).collect();
        Ok(Self {
            stream,
            host,
            domains: Vec::new(),
            known,
            numbers: Vec::new(),
            begin: 0,
            raw: 0,
            facts_memory: FACTS_MEMORY,
        })
    }

    /// Takes in the next sample's compressed bytes. Fails if no recorder wrote them; nothing more of the segment can be
    /// read then.
    pub fn advance(&mut self, packed: &[u8]) -> Result<()> {
        ensure!(self.raw < SEGMENT_BYTES, "a segment is longer than any recorder writes");
        self.stream.get_mut().0.clear();
        self.stream.write_all(packed).and_then(|()| self.stream.flush()).context("a sample does not decompress")?;
        let bytes = &self.stream.get_ref().0;
        self.raw += bytes.len();
        let ((host, domains, numbers), sample): (NewFacts, &[u8]) =
            budget::take_from(bytes, &mut self.facts_memory).context("facts are not what a recorder writes")?;
        self.begin = bytes.len() - sample.len();
        if let Some(mut host) = host {
            host.normalise();
            if host != *self.host {
                self.host = Arc::new(host);
            }
        }
        let known = &self.known;
        let shared = |mut facts: DomainFacts| {
            facts.normalise();
            known.get(&key(&facts)).filter(|k| ***k == facts).cloned().unwrap_or_else(|| Arc::new(facts))
        };
        ensure!(
            self.domains.len() + domains.len() <= MAX_FACTS_READ,
            "a segment holds facts of more guests than any recorder writes"
        );
        self.domains.extend(domains.into_iter().map(shared));
        self.numbers = numbers;
        Ok(())
    }

    /// The sample taken in last. Fails if no recorder wrote it.
    pub fn sample(&self) -> Result<Sample> {
        let bytes = self.stream.get_ref().0.get(self.begin..).unwrap_or_default();
        let mut memory = SAMPLE_MEMORY;
        let (mut sample, rest): (Sample, _) = budget::take_from(bytes, &mut memory).context(DAMAGED)?;
        if !rest.is_empty() {
            let (disks, rest): (OfEachGuest<Vec<HostDisk>>, _) =
                budget::take_from(rest, &mut memory).context(DAMAGED)?;
            ensure!(disks.len() == sample.domains.len(), DAMAGED);
            for (domain, disks) in sample.domains.iter_mut().zip(disks) {
                domain.host_disks = disks;
            }
            if !rest.is_empty() {
                let (interrupts, _): (OfEachGuest<GuestInterrupts>, _) =
                    budget::take_from(rest, &mut memory).context(DAMAGED)?;
                ensure!(interrupts.len() == sample.domains.len(), DAMAGED);
                for (domain, interrupts) in sample.domains.iter_mut().zip(interrupts) {
                    domain.interrupts = interrupts;
                }
            }
        }
        ensure!(sample.domains.len() == self.numbers.len(), "a sample has guests without facts");
        sample.normalise();
        sample.host.facts = self.host.clone();
        for (domain, number) in sample.domains.iter_mut().zip(&self.numbers) {
            let Some(facts) = self.domains.get(*number as usize) else { bail!("a guest's facts are missing") };
            domain.facts = facts.clone();
        }
        let mut guests = HashSet::new();
        ensure!(sample.domains.iter().all(|d| guests.insert(identity(&d.facts))), "a sample has a guest twice");
        Ok(sample)
    }
}

/// Bytes up to [`LONGEST`]: a hostile frame of some kilobytes may decompress to gigabytes.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LONGEST {
            return Err(io::Error::other("a frame holds more than any recorder writes"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
