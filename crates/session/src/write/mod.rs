//! Writing: segments into a file, the files of a recording, and the recorder that owns them.

mod part;
mod recorder;
mod rotation;

pub(super) use part::PartWriter;
pub(super) use recorder::PARTS_PER_LIMIT;
pub use recorder::{Limits, Recorder};
pub(super) use rotation::survive_file_size_limits;
