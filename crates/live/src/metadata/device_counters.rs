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
        let disks = growth(&self.disks, &before.disks, |disk| &disk.name, |now, before| Some(now.since(before)));
        let nics = growth(&self.nics, &before.nics, |nic| &nic.name, nic_since);
        (disks, nics, ns)
    }
}

/// The growth of each device that had counters before.
fn growth<T>(now: &[T], before: &[T], name: fn(&T) -> &str, since: fn(&T, &T) -> Option<T>) -> Vec<T> {
    let earlier = |device: &T| before.iter().find(|b| name(b) == name(device));
    now.iter().filter_map(|device| since(device, earlier(device)?)).collect()
}

/// The growth of an interface; `None` if it was created again since.
pub(crate) fn nic_since(now: &NicSample, before: &NicSample) -> Option<NicSample> {
    let grown = now.since(before);
    let mut sum = before.clone();
    sum.add(&grown);
    (sum == *now).then_some(grown)
}
