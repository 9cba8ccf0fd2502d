//! The shape of the JSON, schema 1 of it: field names and their order are what scripts rely on, so they are only ever added to.
//! What is not known is `null`.

use crate::lint::{CannotTell, Confidence, Fix, Severity, Target};
use serde::Serialize;
use std::collections::BTreeMap;

/// The schema's number.
pub const SCHEMA: u32 = 1;

/// One interval, or one report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `kvmtop` and its version.
    pub tool: &'static str,
    /// End of the interval, RFC 3339, UTC.
    pub time: Option<String>,
    /// Length of the interval, seconds.
    pub interval_s: Option<f64>,
    /// `live`, `session`, `perf.data`, `text`.
    pub source: String,
    /// The engine's word.
    pub engine: &'static str,
    /// Events lost within the interval.
    pub lost_events: u64,
    /// What kvmtop costs.
    #[serde(rename = "self")]
    pub own: Own,
    /// Each source of data.
    pub sources: Vec<Source>,
    /// The host.
    pub host: Host,
    /// The guests.
    pub domains: Vec<Domain>,
    /// What is wrong, worst first.
    pub findings: Vec<Finding>,
    /// Rules that could not be judged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cannot_tell: Vec<CannotTell>,
}

/// What kvmtop costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Own {
    /// Percent of one CPU.
    pub cpu_percent: Option<f64>,
    /// Resident memory.
    pub rss_bytes: Option<u64>,
}

/// A source of data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Source {
    /// Its name.
    pub name: &'static str,
    /// `ok`, `degraded`, `missing`.
    pub state: &'static str,
    /// What failed, on what, why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// The host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Host {
    /// Its CPUs.
    pub cpus: Vec<Cpu>,
}

/// A CPU of the host: percent of its time, and where it sits.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Cpu {
    pub cpu: u32,
    pub usr: Option<f64>,
    pub sys: Option<f64>,
    pub guest: Option<f64>,
    pub irq: Option<f64>,
    pub softirq: Option<f64>,
    pub steal: Option<f64>,
    pub iowait: Option<f64>,
    pub idle: Option<f64>,
    pub node: Option<u32>,
    pub core: Option<u32>,
    pub siblings: Vec<u32>,
    pub isolated: Option<bool>,
}

/// A guest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Domain {
    /// Name.
    pub name: String,
    /// UUID.
    pub uuid: Option<String>,
    /// Process id of its VMM.
    pub pid: Option<i32>,
    /// Number of vCPUs.
    pub vcpus: Option<u32>,
    /// Machine type.
    pub machine: Option<String>,
    /// The guest's system: `windows`, `linux`, or the configured id's last word.
    pub guest_os: Option<String>,
    /// `qemu` or the VMM's name.
    pub vmm: String,
    /// `running`, `paused`, `ended`.
    pub state: &'static str,
    /// All threads together.
    pub cpu: CpuShare,
    /// Its threads.
    pub threads: Vec<Thread>,
    /// Exits by reason: the domain's row, then its vCPUs'.
    pub exits: Vec<Exit>,
    /// Accesses by address: the domain's row, then its vCPUs'.
    pub accesses: Vec<Access>,
    /// Exits to the VMM.
    pub userspace_exits: Vec<UserspaceExit>,
    /// Further kvm tracepoints.
    pub kvm_events: Vec<KvmEvent>,
    /// KVM's own statistics, per second.
    pub counters: BTreeMap<String, f64>,
    /// Block devices, per second.
    pub disks: Vec<Disk>,
    /// Network interfaces, per second.
    pub nics: Vec<Nic>,
}

/// CPU time, percent of one host CPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct CpuShare {
    pub usr: Option<f64>,
    pub sys: Option<f64>,
    pub guest: Option<f64>,
    pub wait: Option<f64>,
}

/// A thread of a guest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Thread {
    /// Thread id.
    pub tid: i32,
    /// Name.
    pub comm: String,
    /// Role.
    pub role: &'static str,
    /// vCPU number.
    pub vcpu: Option<u32>,
    /// Where its time went.
    #[serde(flatten)]
    pub time: CpuShare,
    /// The CPU it ran on last.
    pub cpu: Option<u32>,
    /// The CPUs it may run on.
    pub affinity: Option<String>,
    /// Moves between CPUs within the interval.
    pub migrations: Option<u64>,
    /// Those to another node.
    pub migrations_cross_node: Option<u64>,
    /// Context switches by itself within the interval.
    pub voluntary_switches: Option<u64>,
    /// Context switches by force.
    pub involuntary_switches: Option<u64>,
    /// From woken to running, median.
    pub wakeup_p50_us: Option<f64>,
    /// The same, 99th percentile.
    pub wakeup_p99_us: Option<f64>,
}

/// Exits of one reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Exit {
    pub reason: String,
    pub isa: Option<String>,
    pub code: Option<u32>,
    pub vcpu: Option<u32>,
    pub count: u64,
    pub rate: Option<f64>,
    pub count_percent: Option<f64>,
    pub time_percent: Option<f64>,
    pub work_percent: Option<f64>,
    pub min_us: Option<f64>,
    pub max_us: Option<f64>,
    pub mean_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub stderr_percent: Option<f64>,
    pub idle: bool,
}

/// Accesses to one address.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Access {
    pub space: &'static str,
    pub address: String,
    pub access: &'static str,
    pub device: Option<String>,
    pub device_source: Option<&'static str>,
    pub vcpu: Option<u32>,
    pub count: u64,
    pub rate: Option<f64>,
    pub time_percent: Option<f64>,
    pub mean_us: Option<f64>,
}

/// Exits to the VMM of one reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct UserspaceExit {
    pub reason: String,
    pub vcpu: Option<u32>,
    pub count: u64,
    pub rate: Option<f64>,
}

/// Another tracepoint of KVM's.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct KvmEvent {
    pub event: String,
    pub count: u64,
    pub rate: Option<f64>,
}

/// A block device, per second.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Disk {
    pub name: String,
    pub read_ops: f64,
    pub write_ops: f64,
    pub read_bytes: f64,
    pub write_bytes: f64,
    pub read_mean_us: Option<f64>,
    pub write_mean_us: Option<f64>,
}

/// A network interface, per second.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Nic {
    pub name: String,
    pub rx_bytes: f64,
    pub tx_bytes: f64,
    pub rx_packets: f64,
    pub tx_packets: f64,
    pub drops: f64,
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The rule.
    pub rule: &'static str,
    /// `info`, `warning`, `critical`.
    pub severity: Severity,
    /// `low`, `medium`, `high`.
    pub confidence: Confidence,
    /// The guest; `null` for the host.
    pub domain: Option<String>,
    /// Other guests that it is about as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// What of it.
    pub target: Target,
    /// One line.
    pub title: String,
    /// The figures.
    pub evidence: Vec<String>,
    /// What they mean.
    pub why: String,
    /// What to do.
    pub fix: Vec<Fix>,
    /// Documents.
    pub see: Vec<String>,
    /// Percent of one host CPU that it costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_percent: Option<f64>,
    /// Since when it holds, RFC 3339, UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Other rules told here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub folded: Vec<&'static str>,
}
