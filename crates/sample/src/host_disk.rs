//! What the host's block devices did for a guest.

use super::figures::growing;
use super::{ThreadKind, Timing};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A block device of the host, and its requests for one guest. Counted since somebody asked for it
/// (the list of disks, `--engine-detail disks`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostDisk {
    /// Its name in the kernel: `nvme0n1p3`, `dm-0`; its numbers where sysfs does not name it.
    pub name: String,
    /// Its major and minor number.
    pub number: (u32, u32),
    /// The name of a device-mapper device, or the file of a loop device.
    pub alias: Option<String>,
    /// The names of the devices below it.
    pub below: Vec<String>,
    /// Reads.
    pub reads: HostRequests,
    /// Writes with data.
    pub writes: HostRequests,
    /// Flushes of the device's write cache.
    pub flushes: HostRequests,
    /// All other operations, such as discards.
    pub others: HostRequests,
    /// Number of requests by who submitted them, cumulative.
    pub submitters: BTreeMap<ThreadKind, u64>,
}

growing!(HostDisk { reads, writes, flushes, others, submitters } name, number, alias, below);

/// Requests of one kind, as the guest's threads handed them to the kernel's block layer (a `bio`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostRequests {
    /// Bytes of completed requests, cumulative.
    pub bytes: u64,
    /// Time from submission to completion: the wait in the block layer, and `device`.
    pub total: Timing,
    /// Time from issue to the driver to completion. Counts only requests of devices with a driver,
    /// none of device-mapper and md, nor flushes, which the kernel issues as separate requests.
    pub device: Timing,
}

growing!(HostRequests {
    bytes,
    total,
    device
});
