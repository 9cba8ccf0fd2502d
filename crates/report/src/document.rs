//! The shape of the JSON that `--batch --json`, `report --json` and `check --json` write: schema 1. Scripts rely on
//! the fields' names and order, so fields are only ever added.
//!
//! Rules of the whole schema:
//! - A value that was not measured or is not known is `null`, never 0. A field that is left out instead says so.
//! - Figures are not rounded: a duration is the kernel's nanoseconds divided by 1000, a rate the count divided by
//!   `interval_s`.
//! - Counts and times are those of the interval that ends at `time`, not totals.
//! - Percentages of CPU time are of one host CPU, so a guest with four busy vCPUs has 400.
//! - Text from guests and files is passed on as it is, escaped as JSON demands.

use judge::lint::{CannotTell, Confidence, Fix, Severity, StillWatched, Target};
use serde::Serialize;
use std::collections::BTreeMap;

/// The schema's number: the value of every object's `schema`.
pub const SCHEMA: u32 = 1;

/// One interval, or a whole report: one line of `--batch --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonDocument {
    /// Number of this schema: 1.
    pub schema: u32,
    /// Program and version, such as `kvmtop 0.1.0`.
    pub tool: &'static str,
    /// End of the interval: RFC 3339, UTC, milliseconds. `null` where the input has no clock time.
    pub time: Option<String>,
    /// Length of the interval in seconds. `null` in the first interval of a live run, and for a file that does not say
    /// how long it covers and was read without `--duration`; every rate is `null` then.
    pub interval_s: Option<f64>,
    /// Kind of input: `live`, `session`, `perf.data` or `text`.
    pub source: String,
    /// What counted the exits: `bpf`, `perf`, `none` (no tracing) or `file` (a file that another tool wrote).
    pub engine: &'static str,
    /// Trace events that the kernel dropped within the interval. Above 0 the counts are too low by up to as many.
    pub lost_events: u64,
    /// What kvmtop itself costs.
    #[serde(rename = "self")]
    pub own: JsonCost,
    /// State of each source of data, and one `domain` entry for each `--domain` pattern that matches no guest.
    pub sources: Vec<JsonSource>,
    /// The host.
    pub host: JsonHost,
    /// The guests that `--domain` selects, all of them without it.
    pub domains: Vec<JsonDomain>,
    /// What is wrong with the host and the selected guests, worst first.
    pub findings: Vec<JsonFinding>,
    /// Rules that could not be judged, with the reason. Left out when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cannot_tell: Vec<CannotTell>,
    /// Guests and rules of which not enough has been seen yet: that they have no finding says nothing. Left out when
    /// there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub watching: Vec<StillWatched>,
    /// Lines of the host's log, of a QEMU's log or of a trace that are about KVM or a VMM and that no rule judges. Left
    /// out when there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unjudged_lines: Option<JsonUnjudgedLines>,
}

/// Lines that no rule judges.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonUnjudgedLines {
    /// Their number.
    pub count: u64,
    /// The first of them.
    pub first: String,
}

/// What kvmtop itself costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonCost {
    /// CPU time of the kvmtop process, percent of one host CPU. `null` in the first interval and for files.
    pub cpu_percent: Option<f64>,
    /// Resident memory of the kvmtop process in bytes. `null` for files.
    pub rss_bytes: Option<u64>,
}

/// State of a source of data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonSource {
    /// Name of the source, such as `procfs`, `tracepoints`, `kvm-stats`, `libvirt`, `monitor`.
    pub name: &'static str,
    /// `ok`, `degraded` (works in part) or `missing`.
    pub state: &'static str,
    /// What failed, on what, and why. Left out for a source that works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What to run or change to enable it. Left out where nothing helps or nothing is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// The host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonHost {
    /// Its online CPUs. Empty for an input that does not describe them.
    pub cpus: Vec<JsonCpu>,
}

/// A CPU of the host: where its time went, percent of the interval, and where it sits. The percentages are `null` in
/// the first interval and where the input holds no CPU times.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonCpu {
    /// Number of the CPU.
    pub cpu: u32,
    /// Time in user mode without guest code, percent.
    pub usr: Option<f64>,
    /// Time in the kernel without interrupts, percent.
    pub sys: Option<f64>,
    /// Time in guest code, percent.
    pub guest: Option<f64>,
    /// Time in hardware interrupts, percent.
    pub irq: Option<f64>,
    /// Time in soft interrupts, percent.
    pub softirq: Option<f64>,
    /// Time that a hypervisor below this host gave to others, percent.
    pub steal: Option<f64>,
    /// Time idle while a task of this CPU waited for I/O, percent.
    pub iowait: Option<f64>,
    /// Time idle otherwise, percent.
    pub idle: Option<f64>,
    /// Time busy between two timer ticks, percent: its kind is unknown.
    pub unsampled: Option<f64>,
    /// NUMA node. `null` where the topology is not known.
    pub node: Option<u32>,
    /// Core id, unique within a socket. `null` where the topology is not known.
    pub core: Option<u32>,
    /// The hardware threads of the same core, this CPU included. Empty where the topology is not known.
    pub siblings: Vec<u32>,
    /// Whether the CPU is isolated from the scheduler (`isolcpus=`). `null` where that is not known.
    pub isolated: Option<bool>,
    /// Frequency as last read, kHz. `null` without cpufreq, and on kernels before 5.19, where reading it disturbs the
    /// CPU.
    pub frequency_khz: Option<u64>,
}

/// A guest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonDomain {
    /// Name: libvirt's, else that of the command line (`-name`), else one made from the process id.
    pub name: String,
    /// UUID. `null` where no source gives it.
    pub uuid: Option<String>,
    /// Process id of the VMM. `null` for files that do not hold it.
    pub pid: Option<i32>,
    /// Number of vCPUs. `null` where it is not known.
    pub vcpus: Option<u32>,
    /// Machine type, such as `pc-q35-8.2`. `null` where it is not known.
    pub machine: Option<String>,
    /// Whether libvirt keeps the guest's definition when it ends. `null` where libvirt does not say.
    pub persistent: Option<bool>,
    /// Operating system of the guest as configured: `windows`, `linux`, `bsd`, `macos`, else the configured id; where
    /// none is configured, the one that several hints agree on. `null` where it is not known.
    pub guest_os: Option<String>,
    /// How sure `guest_os` is: `high` (configured), `medium` or `low`; `low` leaves `guest_os` out. `null` without a
    /// hint.
    pub guest_os_confidence: Option<&'static str>,
    /// What `guest_os_confidence` rests on, a few words each.
    pub guest_os_reasons: Vec<String>,
    /// Name of the VMM: `qemu`, else that of its program.
    pub vmm: String,
    /// `running`, `paused` or `ended`. A guest that ended within the interval is listed once more, with all it did.
    pub state: &'static str,
    /// CPU time of all threads of the guest together.
    pub cpu: JsonCpuTime,
    /// Threads of the VMM, and the vhost and KVM worker threads that serve the guest.
    pub threads: Vec<JsonThread>,
    /// Exits by reason: a row for the guest, then one for each vCPU that had such exits.
    pub exits: Vec<JsonExit>,
    /// Accesses to I/O ports, device memory and MSRs by address: a row for the guest, then one for each vCPU.
    pub accesses: Vec<JsonAccess>,
    /// Exits that the VMM served, by reason: a row for the guest and one for each vCPU. All there is where the kernel
    /// fires no `kvm_exit`.
    pub userspace_exits: Vec<JsonUserspaceExit>,
    /// Other kvm tracepoints, by name. Empty unless they are counted (`--kvm-events`, the key `K`).
    pub kvm_events: Vec<JsonKvmEvent>,
    /// KVM's own statistics by KVM's names, per second (a `_ns` counter: nanoseconds per second). Empty where they
    /// cannot be read, and in the first interval.
    pub counters: BTreeMap<String, f64>,
    /// Block devices, from libvirt, or from the monitor of a guest that libvirt does not know. Empty without either,
    /// and until two readings were made (every 5 s).
    pub disks: Vec<JsonDisk>,
    /// What the host's block devices did for the guest. Left out unless they are timed (`--engine-detail disks`, the
    /// Disks view).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_disks: Option<Vec<JsonHostDisk>>,
    /// What interrupted the vCPUs, the most frequent first. Left out unless it is traced (`--engine-detail interrupts`,
    /// the Latency view).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<Vec<JsonInterrupt>>,
    /// Writes of the guest that KVM passed on as an eventfd and that woke a thread, the most frequent first. Left out
    /// as `interrupts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doorbells: Option<Vec<JsonDoorbell>>,
    /// Network interfaces, from libvirt. Empty without it, and in the first interval.
    pub nics: Vec<JsonNic>,
    /// Its memory on the host.
    pub memory: JsonMemory,
    /// What its threads did, as `kvmtop profile --json` prints it. Left out unless it was asked for in the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<JsonProfile>,
}

/// A guest's memory on the host, bytes, as last read. Values are `null` for files without them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct JsonMemory {
    /// Resident memory of the VMM, explicit huge pages not included.
    pub resident_bytes: Option<u64>,
    /// Explicit huge pages of the VMM.
    pub hugetlb_bytes: Option<u64>,
    /// Memory of the VMM in swap.
    pub swap_bytes: Option<u64>,
    /// What the balloon leaves to the guest. `null` as well without a balloon, and without libvirt and monitor.
    pub balloon_bytes: Option<u64>,
    /// Transparent huge pages of the VMM, part of `resident_bytes`. `null`: not read yet.
    pub transparent_huge_bytes: Option<u64>,
    /// Memory by NUMA node. Empty on a host with one node, and until it was read (every 30 s).
    pub nodes: Vec<JsonNodeMemory>,
    /// The part on the nodes where the vCPUs ran last, percent of `nodes`. `null` without nodes.
    pub local_percent: Option<f64>,
}

/// Memory of a guest on one NUMA node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonNodeMemory {
    /// Number of the node.
    pub node: u32,
    /// Bytes on it.
    pub bytes: u64,
}

/// Where CPU time went, percent of one host CPU. All are `null` where it was not measured: in the first interval and
/// for files without CPU times.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct JsonCpuTime {
    /// Time of the VMM in user mode, guest code excluded.
    pub usr: Option<f64>,
    /// Time in the host's kernel on the guest's behalf: KVM, system calls, vhost.
    pub sys: Option<f64>,
    /// Time in guest code.
    pub guest: Option<f64>,
    /// Time runnable but not running: what the guest sees as steal. `null` as well where the kernel keeps no
    /// `schedstat`.
    pub wait: Option<f64>,
}

/// A thread of a guest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonThread {
    /// Thread id.
    pub tid: i32,
    /// Name of the thread, as the kernel has it (`comm`).
    pub comm: String,
    /// `vcpu`, `emulator`, `iothread`, `vhost`, `worker` or `other`.
    pub role: &'static str,
    /// Number of the vCPU. `null` for other threads, and for a vCPU whose number is not known.
    pub vcpu: Option<u32>,
    /// Where its time went: `usr`, `sys`, `guest` and `wait` stand in the thread itself.
    #[serde(flatten)]
    pub time: JsonCpuTime,
    /// The host CPU it ran on last. `null` where the input does not hold it.
    pub cpu: Option<u32>,
    /// The host CPUs it may run on, as a list such as `0-3,8`. `null` where the input does not hold it.
    pub affinity: Option<String>,
    /// Moves from one host CPU to another. `null` where they were not counted.
    pub migrations: Option<u64>,
    /// Those moves that went to another NUMA node. `null` where moves were not counted.
    pub migrations_cross_node: Option<u64>,
    /// Context switches because the thread waited for something. `null` where they were not counted.
    pub voluntary_switches: Option<u64>,
    /// Context switches because another task took the CPU. `null` where they were not counted.
    pub involuntary_switches: Option<u64>,
    /// Time from woken to running, median, microseconds; estimated from a histogram by powers of two. `null` without a
    /// wake-up in the interval, and where wake-ups are not traced.
    pub wakeup_p50_us: Option<f64>,
    /// The same, 99th percentile, microseconds.
    pub wakeup_p99_us: Option<f64>,
    /// Median of the time from woken or pre-empted to running.
    pub run_delay_p50_us: Option<f64>,
    /// 99th percentile of it.
    pub run_delay_p99_us: Option<f64>,
}

/// Exits of one reason, of the guest or of one vCPU. Times run from `kvm_exit` to the next `kvm_entry` of the same
/// vCPU; they are `null` where the source counts without measuring times.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonExit {
    /// Name of the reason as the kernel has it, such as `EPT_MISCONFIG`; the number where nobody names it.
    pub reason: String,
    /// Architecture that numbers the reasons: `vmx` (Intel), `svm` (AMD), `arm64`, else `isa` with the number that the
    /// kernel gives it. `null` where the source has names only.
    pub isa: Option<String>,
    /// Number of the reason without flag bits. `null` where the source has names only.
    pub code: Option<u32>,
    /// Number of the vCPU. `null` in the guest's row, which is the sum of all.
    pub vcpu: Option<u32>,
    /// Number of these exits.
    pub count: u64,
    /// Exits per second. `null` where the length of the interval is not known.
    pub rate: Option<f64>,
    /// Percent of all exits of the guest, also in a vCPU's row.
    pub count_percent: Option<f64>,
    /// Percent of the time in all exits of the guest, idle ones included, also in a vCPU's row.
    pub time_percent: Option<f64>,
    /// Percent of the time in all exits of the guest but idle ones. `null` for an idle reason.
    pub work_percent: Option<f64>,
    /// Shortest exit of the interval, microseconds.
    pub min_us: Option<f64>,
    /// Longest exit of the interval, microseconds.
    pub max_us: Option<f64>,
    /// Mean time of an exit, microseconds.
    pub mean_us: Option<f64>,
    /// 99th percentile, microseconds; estimated from a histogram by powers of two.
    pub p99_us: Option<f64>,
    /// Standard error of the mean, percent of the mean. `null` with fewer than two exits.
    pub stderr_percent: Option<f64>,
    /// Whether the guest sleeps in these exits (HLT, `WFx`).
    pub idle: bool,
}

/// Accesses to one address in one direction, of the guest or of one vCPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonAccess {
    /// `pio` (I/O port), `mmio` (device memory) or `msr`.
    pub space: &'static str,
    /// Port, guest-physical address or MSR number in hexadecimal, such as `0x608`; `other` for the accesses that did
    /// not fit the engine's table of addresses.
    pub address: String,
    /// `read` or `write`.
    pub access: &'static str,
    /// Name of the device that owns the address, or of the MSR. `null` where nobody names it.
    pub device: Option<String>,
    /// Where the name comes from: `mtree` (the guest's own memory tree), `built-in` (a table of its machine type) or
    /// `file`. `null` without a name.
    pub device_source: Option<&'static str>,
    /// Number of the vCPU. `null` in the guest's row, which is the sum of all.
    pub vcpu: Option<u32>,
    /// Number of these accesses.
    pub count: u64,
    /// Accesses per second. `null` where the length of the interval is not known.
    pub rate: Option<f64>,
    /// Time in the exits that held these accesses, percent of the time in all exits of the guest; from a table of
    /// `perf kvm stat`, percent of that table. `null` where no times were measured.
    pub time_percent: Option<f64>,
    /// Mean time of those exits, microseconds. `null` where no times were measured.
    pub mean_us: Option<f64>,
}

/// Exits of one reason that the VMM served, of the guest or of one vCPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonUserspaceExit {
    /// Name of the reason, such as `KVM_EXIT_IO`; of an errno where `KVM_RUN` failed.
    pub reason: String,
    /// Number of the vCPU. `null` in the guest's row.
    pub vcpu: Option<u32>,
    /// Number of these exits.
    pub count: u64,
    /// Exits per second. `null` where the length of the interval is not known.
    pub rate: Option<f64>,
}

/// Another tracepoint of KVM.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonKvmEvent {
    /// Name of the tracepoint, such as `kvm_set_irq`.
    pub event: String,
    /// How often it fired.
    pub count: u64,
    /// The same per second. `null` where the length of the interval is not known.
    pub rate: Option<f64>,
}

/// A block device of a guest, as libvirt counts it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonDisk {
    /// Target name in the guest's XML, such as `vda`.
    pub name: String,
    /// Read requests per second.
    pub read_ops: f64,
    /// Write requests per second.
    pub write_ops: f64,
    /// Bytes read per second.
    pub read_bytes: f64,
    /// Bytes written per second.
    pub write_bytes: f64,
    /// Mean time of a read, microseconds. `null` without a read in the interval.
    pub read_mean_us: Option<f64>,
    /// Mean time of a write, microseconds. `null` without a write in the interval.
    pub write_mean_us: Option<f64>,
    /// Flushes of the write cache per second. `null`: not reported.
    pub flush_ops: Option<f64>,
    /// Mean time of a flush, microseconds. `null` without a flush in the interval.
    pub flush_mean_us: Option<f64>,
    /// Failed operations per second. `null`: not reported.
    pub failed_ops: Option<f64>,
    /// Operations under way on average, by Little's law. `null`: no times are reported.
    pub queue_depth: Option<f64>,
}

/// A block device of the host, and its requests for one guest. Times run from the submission by a thread of the guest
/// to the completion; those called `device` begin later, when the device's driver got the request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonHostDisk {
    /// Name of the device in the host's kernel, such as `nvme0n1p3` or `dm-0`.
    pub device: String,
    /// Major and minor number, such as `259:3`.
    pub number: String,
    /// Name of a device-mapper device, or the file behind a loop device. `null` for others.
    pub alias: Option<String>,
    /// Names of the devices below it.
    pub below: Vec<String>,
    /// Reads per second. `null` where the length of the interval is not known; so in the others.
    pub read_ops: Option<f64>,
    /// Writes per second.
    pub write_ops: Option<f64>,
    /// Flushes of the device's write cache per second.
    pub flush_ops: Option<f64>,
    /// Other operations, such as discards, per second.
    pub other_ops: Option<f64>,
    /// Bytes read in the interval.
    pub read_bytes: u64,
    /// Bytes written in the interval.
    pub write_bytes: u64,
    /// Mean time of a read, microseconds. `null` without one in the interval; so in the others.
    pub read_mean_us: Option<f64>,
    /// 99th percentile of it, microseconds; estimated from a histogram by powers of two.
    pub read_p99_us: Option<f64>,
    /// Mean time of a read in the device. `null` as well for a device without a driver of its own (device-mapper,
    /// md).
    pub read_device_mean_us: Option<f64>,
    /// Mean time of a write, microseconds.
    pub write_mean_us: Option<f64>,
    /// 99th percentile of it, microseconds.
    pub write_p99_us: Option<f64>,
    /// Mean time of a write in the device, as for reads.
    pub write_device_mean_us: Option<f64>,
    /// Mean time of a flush, microseconds.
    pub flush_mean_us: Option<f64>,
    /// Number of requests by the thread that submitted them: `main`, `iothread`, `pool` (QEMU's thread pool),
    /// `io_uring` (a worker of it), `vhost`, `vcpu`, `other`.
    pub submitted: BTreeMap<&'static str, u64>,
}

/// Interrupts of one kind to one vCPU, by one injector.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonInterrupt {
    /// What it is: `gsi` (a line of the interrupt controller), `msi` (a message), `ipi` (from another vCPU), `local`
    /// (announced by nothing: the local APIC's timer, mostly).
    pub source: &'static str,
    /// Number of the line (`gsi`), else the vector.
    pub number: u32,
    /// The device that a PC has on this line. `null`: another line, or no line.
    pub line: Option<&'static str>,
    /// KVM's number of the vCPU.
    pub vcpu: u32,
    /// Who injected it: `main`, `iothread`, `vhost`, `vcpu`, `kworker` (irqfd's slow path), `interrupt` (of the host:
    /// an assigned device without posted interrupts), `other`.
    pub by: &'static str,
    /// Name of the injecting thread. `null`: a vCPU, or no thread of the guest.
    pub thread: Option<String>,
    /// Its thread id. `null`: as for `thread`.
    pub tid: Option<i32>,
    /// Number of interrupts in the interval.
    pub count: u64,
    /// Interrupts per second. `null`: the length of the interval is not known.
    pub rate: Option<f64>,
    /// Those that found another one on its way to the vCPU; no time covers them.
    pub joined: u64,
    /// Those to a vCPU that slept.
    pub woken: u64,
    /// Mean time from the injection until KVM woke the thread of a vCPU that slept, microseconds. `null`: none slept.
    pub wake_mean_us: Option<f64>,
    /// 99th percentile of it, microseconds; estimated from a histogram by powers of two. `null`: none slept.
    pub wake_p99_us: Option<f64>,
    /// Mean time from there until the thread had a CPU, microseconds. `null`: none slept.
    pub delay_mean_us: Option<f64>,
    /// 99th percentile of it. `null`: none slept.
    pub delay_p99_us: Option<f64>,
    /// Mean time from the injection until a vCPU that slept ran the guest, microseconds; what it is longer than the two
    /// above passes between the CPU and the guest. `null`: none slept, or the kernel fires no `kvm_entry`.
    pub slept_mean_us: Option<f64>,
    /// 99th percentile of it. `null`: as for the mean.
    pub slept_p99_us: Option<f64>,
    /// Those to a vCPU that did not sleep, less those that were posted to it (`APICv`, AVIC), which `count` alone has:
    /// they cause no exit, so nothing says when they arrived. `null`: the kernel fires no `kvm_entry`, or none arrived.
    pub kicked: Option<u64>,
    /// Mean time from the injection until a vCPU that did not sleep entered the guest, microseconds. `null`: none, or
    /// the kernel fires no `kvm_entry`.
    pub kick_mean_us: Option<f64>,
    /// 99th percentile of it. `null`: as for the mean.
    pub kick_p99_us: Option<f64>,
}

/// Writes of a guest to one place that woke one thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonDoorbell {
    /// `pio` or `mmio`.
    pub space: &'static str,
    /// Port or guest-physical address, such as `0xfebf9000`.
    pub address: String,
    /// Its device. `null`: not known.
    pub device: Option<String>,
    /// What the woken thread is: `main`, `iothread`, `vhost`, `kworker`, `other`.
    pub to: &'static str,
    /// Its name.
    pub thread: String,
    /// Its thread id.
    pub tid: i32,
    /// Number of such writes in the interval that woke it; while it is awake none does.
    pub count: u64,
    /// The same per second. `null`: the length of the interval is not known.
    pub rate: Option<f64>,
    /// Mean time from the wake-up until the thread had a CPU, microseconds. `null`: not measured.
    pub mean_us: Option<f64>,
    /// 99th percentile of it, microseconds; estimated from a histogram by powers of two. `null`: not measured.
    pub p99_us: Option<f64>,
}

/// A network interface of a guest, as libvirt counts it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonNic {
    /// Name of the host's interface, such as `vnet0`.
    pub name: String,
    /// Bytes received per second.
    pub rx_bytes: f64,
    /// Bytes sent per second.
    pub tx_bytes: f64,
    /// Packets received per second.
    pub rx_packets: f64,
    /// Packets sent per second.
    pub tx_packets: f64,
    /// Packets dropped per second, received and sent together.
    pub drops: f64,
}

/// How steadily a finding held.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonLasting {
    /// Whether `since` is only how far a recording was looked back on, and the finding is older.
    pub is_longer: bool,
    /// For how many of the last `of_s` seconds it showed.
    pub shown_s: f64,
    /// Seconds since it began, at most 60.
    pub of_s: f64,
    /// How many seconds ago the interval ended that the evidence is of: 0 is this one.
    pub ago_s: f64,
    /// The decisive figure of the worst interval of the last minute. Left out if it is the one in the evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<String>,
}

/// Something that is wrong, or costs what need not be paid.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonFinding {
    /// Name of the rule, such as `acpi-pm-timer`.
    pub rule: &'static str,
    /// `info`, `warning` or `critical`.
    pub severity: Severity,
    /// How sure the cause is: `low`, `medium` or `high`.
    pub confidence: Confidence,
    /// Name of the guest. `null` for the host.
    pub domain: Option<String>,
    /// Other guests that it concerns as well. Left out when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// What it is about: `host`, `domain`, `vcpu 3`, `thread 4711` (a thread id) or `pcpu 12` (a CPU of the host).
    pub target: Target,
    /// The finding in one line.
    pub title: String,
    /// The figures that made it fire, and how to read them without kvmtop.
    pub evidence: Vec<String>,
    /// Why these figures mean this cause.
    pub why: String,
    /// What to do, best first.
    pub fix: Vec<Fix>,
    /// Documents to read: URLs, and files of the kernel's tree.
    pub see: Vec<String>,
    /// What it costs now, percent of one host CPU. Left out where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_percent: Option<f64>,
    /// Since when it holds: RFC 3339, UTC. Left out for files and configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// How steadily it held. Left out for files and configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lasting: Option<JsonLasting>,
    /// Other rules that fired for the same cause and are covered here. Left out when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub folded: Vec<&'static str>,
}

/// A profile as JSON has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonProfile {
    /// Number of this schema: 1.
    pub schema: u32,
    /// Program and version.
    pub tool: &'static str,
    /// Its begin: RFC 3339, UTC, milliseconds.
    pub time: Option<String>,
    /// Name of the guest.
    pub guest: String,
    /// Its process. `null` for files that do not hold it.
    pub pid: Option<i32>,
    /// How long was sampled; 0 where that was refused, as `gaps` says.
    pub duration_s: f64,
    /// Samples for each second of CPU time.
    pub frequency_hz: u32,
    /// Number of samples.
    pub samples: u64,
    /// Samples that the kernel could not deliver.
    pub lost_samples: u64,
    /// CPU time that kvmtop used for it, seconds.
    pub cost_s: f64,
    /// What is not shown and why.
    pub gaps: Vec<String>,
    /// The sampled threads.
    pub threads: Vec<JsonProfiledThread>,
    /// Those with most samples of their own first.
    pub functions: Vec<JsonFunction>,
    /// The different stacks, most frequent first.
    pub stacks: Vec<JsonStack>,
}

/// A sampled thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonProfiledThread {
    /// Thread id.
    pub tid: i32,
    /// Name.
    pub comm: String,
    /// What it does.
    pub role: &'static str,
    /// Number of the vCPU.
    pub vcpu: Option<u32>,
    /// CPU time, percent of one host CPU.
    pub cpu_percent: Option<f64>,
    /// Number of samples.
    pub samples: u64,
}

/// A function.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonFunction {
    /// Its name, or the offset in its file.
    pub name: String,
    /// The file that it is in.
    pub module: String,
    /// Whose code it is.
    pub space: &'static str,
    /// Samples in which it ran itself.
    pub own_samples: u64,
    /// Samples in which it or something that it called ran.
    pub total_samples: u64,
}

/// A stack and how often it was seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonStack {
    /// Thread id.
    pub tid: i32,
    /// Number of samples.
    pub samples: u64,
    /// Positions in `functions`, the outermost caller first.
    pub functions: Vec<usize>,
}
