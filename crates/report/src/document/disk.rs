//! A block device of the host.
//! `objects!` ([`super`]) makes a struct, and a `new` that fills each field by its expression.

use judge::model::HostDiskModel;

objects! {
    /// A block device of the host, and its requests for one guest in the interval.
    pub struct JsonHostDisk(disk: &HostDiskModel) {
        /// Name of the device in the host's kernel, such as `nvme0n1p3` or `dm-0`.
        device: String = disk.name.clone(),
        /// Name of a device-mapper device, or the file of a loop device. `null`: another kind of
        /// device.
        alias: Option<String> = disk.alias.clone(),
        /// Reads per second. `null`: no `interval_s`.
        read_ops: Option<f64> = disk.rate_of(disk.reads.total.count),
        /// Writes per second. `null`: as for reads.
        write_ops: Option<f64> = disk.rate_of(disk.writes.total.count),
        /// Flushes of the device's write cache per second. `null`: as for reads.
        flush_ops: Option<f64> = disk.rate_of(disk.flushes.total.count),
        /// Mean time of a read from its submission by a thread of the guest to its completion.
        /// `null`: no read.
        read_mean_us: Option<f64> = disk.reads.total.mean_us(),
        /// Mean time of a write, as for reads. `null`: no write.
        write_mean_us: Option<f64> = disk.writes.total.mean_us(),
        /// Mean time of a flush. `null`: no flush.
        flush_mean_us: Option<f64> = disk.flushes.total.mean_us(),
    }
}
