//! Disks and network interfaces, per second.

use sample::{DomainSample, sums};
use schemars::JsonSchema;
use serde::Serialize;

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
} name; read_mean_us, write_mean_us, flush_mean_us);

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
}

sums!(NicRates { rx_bytes, tx_bytes, rx_packets, tx_packets, drops, rx_drops } name);

pub(crate) fn disks(now: &DomainSample) -> Vec<DiskRates> {
    let Some(rate) = rate(now.devices_ns) else {
        return Vec::new();
    };
    let mean =
        |ns: Option<u64>, ops: u64| ns.filter(|_| ops > 0).map(|t| t as f64 / ops as f64 / 1e3);
    now.disks
        .iter()
        .map(|d| DiskRates {
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
        })
        .collect()
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
        })
        .collect()
}

/// A length of time; `None` if it is 0.
pub(crate) fn seconds(ns: u64) -> Option<f64> {
    if ns > 0 { Some(ns as f64 / 1e9) } else { None }
}

fn rate(ns: u64) -> Option<impl Fn(u64) -> f64> {
    let seconds = seconds(ns)?;
    Some(move |n: u64| n as f64 / seconds)
}
