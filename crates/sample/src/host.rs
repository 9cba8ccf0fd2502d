//! The host's part of a sample.

use super::figures::bounded;
use super::{HostLink, HostNode, WholeDisk};
use kvm::cpu_set::CpuSet;
use kvm::topology::HostTopology;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One reading of the host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostSample {
    /// Facts that do not change while kvmtop runs. A recording stores them separately from the
    /// sample.
    #[serde(skip)]
    pub facts: Arc<HostFacts>,
    /// The online CPUs in order of number. Empty for a file without them.
    pub cpus: Vec<CpuTimes>,
    /// Tasks that belong to no guest and used CPU recently; see [`HostTask`].
    pub tasks: Vec<HostTask>,
    /// The names of processes outside guests that used the most CPU time; `None` before a second
    /// scan.
    pub task_groups: Option<Vec<HostTaskGroup>>,
    /// The host's memory.
    pub memory: Option<HostMemory>,
    /// How long tasks of the host waited for CPUs, disks and memory; `None`: a kernel without PSI,
    /// or one that has it switched off.
    pub pressure: Option<Pressure>,
    /// Tasks that ran or waited for a CPU or a disk, the kernel's mean of about a minute,
    /// hundredths (`/proc/loadavg`); `None`: not read, as in older recordings.
    pub load: Option<u64>,
    /// Its disks; `None`: not read, as in older recordings.
    pub disks: Option<Vec<WholeDisk>>,
    /// Its network links; `None` as for disks.
    pub links: Option<Vec<HostLink>>,
    /// Memory of its NUMA nodes; `None`: it has only one, or an older recording.
    pub nodes: Option<Vec<HostNode>>,
    /// Lines of the kernel log about unhandled MSRs and the like, newest last; a limited number.
    pub kernel_log: Vec<kvm::kernel_log::LogLine>,
}

bounded!(HostSample {
    cpus, tasks, task_groups, memory, pressure, load, disks, links, nodes,
} facts, kernel_log);

/// Name of the entry of [`HostFacts::params`] that lists the Hyper-V enlightenments that KVM
/// offers, by libvirt's names and separated by spaces.
pub const ENLIGHTENMENTS_OFFERED: &str = "kvm.hyperv_enlightenments";

/// Name of the entry of [`HostFacts::params`] that says (`Y` or `N`) whether a guest can have
/// `invtsc`: a TSC that does not stop.
pub const INVTSC_OFFERED: &str = "kvm.invtsc";

/// The unchanging facts of a host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
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
    /// Module parameters that rules use, such as `kvm.halt_poll_ns`, `kvm_intel.enable_apicv`,
    /// `kvm_amd.avic`, and kernel settings by their sysctl names, such as
    /// `kernel.sched_rt_runtime_us`, with their text; and [`ENLIGHTENMENTS_OFFERED`] and
    /// [`INVTSC_OFFERED`].
    pub params: BTreeMap<String, String>,
    /// Whether this host is itself a guest (the `hypervisor` CPU flag).
    pub virtualised: Option<bool>,
    /// `CONFIG_HZ`, the host's tick rate, if known.
    pub tick_hz: Option<u32>,
}

impl HostFacts {
    /// The entries of [`HostFacts::params`] that say what the host's KVM offers: its Hyper-V
    /// enlightenments, and whether a guest can have `invtsc`.
    pub fn offers(
        enlightenments: Option<Vec<&str>>,
        invtsc: Option<bool>,
    ) -> BTreeMap<String, String> {
        let names =
            enlightenments.map(|names| (ENLIGHTENMENTS_OFFERED.to_owned(), names.join(" ")));
        let invtsc = invtsc.map(|on| {
            (
                INVTSC_OFFERED.to_owned(),
                if on { "Y" } else { "N" }.to_owned(),
            )
        });
        names.into_iter().chain(invtsc).collect()
    }
}

/// `/proc/stat` of one CPU, cumulative nanoseconds. As in the file, `user_ns` includes `guest_ns`
/// and `nice_ns` includes `guest_nice_ns` (kernel/sched/cputime.c, `account_guest_time`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
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
    /// Taken by the outer hypervisor (steal).
    pub steal_ns: u64,
    /// Running guests.
    pub guest_ns: u64,
    /// Running niced guests.
    pub guest_nice_ns: u64,
    /// Device interrupts (`/proc/interrupts`, numbered lines), cumulative; `None` if not read.
    pub device_irqs: Option<u64>,
    /// Local timer interrupts (`LOC`), cumulative; `None` if not read.
    pub timer_irqs: Option<u64>,
    /// Frequency as last read, kHz (`cpufreq/scaling_cur_freq`); `None` for a CPU without cpufreq.
    pub frequency_khz: Option<u64>,
    /// What slowed it within the last reading; `None` before a second one, or where the kernel
    /// counts none of it.
    pub power: Option<CpuPower>,
}

bounded!(CpuTimes {
    user_ns, nice_ns, system_ns, idle_ns, iowait_ns, irq_ns, softirq_ns, steal_ns, guest_ns,
    guest_nice_ns, device_irqs, timer_irqs, frequency_khz, power,
} cpu);

/// What sleep states and limits of heat cost a CPU within [`Self::over_ns`], which is longer than
/// most intervals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuPower {
    /// The time of the last reading, nanoseconds.
    pub over_ns: u64,
    /// How often it woke from a sleep state (`cpuidle/stateN/usage`).
    pub wakes: Option<u64>,
    /// The time that leaving these states takes, as their driver says (`cpuidle/stateN/latency`),
    /// nanoseconds.
    pub leaving_ns: Option<u64>,
    /// How often heat throttled its core or its package (`thermal_throttle/*_throttle_count`,
    /// Intel).
    pub throttles: Option<u64>,
}

bounded!(CpuPower {
    over_ns,
    wakes,
    leaving_ns,
    throttles
});

impl CpuPower {
    /// Whether the kernel counts any of it.
    pub fn is_known(&self) -> bool {
        self.wakes.or(self.throttles).is_some()
    }

    /// The mean time that it took to leave the sleep states, microseconds; `None` if it did not
    /// sleep.
    pub fn wake_us(&self) -> Option<f64> {
        Some(self.leaving_ns? as f64 / self.wakes.filter(|wakes| *wakes > 0)? as f64 / 1e3)
    }
}

/// A task that belongs to no guest and competes with vCPUs. A sample has the busiest tasks of the
/// last scan, a limited number. Scans can be less frequent than samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostTask {
    /// Thread id.
    pub tid: i32,
    /// Process id.
    pub pid: i32,
    /// Name, made harmless.
    pub comm: String,
    /// Name of its process, made harmless. Empty: the same, or not known, as in older recordings.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub process: String,
    /// Whether it is a kernel thread.
    pub kernel: bool,
    /// CPU time used within the last scan, nanoseconds.
    pub used_ns: u64,
    /// The time that the scan covers, nanoseconds.
    pub over_ns: u64,
    /// The CPU it ran on last.
    pub last_cpu: u32,
    /// When its process was started, nanoseconds after boot. `None`: not known, as in older
    /// recordings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_ns: Option<u64>,
}

bounded!(HostTask { used_ns, over_ns, started_ns } tid, pid, comm, process, kernel, last_cpu);

/// At most this many groups of tasks are kept.
pub const MAX_TASK_GROUPS: usize = 16;

/// Processes and kernel threads outside guests that have the same name. kvmtop counts as any other,
/// unlike in [`HostTask`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostTaskGroup {
    /// Name of the process, made harmless; of a kernel thread the part before the first `/`
    /// (`kworker`).
    pub comm: String,
    /// CPU time of all their threads within the last scan, nanoseconds. What a process used between
    /// its last scan and its end is missing.
    pub used_ns: u64,
    /// The time that the scan covers, nanoseconds.
    pub over_ns: u64,
    /// How many of them used CPU time.
    pub count: u64,
}

bounded!(HostTaskGroup { used_ns, over_ns, count } comm);

/// The host's memory and swap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostMemory {
    /// Total memory, bytes.
    pub total: u64,
    /// Available memory, bytes: what is free, and what the kernel expects to get back.
    pub available: u64,
    /// Memory that nothing uses, bytes (`MemFree`). `None` here and below: an older recording.
    pub free: Option<u64>,
    /// Caches of files, block devices and the kernel that can be had back, bytes (`Buffers`,
    /// `Cached` without `Shmem`, `SReclaimable`).
    pub cache: Option<u64>,
    /// The cache of ZFS (ARC) above its minimum, bytes: it can be had back, though slowly, and is
    /// in none of the others. `None` without ZFS too.
    pub arc: Option<u64>,
    /// Explicit huge pages of all sizes, bytes.
    pub huge_total: Option<u64>,
    /// Those of them that are free, bytes.
    pub huge_free: Option<u64>,
    /// Swap in use, bytes.
    pub swap_used: u64,
    /// Whether KSM runs (`/sys/kernel/mm/ksm/run` is 1).
    pub ksm_running: bool,
    /// Memory that KSM saves, bytes (`pages_sharing`). `None` without KSM too.
    pub ksm_saved: Option<u64>,
}

bounded!(HostMemory {
    total, available, free, cache, arc, huge_total, huge_free, swap_used, ksm_saved,
} ksm_running);

impl HostMemory {
    /// Caches that can be had back, that of ZFS included, bytes.
    pub fn caches(&self) -> Option<u64> {
        Some(self.cache?.saturating_add(self.arc.unwrap_or(0)))
    }

    /// What no process and no part of the kernel needs, bytes: free memory, free huge pages and
    /// caches.
    pub fn unused(&self) -> u64 {
        if let Some(free) = self.free
            && let Some(caches) = self.caches()
        {
            free.saturating_add(caches)
                .saturating_add(self.huge_free.unwrap_or(0))
        } else {
            self.available
        }
    }
}

/// How long tasks of the host, or of a cgroup, waited for what they needed
/// (Documentation/accounting/psi.rst): the part of the time in which at least one of them waited,
/// or (`full`) in which all that had work to do waited. Hundredths of a percent, as the kernel's
/// mean of the last 10 s: it adds up its totals only every 2 s (kernel/sched/psi.c, `psi_show`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pressure {
    /// At least one waited for a CPU.
    pub cpu: u64,
    /// At least one waited for a disk.
    pub io: u64,
    /// All waited for a disk.
    pub io_full: u64,
    /// At least one waited for memory: for pages from swap or from a file, or to make others free.
    pub memory: u64,
    /// All waited for memory.
    pub memory_full: u64,
}

bounded!(Pressure {
    cpu,
    io,
    io_full,
    memory,
    memory_full
});

/// CPU affinity, as a set of CPU numbers.
pub type Affinity = CpuSet;
