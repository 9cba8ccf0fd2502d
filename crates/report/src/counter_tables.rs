//! A guest's counters as text: KVM's statistics, disks and the host's devices behind them, jobs, network interfaces.

use super::table::{Column, cut, or_dash, table};
use judge::figures::{bytes, micros, or_unknown, percent, rate, seconds};
use judge::model::{DiskRates, DomainModel, HostDiskModel, NicRates, jobs};
use sample::Job;

/// All tables that have rows.
pub(super) fn all(d: &DomainModel, rows: usize) -> String {
    // KVM's statistics that grew, the fastest first. Those in nanoseconds do not count events.
    let mut grown: Vec<_> = d.counters.iter().filter(|(name, rate)| **rate > 0.0 && !name.ends_with("_ns")).collect();
    grown.sort_by(|a, b| b.1.total_cmp(a.1).then(a.0.cmp(b.0)));
    let statistics: [Column<(&String, &f64)>; 2] =
        [("<KVM STATISTIC", |(name, _)| (*name).clone()), ("/s", |(_, grown)| rate(**grown))];
    let tables = [
        table(2, &grown, rows, &statistics),
        table(2, &d.disks, usize::MAX, DISKS),
        table(2, d.host_disks.as_deref().unwrap_or_default(), usize::MAX, HOST_DISKS),
        table(2, &d.jobs, usize::MAX, JOBS),
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

/// The host's block devices that worked for the guest, where they were timed.
const HOST_DISKS: &[Column<HostDiskModel>] = &[
    ("<ON HOST", |disk| cut(&disk.name, 32)),
    ("READ/s", |disk| or_unknown(disk.rate_of(disk.reads.total.count), rate)),
    ("WRITE/s", |disk| or_unknown(disk.rate_of(disk.writes.total.count), rate)),
    ("FLUSH/s", |disk| or_unknown(disk.rate_of(disk.flushes.total.count), rate)),
    ("READ us", |disk| or_unknown(disk.reads.total.mean_us(), micros)),
    ("WRITE us", |disk| or_unknown(disk.writes.total.mean_us(), micros)),
    ("FLUSH us", |disk| or_unknown(disk.flushes.total.mean_us(), micros)),
    ("DEVICE us", |disk| or_unknown(disk.mean_us().1, micros)),
    ("P99 us", |disk| or_unknown(disk.p99_us(), micros)),
    ("<SUBMITTED BY", |disk| {
        or_dash(disk.submitted_most().map(|(who, share)| format!("{} {}%", who.as_str(), percent(share))))
    }),
    ("<STANDS FOR", |disk| or_dash(disk.alias.as_ref())),
];

/// Migrations, block jobs and the like, as last read.
const JOBS: &[Column<Job>] = &[
    ("<JOB", |job| cut(format!("{} {}", job.kind.as_str(), job.name).trim_end(), 40)),
    ("<STATE", |job| cut(&job.status, 20)),
    ("FOR", |job| seconds(jobs::elapsed_s(job))),
    ("DONE%", |job| or_unknown(jobs::progress(job), percent)),
    ("B/s", |job| or_dash(job.rate.map(bytes))),
    ("LEFT", |job| or_dash(job.remaining.map(bytes))),
    ("PASS", |job| or_dash(job.rounds)),
    ("DIRTIED B/s", |job| or_dash(job.dirtied.map(bytes))),
    ("<ENDS", |job| {
        let ends = jobs::converges(job, jobs::ENDLESS_PERCENT);
        or_dash(ends.map(|ends| if ends { "yes" } else { "no" }))
    }),
    ("THROTTLE%", |job| or_dash(job.throttle_percent)),
    ("<ERROR", |job| or_dash(job.error.as_deref().map(|why| cut(why, 60)))),
];

const NICS: &[Column<NicRates>] = &[
    ("<NIC", |nic| cut(&nic.name, 32)),
    ("IN B/s", |nic| bytes(nic.rx_bytes as u64)),
    ("OUT B/s", |nic| bytes(nic.tx_bytes as u64)),
    ("IN/s", |nic| rate(nic.rx_packets)),
    ("OUT/s", |nic| rate(nic.tx_packets)),
    ("DROPS/s", |nic| rate(nic.drops)),
];
