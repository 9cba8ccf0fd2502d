//! Recordings: the format, the recorder and the reader.
//!
//! A file is append-only and made of checksummed frames (see `frame`). A sample is one frame and is on disk as soon as
//! it was taken; a recorder killed at any instant loses nothing that it wrote before. Samples come in segments of
//! [`SEGMENT`], each of which begins with a key frame that stands alone, and in chunks of [`CHUNK`], each of which begins with a
//! branch frame told against the segment's key frame; every other sample is told against the one before. To reach a sample,
//! a reader decodes the key frame, a branch frame and fewer than [`CHUNK`] deltas. An index frame behind each segment says where
//! its chunks begin and where the index before is.

mod coder;
mod cursor;
mod facts;
mod files;
mod frame;
mod index;
mod number;
mod part;
mod range;
mod reader;
mod recorder;
mod sample_frame;
mod scan;
mod walk;
mod writer;

pub use cursor::Cursor;
pub use facts::Header;
pub use frame::{SCHEMA, looks_like};
pub use reader::Session;
pub use recorder::{Limits, Recorder};

/// Samples in a chunk.
pub const CHUNK: u32 = 20;
/// Samples in a segment.
pub const SEGMENT: u32 = 900;
