//! libvirt's bulk statistics as plain values, from its library or as `virsh domstats` prints them.

use crate::{DiskSample, NicSample};
use kvm::sanitize;
use std::collections::BTreeMap;

/// A statistic of libvirt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatsValue {
    /// Any number type; a negative one is missing, which is what libvirt means by -1.
    Number(u64),
    /// A text.
    Text(String),
}

/// The statistics of one domain, by libvirt's names (`block.0.rd.reqs`, `vcpu.1.exits.sum`).
pub type Stats = BTreeMap<String, StatsValue>;

/// At most this many entries of one kind are read: a reply is not trusted.
const MAX_ENTRIES: u64 = 4096;

/// Block devices. One without all of its counters is left out: it is not idle, its activity is unknown.
pub fn disks(stats: &Stats) -> Vec<DiskSample> {
    let disk = |at: StatsEntry| {
        Some(DiskSample {
            name: at.text("name")?,
            read_ops: at.number("rd.reqs")?,
            write_ops: at.number("wr.reqs")?,
            read_bytes: at.number("rd.bytes")?,
            write_bytes: at.number("wr.bytes")?,
            read_ns: at.number("rd.times"),
            write_ns: at.number("wr.times"),
            flush_ops: at.number("fl.reqs"),
            flush_ns: at.number("fl.times"),
            failed_ops: None,
        })
    };
    group(stats, "block").filter_map(disk).collect()
}

/// Whether no disk has counters though there may be disks: with the no-wait flag libvirt leaves out what it has to ask
/// QEMU for while it works on the domain for another client (`qemuDomainGetStatsBlock` in `src/qemu/qemu_driver.c`).
pub fn lacks_disks(stats: &Stats) -> bool {
    !matches!(stats.get("block.count"), Some(StatsValue::Number(0))) && disks(stats).is_empty()
}

/// Network interfaces, as [`disks`].
pub fn nics(stats: &Stats) -> Vec<NicSample> {
    let nic = |at: StatsEntry| {
        Some(NicSample {
            name: at.text("name")?,
            rx_bytes: at.number("rx.bytes")?,
            tx_bytes: at.number("tx.bytes")?,
            rx_packets: at.number("rx.pkts")?,
            tx_packets: at.number("tx.pkts")?,
            drops: at.number("rx.drop")?.saturating_add(at.number("tx.drop")?),
        })
    };
    group(stats, "net").filter_map(nic).collect()
}

/// What the balloon leaves to the guest, bytes.
pub fn balloon(stats: &Stats) -> Option<u64> {
    match stats.get("balloon.current")? {
        StatsValue::Number(kib) => kib.checked_mul(1024),
        StatsValue::Text(_) => None,
    }
}

/// KVM's counters of the vCPUs (by number) and of the VM: the cumulative ones (`….sum`), by KVM's names.
pub fn kvm_counters(stats: &Stats) -> (BTreeMap<u32, BTreeMap<String, u64>>, BTreeMap<String, u64>) {
    let (mut vcpus, mut vm) = (BTreeMap::<u32, BTreeMap<_, _>>::new(), BTreeMap::new());
    for (key, value) in stats {
        let (Some(name), StatsValue::Number(n)) = (key.strip_suffix(".sum"), value) else { continue };
        if let Some((index, name)) = name.strip_prefix("vcpu.").and_then(|r| r.split_once('.')) {
            if let Ok(index) = index.parse::<u32>()
                && u64::from(index) < MAX_ENTRIES
            {
                vcpus.entry(index).or_default().insert(sanitize(name, 64), *n);
            }
        } else if let Some(name) = name.strip_prefix("vm.") {
            vm.insert(sanitize(name, 64), *n);
        }
    }
    (vcpus, vm)
}

/// A vCPU's time on a CPU and time waiting for one (`vcpu.0.time`, `vcpu.0.delay`), nanoseconds.
pub fn vcpu_times(stats: &Stats) -> BTreeMap<u32, (u64, Option<u64>)> {
    let of = |index: u32| {
        let vcpu = StatsEntry { stats, prefix: format!("vcpu.{index}") };
        // libvirt before 7.2 lacks `delay`. Its `wait` is the scheduler's wait_sum, which stays 0 where the host's
        // kernel.sched_schedstats is off (`qemuGetSchedInfo` in libvirt's src/qemu/qemu_driver.c).
        let wait = vcpu.number("delay").or_else(|| vcpu.number("wait").filter(|ns| *ns > 0));
        Some((index, (vcpu.number("time")?, wait)))
    };
    let most = match stats.get("vcpu.maximum") {
        Some(StatsValue::Number(n)) => (*n).min(MAX_ENTRIES),
        _ => 0,
    };
    (0..most as u32).filter_map(of).collect()
}

/// The growth of the numbers between two readings; a number that fell began again and is left out.
pub fn growth(first: &Stats, last: &Stats) -> Stats {
    let grown = |(name, value): (&String, &StatsValue)| {
        let value = match (value, first.get(name)) {
            // How many entries a group has does not grow.
            (StatsValue::Number(_), _)
                if matches!(name.as_str(), "block.count" | "net.count" | "vcpu.maximum" | "balloon.current") =>
            {
                value.clone()
            }
            (StatsValue::Number(now), Some(StatsValue::Number(before))) => {
                StatsValue::Number(now.checked_sub(*before)?)
            }
            (StatsValue::Number(_), _) => return None,
            (StatsValue::Text(_), _) => value.clone(),
        };
        Some((name.clone(), value))
    };
    last.iter().filter_map(grown).collect()
}

/// One numbered entry of a group.
struct StatsEntry<'a> {
    stats: &'a Stats,
    prefix: String,
}

impl StatsEntry<'_> {
    fn number(&self, name: &str) -> Option<u64> {
        match self.stats.get(&format!("{}.{name}", self.prefix))? {
            StatsValue::Number(n) => Some(*n),
            StatsValue::Text(_) => None,
        }
    }

    fn text(&self, name: &str) -> Option<String> {
        match self.stats.get(&format!("{}.{name}", self.prefix))? {
            StatsValue::Text(text) => Some(sanitize(text, 64)).filter(|text| !text.is_empty()),
            StatsValue::Number(_) => None,
        }
    }
}

fn group<'a>(stats: &'a Stats, name: &'a str) -> impl Iterator<Item = StatsEntry<'a>> {
    let count = match stats.get(&format!("{name}.count")) {
        Some(StatsValue::Number(n)) => (*n).min(MAX_ENTRIES),
        _ => 0,
    };
    (0..count).map(move |i| StatsEntry { stats, prefix: format!("{name}.{i}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(rows: &[(&str, StatsValue)]) -> Stats {
        rows.iter().map(|(k, v)| ((*k).to_string(), v.clone())).collect()
    }

    /// A disk and a network card with all that libvirt 9.0 gives.
    fn devices() -> Stats {
        let mut stats = stats(&[
            ("block.count", StatsValue::Number(1)),
            ("block.0.name", StatsValue::Text("vda\u{1b}[2J".into())),
            ("net.count", StatsValue::Number(1)),
            ("net.0.name", StatsValue::Text("vnet0".into())),
            ("balloon.current", StatsValue::Number(262_144)),
        ]);
        let disk = ["rd.reqs", "rd.bytes", "wr.reqs", "wr.bytes"].map(|name| format!("block.0.{name}"));
        let nic =
            ["rx.bytes", "rx.pkts", "rx.drop", "tx.bytes", "tx.pkts", "tx.drop"].map(|name| format!("net.0.{name}"));
        stats.extend(disk.into_iter().chain(nic).zip(7u64..).map(|(name, n)| (name, StatsValue::Number(n))));
        stats
    }

    #[test]
    fn a_disk_and_a_nic() {
        let stats = devices();
        let disks = disks(&stats);
        assert_eq!((disks[0].read_ops, disks[0].write_bytes, disks[0].read_ns), (7, 10, None));
        assert!(disks[0].name.starts_with("vda") && !disks[0].name.contains('\u{1b}'));
        assert_eq!(nics(&stats)[0].drops, 13 + 16);
        assert_eq!(balloon(&stats), Some(256 << 20));
    }

    #[test]
    fn disks_without_counters_are_asked_for_again() {
        let count = |n| Stats::from([("block.count".to_string(), StatsValue::Number(n))]);
        assert_eq!([devices(), count(1), Stats::new(), count(0)].map(|s| lacks_disks(&s)), [false, true, true, false]);
    }

    #[test]
    fn a_device_without_a_counter_is_unknown_not_idle() {
        for missing in devices().into_keys().filter(|name| name.starts_with("block.0.")) {
            let mut stats = devices();
            stats.remove(&missing);
            assert_eq!((disks(&stats).len(), nics(&stats).len()), (0, 1), "{missing}");
        }
        for missing in devices().into_keys().filter(|name| name.starts_with("net.0.")) {
            let mut stats = devices();
            stats.remove(&missing);
            assert_eq!((disks(&stats).len(), nics(&stats).len()), (1, 0), "{missing}");
        }
    }

    #[test]
    fn kvm_statistics_per_vcpu() {
        let s = stats(&[
            ("vcpu.current", StatsValue::Number(2)),
            ("vcpu.0.time", StatsValue::Number(9)),
            ("vcpu.0.exits.sum", StatsValue::Number(5)),
            ("vcpu.1.halt_exits.sum", StatsValue::Number(6)),
            ("vcpu.1.blocking.cur", StatsValue::Number(1)),
            ("vm.remote_tlb_flush.sum", StatsValue::Number(8)),
        ]);
        let (vcpus, vm) = kvm_counters(&s);
        assert_eq!(vcpus[&0]["exits"], 5);
        assert_eq!(vcpus[&1].len(), 1);
        assert_eq!(vm["remote_tlb_flush"], 8);
    }

    #[test]
    fn a_reply_that_claims_a_billion_disks_costs_nothing() {
        assert!(disks(&stats(&[("block.count", StatsValue::Number(1_000_000_000))])).is_empty());
    }
}
