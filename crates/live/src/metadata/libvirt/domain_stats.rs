//! libvirt's bulk statistics as plain values, from its library or as `virsh domstats` prints them.

use crate::metadata::source::add_requests;
use kvm::sanitize;
use sample::{DiskSample, MemoryInGuest, NicSample};
use std::collections::BTreeMap;

/// The statistics of one domain by libvirt's names (`block.0.rd.reqs`, `vcpu.1.exits.sum`), numbers
/// too as text.
pub type Stats = BTreeMap<String, String>;

/// At most this many entries of one kind are read: a reply is not trusted.
const MAX_ENTRIES: u64 = 4096;

/// Block devices. A device that lacks a counter is left out, since what it does is unknown, not
/// nothing: so it is while libvirt works on the domain for another client
/// (`qemuDomainGetStatsBlock` in `src/qemu/qemu_driver.c`).
pub fn disks(stats: &Stats) -> Vec<DiskSample> {
    let disks = group(stats, "block".into()).filter_map(|entry| {
        Some(DiskSample {
            name: entry.text("name")?,
            read_ops: entry.number("rd.reqs")?,
            write_ops: entry.number("wr.reqs")?,
            read_bytes: entry.number("rd.bytes")?,
            write_bytes: entry.number("wr.bytes")?,
            read_ns: entry.number("rd.times"),
            write_ns: entry.number("wr.times"),
            flush_ops: entry.number("fl.reqs"),
            flush_ns: entry.number("fl.times"),
            failed_ops: None,
            latencies: latencies(&entry),
            longest_ns: longest_ns(&entry),
        })
    });
    disks.collect()
}

/// Requests by a time that they took at most, as libvirt 12.1 counts them where a disk has a
/// `<latency-histogram>`.
fn latencies(disk: &StatsEntry<'_>) -> BTreeMap<u64, u64> {
    let mut latencies = BTreeMap::new();
    for kind in ["read", "write", "flush"] {
        let bins = disk.group(&format!("latency_histogram.{kind}.bin"));
        let mut bins = bins.peekable();
        while let Some(bin) = bins.next() {
            let end_ns = bins.peek().and_then(|next| next.number("start"));
            if let Some(requests) = bin.number("value") {
                add_requests(&mut latencies, end_ns.unwrap_or(u64::MAX), requests);
            }
        }
    }
    latencies
}

/// The longest request of the shortest interval that QEMU is told to measure (libvirt 11.9).
fn longest_ns(disk: &StatsEntry<'_>) -> Option<u64> {
    let intervals = disk.group("timed_group");
    let shortest = intervals.min_by_key(|interval| interval.number("interval_length"))?;
    let longest = ["rd", "wr", "flush"]
        .into_iter()
        .filter_map(|kind| shortest.number(&format!("{kind}_latency_max")));
    // 0: there was no request.
    longest.max().filter(|ns| *ns > 0)
}

/// Network interfaces. One that lacks a counter is left out, as by [`disks`].
pub fn nics(stats: &Stats) -> Vec<NicSample> {
    let nics = group(stats, "net".into()).filter_map(|entry| {
        Some(NicSample {
            name: entry.text("name")?,
            rx_bytes: entry.number("rx.bytes")?,
            tx_bytes: entry.number("tx.bytes")?,
            rx_packets: entry.number("rx.pkts")?,
            tx_packets: entry.number("tx.pkts")?,
            drops: entry
                .number("rx.drop")?
                .saturating_add(entry.number("tx.drop")?),
            rx_drops: entry.number("rx.drop"),
            ..NicSample::default()
        })
    });
    nics.collect()
}

/// What the balloon leaves to the guest, bytes.
pub fn balloon(stats: &Stats) -> Option<u64> {
    bytes(stats, "balloon.current")
}

/// What the guest's balloon driver says; libvirt counts in KiB, and gives nothing of a driver that
/// was never asked.
pub fn memory_in_guest(stats: &Stats) -> Option<MemoryInGuest> {
    let updated_s = number(stats, "balloon.last-update").filter(|at| *at > 0)?;
    Some(MemoryInGuest {
        total: bytes(stats, "balloon.available")?,
        usable: bytes(stats, "balloon.usable").or_else(|| bytes(stats, "balloon.unused")),
        caches: bytes(stats, "balloon.disk_caches"),
        major_faults: number(stats, "balloon.major_fault"),
        swapped: bytes(stats, "balloon.swap_in")
            .zip(bytes(stats, "balloon.swap_out"))
            .map(|(swapped_in, swapped_out)| swapped_in.saturating_add(swapped_out)),
        updated_s,
        grown: None,
    })
}

/// A number; `None` for a text, and for a negative number: by -1 libvirt says that it is missing.
pub fn number(stats: &Stats, name: &str) -> Option<u64> {
    stats.get(name)?.parse().ok()
}

/// A number of KiB as bytes.
fn bytes(stats: &Stats, name: &str) -> Option<u64> {
    number(stats, name)?.checked_mul(1024)
}

/// How many entries a group has, by its figure `count`.
fn count(stats: &Stats, name: &str) -> u64 {
    number(stats, name).unwrap_or(0).min(MAX_ENTRIES)
}

/// One numbered entry of a group.
struct StatsEntry<'a> {
    stats: &'a Stats,
    prefix: String,
}

impl<'a> StatsEntry<'a> {
    fn number(&self, name: &str) -> Option<u64> {
        number(self.stats, &format!("{}.{name}", self.prefix))
    }

    /// The entries of a group within it.
    fn group(&self, name: &str) -> impl Iterator<Item = StatsEntry<'a>> + use<'a> {
        group(self.stats, format!("{}.{name}", self.prefix))
    }

    fn text(&self, name: &str) -> Option<String> {
        let text = self.stats.get(&format!("{}.{name}", self.prefix))?;
        Some(sanitize(text, 64)).filter(|text| !text.is_empty())
    }
}

/// The entries of a group, such as `block.0` and `block.1`.
fn group(stats: &Stats, name: String) -> impl Iterator<Item = StatsEntry<'_>> {
    (0..count(stats, &format!("{name}.count"))).map(move |i| StatsEntry {
        stats,
        prefix: format!("{name}.{i}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(rows: &[(&str, &str)]) -> Stats {
        rows.iter()
            .map(|(name, value)| ((*name).to_string(), (*value).to_string()))
            .collect()
    }

    /// A disk and a network card with all that libvirt 9.0 gives.
    fn devices() -> Stats {
        let mut stats = stats(&[
            ("block.count", "1"),
            ("block.0.name", "vda\u{1b}[2J"),
            ("net.count", "1"),
            ("net.0.name", "vnet0"),
            ("balloon.current", "262144"),
        ]);
        let disk =
            ["rd.reqs", "rd.bytes", "wr.reqs", "wr.bytes"].map(|name| format!("block.0.{name}"));
        let nic = [
            "rx.bytes", "rx.pkts", "rx.drop", "tx.bytes", "tx.pkts", "tx.drop",
        ]
        .map(|name| format!("net.0.{name}"));
        stats.extend(
            disk.into_iter()
                .chain(nic)
                .zip(7u64..)
                .map(|(name, n)| (name, n.to_string())),
        );
        stats
    }

    #[test]
    fn a_disk_and_a_nic() {
        let stats = devices();
        let disks = disks(&stats);
        assert_eq!(
            (disks[0].read_ops, disks[0].write_bytes, disks[0].read_ns),
            (7, 10, None)
        );
        assert!(disks[0].name.starts_with("vda") && !disks[0].name.contains('\u{1b}'));
        assert_eq!(nics(&stats)[0].drops, 13 + 16);
        assert_eq!(balloon(&stats), Some(256 << 20));
    }

    #[test]
    fn latencies_where_libvirt_counts_them() {
        let mut stats = devices();
        for (name, value) in [
            ("latency_histogram.read.bin.count", "2"),
            ("latency_histogram.read.bin.0.start", "0"),
            ("latency_histogram.read.bin.0.value", "90"),
            ("latency_histogram.read.bin.1.start", "1000000"),
            ("latency_histogram.read.bin.1.value", "8"),
            ("latency_histogram.write.bin.count", "1"),
            ("latency_histogram.write.bin.0.start", "1000000"),
            ("latency_histogram.write.bin.0.value", "2"),
            ("timed_group.count", "2"),
            ("timed_group.0.interval_length", "60"),
            ("timed_group.0.rd_latency_max", "900"),
            ("timed_group.1.interval_length", "10"),
            ("timed_group.1.rd_latency_max", "40"),
            ("timed_group.1.wr_latency_max", "70"),
        ] {
            stats.insert(format!("block.0.{name}"), value.into());
        }
        let disk = disks(&stats).remove(0);
        assert_eq!(disk.latencies, [(1_000_000, 90), (u64::MAX, 10)].into());
        assert_eq!(disk.longest_ns, Some(70));
        assert_eq!(disks(&devices())[0].longest_ns, None);
    }

    #[test]
    fn a_device_without_a_counter_is_unknown_not_idle() {
        for missing in devices()
            .into_keys()
            .filter(|name| name.starts_with("block.0."))
        {
            let mut stats = devices();
            stats.remove(&missing);
            assert_eq!(
                (disks(&stats).len(), nics(&stats).len()),
                (0, 1),
                "{missing}"
            );
        }
        for missing in devices()
            .into_keys()
            .filter(|name| name.starts_with("net.0."))
        {
            let mut stats = devices();
            stats.remove(&missing);
            assert_eq!(
                (disks(&stats).len(), nics(&stats).len()),
                (1, 0),
                "{missing}"
            );
        }
    }

    #[test]
    fn a_reply_that_claims_a_billion_disks_costs_nothing() {
        assert!(disks(&stats(&[("block.count", "1000000000")])).is_empty());
    }

    #[test]
    fn a_driver_that_was_never_asked_says_nothing() {
        let mut stats = stats(&[
            ("balloon.current", "262144"),
            ("balloon.available", "250000"),
            ("balloon.usable", "25000"),
            ("balloon.disk_caches", "1000"),
            ("balloon.major_fault", "7"),
            ("balloon.swap_in", "2"),
            ("balloon.swap_out", "1"),
            ("balloon.last-update", "0"),
        ]);
        assert_eq!(memory_in_guest(&stats), None);
        stats.insert("balloon.last-update".into(), "1795269802".into());
        let memory = memory_in_guest(&stats).unwrap();
        assert_eq!(
            (memory.total, memory.swapped, memory.major_faults),
            (250_000 << 10, Some(3 << 10), Some(7))
        );
        assert_eq!(memory.used_percent(), Some(90.0));
    }
}
