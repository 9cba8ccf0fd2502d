//! Figures of a guest's devices: what is added up, and how it is served.

use super::write::Column;
use sample::{DiskSample, HostRequests, NicSample};

/// Virtual disks.
pub const DISKS: &[Column<DiskSample>] = &[
    Column::count("kvmtop_disk_reads", "Reads that the disk completed", |d| Some(d.read_ops)),
    Column::count("kvmtop_disk_writes", "Writes that the disk completed", |d| Some(d.write_ops)),
    Column::bytes("kvmtop_disk_read", "Bytes read", |d| Some(d.read_bytes)),
    Column::bytes("kvmtop_disk_written", "Bytes written", |d| Some(d.write_bytes)),
    Column::time("kvmtop_disk_read_time", "Time of all reads, added up", |d| d.read_ns),
    Column::time("kvmtop_disk_write_time", "Time of all writes, added up", |d| d.write_ns),
    Column::count("kvmtop_disk_flushes", "Flushes of the disk's write cache", |d| d.flush_ops),
    Column::time("kvmtop_disk_flush_time", "Time of all flushes, added up", |d| d.flush_ns),
    Column::count("kvmtop_disk_errors", "Reads, writes and flushes that failed on the host", |d| d.failed_ops),
];

/// Block devices of the host, by kind of request.
pub const HOST_DISKS: &[Column<HostRequests>] = &[
    Column::count(
        "kvmtop_host_disk_requests",
        "Requests of the guest that a block device of the host completed",
        |r| Some(r.total.count),
    ),
    Column::bytes("kvmtop_host_disk", "Bytes of these requests", |r| Some(r.bytes)),
    Column::time("kvmtop_host_disk_time", "Their time from submission to completion", |r| r.total.total_ns),
    Column::count("kvmtop_host_disk_device_requests", "Requests of which the time in the device was taken", |r| {
        Some(r.device.count)
    }),
    Column::time("kvmtop_host_disk_device_time", "Their time from the issue to the driver to completion", |r| {
        r.device.total_ns
    }),
];

/// Kinds of requests of a host's block device, in the order of their sums.
pub const OPERATIONS: [&str; 4] = ["read", "write", "flush", "other"];

/// Network interfaces.
pub const NICS: &[Column<NicSample>] = &[
    Column::bytes("kvmtop_nic_receive", "Bytes that the guest received", |n| Some(n.rx_bytes)),
    Column::bytes("kvmtop_nic_transmit", "Bytes that the guest sent", |n| Some(n.tx_bytes)),
    Column::count("kvmtop_nic_receive_packets", "Packets that the guest received", |n| Some(n.rx_packets)),
    Column::count("kvmtop_nic_transmit_packets", "Packets that the guest sent", |n| Some(n.tx_packets)),
    Column::count("kvmtop_nic_drops", "Packets dropped, both ways", |n| Some(n.drops)),
];
