//! A guest's part of a sample: its facts, its threads, its devices' counters.

use super::events::ThreadEvents;
use super::figures::{bounded, counters};
use super::host::{Affinity, Pressure};
use super::host_disk::HostDisk;
use super::interrupts::GuestInterrupts;
use super::job::Job;
use super::stop::Stop;
use super::storage::StoredDisk;
use kvm::cmdline::QemuCommand;
use kvm::device_map::DeviceMap;
use kvm::domain_xml::DomainXml;
use kvm::labels::Labels;
use kvm::thread_name::Role;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use strum::IntoStaticStr;

/// The source of a fact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Origin {
    /// libvirt's answer.
    Libvirt,
    /// libvirt's live status file under /run.
    StatusXml,
    /// The VMM's command line.
    #[strum(serialize = "cmdline")]
    CommandLine,
    /// The QEMU monitor.
    #[strum(serialize = "mtree")]
    Monitor,
    /// /proc of the VMM: its name, its threads, its file descriptors.
    #[default]
    #[strum(serialize = "proc")]
    Process,
    /// A file the user gave.
    File,
    /// A table inside kvmtop.
    BuiltIn,
}

/// A fact and its origin.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Known<T> {
    /// The fact.
    pub value: T,
    /// Its source.
    pub from: Origin,
}

impl<T> Known<T> {
    /// A fact with its origin.
    pub fn new(value: T, from: Origin) -> Self {
        Self { value, from }
    }
}

/// The program that runs the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Vmm {
    /// QEMU.
    #[default]
    Qemu,
    /// Any other program with a KVM VM, by its command's name.
    Other(String),
}

impl Vmm {
    /// The word in JSON: `qemu`, or the command's name.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Qemu => "qemu",
            Self::Other(name) => name,
        }
    }
}

/// Whether the guest runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum DomainState {
    /// Its VMM runs and, as far as is known, so do its vCPUs.
    #[default]
    Running,
    /// libvirt or its monitor reports it as paused, its process is stopped, or its VMM keeps its
    /// vCPUs out of KVM.
    Paused,
    /// Its process is gone. This is its last sample.
    Ended,
}

/// The facts of a guest. Samples share them: they change when libvirt or the monitor answers, not
/// with each sample.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DomainFacts {
    /// The name, sanitized.
    pub name: Known<String>,
    /// The UUID.
    pub uuid: Option<Known<String>>,
    /// The VMM.
    pub vmm: Vmm,
    /// Process id of the VMM; `None` for a domain that a file describes.
    pub pid: Option<i32>,
    /// Start of the process, clock ticks after boot (`/proc/PID/stat`). Together with the process
    /// id it identifies a guest.
    pub start_ticks: u64,
    /// Start of the process, wall clock, milliseconds since the epoch.
    pub started_ms: Option<i64>,
    /// Machine type, such as `pc-q35-7.2`.
    pub machine: Option<Known<String>>,
    /// Number of vCPUs.
    pub vcpus: Option<Known<u32>>,
    /// libosinfo id (`http://microsoft.com/win/10`) or another name of the guest's system.
    pub guest_os: Option<Known<String>>,
    /// The domain's XML.
    pub xml: Option<Known<Arc<DomainXml>>>,
    /// The VMM's command line, parsed as QEMU's.
    pub command: Option<Arc<QemuCommand>>,
    /// The devices by port and address.
    pub devices: Option<Known<Arc<DeviceMap>>>,
    /// Whether libvirt keeps its definition when it ends; a transient domain has none (`virsh
    /// create`). `None`: libvirt did not say.
    pub persistent: Option<bool>,
    /// Its title, owner and tags.
    pub labels: Labels,
    /// Whether its process was seen without a VM of KVM: QEMU emulates the guest's CPU (TCG).
    pub emulated: bool,
    /// Whether its process is of a user other than root and kvmtop's own, and libvirt does not know
    /// it. Such a user may write any name and any configuration.
    pub foreign: bool,
}

bounded!(DomainFacts { start_ticks } name, uuid, vmm, pid, started_ms, machine, vcpus, guest_os,
    xml, command, devices, persistent, labels, emulated, foreign);

/// Identifies a guest in different samples: by its process or, without one, by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GuestId {
    /// A guest on this host.
    Process {
        /// Process id of the VMM.
        pid: i32,
        /// Start of the process, clock ticks after boot: process ids are reused.
        start_ticks: u64,
    },
    /// A guest that only a file describes.
    Name(String),
}

impl DomainFacts {
    /// What identifies the guest.
    pub fn id(&self) -> GuestId {
        match self.pid {
            Some(pid) => GuestId::Process {
                pid,
                start_ticks: self.start_ticks,
            },
            None => GuestId::Name(self.name.value.clone()),
        }
    }
}

/// One reading of a guest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DomainSample {
    /// Its facts. A recording stores them separately from the sample.
    #[serde(skip)]
    pub facts: Arc<DomainFacts>,
    /// Whether it runs.
    pub state: DomainState,
    /// Why it does not run; `None` while it runs.
    pub stop: Option<Stop>,
    /// Its threads and its kernel threads (vhost), in order of thread id.
    pub threads: Vec<ThreadSample>,
    /// Events of the guest that belong to none of `threads`, such as those of threads that no
    /// sample showed.
    pub unattributed: ThreadEvents,
    /// vCPUs whose events are missing, because the engine's tables had no place for their threads.
    pub uncounted_vcpus: u32,
    /// KVM's own statistics of the VM by KVM's names, cumulative.
    pub counters: BTreeMap<String, u64>,
    /// Number of events of further `kvm:*` tracepoints, cumulative, if requested.
    pub kvm_events: BTreeMap<String, u64>,
    /// Block devices: growth between the last two readings of the VMM's statistics, which covers
    /// `devices_ns`.
    pub disks: Vec<DiskSample>,
    /// Network interfaces: growth between two readings, which covers `nics_ns`.
    pub nics: Vec<NicSample>,
    /// The time that `disks` cover, nanoseconds. They are read less often than samples are taken,
    /// because each reading costs time of the guest's monitor.
    pub devices_ns: u64,
    /// Where its disks are kept, as last seen; read every half minute.
    pub storage: Vec<StoredDisk>,
    /// What its VMM reads and writes; `None`: libvirt or a monitor reports its disks, or it cannot
    /// be read.
    pub process_io: Option<ProcessIo>,
    /// CPU bandwidth control.
    pub throttling: Vec<Throttling>,
    /// How long tasks of its cgroup waited; `None`: no PSI, or a cgroup with other processes too.
    pub pressure: Option<Pressure>,
    /// Bytes of the guest's memory by NUMA node; empty if not read.
    pub node_memory: BTreeMap<u32, u64>,
    /// Memory of the VMM in swap, bytes (`VmSwap`).
    pub swap_bytes: Option<u64>,
    /// Its memory on the host.
    pub memory: MemoryUse,
    /// The time that `nics` cover, nanoseconds.
    pub nics_ns: u64,
    /// The host's block devices that worked for it; `None` where they are not timed.
    pub host_disks: Option<Vec<HostDisk>>,
    /// What interrupted its vCPUs; `None` where it is not traced.
    pub interrupts: Option<GuestInterrupts>,
    /// What the VMM does with it at the moment, from the same source as `disks`.
    pub jobs: Vec<Job>,
    /// Where its vCPUs faulted or could not continue, as a trace in a file shows. Recordings have
    /// none.
    #[serde(skip)]
    pub places: Vec<ExitPlace>,
}

bounded!(DomainSample {
    threads, unattributed, counters, kvm_events, disks, nics, devices_ns, throttling, pressure,
    node_memory, swap_bytes, memory, nics_ns, host_disks, interrupts, jobs, stop, process_io,
    storage,
} facts, state, uncounted_vcpus, places);

/// An instruction of the guest at which a vCPU left it for an address that was not there, or after
/// which it could not continue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExitPlace {
    /// The vCPU's thread.
    pub tid: i32,
    /// The exit reason.
    pub reason: String,
    /// The instruction's address (`rip`, `PC`).
    pub rip: u64,
    /// The guest's physical address that it used.
    pub address: Option<u64>,
    /// What the hardware says of the fault: an error code, Intel's exit qualification, arm64's ESR.
    pub error_code: Option<u64>,
    /// How often.
    pub count: u64,
    /// Exits of the thread altogether, without interrupts of the host.
    pub of: u64,
}

/// One reading of a thread of a guest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadSample {
    /// Thread id.
    pub tid: i32,
    /// Start, clock ticks after boot (`/proc/PID/task/TID/stat`). Together with the thread id it
    /// identifies a thread.
    pub start_ticks: u64,
    /// Name, sanitized.
    pub comm: String,
    /// Its role in the guest.
    pub role: Role,
    /// Number of the vCPU, or of the IOThread if known.
    pub index: Option<u32>,
    /// CPU time (`/proc/PID/task/TID/stat` and `schedstat`); `None` if it could not be read.
    pub cpu: Option<ThreadTimes>,
    /// Its CPU, affinity and scheduling policy.
    pub place: Placement,
    /// The events that the engine counted on it.
    pub events: ThreadEvents,
    /// KVM's own statistics of the vCPU by KVM's names, cumulative.
    pub counters: BTreeMap<String, u64>,
}

bounded!(ThreadSample { start_ticks, cpu, events, counters } tid, comm, role, index, place);

/// CPU time of a thread, and what else the kernel counts of it since its birth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadTimes {
    /// User time, including `guest_ns` (fs/proc/array.c, `do_task_stat`).
    pub user_ns: u64,
    /// Kernel time.
    pub system_ns: u64,
    /// Time in the guest.
    pub guest_ns: u64,
    /// Time on a CPU by the scheduler's clock (`schedstat`, first figure). The three above count in
    /// clock ticks.
    pub run_ns: Option<u64>,
    /// Time runnable but not running (`schedstat`, second figure): what the guest sees as steal.
    pub wait_ns: Option<u64>,
    /// Number of voluntary context switches (`sched`).
    pub voluntary: Option<u64>,
    /// Number of involuntary context switches.
    pub involuntary: Option<u64>,
}

counters!(ThreadTimes {
    user_ns,
    system_ns,
    guest_ns,
    run_ns,
    wait_ns,
    voluntary,
    involuntary
});

impl ThreadTimes {
    /// The times at a thread's birth. What is not known later stays unknown.
    pub const AT_BIRTH: Self = Self {
        user_ns: 0,
        system_ns: 0,
        guest_ns: 0,
        run_ns: Some(0),
        wait_ns: Some(0),
        voluntary: Some(0),
        involuntary: Some(0),
    };
}

/// Where a thread ran and may run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Placement {
    /// The CPU it ran on last.
    pub cpu: Option<u32>,
    /// The CPUs it may run on.
    pub affinity: Option<Arc<Affinity>>,
    /// Scheduling policy, a `SCHED_*` number.
    pub policy: Option<u32>,
}

/// Growth of a block device's statistics within [`DomainSample::devices_ns`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskSample {
    /// Target name, such as `vda`.
    pub name: String,
    /// Number of completed reads.
    pub read_ops: u64,
    /// Number of completed writes.
    pub write_ops: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Sum of the reads' durations, nanoseconds; `None` if not reported.
    pub read_ns: Option<u64>,
    /// Sum of the writes' durations, nanoseconds; `None` if not reported.
    pub write_ns: Option<u64>,
    /// Number of completed flushes of the disk's write cache; `None` if not reported.
    pub flush_ops: Option<u64>,
    /// Sum of the flushes' durations, nanoseconds; `None` if not reported.
    pub flush_ns: Option<u64>,
    /// Number of reads, writes and flushes that failed in the VMM or below it, which are not among
    /// the completed ones; `None` if not reported. Only a QEMU monitor reports it
    /// (`failed_rd_operations` and the like, qapi/block-core.json): libvirt does not pass it on.
    pub failed_ops: Option<u64>,
    /// Reads, writes and flushes by a time that they took at most, nanoseconds, `u64::MAX` where
    /// nothing bounds it; empty where the VMM is not told to count them
    /// (`block-latency-histogram-set`, libvirt's `<latency-histogram>`).
    pub latencies: BTreeMap<u64, u64>,
    /// The longest read, write or flush of the last interval that the VMM measures, nanoseconds;
    /// `None` where it is not told to (`stats-intervals`, libvirt's `<statistic interval=…/>`).
    pub longest_ns: Option<u64>,
}

counters!(DiskSample {
    read_ops, write_ops, read_bytes, write_bytes, read_ns, write_ns, flush_ops, flush_ns,
    failed_ops, latencies,
} name, longest_ns);

/// Growth of a network interface's statistics within [`DomainSample::nics_ns`], as the guest sees
/// it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NicSample {
    /// Host-side name, such as `vnet0`.
    pub name: String,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets dropped, both ways.
    pub drops: u64,
    /// Those of them that the guest should have received; `None` in an older recording.
    pub rx_drops: Option<u64>,
    /// How many queues the VMM has opened; `None`: it is not seen to be a tap device.
    pub queues: Option<u32>,
    /// The bridge or Open vSwitch that it is plugged into; `None`: none, or not seen.
    pub bridge: Option<String>,
}

counters!(NicSample {
    rx_bytes, tx_bytes, rx_packets, tx_packets, drops, rx_drops,
} name, queues, bridge);

/// Bytes that a process had storage read and write, cumulative (`/proc/PID/io`). What the page
/// cache answers is not among them; what it writes back later is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessIo {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

counters!(ProcessIo {
    read_bytes,
    write_bytes
});

/// The memory that a guest occupies on the host, as last read, bytes. Swap and nodes are fields of
/// [`DomainSample`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryUse {
    /// Resident memory of the VMM (`VmRSS`), explicit huge pages not included.
    pub resident: Option<u64>,
    /// Explicit huge pages of the VMM (`HugetlbPages`).
    pub hugetlb: Option<u64>,
    /// What the balloon leaves to the guest (`balloon.current` of libvirt, `query-balloon` of the
    /// monitor).
    pub balloon: Option<u64>,
    /// Transparent huge pages of the VMM (`AnonHugePages` of `smaps_rollup`), part of `resident`.
    pub transparent: Option<u64>,
    /// Memory that came back from swap so far: refaults of its cgroup's anonymous pages
    /// (`workingset_refault_anon` of `memory.stat`, Linux 5.9).
    pub swapped_in: Option<u64>,
    /// The most memory that its cgroup may have (`memory.max`).
    pub limit: Option<u64>,
    /// What its cgroup has and cannot drop: anonymous and shared memory and the kernel's own
    /// (`memory.stat`).
    pub charged: Option<u64>,
    /// What the guest says itself.
    pub in_guest: Option<MemoryInGuest>,
}

bounded!(MemoryUse {
    resident,
    hugetlb,
    balloon,
    transparent,
    swapped_in,
    limit,
    charged,
    in_guest
});

/// A guest's memory as its balloon driver last described it, bytes (`virDomainMemoryStats`;
/// `guest-stats` of QEMU's balloon device).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryInGuest {
    /// Memory that its kernel has.
    pub total: u64,
    /// What its programs can still have without swapping; caches count as that.
    pub usable: Option<u64>,
    /// Its caches of files.
    pub caches: Option<u64>,
    /// Major page faults so far.
    pub major_faults: Option<u64>,
    /// Bytes moved from and to its own swap so far.
    pub swapped: Option<u64>,
    /// When the driver said so, seconds since the epoch.
    pub updated_s: u64,
    /// Growth between the last two different answers.
    pub grown: Option<MemoryGrowth>,
}

/// What a guest's memory did between two answers of its balloon driver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryGrowth {
    /// Time between the answers, seconds.
    pub seconds: u64,
    /// Major page faults.
    pub major_faults: u64,
    /// Bytes moved from and to its own swap.
    pub swapped: u64,
}

bounded!(MemoryInGuest {
    total,
    usable,
    caches,
    major_faults,
    swapped,
    updated_s,
    grown
});
bounded!(MemoryGrowth {
    seconds,
    major_faults,
    swapped
});

impl MemoryGrowth {
    /// Of a count, the rate per second.
    fn rate(&self, count: u64) -> f64 {
        count as f64 / self.seconds.max(1) as f64
    }

    /// Major page faults per second.
    pub fn fault_rate(&self) -> f64 {
        self.rate(self.major_faults)
    }

    /// Bytes per second from and to the guest's own swap.
    pub fn swap_rate(&self) -> f64 {
        self.rate(self.swapped)
    }
}

impl MemoryInGuest {
    /// Memory that its programs cannot have any more, percent of what its kernel has.
    pub fn used_percent(&self) -> Option<f64> {
        let used = self.total.checked_sub(self.usable?)?;
        Some(100.0 * used as f64 / self.total.max(1) as f64)
    }

    /// Takes over the growth since an earlier answer, or what that one knew if it is the same.
    pub fn follow(&mut self, before: Option<&Self>) {
        let Some(before) = before else { return };
        if self.updated_s <= before.updated_s {
            self.grown = before.grown;
            return;
        }
        let faults = self.major_faults.zip(before.major_faults);
        let swapped = self.swapped.zip(before.swapped);
        if let (Some((faults, faults_before)), Some((swapped, swapped_before))) = (faults, swapped)
        {
            self.grown = Some(MemoryGrowth {
                seconds: self.updated_s - before.updated_s,
                major_faults: faults.saturating_sub(faults_before),
                swapped: swapped.saturating_sub(swapped_before),
            });
        }
    }
}

impl MemoryUse {
    /// What its cgroup has and cannot drop, percent of its limit.
    pub fn limit_percent(&self) -> Option<f64> {
        Some(100.0 * self.charged? as f64 / self.limit?.max(1) as f64)
    }

    /// All that it occupies, with its explicit huge pages.
    pub fn on_host(&self) -> Option<u64> {
        Some(self.resident?.saturating_add(self.hugetlb.unwrap_or(0)))
    }
}

/// `cpu.stat` of a cgroup that limits a guest or a part of it, cumulative.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Throttling {
    /// The limited part: `vcpu0`, `emulator`, `domain`.
    pub group: String,
    /// Number of periods with runnable threads (`nr_periods`).
    pub periods: u64,
    /// Number of periods in which the quota ran out (`nr_throttled`).
    pub throttled: u64,
    /// Time throttled, nanoseconds.
    pub throttled_ns: u64,
    /// CPU time that it may use, thousandths of a CPU; `None`: not read.
    pub limit_millis: Option<u64>,
}

counters!(Throttling { periods, throttled, throttled_ns } group, limit_millis);
