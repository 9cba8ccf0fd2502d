//! Disks and network interfaces, per second.

use crate::sample::DomainSample;

/// A block device.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DiskRates {
    /// Target name.
    pub name: String,
    /// Reads per second.
    pub read_ops: f64,
    /// Writes per second.
    pub write_ops: f64,
    /// Bytes read per second.
    pub read_bytes: f64,
    /// Bytes written per second.
    pub write_bytes: f64,
    /// Mean time of a read, microseconds; `None` without reads.
    pub read_mean_us: Option<f64>,
    /// Mean time of a write, microseconds; `None` without writes.
    pub write_mean_us: Option<f64>,
}

/// A network interface, from the host's side.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NicRates {
    /// Host-side name.
    pub name: String,
    /// Bytes received per second.
    pub rx_bytes: f64,
    /// Bytes sent per second.
    pub tx_bytes: f64,
    /// Packets received per second.
    pub rx_packets: f64,
    /// Packets sent per second.
    pub tx_packets: f64,
    /// Packets dropped per second, both ways.
    pub drops: f64,
}

pub(crate) fn disks(now: &DomainSample) -> Vec<DiskRates> {
    let Some(rate) = rate(now.devices_ns) else { return Vec::new() };
    let mean = |ns: Option<u64>, ops: u64| ns.filter(|_| ops > 0).map(|t| t as f64 / ops as f64 / 1e3);
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
        })
        .collect()
}

pub(crate) fn nics(now: &DomainSample) -> Vec<NicRates> {
    let Some(rate) = rate(now.nics_ns) else { return Vec::new() };
    now.nics
        .iter()
        .map(|n| NicRates {
            name: n.name.clone(),
            rx_bytes: rate(n.rx_bytes),
            tx_bytes: rate(n.tx_bytes),
            rx_packets: rate(n.rx_packets),
            tx_packets: rate(n.tx_packets),
            drops: rate(n.drops),
        })
        .collect()
}

fn rate(ns: u64) -> Option<impl Fn(u64) -> f64> {
    let seconds = ns as f64 / 1e9;
    (seconds > 0.0).then_some(move |n: u64| n as f64 / seconds)
}
