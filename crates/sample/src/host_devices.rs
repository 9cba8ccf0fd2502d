//! The host's disks and network links, as the kernel counts them for all who use them.

use super::figures::growing;
use serde::{Deserialize, Serialize};

/// A block device of the host that is no partition, cumulative (`/proc/diskstats`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WholeDisk {
    /// Its name in the kernel: `nvme0n1`, `dm-0`, `md0`.
    pub name: String,
    /// The name of a device-mapper device, or the file of a loop device.
    pub alias: Option<String>,
    /// Whether its requests come to other disks too, or to none: it has devices below it, is a file
    /// or a ZFS volume, or is in memory.
    pub is_stacked: bool,
    /// Number of completed reads.
    pub reads: u64,
    /// Number of completed writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Sum of the durations of reads and writes, nanoseconds.
    pub time_ns: u64,
    /// Time in which a request was under way, nanoseconds.
    pub busy_ns: u64,
    /// Requests under way, as last read.
    pub in_flight: u64,
}

growing!(WholeDisk {
    reads, writes, read_bytes, write_bytes, time_ns, busy_ns,
} name, alias, is_stacked, in_flight);

/// The memory of a NUMA node, where there are several (`/sys/devices/system/node`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostNode {
    /// Its number.
    pub node: u32,
    /// Its memory, bytes.
    pub total: u64,
    /// What of it nothing uses, bytes.
    pub free: u64,
    /// Explicit huge pages of it that are free, bytes.
    pub huge_free: u64,
    /// Pages that it gave to tasks that wanted those of another node (`numa_miss`).
    pub missed: u64,
}

growing!(HostNode { missed } node, total, free, huge_free);

/// A network interface of the host that has a device, cumulative (`/proc/net/dev`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostLink {
    /// Its name: `eno1`.
    pub name: String,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets dropped, both ways.
    pub drops: u64,
    /// Its speed, Mbit/s (`/sys/class/net/NAME/speed`); `None` where the driver does not say.
    pub speed_mbit: Option<u64>,
}

growing!(HostLink { rx_bytes, tx_bytes, drops } name, speed_mbit);
