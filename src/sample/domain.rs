//! A guest's part of a sample: what it is, its threads, its devices' counters.

use super::events::ThreadEvents;
use super::host::Affinity;
use crate::kvm::cmdline::QemuCommand;
use crate::kvm::device_map::DeviceMap;
use crate::kvm::domain_xml::DomainXml;
use crate::kvm::thread_name::Role;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a fact comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// Asked of libvirt.
    Libvirt,
    /// libvirt's live status file under /run.
    StatusXml,
    /// The VMM's command line.
    CommandLine,
    /// The QEMU monitor.
    Monitor,
    /// /proc of the VMM: its name, its threads, its file descriptors.
    #[default]
    Process,
    /// A file the user gave.
    File,
    /// A table inside kvmtop.
    BuiltIn,
}

impl Origin {
    /// The word on screen and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Libvirt => "libvirt",
            Self::StatusXml => "status-xml",
            Self::CommandLine => "cmdline",
            Self::Monitor => "mtree",
            Self::Process => "proc",
            Self::File => "file",
            Self::BuiltIn => "built-in",
        }
    }
}

/// A fact and its origin.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Known<T> {
    /// The fact.
    pub value: T,
    /// Where it comes from.
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
    /// Anything else that holds a KVM VM, by its command's name.
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DomainState {
    /// Its VMM lives and, as far as is known, its vCPUs may run.
    #[default]
    Running,
    /// libvirt says it is paused.
    Paused,
    /// Its process is gone; the sample that says so is the last with this guest.
    Ended,
}

impl DomainState {
    /// The word on screen and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Ended => "ended",
        }
    }
}

/// What a guest is. Shared between samples: it changes when libvirt or the monitor answers, not each tick.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DomainFacts {
    /// The name, made harmless for a terminal.
    pub name: Known<String>,
    /// The UUID.
    pub uuid: Option<Known<String>>,
    /// The VMM.
    pub vmm: Vmm,
    /// Process id of the VMM; `None` for a domain that a file describes.
    pub pid: Option<i32>,
    /// Start of the process, clock ticks after boot: with the PID, what tells one guest from the next.
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
    /// The XML's text, as it is shown and recorded.
    pub xml_text: Option<Arc<str>>,
    /// The VMM's command line, read as QEMU's.
    pub command: Option<Arc<QemuCommand>>,
    /// Who owns which port and address.
    pub devices: Option<Known<Arc<DeviceMap>>>,
}

/// One guest at one instant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DomainSample {
    /// What it is. A recording holds it apart from the sample.
    #[serde(skip)]
    pub facts: Arc<DomainFacts>,
    /// Whether it runs.
    pub state: DomainState,
    /// Its threads, kernel helpers included, in order of TID.
    pub threads: Vec<ThreadSample>,
    /// Events that could be charged to the guest but to no living thread of it.
    pub unattributed: ThreadEvents,
    /// KVM's own statistics of the VM, by KVM's names, cumulative.
    pub counters: BTreeMap<String, u64>,
    /// Further `kvm:*` tracepoints, cumulative, when they were asked for.
    pub kvm_events: BTreeMap<String, u64>,
    /// Block devices: what they did within the last reading of the VMM's statistics, which covers `devices_ns`.
    pub disks: Vec<DiskSample>,
    /// Network interfaces, within the same time.
    pub nics: Vec<NicSample>,
    /// The time that `disks` and `nics` cover, nanoseconds. They are read more rarely than samples are taken: each reading
    /// costs the guest's monitor.
    pub devices_ns: u64,
    /// CPU bandwidth control.
    pub throttling: Vec<Throttling>,
    /// Bytes of the guest's memory per NUMA node, where read.
    pub node_memory: BTreeMap<u32, u64>,
    /// Memory of the VMM in swap, bytes (`VmSwap`).
    pub swap_bytes: Option<u64>,
}

/// One thread of a guest at one instant. Times are cumulative nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadSample {
    /// Thread id.
    pub tid: i32,
    /// Start, clock ticks after boot: with the TID, what tells one thread from the next.
    pub start_ticks: u64,
    /// Name, made harmless.
    pub comm: String,
    /// What it does.
    pub role: Role,
    /// vCPU number for a vCPU; the number of an IOThread where known.
    pub index: Option<u32>,
    /// CPU time as `/proc/PID/task/TID/stat` has it; `None` where the file could not be read.
    pub cpu: Option<ThreadTimes>,
    /// The same at the sample before, only in the first sample of a thread whose process was there by then but held no VM yet.
    pub cpu_before: Option<ThreadTimes>,
    /// Where it runs.
    pub place: Placement,
    /// What the engine counted on it.
    pub events: ThreadEvents,
    /// KVM's own statistics of the vCPU, by KVM's names, cumulative.
    pub counters: BTreeMap<String, u64>,
}

/// CPU time of a thread, cumulative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadTimes {
    /// User time; contains the guest's (fs/proc/array.c, `do_task_stat`).
    pub user_ns: u64,
    /// Kernel time.
    pub system_ns: u64,
    /// Time in the guest.
    pub guest_ns: u64,
    /// Time on a CPU (`schedstat`, first figure); the three above come in ticks.
    pub run_ns: Option<u64>,
    /// Time runnable but not running (`schedstat`, second figure): what the guest sees as steal.
    pub wait_ns: Option<u64>,
    /// Voluntary and involuntary context switches.
    pub voluntary: Option<u64>,
    /// See `voluntary`.
    pub involuntary: Option<u64>,
}

/// Where a thread may run, and where it did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The CPU it ran on last.
    pub cpu: Option<u32>,
    /// The CPUs it may run on.
    pub affinity: Option<Arc<Affinity>>,
    /// Scheduling policy (`SCHED_*` number) and real-time priority.
    pub policy: Option<u32>,
    /// See `policy`.
    pub rt_priority: Option<u32>,
}

/// What a block device of a guest did within `DomainSample::devices_ns`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSample {
    /// Target name, as `vda`.
    pub name: String,
    /// Reads completed.
    pub read_ops: u64,
    /// Writes completed.
    pub write_ops: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Time in reads, nanoseconds.
    pub read_ns: Option<u64>,
    /// Time in writes, nanoseconds.
    pub write_ns: Option<u64>,
}

/// What a network interface of a guest did within `DomainSample::devices_ns`, seen from the host's side.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicSample {
    /// Host-side name, as `vnet0`.
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
}

/// `cpu.stat` of a cgroup that limits a part of the guest, cumulative.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttling {
    /// What it limits: `vcpu0`, `emulator`, `domain`.
    pub group: String,
    /// Periods elapsed while runnable.
    pub periods: u64,
    /// Periods in which the quota ran out.
    pub throttled: u64,
    /// Time throttled, nanoseconds.
    pub throttled_ns: u64,
}
