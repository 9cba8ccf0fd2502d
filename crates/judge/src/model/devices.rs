//! Disks and network interfaces, per second.

use super::DiskConfig;
use sample::{DomainSample, NicSample, sums};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// A block device of a guest, at the last reading: not every interval has one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct DiskRates {
    /// Target name, such as `vda`.
    pub name: String,
    /// Reads per second.
    pub read_ops: f64,
    /// Writes per second.
    pub write_ops: f64,
    /// Bytes read per second.
    pub read_bytes: f64,
    /// Bytes written per second.
    pub write_bytes: f64,
    /// Mean time of a read. `null`: no read, or the VMM gives no times.
    pub read_mean_us: Option<f64>,
    /// Mean time of a write. `null`: no write, or the VMM gives no times.
    pub write_mean_us: Option<f64>,
    /// Flushes of the write cache per second. `null`: the VMM does not count them.
    pub flush_ops: Option<f64>,
    /// Mean time of a flush. `null`: no flush, or the VMM gives no times.
    pub flush_mean_us: Option<f64>,
    /// Reads, writes and flushes per second that failed in the VMM or below it. `null`: not
    /// counted; only a QEMU monitor that kvmtop asks itself counts them.
    pub failed_ops: Option<f64>,
    /// Operations under way on average: the time of all that completed (reads, writes, flushes),
    /// over the time that the reading covers. `null`: the VMM gives no times.
    pub queue_depth: Option<f64>,
    /// So many of 100 reads, writes and flushes took at most this long: the upper bound of a bin of
    /// QEMU's histogram. `null`: QEMU is not told to keep one (`<latency-histogram>` of libvirt).
    pub p99_us: Option<f64>,
    /// The longest read, write or flush of the last interval that QEMU measures. `null`: it is not
    /// told to (`<statistic interval=…/>` of libvirt).
    pub max_us: Option<f64>,
    /// What it uses of its tightest limit (`<iotune>`), percent. `null`: no limit is known.
    pub limit_percent: Option<f64>,
}

impl DiskRates {
    /// The longer of the mean times of reads and writes, microseconds.
    pub fn slowest_us(&self) -> Option<f64> {
        self.read_mean_us
            .into_iter()
            .chain(self.write_mean_us)
            .reduce(f64::max)
    }

    /// The mean times, each with the rate of its operations.
    pub(super) fn means(&mut self) -> [(&mut Option<f64>, f64); 3] {
        let flush_ops = self.flush_ops.unwrap_or(0.0);
        [
            (&mut self.read_mean_us, self.read_ops),
            (&mut self.write_mean_us, self.write_ops),
            (&mut self.flush_mean_us, flush_ops),
        ]
    }
}

sums!(DiskRates {
    read_ops, write_ops, read_bytes, write_bytes, flush_ops, failed_ops, queue_depth,
    limit_percent,
} name, p99_us, max_us; read_mean_us, write_mean_us, flush_mean_us);

/// A network interface of a guest, at the last reading.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct NicRates {
    /// Name on the host, such as `vnet0`.
    pub name: String,
    /// Bytes received per second.
    pub rx_bytes: f64,
    /// Bytes sent per second.
    pub tx_bytes: f64,
    /// Packets received per second.
    pub rx_packets: f64,
    /// Packets sent per second.
    pub tx_packets: f64,
    /// Packets dropped per second, both directions.
    pub drops: f64,
    /// Those of them that the guest should have received. `null`: an older recording.
    pub rx_drops: Option<f64>,
    /// Queues that the VMM has open. `null`: it is not seen to be a tap device.
    pub queues: Option<u32>,
    /// The bridge that it is plugged into, `ovs-system` for Open vSwitch. `null`: none, or not seen.
    pub bridge: Option<String>,
    /// What it uses of its tighter limit (`<bandwidth>`), percent. `null`: no limit is known.
    pub limit_percent: Option<f64>,
}

sums!(NicRates {
    rx_bytes, tx_bytes, rx_packets, tx_packets, drops, rx_drops, limit_percent,
} name, queues, bridge);

pub(crate) fn disks(now: &DomainSample) -> Vec<DiskRates> {
    let Some(rate) = rate(now.devices_ns) else {
        return Vec::new();
    };
    let mean =
        |ns: Option<u64>, ops: u64| ns.filter(|_| ops > 0).map(|t| t as f64 / ops as f64 / 1e3);
    let mut disks = Vec::new();
    for d in &now.disks {
        let mut disk = DiskRates {
            name: d.name.clone(),
            read_ops: rate(d.read_ops),
            write_ops: rate(d.write_ops),
            read_bytes: rate(d.read_bytes),
            write_bytes: rate(d.write_bytes),
            read_mean_us: mean(d.read_ns, d.read_ops),
            write_mean_us: mean(d.write_ns, d.write_ops),
            flush_ops: d.flush_ops.map(&rate),
            flush_mean_us: mean(d.flush_ns, d.flush_ops.unwrap_or(0)),
            failed_ops: d.failed_ops.map(&rate),
            queue_depth: d.read_ns.zip(d.write_ns).map(|(read, write)| {
                rate(
                    read.saturating_add(write)
                        .saturating_add(d.flush_ns.unwrap_or(0)),
                ) / 1e9
            }),
            p99_us: p99_us(&d.latencies),
            max_us: d.longest_ns.map(|ns| ns as f64 / 1e3),
            limit_percent: None,
        };
        if let Some(config) = DiskConfig::find(&now.facts, &disk.name) {
            let used = config.limits_of(&disk).into_iter().map(|l| l.percent());
            disk.limit_percent = used.reduce(f64::max);
        }
        disks.push(disk);
    }
    disks
}

/// The bound below which 99 of 100 requests stay, microseconds; `None` if nothing bounds them.
fn p99_us(latencies: &BTreeMap<u64, u64>) -> Option<f64> {
    let all = super::total(latencies.values().copied());
    let mut passed = 0_u64;
    for (end_ns, requests) in latencies {
        passed = passed.saturating_add(*requests);
        if all > 0 && passed as f64 >= 0.99 * all as f64 {
            let is_bound = *end_ns < u64::MAX;
            return is_bound.then_some(*end_ns as f64 / 1e3);
        }
    }
    None
}

pub(crate) fn nics(now: &DomainSample) -> Vec<NicRates> {
    let Some(rate) = rate(now.nics_ns) else {
        return Vec::new();
    };
    now.nics
        .iter()
        .map(|n| NicRates {
            name: n.name.clone(),
            rx_bytes: rate(n.rx_bytes),
            tx_bytes: rate(n.tx_bytes),
            rx_packets: rate(n.rx_packets),
            tx_packets: rate(n.tx_packets),
            drops: rate(n.drops),
            rx_drops: n.rx_drops.map(&rate),
            queues: n.queues,
            bridge: n.bridge.clone(),
            limit_percent: nic_limit(now, n, rate(n.rx_bytes), rate(n.tx_bytes)),
        })
        .collect()
}

/// What an interface that receives and sends so many bytes per second uses of its tighter limit,
/// percent.
fn nic_limit(now: &DomainSample, nic: &NicSample, rx: f64, tx: f64) -> Option<f64> {
    let xml = &now.facts.xml.as_ref()?.value;
    let mut limits = xml.bandwidths.iter();
    let limit = limits.find(|limit| limit.target == nic.name)?;
    let used = [(rx, limit.inbound), (tx, limit.outbound)]
        .into_iter()
        .filter_map(|(bytes, most)| Some(100.0 * bytes / most.filter(|most| *most > 0)? as f64));
    used.reduce(f64::max)
}

/// A length of time; `None` if it is 0.
pub(crate) fn seconds(ns: u64) -> Option<f64> {
    if ns > 0 { Some(ns as f64 / 1e9) } else { None }
}

fn rate(ns: u64) -> Option<impl Fn(u64) -> f64> {
    let seconds = seconds(ns)?;
    Some(move |n: u64| n as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_99th_of_100_requests() {
        let bins = |counts: [u64; 3]| {
            [1_000_000, 10_000_000, u64::MAX]
                .into_iter()
                .zip(counts)
                .collect()
        };
        assert_eq!(p99_us(&bins([99, 1, 0])), Some(1000.0));
        assert_eq!(p99_us(&bins([98, 1, 1])), Some(10_000.0));
        // Nothing bounds the last bin.
        assert_eq!(p99_us(&bins([50, 0, 50])), None);
        assert_eq!(p99_us(&bins([0, 0, 0])), None);
        assert_eq!(p99_us(&BTreeMap::new()), None);
    }
}
