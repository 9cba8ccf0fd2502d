//! Recordings: the format, the recorder and the reader.
//!
//! A file is append-only and made of checksummed frames (see `frame`). A sample is one frame and is on disk as soon as
//! it was taken; a recorder killed at any instant loses nothing that it wrote before. Samples come in segments of
//! [`SEGMENT`], each of which begins with a key frame that stands alone, and in chunks, each of which begins with a branch frame
//! told against the fourth sample of the segment; every other sample is told against the one before. To reach a sample, a reader
//! decodes the key frame and three deltas, a branch frame and the deltas of a chunk, of which there are as many as decode within
//! some milliseconds, [`CHUNK`] at most. An index frame behind each segment says where
//! its chunks begin and where the index before is.

mod coder;
mod cursor;
mod facts;
mod files;
mod frame;
mod index;
mod memory;
#[cfg(test)]
mod meter;
mod number;
mod part;
pub mod precision;
mod range;
mod reader;
mod recorder;
mod row;
mod sample_frame;
mod scan;
mod walk;
mod writer;

pub use cursor::Cursor;
pub use facts::Header;
pub use frame::{SCHEMA, looks_like};
pub use reader::Session;
pub use recorder::{Limits, Recorder};

/// Samples in a chunk at most.
pub const CHUNK: u32 = 120;
/// A chunk ends when it took so long to decode, as far as its frames' sizes tell, nanoseconds.
const CHUNK_COST: u64 = 20_000_000;
/// A branch frame is told against the state after so many samples of its segment, by schema version: by then the coder has
/// learnt how each number moves.
const fn warm(schema: u32) -> u32 {
    if schema == 1 { 1 } else { 4 }
}
/// Samples in a segment.
pub const SEGMENT: u32 = 900;
