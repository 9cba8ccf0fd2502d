//! The format: frames, what each holds, and a sample as bytes.

mod bounds;
mod codec;
mod frame;
mod index;
#[cfg(test)]
mod tests;

pub use codec::{Header, MAX_FACTS, SegmentReader, SegmentWriter};
pub use frame::{
    FrameHead, FrameKind, HEAD, MAGIC, MARK_LENGTH, PROLOGUE, SCHEMA, SEGMENT_MARK, Stamp,
    check_prologue, is_newer, looks_like, prologue,
};
pub use index::{INDEX_MARK, Segment};
