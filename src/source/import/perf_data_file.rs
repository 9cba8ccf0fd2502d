//! A `perf.data` by itself, compressed or in an archive.

use super::gathered::{Gathered, InputType};
use super::imported::io_message;
use super::perf_data;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A `perf.data` that has to be unpacked first is kept in memory up to this size.
const MAX_IN_MEMORY: u64 = 256 << 20;

/// The content of a stream as a file, which a `perf.data` is read from; it is gone when it is closed.
pub(super) fn in_memory(stream: impl Read) -> Result<File, String> {
    let failed = |e: io::Error| format!("cannot unpack it: {}", io_message(&e));
    let mut file = File::from(memfd_create("kvmtop", MemfdFlags::CLOEXEC).map_err(|e| failed(e.into()))?);
    let copied = io::copy(&mut stream.take(MAX_IN_MEMORY + 1), &mut file).map_err(failed)?;
    if copied > MAX_IN_MEMORY {
        return Err(format!("a perf.data larger than {} MiB: unpack it first", MAX_IN_MEMORY >> 20));
    }
    Ok(file)
}

/// Reads a `perf.data`.
pub(super) fn read(
    path: &Path,
    file_type: InputType,
    file: File,
    perf_times: bool,
    gathered: &mut Gathered,
) -> Result<(), String> {
    let content = perf_data::read(file, perf_times)?;
    let name = path.file_name().map(|n| crate::kvm::sanitize(&n.to_string_lossy(), 80)).unwrap_or_default();
    gathered.notes.extend(content.notes.iter().map(|note| format!("{name}: {note}")));
    gathered.seconds.push((file_type, content.seconds));
    gathered.lost = gathered.lost.saturating_add(content.lost);
    gathered.overflow = gathered.overflow.saturating_add(content.overflow);
    gathered.events = gathered.events.saturating_add(content.events);
    gathered.guests.extend(content.guests);
    gathered.host.get_or_insert(content.host);
    gathered.types.push(file_type);
    Ok(())
}
