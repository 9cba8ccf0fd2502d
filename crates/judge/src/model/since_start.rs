//! What a single reading of a guest's statistics says: ratios of totals since its start, and no rates.

use sample::DiskSample;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// Totals since a guest's start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct SinceStart {
    /// Its vCPUs, by number.
    pub vcpus: Vec<VcpuTotals>,
    /// Its block devices.
    pub disks: Vec<DiskTotals>,
    /// KVM's own statistics of its vCPUs and the VM together, by KVM's names.
    pub counters: BTreeMap<String, u64>,
}

/// CPU time of a vCPU since the guest's start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct VcpuTotals {
    /// Its number.
    pub vcpu: u32,
    /// Seconds on a CPU.
    pub ran_s: f64,
    /// Seconds that it was ready to run and had no CPU. `null`: not reported.
    pub waited_s: Option<f64>,
    /// The wait, percent of the time that it ran or was ready to run. `null`: not reported, or it never wanted to run.
    pub wait_percent: Option<f64>,
}

/// Requests of a block device since the guest's start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct DiskTotals {
    /// Target name, such as `vda`.
    pub name: String,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Number of flushes of the write cache. `null`: not reported.
    pub flushes: Option<u64>,
    /// Mean time of a read. `null`: no read, or no times reported.
    pub read_mean_us: Option<f64>,
    /// Mean time of a write. `null`: no write, or no times reported.
    pub write_mean_us: Option<f64>,
    /// Mean time of a flush. `null`: no flush, or no times reported.
    pub flush_mean_us: Option<f64>,
}

impl SinceStart {
    pub(super) fn new(totals: &sample::SinceStart) -> Self {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let vcpu = |(vcpu, times): (&u32, &sample::ThreadTimes)| {
            let (ran_s, waited_s) = (seconds(times.run_ns?), times.wait_ns.map(seconds));
            let wait_percent = waited_s.filter(|wait| ran_s + wait > 0.0).map(|wait| 100.0 * wait / (ran_s + wait));
            Some(VcpuTotals { vcpu: *vcpu, ran_s, waited_s, wait_percent })
        };
        Self {
            vcpus: totals.vcpus.iter().filter_map(vcpu).collect(),
            disks: totals.disks.iter().map(DiskTotals::new).collect(),
            counters: totals.counters.clone(),
        }
    }
}

impl DiskTotals {
    fn new(disk: &DiskSample) -> Self {
        let mean = |ns: Option<u64>, ops: u64| ns.filter(|_| ops > 0).map(|ns| ns as f64 / ops as f64 / 1e3);
        Self {
            name: disk.name.clone(),
            reads: disk.read_ops,
            writes: disk.write_ops,
            flushes: disk.flush_ops,
            read_mean_us: mean(disk.read_ns, disk.read_ops),
            write_mean_us: mean(disk.write_ns, disk.write_ops),
            flush_mean_us: mean(disk.flush_ns, disk.flush_ops.unwrap_or(0)),
        }
    }
}
