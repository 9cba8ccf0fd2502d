//! Writing: segments into a file, the files of a recording, and the recorder that owns them.

mod part;
mod recorder;
mod rotation;

pub use recorder::{Limits, Recorder};
