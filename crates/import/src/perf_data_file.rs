//! A `perf.data` by itself, compressed or in an archive.

use super::gathered::{Gathered, InputType};
use super::perf_data;
use std::fs::File;
use std::path::Path;

/// Reads a `perf.data`.
pub(super) fn read(
    path: &Path,
    file_type: InputType,
    file: File,
    perf_times: bool,
    gathered: &mut Gathered,
) -> Result<(), String> {
    let content = perf_data::read(file, perf_times)?;
    let name = path.file_name().map(|n| kvm::sanitize(&n.to_string_lossy(), 80)).unwrap_or_default();
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
