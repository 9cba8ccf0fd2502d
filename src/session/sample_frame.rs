//! A sample as a frame and back.

use super::coder::{Coder, Memory};
use super::frame::{self, FrameKind, HEAD};
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

/// A sample as a frame. `facts` are the references of the host and of each domain; `steps` the samples since the memory's.
///
/// # Errors
/// When the frame would be longer than a frame may be.
pub fn pack(
    kind: FrameKind,
    number: u32,
    sample: &Sample,
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
    walk::sample(&mut coder, &mut sample.clone());
    let (way, ..) = coder.finish();
    frame::seal(kind, way.finish(keep.max(HEAD)))
}

/// A sample out of a frame's payload, with the references to the facts of the host and of each domain.
///
/// # Errors
/// When no writer wrote this.
pub fn unpack(kind: FrameKind, payload: &[u8], memory: &mut Memory, steps: u32) -> Result<(Sample, Vec<u64>)> {
    let coded = if kind == FrameKind::Delta { payload } else { payload.get(STAMP..).unwrap_or_default() };
    let mut sample = Sample::default();
    let mut coder = Coder::new(Decoder::new(coded), memory, steps, Vec::new());
    walk::sample(&mut coder, &mut sample);
    let (_, facts, sound) = coder.finish();
    if !sound {
        bail!("a sample's frame asks for more than any recorder writes");
    }
    Ok((sample, facts))
}

/// Only the time of a sample. The memory must have been used for nothing but times.
pub fn unpack_time(kind: FrameKind, payload: &[u8], memory: &mut Memory, steps: u32) -> i64 {
    let coded = if kind == FrameKind::Delta { payload } else { payload.get(STAMP..).unwrap_or_default() };
    let mut sample = Sample::default();
    walk::clocks(&mut Coder::new(Decoder::new(coded), memory, steps, Vec::new()), &mut sample);
    sample.time_ms
}
