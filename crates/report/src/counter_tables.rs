//! A guest's counters as text: KVM's statistics, disks, network interfaces.

use super::table::{Column, cut, table};
use judge::figures::{bytes, micros, or_unknown, rate};
use judge::model::{DiskRates, DomainModel, NicRates};

/// All tables that have rows.
pub(super) fn of_guest(d: &DomainModel, rows: usize) -> String {
    // KVM's statistics that grew, the fastest first. Those in nanoseconds do not count events.
    let mut grown: Vec<_> = d
        .counters
        .iter()
        .filter(|(name, rate)| **rate > 0.0 && !name.ends_with("_ns"))
        .collect();
    grown.sort_by(|(a, rate_a), (b, rate_b)| rate_b.total_cmp(rate_a).then(a.cmp(b)));
    let statistics: [Column<(&String, &f64)>; 2] = [
        ("<KVM STATISTIC", |(name, _)| (*name).clone()),
        ("/s", |(_, grown)| rate(**grown)),
    ];
    let tables = [
        table(2, &grown, rows, &statistics),
        table(2, &d.disks, usize::MAX, DISKS),
        table(2, &d.nics, usize::MAX, NICS),
    ];
    tables.concat()
}

const DISKS: &[Column<DiskRates>] = &[
    ("<DISK", |disk| cut(&disk.name, 32)),
    ("READ/s", |disk| rate(disk.read_ops)),
    ("WRITE/s", |disk| rate(disk.write_ops)),
    ("FLUSH/s", |disk| or_unknown(disk.flush_ops, rate)),
    ("READ B/s", |disk| bytes(disk.read_bytes as u64)),
    ("WRITE B/s", |disk| bytes(disk.write_bytes as u64)),
    ("READ us", |disk| or_unknown(disk.read_mean_us, micros)),
    ("WRITE us", |disk| or_unknown(disk.write_mean_us, micros)),
    ("FLUSH us", |disk| or_unknown(disk.flush_mean_us, micros)),
    ("IN FLIGHT", |disk| or_unknown(disk.queue_depth, rate)),
    ("ERR/s", |disk| or_unknown(disk.failed_ops, rate)),
];

const NICS: &[Column<NicRates>] = &[
    ("<NIC", |nic| cut(&nic.name, 32)),
    ("IN B/s", |nic| bytes(nic.rx_bytes as u64)),
    ("OUT B/s", |nic| bytes(nic.tx_bytes as u64)),
    ("IN/s", |nic| rate(nic.rx_packets)),
    ("OUT/s", |nic| rate(nic.tx_packets)),
    ("DROPS/s", |nic| rate(nic.drops)),
];
