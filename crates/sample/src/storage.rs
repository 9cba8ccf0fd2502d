//! Where the disks of guests are kept on the host.

use super::figures::bounded;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A file system with less room is full, as a part of its size.
const FULL: u64 = 100;

/// A file or block device that a guest's VMM has open for reading and writing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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
