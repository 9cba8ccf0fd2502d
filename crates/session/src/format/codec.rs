//! A sample as the bytes of a frame and back: two `MessagePack` maps with named fields, compressed
//! by zstd.
//!
//! A segment is one zstd stream, flushed after each sample: most of a frame repeats the frames
//! before it. The facts of the host and of a guest are written only where they are new in the
//! segment, in a separate map before the sample, so that a reader on its way to a later sample need
//! not decode the sample.

use super::bounds;
use super::frame::{self, FrameKind, HEAD_BYTES, Stamp};
use crate::MAX_SEGMENT_BYTES;
use anyhow::{Context, Result, ensure};
use sample::{DomainFacts, GuestId, HostFacts, Sample};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;
use zstd::stream::write::{Decoder, Encoder};

/// zstd's level: higher ones take twice the time for 1 % fewer bytes.
const ZSTD_LEVEL: i32 = 3;
/// Size of zstd's window, as a power of two; readers refuse streams that need a larger one.
const WINDOW_LOG: u32 = 21;
/// Maximum size of a frame, uncompressed. A guest with its XML and its devices takes some 60 KB.
const MAX_FRAME_BYTES: usize = 64 << 20;

const DAMAGED_FACTS: &str = "facts are not what a recorder writes";
const DAMAGED_SAMPLE: &str = "a sample is not what a recorder writes";

/// A segment with facts of more guests ends.
pub const MAX_FACTS: u32 = 8192;
/// Maximum number of guests' facts that a reader accepts in a segment: the last sample may exceed
/// [`MAX_FACTS`].
const MAX_FACTS_READ: usize = 8 * MAX_FACTS as usize;

/// What a run of the recorder says of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// The program and its version.
    pub tool: String,
    /// When the run began, milliseconds since the epoch.
    pub started_ms: i64,
    /// The recording's id, the same in all of its parts: the time and process that began it.
    pub recording: String,
}

impl Header {
    /// The header as a frame.
    pub(crate) fn pack(&self) -> Result<Vec<u8>> {
        frame::seal(FrameKind::Header, append(self, vec![0; HEAD_BYTES])?)
    }

    /// The header of a frame's payload.
    pub fn unpack(payload: &[u8]) -> Option<Self> {
        rmp_serde::from_slice(payload).ok()
    }
}

/// The first map of a frame, before the sample.
#[derive(Serialize, Deserialize)]
pub struct FrameFacts<H, G> {
    /// The host's facts, if they are new in the segment.
    pub host: Option<H>,
    /// Facts of guests that are new in the segment.
    #[serde(default = "Vec::new")]
    pub new_guests: Vec<G>,
    /// For each guest of the sample, the number of its facts among all of the segment.
    #[serde(default)]
    pub guests: Vec<u32>,
}

/// Appends a value as a map with named fields.
pub fn append(value: &impl Serialize, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
    value.serialize(&mut rmp_serde::Serializer::new(&mut bytes).with_struct_map())?;
    Ok(bytes)
}

/// The value at the beginning of the bytes.
fn from_start<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T> {
    Ok(T::deserialize(
        &mut rmp_serde::Deserializer::from_read_ref(bytes),
    )?)
}

/// Compresses the samples of one segment.
pub struct SegmentWriter {
    stream: Encoder<'static, Vec<u8>>,
    /// The latest facts of the host.
    host: Option<Arc<HostFacts>>,
    /// The latest facts of each guest.
    guests: HashMap<GuestId, WrittenFacts>,
    /// Number of guests' facts written.
    pub facts: u32,
    /// The previous uncompressed sample: its memory serves the next.
    buffer: Vec<u8>,
    /// Bytes taken in, uncompressed.
    pub raw: usize,
    /// Samples taken in.
    pub samples: u32,
}

/// Facts of a guest that are in the segment.
struct WrittenFacts {
    /// Their number among all of the segment.
    number: u32,
    facts: Arc<DomainFacts>,
}

impl SegmentWriter {
    /// Begins a segment.
    pub fn new() -> Result<Self> {
        let mut stream = Encoder::new(Vec::new(), ZSTD_LEVEL)?;
        stream.window_log(WINDOW_LOG)?;
        Ok(Self {
            stream,
            host: None,
            guests: HashMap::new(),
            facts: 0,
            buffer: Vec::new(),
            raw: 0,
            samples: 0,
        })
    }

    /// The next sample as a frame. Fails for a sample that is larger than a frame may be; the
    /// segment is unusable then.
    pub fn pack(&mut self, kind: FrameKind, stamp: Stamp, sample: &Sample) -> Result<Vec<u8>> {
        let host = &sample.host.facts;
        let is_known = self
            .host
            .as_ref()
            .is_some_and(|known| are_same(known, host));
        let new_host = if is_known { None } else { Some(&**host) };
        self.host = Some(host.clone());
        let mut new_guests = Vec::new();
        let mut numbers = Vec::with_capacity(sample.domains.len());
        for domain in &sample.domains {
            let facts = &domain.facts;
            let guest = facts.id();
            if let Some(known) = self.guests.get(&guest)
                && are_same(&known.facts, facts)
            {
                numbers.push(known.number);
                continue;
            }
            let number = self.facts;
            numbers.push(number);
            new_guests.push(&**facts);
            let facts = facts.clone();
            self.guests.insert(guest, WrittenFacts { number, facts });
            self.facts += 1;
        }
        self.buffer.clear();
        let bytes = append(
            &FrameFacts {
                host: new_host,
                new_guests,
                guests: numbers,
            },
            std::mem::take(&mut self.buffer),
        )?;
        let bytes = append(sample, bytes)?;
        ensure!(
            bytes.len() <= MAX_FRAME_BYTES,
            "a sample of {} bytes is larger than the format allows",
            bytes.len()
        );
        // The facts, and the sample after them.
        bounds::check(&bytes)
            .and_then(bounds::check)
            .context("a sample is larger than the format allows")?;
        self.raw += bytes.len();
        self.samples += 1;
        *self.stream.get_mut() = stamp.begin(kind);
        self.stream.write_all(&bytes)?;
        self.stream.flush()?;
        self.buffer = bytes;
        frame::seal(kind, std::mem::take(self.stream.get_mut()))
    }
}

fn are_same<T: PartialEq>(a: &Arc<T>, b: &Arc<T>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

/// Decompresses the samples of one segment, in order.
pub struct SegmentReader {
    stream: Decoder<'static, Bounded>,
    host: Arc<HostFacts>,
    /// All facts of guests in the segment so far, by their number.
    guests: Vec<Arc<DomainFacts>>,
    /// For each guest of the last sample, the number of its facts.
    numbers: Vec<u32>,
    /// Where the sample begins in the bytes of its frame: after the map of facts.
    sample_begin: usize,
    /// Bytes taken in, uncompressed.
    raw: usize,
}

impl SegmentReader {
    /// Begins a segment.
    pub fn new() -> Result<Self> {
        let mut stream = Decoder::new(Bounded(Vec::new()))?;
        stream.window_log_max(WINDOW_LOG)?;
        Ok(Self {
            stream,
            host: Arc::default(),
            guests: Vec::new(),
            numbers: Vec::new(),
            sample_begin: 0,
            raw: 0,
        })
    }

    /// Takes in the next sample's compressed bytes. Fails if no recorder wrote them; nothing more
    /// of the segment can be read then.
    pub fn advance(&mut self, packed: &[u8]) -> Result<()> {
        ensure!(
            self.raw < MAX_SEGMENT_BYTES,
            "a segment is longer than any recorder writes"
        );
        self.stream.get_mut().0.clear();
        self.stream
            .write_all(packed)
            .and_then(|()| self.stream.flush())
            .context("a sample does not decompress")?;
        let bytes = self.stream.get_ref().0.as_slice();
        self.raw += bytes.len();
        self.sample_begin = bytes.len() - bounds::check(bytes).context(DAMAGED_FACTS)?.len();
        let facts: FrameFacts<HostFacts, DomainFacts> = from_start(bytes).context(DAMAGED_FACTS)?;
        if let Some(mut host) = facts.host {
            host.topology.normalise();
            self.host = Arc::new(host);
        }
        ensure!(
            self.guests.len() + facts.new_guests.len() <= MAX_FACTS_READ,
            "a segment holds facts of more guests than any recorder writes"
        );
        for mut guest in facts.new_guests {
            guest.normalise();
            self.guests.push(Arc::new(guest));
        }
        self.numbers = facts.guests;
        Ok(())
    }

    /// The sample taken in last. Fails if no recorder wrote it.
    pub fn sample(&self) -> Result<Sample> {
        let bytes = self
            .stream
            .get_ref()
            .0
            .get(self.sample_begin..)
            .unwrap_or_default();
        bounds::check(bytes).context(DAMAGED_SAMPLE)?;
        let mut sample: Sample = from_start(bytes).context(DAMAGED_SAMPLE)?;
        ensure!(
            sample.domains.len() == self.numbers.len(),
            "a sample has guests without facts"
        );
        sample.normalise();
        sample.host.facts = self.host.clone();
        let mut seen = HashSet::new();
        for (domain, number) in sample.domains.iter_mut().zip(&self.numbers) {
            domain.facts = self
                .guests
                .get(*number as usize)
                .context("a guest's facts are missing")?
                .clone();
            ensure!(seen.insert(domain.facts.id()), "a sample has a guest twice");
        }
        Ok(sample)
    }
}

/// Bytes up to [`MAX_FRAME_BYTES`]: a hostile frame of some kilobytes may decompress to gigabytes.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_FRAME_BYTES {
            return Err(io::Error::other(
                "a frame holds more than any recorder writes",
            ));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
