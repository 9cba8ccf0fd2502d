//! The counters of a guest's disks and network interfaces, and how they grew from one reading to the next.

use sample::{DiskSample, NicSample};
use std::time::Instant;

/// Cumulative counters of a guest's devices at one instant.
#[derive(Debug)]
pub(super) struct DeviceCounters {
    /// When they were read.
    pub at: Instant,
    /// Block devices.
    pub disks: Vec<DiskSample>,
    /// Network interfaces.
    pub nics: Vec<NicSample>,
    /// What the balloon leaves to the guest, bytes.
    pub balloon: Option<u64>,
}

impl DeviceCounters {
    /// Activity of disks and interfaces since an earlier reading, and the time between the two, nanoseconds.
    pub(super) fn since(&self, before: &Self) -> (Vec<DiskSample>, Vec<NicSample>, u64) {
        let ns = self.at.saturating_duration_since(before.at).as_nanos() as u64;
        (disks_since(&self.disks, &before.disks), nics_since(&self.nics, &before.nics), ns)
    }
}

fn disks_since(now: &[DiskSample], before: &[DiskSample]) -> Vec<DiskSample> {
    now.iter()
        .filter_map(|n| {
            let b = before.iter().find(|b| b.name == n.name)?;
            let known = |n: Option<u64>, b: Option<u64>| n.zip(b).map(|(n, b)| n.saturating_sub(b));
            Some(DiskSample {
                name: n.name.clone(),
                read_ops: n.read_ops.saturating_sub(b.read_ops),
                write_ops: n.write_ops.saturating_sub(b.write_ops),
                read_bytes: n.read_bytes.saturating_sub(b.read_bytes),
                write_bytes: n.write_bytes.saturating_sub(b.write_bytes),
                read_ns: known(n.read_ns, b.read_ns),
                write_ns: known(n.write_ns, b.write_ns),
                flush_ops: known(n.flush_ops, b.flush_ops),
                flush_ns: known(n.flush_ns, b.flush_ns),
                failed_ops: known(n.failed_ops, b.failed_ops),
            })
        })
        .collect()
}

fn nics_since(now: &[NicSample], before: &[NicSample]) -> Vec<NicSample> {
    now.iter().filter_map(|n| nic_since(n, before.iter().find(|b| b.name == n.name)?)).collect()
}

/// The growth of an interface; `None` for one that was made again since.
pub(crate) fn nic_since(now: &NicSample, before: &NicSample) -> Option<NicSample> {
    Some(NicSample {
        name: now.name.clone(),
        rx_bytes: now.rx_bytes.checked_sub(before.rx_bytes)?,
        tx_bytes: now.tx_bytes.checked_sub(before.tx_bytes)?,
        rx_packets: now.rx_packets.checked_sub(before.rx_packets)?,
        tx_packets: now.tx_packets.checked_sub(before.tx_packets)?,
        drops: now.drops.checked_sub(before.drops)?,
    })
}
