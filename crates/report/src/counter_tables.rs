//! A guest's counters as text: KVM's statistics, disks and the host's devices behind them, interrupts, network
//! interfaces.

use super::table::{Table, cut, more};
use judge::figures::{bytes, micros, or_unknown, percent, rate};
use judge::model::DomainModel;

/// All tables that have rows.
pub(super) fn all(d: &DomainModel, rows: usize) -> String {
    statistics(d, rows) + &disks(d) + &host_disks(d) + &interrupts(d, rows) + &doorbells(d, rows) + &nics(d)
}

/// KVM's statistics that grew, the fastest first. Statistics in nanoseconds do not count events.
fn statistics(d: &DomainModel, rows: usize) -> String {
    let mut grown: Vec<_> = d.counters.iter().filter(|(name, rate)| **rate > 0.0 && !name.ends_with("_ns")).collect();
    if grown.is_empty() {
        return String::new();
    }
    grown.sort_by(|a, b| b.1.total_cmp(a.1).then(a.0.cmp(b.0)));
    let mut t = Table::new(&["<KVM STATISTIC", "/s"]);
    for (name, per_second) in grown.iter().take(rows) {
        t.row([cut(name, 64), rate(**per_second)]);
    }
    t.render(2) + &more(grown.len(), rows)
}

fn disks(d: &DomainModel) -> String {
    let mut t = Table::new(&[
        "<DISK",
        "READ/s",
        "WRITE/s",
        "FLUSH/s",
        "READ B/s",
        "WRITE B/s",
        "READ us",
        "WRITE us",
        "FLUSH us",
        "IN FLIGHT",
        "ERR/s",
    ]);
    for disk in &d.disks {
        t.row([
            cut(&disk.name, 32),
            rate(disk.read_ops),
            rate(disk.write_ops),
            or_unknown(disk.flush_ops, rate),
            bytes(disk.read_bytes as u64),
            bytes(disk.write_bytes as u64),
            or_unknown(disk.read_mean_us, micros),
            or_unknown(disk.write_mean_us, micros),
            or_unknown(disk.flush_mean_us, micros),
            or_unknown(disk.queue_depth, rate),
            or_unknown(disk.failed_ops, rate),
        ]);
    }
    if t.is_empty() { String::new() } else { t.render(2) }
}

/// The host's block devices that worked for the guest, where they were timed.
fn host_disks(d: &DomainModel) -> String {
    let mut t = Table::new(&[
        "<ON HOST",
        "READ/s",
        "WRITE/s",
        "FLUSH/s",
        "READ us",
        "WRITE us",
        "FLUSH us",
        "DEVICE us",
        "P99 us",
        "<SUBMITTED BY",
        "<STANDS FOR",
    ]);
    for disk in d.host_disks.iter().flatten() {
        let most = disk.submitted_most().map(|(who, share)| format!("{} {}%", who.as_str(), percent(share)));
        t.row([
            cut(&disk.name, 32),
            or_unknown(disk.reads.ops, rate),
            or_unknown(disk.writes.ops, rate),
            or_unknown(disk.flushes.ops, rate),
            or_unknown(disk.reads.mean_us(), micros),
            or_unknown(disk.writes.mean_us(), micros),
            or_unknown(disk.flushes.mean_us(), micros),
            or_unknown(disk.mean_us().1, micros),
            or_unknown(disk.p99_us(), micros),
            most.unwrap_or_else(|| "-".into()),
            disk.alias.as_ref().map_or_else(|| "-".into(), |alias| cut(alias, 64)),
        ]);
    }
    if t.is_empty() { String::new() } else { t.render(2) }
}

/// What interrupted its vCPUs, where that was traced, in the words of the Latency view.
fn interrupts(d: &DomainModel, rows: usize) -> String {
    let mut t = Table::new(&[
        "<INTERRUPT",
        "<TO",
        "<FROM",
        "COUNT",
        "/s",
        "ASLEEP%",
        "KICK us",
        "WAKE us",
        "DELAY us",
        "TOTAL us",
        "P99 us",
    ]);
    let all = d.interrupts.as_deref().unwrap_or_default();
    for i in all.iter().take(rows) {
        t.row([
            i.source.to_string(),
            format!("vcpu {}", i.vcpu),
            i.comm.as_deref().map_or_else(|| i.by.as_str().into(), |comm| cut(comm, 32)),
            i.count.to_string(),
            or_unknown(i.rate, rate),
            or_unknown(i.asleep_percent(), percent),
            or_unknown(i.kick.mean_us(), micros),
            or_unknown(i.wake.mean_us(), micros),
            or_unknown(i.delay.mean_us(), micros),
            or_unknown(i.slept.mean_us(), micros),
            or_unknown(i.p99_us(), micros),
        ]);
    }
    if t.is_empty() { String::new() } else { t.render(2) + &more(all.len(), rows) }
}

/// Which threads doorbells woke.
fn doorbells(d: &DomainModel, rows: usize) -> String {
    let mut t = Table::new(&["<DOORBELL", "<DEVICE", "<WAKES", "COUNT", "/s", "RUNS us", "P99 us"]);
    let all = d.doorbells.as_deref().unwrap_or_default();
    for bell in all.iter().take(rows) {
        t.row([
            format!("{} {:#x}", bell.space.as_str(), bell.address),
            bell.device.as_ref().map_or_else(|| "-".into(), |device| cut(device, 32)),
            cut(&bell.comm, 32),
            bell.time.count.to_string(),
            or_unknown(bell.rate, rate),
            or_unknown(bell.time.mean_us(), micros),
            or_unknown(bell.time.quantile_us(0.99), micros),
        ]);
    }
    if t.is_empty() { String::new() } else { t.render(2) + &more(all.len(), rows) }
}

fn nics(d: &DomainModel) -> String {
    let mut t = Table::new(&["<NIC", "IN B/s", "OUT B/s", "IN/s", "OUT/s", "DROPS/s"]);
    for nic in &d.nics {
        t.row([
            cut(&nic.name, 32),
            bytes(nic.rx_bytes as u64),
            bytes(nic.tx_bytes as u64),
            rate(nic.rx_packets),
            rate(nic.tx_packets),
            rate(nic.drops),
        ]);
    }
    if t.is_empty() { String::new() } else { t.render(2) }
}
