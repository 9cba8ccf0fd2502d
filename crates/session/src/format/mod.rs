//! The format: frames, what each holds, and a sample as bytes.

mod bounds;
mod codec;
mod frame;
#[cfg(test)]
mod tests;

pub use codec::{Header, MAX_FACTS, SegmentReader, SegmentWriter};
pub use frame::{
    FrameHead, FrameKind, HEAD_BYTES, MARK_LENGTH, PROLOGUE_BYTES, SCHEMA, SEGMENT_MARK, Stamp,
    check_prologue, looks_like, prologue,
};
