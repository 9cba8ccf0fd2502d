//! Reading: the frames of a file, its segments, a recording of several files, and samples by
//! number.

mod cursor;
mod part;
mod scan;
mod session;
#[cfg(test)]
mod tests;

pub use cursor::Cursor;
pub(super) use part::{PartReader, first_bytes, recording_id_of};
pub(super) use scan::End;
pub use session::Session;
pub(super) use session::{MAX_PARTS, NamedPart, part_path};
