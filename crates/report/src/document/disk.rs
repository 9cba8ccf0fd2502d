//! A block device of the host.

use judge::model::HostDiskModel;
use std::collections::BTreeMap;

objects! {
    /// A block device of the host, and its requests for one guest in the interval.
    pub struct JsonHostDisk(disk: &HostDiskModel) {
        /// Name of the device in the host's kernel, such as `nvme0n1p3` or `dm-0`.
        device: String = disk.name.clone(),
        /// Major and minor number, such as `259:3`.
        number: String = format!("{}:{}", disk.number.0, disk.number.1),
        /// Name of a device-mapper device, or the file of a loop device. `null`: another kind of device.
        alias: Option<String> = disk.alias.clone(),
        /// Names of the devices below it.
        below: Vec<String> = disk.below.clone(),
        /// Reads per second. `null`: no `interval_s`.
        read_ops: Option<f64> = disk.rate_of(disk.reads.total.count),
        /// Writes per second. `null`: as for reads.
        write_ops: Option<f64> = disk.rate_of(disk.writes.total.count),
        /// Flushes of the device's write cache per second. `null`: as for reads.
        flush_ops: Option<f64> = disk.rate_of(disk.flushes.total.count),
        /// Other operations, such as discards, per second. `null`: as for reads.
        other_ops: Option<f64> = disk.rate_of(disk.others.total.count),
        /// Bytes read.
        read_bytes: u64 = disk.reads.bytes,
        /// Bytes written.
        write_bytes: u64 = disk.writes.bytes,
        /// Mean time of a read from its submission by a thread of the guest to its completion. `null`: no read.
        read_mean_us: Option<f64> = disk.reads.total.mean_us(),
        /// 99th percentile of it. `null`: no read.
        read_p99_us: Option<f64> = disk.reads.total.quantile_us(0.99),
        /// Mean time of a read in the device, from its issue to the driver to its completion. `null`: no read, or a
        /// device on top of others (device-mapper, md).
        read_device_mean_us: Option<f64> = disk.reads.device.mean_us(),
        /// Mean time of a write, as for reads. `null`: no write.
        write_mean_us: Option<f64> = disk.writes.total.mean_us(),
        /// 99th percentile of it. `null`: no write.
        write_p99_us: Option<f64> = disk.writes.total.quantile_us(0.99),
        /// Mean time of a write in the device, as for reads. `null`: no write, or no driver.
        write_device_mean_us: Option<f64> = disk.writes.device.mean_us(),
        /// Mean time of a flush. `null`: no flush.
        flush_mean_us: Option<f64> = disk.flushes.total.mean_us(),
        /// Number of requests by the thread that submitted them: `main`, `iothread`, `pool` (QEMU's thread pool),
        /// `io_uring` (a worker of it), `vhost`, `vcpu`, `other`.
        #[schemars(extend("additionalProperties" = {"type": "integer", "minimum": 1}))]
        submitted: BTreeMap<&'static str, u64> = disk.submitters.iter().map(|(who, n)| (who.as_str(), *n)).collect(),
    }
}
