//! A sample as a frame and back.

use super::coder::Coder;
use super::frame::{self, FrameKind, HEAD};
use super::memory::Memory;
use super::range::{Decoder, Encoder};
use super::walk;
use crate::sample::Sample;
use anyhow::{Result, bail};

/// Bytes before the coded numbers of a key or branch frame: time and number.
pub const STAMP: usize = 12;

/// When a sample was taken and which of the file it is: stands before the coded numbers of key and branch frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Milliseconds since the epoch.
    pub time_ms: i64,
    /// Samples before it in the file.
    pub number: u32,
}

impl Stamp {
    /// From the first bytes of a payload.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let time_ms = i64::from_le_bytes(payload.get(..8)?.try_into().ok()?);
        Some(Self { time_ms, number: u32::from_le_bytes(payload.get(8..STAMP)?.try_into().ok()?) })
    }
}

/// A sample as a frame; it is left as it was. `facts` are the references of the host and of each domain; `steps` the samples since the memory's.
///
/// # Errors
/// When the frame would be longer than a frame may be.
pub fn pack(
    kind: FrameKind,
    number: u32,
    sample: &mut Sample,
    facts: Vec<u64>,
    memory: &mut Memory,
    steps: u32,
) -> Result<Vec<u8>> {
    let mut payload = frame::blank();
    if kind != FrameKind::Delta {
        payload.extend(sample.time_ms.to_le_bytes());
        payload.extend(number.to_le_bytes());
    }
    let keep = payload.len();
    let mut coder = Coder::new(Encoder::new(payload), memory, steps, facts);
    walk::sample(&mut coder, sample);
    let (way, ..) = coder.finish();
    frame::seal(kind, way.finish(keep.max(HEAD)))
}

/// Reads a sample out of a frame's payload into the memory's. Answers with the references to the facts of the host and of each domain.
///
/// # Errors
/// When no writer wrote this.
pub fn unpack(kind: FrameKind, payload: &[u8], memory: &mut Memory, steps: u32) -> Result<Vec<u64>> {
    let coded = if kind == FrameKind::Delta { payload } else { payload.get(STAMP..).unwrap_or_default() };
    let mut sample = std::mem::take(&mut memory.sample);
    let mut coder = Coder::new(Decoder::new(coded), memory, steps, Vec::new());
    walk::sample(&mut coder, &mut sample);
    let (_, facts, sound) = coder.finish();
    memory.sample = sample;
    if !sound {
        bail!("a sample's frame asks for more than any recorder writes");
    }
    Ok(facts)
}

/// About what a frame costs to decode, nanoseconds: so much a thread, so much a byte (measured on one machine; it only decides
/// how many samples are told in a row).
pub fn cost(bytes: usize, sample: &Sample) -> u64 {
    let threads: usize = sample.domains.iter().map(|d| d.threads.len()).sum();
    200 * bytes as u64 + 1500 * threads as u64
}

/// Only the time of a sample. The memory must have been used for nothing but times.
pub fn unpack_time(kind: FrameKind, payload: &[u8], memory: &mut Memory, steps: u32) -> i64 {
    let coded = if kind == FrameKind::Delta { payload } else { payload.get(STAMP..).unwrap_or_default() };
    let mut sample = Sample::default();
    walk::clocks(&mut Coder::new(Decoder::new(coded), memory, steps, Vec::new()), &mut sample);
    sample.time_ms
}
