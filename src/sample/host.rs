//! The host's part of a sample.

use crate::kvm::cpu_set::CpuSet;
use crate::kvm::topology::HostTopology;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The host at one instant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    /// What does not change while kvmtop runs. A recording holds it apart from the sample.
    #[serde(skip)]
    pub facts: Arc<HostFacts>,
    /// Per online CPU, in order of number. Empty for a file that says nothing of the host.
    pub cpus: Vec<CpuTimes>,
    /// Tasks outside of every guest that used CPU lately; see [`HostTask`].
    pub tasks: Vec<HostTask>,
    /// Host memory's state.
    pub memory: Option<HostMemory>,
    /// Unhandled-MSR and like lines of the kernel log, newest last, bounded.
    pub kernel_log: Vec<crate::kvm::kernel_log::LogLine>,
}

/// The unchanging facts of a host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Host name.
    pub hostname: String,
    /// `uname -r`.
    pub kernel: String,
    /// The loaded KVM flavour: `kvm_intel`, `kvm_amd`, `kvm_pvm`, …
    pub kvm_flavour: Option<String>,
    /// Machine, as `uname -m`: `x86_64`, `aarch64`.
    pub arch: String,
    /// Nodes, cores, siblings, caches, isolated and `nohz_full` CPUs.
    pub topology: HostTopology,
    /// Module parameters that rules look at, as `kvm.halt_poll_ns`, `kvm_intel.enable_apicv`, `kvm_amd.avic`, and settings of
    /// the kernel by sysctl's names, as `kernel.sched_rt_runtime_us`, with their text.
    pub params: BTreeMap<String, String>,
    /// Whether this host is itself a guest (the `hypervisor` CPU flag).
    pub virtualised: Option<bool>,
    /// `CONFIG_HZ` where it is known: the host's tick rate.
    pub tick_hz: Option<u32>,
}

/// `/proc/stat` of one CPU, cumulative nanoseconds. As in the file, `user_ns` contains `guest_ns` and `nice_ns` contains
/// `guest_nice_ns` (kernel/sched/cputime.c, `account_guest_time`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTimes {
    /// CPU number.
    pub cpu: u32,
    /// User time, guests included.
    pub user_ns: u64,
    /// Niced user time, niced guests included.
    pub nice_ns: u64,
    /// Kernel time.
    pub system_ns: u64,
    /// Idle.
    pub idle_ns: u64,
    /// Idle while I/O was outstanding.
    pub iowait_ns: u64,
    /// Hard interrupts.
    pub irq_ns: u64,
    /// Soft interrupts.
    pub softirq_ns: u64,
    /// Taken by the hypervisor beneath this host.
    pub steal_ns: u64,
    /// Running guests.
    pub guest_ns: u64,
    /// Running niced guests.
    pub guest_nice_ns: u64,
    /// Device interrupts taken (`/proc/interrupts`, numbered lines); `None` where not read.
    pub device_irqs: Option<u64>,
    /// Local timer interrupts (`LOC`).
    pub timer_irqs: Option<u64>,
}

/// A task that belongs to no guest: what competes with vCPUs. Only tasks that used CPU within the last scan are kept, the
/// busiest first, so many at most; a scan may be rarer than samples are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostTask {
    /// Thread id.
    pub tid: i32,
    /// Process id.
    pub pid: i32,
    /// Name, made harmless.
    pub comm: String,
    /// Whether it is a kernel thread.
    pub kernel: bool,
    /// CPU time used within the last scan, nanoseconds.
    pub used_ns: u64,
    /// The time that the scan covers, nanoseconds.
    pub over_ns: u64,
    /// The CPU it ran on last.
    pub last_cpu: u32,
}

/// Memory pressure as rules need it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostMemory {
    /// Total memory, bytes.
    pub total: u64,
    /// Available memory, bytes.
    pub available: u64,
    /// Swap in use, bytes.
    pub swap_used: u64,
    /// Pages swapped out, cumulative (`pswpout`).
    pub swapped_out_pages: u64,
    /// Whether KSM runs (`/sys/kernel/mm/ksm/run` is 1).
    pub ksm_running: bool,
}

/// CPU affinity, as a set of CPU numbers.
pub type Affinity = CpuSet;
