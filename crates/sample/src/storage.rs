//! Where the disks of guests are kept on the host.

use super::figures::bounded;
use super::{DomainSample, MAX_STOP_GUESTS};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A file system with less room is full, as a part of its size.
const FULL: u64 = 100;

/// A file or block device that a guest's VMM has open for reading and writing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredDisk {
    /// Its path on the host.
    pub file: String,
    /// The mount point of the file system that holds it; of a block device the device at the
    /// bottom of those that it stands on.
    pub storage: String,
    /// Size of the file system, bytes; `None` for a block device.
    pub size_bytes: Option<u64>,
    /// Bytes that are free on it.
    pub free_bytes: Option<u64>,
    /// How many of them are used up in an hour; `None` before it was watched for ten minutes.
    pub filled_per_hour: Option<u64>,
    /// Whether the file can take up more room: it has holes, or a format that grows.
    pub may_grow: bool,
}

bounded!(StoredDisk { size_bytes, free_bytes, filled_per_hour } file, storage, may_grow);

impl StoredDisk {
    /// Whether its file system has no room left.
    pub fn is_full(&self) -> bool {
        self.free_bytes < self.size_bytes.map(|size| size / FULL)
    }

    /// Whether a configuration means it by this path, or by this name of a file without a path.
    pub fn is_called(&self, name: &str) -> bool {
        let path = Path::new(&self.file);
        let name = Path::new(name);
        path == name || (name.is_relative() && path.file_name() == name.file_name())
    }
}

/// Names at each disk that stopped a guest the other guests whose disks are on the same storage.
pub fn name_others_on_full_storage(guests: &mut [DomainSample]) {
    let mut named = Vec::new();
    for (at, guest) in guests.iter().enumerate() {
        for disk in guest.stop.iter().flat_map(|stop| &stop.disks) {
            let mut also = Vec::new();
            let own = guest
                .storage
                .iter()
                .find(|own| Some(&own.file) == disk.file.as_ref());
            for (other_at, other) in guests.iter().enumerate() {
                let mut storage = other.storage.iter().map(|disk| &disk.storage);
                if at != other_at && storage.any(|name| own.is_some_and(|own| own.storage == *name))
                {
                    also.push(other.facts.name.value.clone());
                }
            }
            also.truncate(MAX_STOP_GUESTS);
            named.push(also);
        }
    }
    let disks = guests.iter_mut().flat_map(|guest| &mut guest.stop);
    for (disk, also) in disks.flat_map(|stop| &mut stop.disks).zip(named) {
        disk.also = also;
    }
}
