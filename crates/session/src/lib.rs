//! Recordings: the file format, the recorder and the reader. `docs/session-format.md` describes the
//! format for other readers.
//!
//! A recording is one file, or several: its parts. A file is append-only and consists of
//! checksummed frames. Each sample is one frame, written as soon as it was taken: a recorder that
//! is killed loses no earlier sample. Samples come in segments of at most `MAX_SEGMENT_SAMPLES`,
//! each of which can be read without the others. A run is what one recorder wrote: between two runs
//! nothing was counted. A hole is a damaged stretch that a reader skips.

mod format;
mod kept;
mod read;
pub mod recording_feed;
mod write;

pub use format::{Header, SCHEMA, looks_like};
pub use kept::KeptSamples;
pub use read::{Cursor, Session};
pub use write::{Limits, Recorder};

/// Maximum number of samples in a segment. To reach its last sample, a reader decompresses all of
/// them.
const MAX_SEGMENT_SAMPLES: u32 = 120;
/// A segment ends earlier once its samples take this many bytes uncompressed: seeks on a large host
/// stay short.
const MAX_SEGMENT_BYTES: usize = 32 << 20;
