//! The shape of the JSON that `--batch --json`, `report --json` and `check --json` write: schema 1. Scripts rely on
//! the fields' names and order, so fields are only ever added.
//!
//! Rules of the whole schema:
//! - A value that was not measured or is not known is `null`, never 0. A field that is left out instead says so.
//! - Figures are not rounded: a duration is the kernel's nanoseconds divided by 1000, a rate the count divided by
//!   `interval_s`.
//! - Counts and times cover the interval that ends at `time`; they are not totals.
//! - 100 percent of CPU time is one host CPU, so a guest with four busy vCPUs has 400.
//! - Text from guests and files is passed on as it is, escaped as JSON demands.

use judge::lint::{CannotTell, Finding, StillWatched};
use judge::model::{DiskRates, NicRates};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// The schema's number: the value of every object's `schema`.
pub const SCHEMA: u32 = 1;

/// One interval (`--batch --json`, a line each), or the whole of what was read (`report --json`) or watched (`check
/// --json`).
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "report")]
pub struct JsonDocument {
    /// Version of this format. A new version would change or remove fields; fields are added without one.
    #[schemars(extend("const" = 1))]
    pub schema: u32,
    /// `kvmtop` and its version.
    pub tool: &'static str,
    /// End of the interval: RFC 3339, UTC, with milliseconds. `null`: the file holds no wall clock.
    #[schemars(extend("format" = "date-time"))]
    pub time: Option<String>,
    /// Length of the interval, seconds. `null`: first interval of a host, or a file that does not say; every rate is
    /// `null` then.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub interval_s: Option<f64>,
    /// Where the data comes from: `live`, `session` (a kvmtop recording), `perf.data`, `text`.
    pub source: String,
    /// What counted exits: `bpf` (in the kernel by BPF programs), `perf` (tracepoints through perf rings), `none`
    /// (KVM's counters and /proc only) or `file` (another tool made the file).
    #[schemars(extend("enum" = ["bpf", "perf", "none", "file"]))]
    pub engine: &'static str,
    /// Events that the kernel dropped within the interval. 0: every count is exact.
    pub lost_events: u64,
    /// What kvmtop itself used.
    #[serde(rename = "self")]
    pub own: JsonCost,
    /// Each source of data and its state.
    pub sources: Vec<JsonSource>,
    /// The host.
    pub host: JsonHost,
    /// The guests that `--domain` selects, in order of PID.
    pub domains: Vec<JsonDomain>,
    /// What the rules found, worst first.
    pub findings: Vec<Finding>,
    /// Rules that could not be judged, with the reason. Absent: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cannot_tell: Vec<CannotTell>,
    /// Guests and rules that have not been watched for long enough; a missing finding says nothing about them yet.
    /// Absent: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub watching: Vec<StillWatched>,
    /// Lines of the host's log, of a QEMU log or of a trace that are about KVM or a VMM and that no rule judges.
    /// Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unjudged_lines: Option<JsonUnjudgedLines>,
}

/// Lines that no rule judges.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JsonUnjudgedLines {
    /// Number of lines.
    pub count: u64,
    /// The first of them.
    pub first: String,
}

/// kvmtop's own cost.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JsonCost {
    /// CPU time, percent of one host CPU. `null`: no earlier sample, or a file.
    pub cpu_percent: Option<f64>,
    /// Resident memory, bytes. `null`: a file.
    pub rss_bytes: Option<u64>,
}

/// A source of data.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JsonSource {
    /// Live: `procfs`, `kvm` (/dev/kvm), `tracepoints`, `kvm-stats` (KVM's own statistics), `kernel-log`, `libvirt`,
    /// `status-xml` (libvirt's files under /run), `monitor` (QEMU's), `recording` (being written), `domain` (a
    /// `--domain` pattern that matches no guest). Files: `session`, `perf.data`, `trace`, `text` (tables), `xml`,
    /// `cmdline`, `mtree`, `topology`, `virsh` (what virsh prints about a domain), `config` (of a VMM, other than XML).
    #[schemars(extend("enum" = [
        "procfs", "kvm", "tracepoints", "kvm-stats", "kernel-log", "libvirt", "status-xml", "monitor",
        "recording", "session", "domain", "perf.data", "trace", "text", "xml", "cmdline", "mtree",
        "topology", "virsh", "config",
    ]))]
    pub name: &'static str,
    /// `ok`; `degraded`: works, but gives less than it could; `missing`: gives nothing.
    #[schemars(extend("enum" = ["ok", "degraded", "missing"]))]
    pub state: &'static str,
    /// What failed, on what, and why. Absent: nothing failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// A command or step that makes the source whole. Absent: none is known or needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// The host.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JsonHost {
    /// Its CPUs, by number. Empty: a file that holds no topology.
    pub cpus: Vec<JsonCpu>,
}

/// A CPU of the host. The kinds of time add up to 100.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JsonCpu {
    /// Its number.
    pub cpu: u32,
    /// Percent of the CPU's time in user space, without guests. `null`: no earlier reading.
    pub usr: Option<f64>,
    /// Percent of the CPU's time in the kernel. `null`: no earlier reading.
    pub sys: Option<f64>,
    /// Percent of the CPU's time in guests. `null`: no earlier reading.
    pub guest: Option<f64>,
    /// Percent of the CPU's time in hard interrupts. `null`: no earlier reading.
    pub irq: Option<f64>,
    /// Percent of the CPU's time in soft interrupts. `null`: no earlier reading.
    pub softirq: Option<f64>,
    /// Percent of the CPU's time that the hypervisor below this host gave to others. `null`: no earlier reading.
    pub steal: Option<f64>,
    /// Percent of the CPU's time idle while a task waited for a disk. `null`: no earlier reading.
    pub iowait: Option<f64>,
    /// Percent of the CPU's time idle. `null`: no earlier reading.
    pub idle: Option<f64>,
    /// Percent of the CPU's time busy between two timer ticks: its kind is unknown. `null`: no earlier reading.
    pub unsampled: Option<f64>,
    /// NUMA node. `null`: unknown.
    pub node: Option<u32>,
    /// Core within its socket. `null`: unknown.
    pub core: Option<u32>,
    /// CPUs of the same core, itself included. Empty: unknown.
    pub siblings: Vec<u32>,
    /// Whether the CPU is kept out of the scheduler's load balancing (`isolcpus`). `null`: unknown.
    pub isolated: Option<bool>,
    /// Frequency as last read, kHz. `null`: no cpufreq, or a kernel before 5.19.
    pub frequency_khz: Option<u64>,
}

/// A guest.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JsonDomain {
    /// Name: from libvirt, the command line or the process.
    pub name: String,
    /// UUID. `null`: unknown.
    pub uuid: Option<String>,
    /// Process id of the VMM. `null`: a file that does not say.
    pub pid: Option<i32>,
    /// Number of vCPUs. `null`: unknown.
    #[schemars(range(min = 1))]
    pub vcpus: Option<u32>,
    /// Machine type, such as `pc-q35-7.2`. `null`: unknown.
    pub machine: Option<String>,
    /// Whether libvirt keeps the guest's definition when it ends; `false` is a transient domain (`virsh create`), whose
    /// configuration cannot be changed. `null`: libvirt did not say.
    pub persistent: Option<bool>,
    /// The guest's system: `windows`, `linux`, `bsd`, `macos`, or the configured name itself; where none is configured,
    /// the one that several hints agree on. `null`: not known.
    pub guest_os: Option<String>,
    /// How sure the system is: `high` (configured), `medium` (several hints agree) or `low` (few hints: `guest_os`
    /// stays `null`). `null`: unknown, no hint.
    #[schemars(extend("enum" = ["high", "medium", "low", null]))]
    pub guest_os_confidence: Option<&'static str>,
    /// What the confidence rests on, a few words each.
    pub guest_os_reasons: Vec<String>,
    /// `qemu`, or the VMM's command name.
    pub vmm: String,
    /// `ended`: the guest ended within the interval; this is its last object, with all that it did.
    #[schemars(extend("enum" = ["running", "paused", "ended"]))]
    pub state: &'static str,
    /// All its threads together.
    pub cpu: JsonCpuTime,
    /// Its threads, kernel helpers such as vhost included.
    pub threads: Vec<JsonThread>,
    /// Exits by reason: the guest's row of a reason, then its vCPUs' rows. Only reasons that occurred. Empty where no
    /// `kvm_exit` is traced: see `userspace_exits`.
    pub exits: Vec<JsonExit>,
    /// Accesses by address: the guest's row of an address, then its vCPUs' rows. Only those that occurred.
    pub accesses: Vec<JsonAccess>,
    /// Exits that the VMM served, by reason.
    pub userspace_exits: Vec<JsonUserspaceExit>,
    /// Every other `kvm:*` tracepoint, with `--kvm-events`.
    pub kvm_events: Vec<JsonKvmEvent>,
    /// KVM's own statistics of the VM and its vCPUs, by KVM's names, per second.
    pub counters: BTreeMap<String, f64>,
    /// Block devices, from the VMM's statistics.
    pub disks: Vec<DiskRates>,
    /// What the host's block devices did for the guest. Absent: they are not timed (`--engine-detail disks`, the Disks
    /// view).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_disks: Option<Vec<JsonHostDisk>>,
    /// What interrupted the vCPUs, the most frequent first. Absent: it is not traced (`--engine-detail interrupts`, the
    /// Latency view).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<Vec<JsonInterrupt>>,
    /// Writes of the guest that KVM passed on as an eventfd and that woke a thread, the most frequent first. Absent: as
    /// for `interrupts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doorbells: Option<Vec<JsonDoorbell>>,
    /// Network interfaces, seen from the host's side.
    pub nics: Vec<NicRates>,
    /// Its memory on the host.
    pub memory: JsonMemory,
    /// What its threads did, from samples of their stacks that the key `b` of the screen took, in the interval in which
    /// they came. Absent: none came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<JsonProfile>,
}

/// A guest's memory on the host, as last read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct JsonMemory {
    /// Resident memory of the VMM, explicit huge pages not included. `null`: not read.
    pub resident_bytes: Option<u64>,
    /// Explicit huge pages of the VMM. `null`: not read.
    pub hugetlb_bytes: Option<u64>,
    /// Memory of the VMM in swap. `null`: not read.
    pub swap_bytes: Option<u64>,
    /// What the balloon leaves to the guest. `null`: no balloon, or neither libvirt nor a monitor that reports it.
    pub balloon_bytes: Option<u64>,
    /// Transparent huge pages of the VMM, part of `resident_bytes`; read every 5 minutes. `null`: not read yet.
    pub transparent_huge_bytes: Option<u64>,
    /// Memory by NUMA node. Empty on a host with one node, and until it was read.
    pub nodes: Vec<JsonNodeMemory>,
    /// The part on the nodes where the vCPUs ran last, percent of the memory in `nodes`. `null`: no nodes known.
    #[schemars(range(max = 100))]
    pub local_percent: Option<f64>,
}

/// Memory of a guest on one NUMA node.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JsonNodeMemory {
    /// Number of the node.
    pub node: u32,
    /// Bytes on it.
    pub bytes: u64,
}

/// CPU time of a guest's threads together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct JsonCpuTime {
    /// User time outside the guest, percent of one host CPU. `null`: no earlier reading.
    pub usr: Option<f64>,
    /// Kernel time, percent of one host CPU. `null`: no earlier reading.
    pub sys: Option<f64>,
    /// Time in the guest, percent of one host CPU. `null`: no earlier reading.
    pub guest: Option<f64>,
    /// Runnable but not running, percent of one host CPU: what the guest sees as steal. `null`: no earlier reading, or
    /// a kernel without `schedstat`.
    pub wait: Option<f64>,
}

/// A thread of a guest.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JsonThread {
    /// Thread id.
    pub tid: i32,
    /// The thread's name; control characters replaced.
    pub comm: String,
    /// `emulator`: the VMM's main thread. `worker`: a helper thread of the VMM.
    #[schemars(extend("enum" = ["vcpu", "emulator", "iothread", "vhost", "worker", "other"]))]
    pub role: &'static str,
    /// vCPU number. `null`: not a vCPU thread, or its number is unknown.
    pub vcpu: Option<u32>,
    /// Its `usr`, `sys`, `guest` and `wait`.
    #[serde(flatten)]
    pub time: JsonCpuTime,
    /// The CPU it ran on last. `null`: unknown.
    pub cpu: Option<u32>,
    /// CPUs it may run on, as a list: `0-3,8`. `null`: unknown.
    pub affinity: Option<String>,
    /// Moves between CPUs within the interval. `null`: not traced.
    pub migrations: Option<u64>,
    /// Those to another NUMA node. `null`: not traced.
    pub migrations_cross_node: Option<u64>,
    /// Context switches within the interval because it went to sleep. `null`: unknown.
    pub voluntary_switches: Option<u64>,
    /// Context switches within the interval because another task took the CPU. `null`: unknown.
    pub involuntary_switches: Option<u64>,
    /// Time from woken to running, median, microseconds; from a power-of-two histogram. `null`: not traced, or never
    /// woken.
    pub wakeup_p50_us: Option<f64>,
    /// The same, 99th percentile. `null`: not traced, or never woken.
    pub wakeup_p99_us: Option<f64>,
    /// Time from woken or pre-empted to running, median, microseconds; from a power-of-two histogram. `null`: not
    /// traced, or it never waited for a CPU.
    pub run_delay_p50_us: Option<f64>,
    /// The same, 99th percentile. `null`: not traced, or it never waited for a CPU.
    pub run_delay_p99_us: Option<f64>,
}

/// Exits of one reason. Shares are shares of the guest's exits, in a vCPU's row as well.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JsonExit {
    /// Name of the reason, as the kernel prints it; its number if the kernel has no name for it.
    pub reason: String,
    /// Instruction set of the code: `vmx`, `svm`, `arm64`, or `isaN`. `null`: a file that does not say.
    pub isa: Option<String>,
    /// Number of the reason, without flag bits. `null`: a file that does not say.
    pub code: Option<u32>,
    /// vCPU number. `null`: the sum over the guest.
    pub vcpu: Option<u32>,
    /// Exits within the interval.
    pub count: u64,
    /// Per second. `null`: the interval's length is unknown.
    pub rate: Option<f64>,
    /// Percent of the guest's exits. `null`: unknown.
    pub count_percent: Option<f64>,
    /// Percent of the time in all of the guest's exits, as perf prints it. `null`: no times.
    pub time_percent: Option<f64>,
    /// Percent of that time without idle reasons. `null`: no times, or an idle reason.
    pub work_percent: Option<f64>,
    /// Shortest time from exit to the next entry, microseconds. `null`: no times.
    pub min_us: Option<f64>,
    /// Longest time, microseconds. `null`: no times.
    pub max_us: Option<f64>,
    /// Mean time, microseconds. `null`: no times.
    pub mean_us: Option<f64>,
    /// 99th percentile, microseconds; from a power-of-two histogram. `null`: no histogram.
    pub p99_us: Option<f64>,
    /// Relative standard error of the mean, percent, as `perf kvm stat` prints it after `+-`. `null`: no times.
    pub stderr_percent: Option<f64>,
    /// Whether the guest sleeps in this exit (HLT, `WFx`, MWAIT).
    pub idle: bool,
}

/// Accesses to one port, address or MSR in one direction. The whole time from the exit to the next entry counts as the
/// access's.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JsonAccess {
    /// Port, memory or model-specific register.
    #[schemars(extend("enum" = ["pio", "mmio", "msr"]))]
    pub space: &'static str,
    /// Hexadecimal: `0x608`; the MSR's number; `other`: all that did not fit into kvmtop's tables.
    #[schemars(extend("pattern" = "^(0x[0-9a-f]+|other)$"))]
    pub address: String,
    /// Direction.
    #[schemars(extend("enum" = ["read", "write"]))]
    pub access: &'static str,
    /// The device that owns the address, or the MSR's name. `null`: unknown.
    pub device: Option<String>,
    /// Where the device's name comes from: `mtree` (QEMU's memory map), `libvirt`, `status-xml`, `cmdline`, `proc`,
    /// `file`, `built-in` (a table of usual addresses). `null`: no device.
    pub device_source: Option<&'static str>,
    /// vCPU number. `null`: the sum over the guest.
    pub vcpu: Option<u32>,
    /// Accesses within the interval.
    pub count: u64,
    /// Per second. `null`: the interval's length is unknown.
    pub rate: Option<f64>,
    /// Percent of the time in all of the guest's exits; in tables and traces from files, of its accesses in the same
    /// space, as perf prints it. `null`: no times.
    pub time_percent: Option<f64>,
    /// Mean time, microseconds. `null`: no times.
    pub mean_us: Option<f64>,
}

/// Exits that the VMM served.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JsonUserspaceExit {
    /// `KVM_EXIT_*` of linux/kvm.h; `restart` for an exit because of a signal; `error N` for another errno.
    pub reason: String,
    /// vCPU number. `null`: the sum over the guest.
    pub vcpu: Option<u32>,
    /// Exits within the interval.
    pub count: u64,
    /// Per second. `null`: the interval's length is unknown.
    pub rate: Option<f64>,
}

/// A tracepoint of KVM.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JsonKvmEvent {
    /// Its name, without `kvm:`.
    pub event: String,
    /// Events within the interval.
    pub count: u64,
    /// Per second. `null`: the interval's length is unknown.
    pub rate: Option<f64>,
}

/// A block device of the host, and its requests for one guest in the interval.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JsonHostDisk {
    /// Name of the device in the host's kernel, such as `nvme0n1p3` or `dm-0`.
    pub device: String,
    /// Major and minor number, such as `259:3`.
    pub number: String,
    /// Name of a device-mapper device, or the file of a loop device. `null`: another kind of device.
    pub alias: Option<String>,
    /// Names of the devices below it.
    pub below: Vec<String>,
    /// Reads per second. `null`: the length of the interval is not known.
    pub read_ops: Option<f64>,
    /// Writes per second. `null`: as for reads.
    pub write_ops: Option<f64>,
    /// Flushes of the device's write cache per second. `null`: as for reads.
    pub flush_ops: Option<f64>,
    /// Other operations, such as discards, per second. `null`: as for reads.
    pub other_ops: Option<f64>,
    /// Bytes read in the interval.
    pub read_bytes: u64,
    /// Bytes written in the interval.
    pub write_bytes: u64,
    /// Mean time of a read from its submission by a thread of the guest to its completion, microseconds. `null`: no
    /// read.
    pub read_mean_us: Option<f64>,
    /// 99th percentile of it, microseconds; estimated from a histogram by powers of two. `null`: no read.
    pub read_p99_us: Option<f64>,
    /// Mean time of a read in the device, from its issue to the driver to its completion, microseconds. `null`: no
    /// read, or a device on top of others (device-mapper, md).
    pub read_device_mean_us: Option<f64>,
    /// Mean time of a write, as for reads. `null`: no write.
    pub write_mean_us: Option<f64>,
    /// 99th percentile of it. `null`: no write.
    pub write_p99_us: Option<f64>,
    /// Mean time of a write in the device, as for reads. `null`: no write, or no driver.
    pub write_device_mean_us: Option<f64>,
    /// Mean time of a flush, microseconds. `null`: no flush.
    pub flush_mean_us: Option<f64>,
    /// Number of requests by the thread that submitted them: `main`, `iothread`, `pool` (QEMU's thread pool),
    /// `io_uring` (a worker of it), `vhost`, `vcpu`, `other`.
    #[schemars(extend("additionalProperties" = {"type": "integer", "minimum": 1}))]
    pub submitted: BTreeMap<&'static str, u64>,
}

/// Interrupts of one kind to one vCPU, by one injector, in the interval.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
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
    #[schemars(range(min = 0))]
    pub tid: Option<i32>,
    /// Number of interrupts in the interval.
    #[schemars(range(min = 1))]
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

/// Writes of a guest to one place that woke one thread, in the interval.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
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
    #[schemars(range(min = 0))]
    pub tid: i32,
    /// Number of such writes in the interval that woke it; while it is awake none does.
    #[schemars(range(min = 1))]
    pub count: u64,
    /// The same per second. `null`: the length of the interval is not known.
    pub rate: Option<f64>,
    /// Mean time from the wake-up until the thread had a CPU, microseconds. `null`: not measured.
    pub mean_us: Option<f64>,
    /// 99th percentile of it, microseconds; estimated from a histogram by powers of two. `null`: not measured.
    pub p99_us: Option<f64>,
}

/// What the host threads of a guest did (`profile --json`), from samples of their stacks.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "profile")]
pub struct JsonProfile {
    /// Version of this format.
    #[schemars(extend("const" = 1))]
    pub schema: u32,
    /// `kvmtop` and its version.
    pub tool: &'static str,
    /// Begin of the sampling: RFC 3339, UTC, with milliseconds. `null`: the clock gave no such time.
    #[schemars(extend("format" = "date-time"))]
    pub time: Option<String>,
    /// Name of the guest.
    pub guest: String,
    /// Its process. `null`: not known.
    pub pid: Option<i32>,
    /// How long was sampled, seconds; 0 where that was refused, as `gaps` says.
    pub duration_s: f64,
    /// Samples for each second of CPU time that a thread uses.
    pub frequency_hz: u32,
    /// Samples in `stacks`.
    pub samples: u64,
    /// Samples that were taken and are in no stack.
    pub lost_samples: u64,
    /// CPU time that kvmtop used for it, seconds.
    pub cost_s: f64,
    /// What is not shown and why, such as the names of the kernel's functions.
    pub gaps: Vec<String>,
    /// The sampled threads, in order of `tid`.
    pub threads: Vec<JsonProfiledThread>,
    /// The functions, sorted by `own_samples`, largest first.
    pub functions: Vec<JsonFunction>,
    /// The different stacks, most frequent first.
    pub stacks: Vec<JsonStack>,
}

/// A sampled thread.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JsonProfiledThread {
    /// Thread id.
    pub tid: i32,
    /// Name of the thread.
    pub comm: String,
    /// As in `thread`.
    pub role: &'static str,
    /// Number of the vCPU. `null`: another thread.
    pub vcpu: Option<u32>,
    /// CPU time meanwhile, percent of one host CPU, time in the guest included. `null`: could not be read.
    pub cpu_percent: Option<f64>,
    /// Its samples; 0 for a thread that did not run.
    pub samples: u64,
}

/// A function, or what stands for one.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JsonFunction {
    /// Its name; `+0x1234`, the offset in its file, where no symbol covers it; `[guest]` for all code of the guest.
    pub name: String,
    /// The file that it is in, without the path; `kernel` for the kernel and its modules.
    pub module: String,
    /// Whose code it is: the VMM's, the host kernel's, the guest's; `unknown` stands for callers that could not be
    /// found.
    #[schemars(extend("enum" = ["user", "kernel", "guest", "unknown"]))]
    pub space: &'static str,
    /// Samples in which it ran itself.
    pub own_samples: u64,
    /// The same with those in which something that it called ran.
    pub total_samples: u64,
}

/// A stack and how often it was seen.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JsonStack {
    /// The thread.
    pub tid: i32,
    /// How often.
    pub samples: u64,
    /// Positions in `functions`, counted from 0, the outermost caller first.
    pub functions: Vec<usize>,
}
