//! Where the time of a guest's reads and writes goes.

use super::{DiskRates, DomainModel, addressed};
use std::cmp::Ordering;

/// The host's devices saw at least this part of the guest's requests, else the page cache or the
/// network answers them. QEMU splits and merges requests, so the two counts differ on a healthy
/// guest as well.
const MIN_SEEN_SHARE: f64 = 0.5;

/// A disk with fewer requests per second is not the slowest one.
const MIN_DISK_REQUESTS: f64 = 5.0;

/// Reads and writes, and how long one takes on average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Requests {
    /// How many there are per second.
    pub ops: f64,
    /// Mean time of one, microseconds.
    pub mean_us: f64,
}

impl Requests {
    /// The reads and writes of disks whose time is known; `None` without any.
    pub fn of_disks<'a>(disks: impl Iterator<Item = &'a DiskRates>) -> Option<Self> {
        let kinds = disks.flat_map(|disk| {
            [
                (disk.read_ops, disk.read_mean_us),
                (disk.write_ops, disk.write_mean_us),
            ]
        });
        let timed = kinds.filter_map(|(ops, mean_us)| {
            let mean_us = mean_us?;
            Some(Self { ops, mean_us })
        });
        Self::together(timed)
    }

    /// All of these together. `None` without requests.
    fn together(parts: impl Iterator<Item = Self>) -> Option<Self> {
        let mut ops = 0.0;
        let mut time = 0.0;
        for part in parts {
            ops += part.ops;
            time += part.ops * part.mean_us;
        }
        if ops > 0.0 {
            let mean_us = time / ops;
            Some(Self { ops, mean_us })
        } else {
            None
        }
    }
}

impl DomainModel {
    /// The disk whose requests take longest, of those with enough requests.
    pub fn slowest_disk(&self) -> Option<&DiskRates> {
        let used = self
            .disks
            .iter()
            .filter(|disk| disk.read_ops + disk.write_ops >= MIN_DISK_REQUESTS);
        used.max_by(|a, b| {
            let order = a.slowest_us().partial_cmp(&b.slowest_us());
            order.unwrap_or(Ordering::Equal)
        })
    }

    /// Its reads and writes, as it waits for them; `None` if none is timed.
    pub fn requests(&self) -> Option<Requests> {
        Requests::of_disks(self.disks.iter())
    }

    /// The same as the host's block devices see them; `None` if they are not timed, or something
    /// above them answers most requests.
    pub fn device_requests(&self) -> Option<Requests> {
        let devices = addressed(self.host_disks.as_ref()?);
        let timed = devices.filter_map(|disk| {
            let ops = disk.ops();
            let mean_us = disk.mean_us()?;
            Some(Requests { ops, mean_us })
        });
        let seen = Requests::together(timed)?;
        if seen.ops >= MIN_SEEN_SHARE * self.requests()?.ops {
            Some(seen)
        } else {
            None
        }
    }

    /// The part of a request's mean time that is spent outside the host's block devices: in the
    /// VMM, its queues and limits; microseconds.
    pub fn outside_devices_us(&self) -> Option<f64> {
        let outside = self.requests()?.mean_us - self.device_requests()?.mean_us;
        Some(outside.max(0.0))
    }
}
