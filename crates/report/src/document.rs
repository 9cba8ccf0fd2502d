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

use super::View;
use super::json::{TOOL, guessed, guest_os};
use super::profile::ProfileView;
use judge::figures;
use judge::lint::{CannotTell, Finding, StillWatched};
use judge::model::call_tree::FunctionTime;
use judge::model::{
    AccessRow, CpuModel, CpuShare, DiskRates, DomainModel, DoorbellModel, ExitRow, ExitTable, GuestConfig, GuestGuess,
    GuestKind, HostDiskModel, HostModel, InjectionModel, Model, NicRates, PressureModel, SinceStart, TaskGroup,
    ThreadModel, jobs,
};
use kvm::thread_name::Role;
use kvm::time_profile::ProfileRow;
use kvm::topology::HostTopology;
use kvm::userspace_exit;
use sample::{Function, Job, PmuCounters, PmuCounts, ProfiledThread, SourceStatus, StackCount, StackProfile};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// The schema's number: the value of every object's `schema`.
pub const SCHEMA: u32 = 1;

/// Defines objects of the JSON: each field with its type and its value. The names after the type's are what `new` makes
/// the object from.
#[macro_export]
macro_rules! objects {
    ($(
        $(#[$about:meta])*
        pub struct $name:ident($($from:ident: $source:ty),*) {
            $($(#[$field_about:meta])* $field:ident: $type:ty = $value:expr,)*
        }
    )*) => {$(
        #[derive(Debug, Clone, PartialEq, serde::Serialize, schemars::JsonSchema)]
        $(#[$about])*
        pub struct $name {
            $($(#[$field_about])* pub $field: $type,)*
        }

        impl $name {
            /// The object of these figures.
            pub fn new($($from: $source),*) -> Self {
                Self { $($field: $value,)* }
            }
        }
    )*};
}

objects! {
    /// One interval (`--batch --json`, a line each), or the whole of what was read (`report --json`) or watched (`check
    /// --json`).
    #[schemars(rename = "report")]
    pub struct JsonDocument(view: &View<'_>) {
        /// Version of this format.
        #[schemars(extend("const" = 1))]
        schema: u32 = SCHEMA,
        /// `kvmtop` and its version.
        tool: &'static str = TOOL,
        /// End of the interval: RFC 3339, UTC, with milliseconds. `null`: the file holds no wall clock.
        #[schemars(extend("format" = "date-time"))]
        time: Option<String> = figures::utc(view.model.time_ms),
        /// Length of the interval. `null`: first interval of a host, or a file that does not say; every rate is `null`
        /// then.
        #[schemars(extend("exclusiveMinimum" = 0))]
        interval_s: Option<f64> = view.model.interval_s,
        /// Where the data comes from: `live`, `session` (a kvmtop recording), `perf.data`, `text`.
        source: String = view.source.to_owned(),
        /// What counted exits: `bpf` (in the kernel by BPF programs), `perf` (tracepoints through perf rings), `none`
        /// (KVM's counters and /proc only) or `file` (another tool made the file).
        #[schemars(extend("enum" = ["bpf", "perf", "none", "file"]))]
        engine: &'static str = view.model.engine.kind.as_str(),
        /// Events of guests that the kernel dropped within the interval, or that came of threads for which kvmtop's
        /// tables had no room. 0: every count is exact.
        lost_events: u64 = view.model.lost,
        /// What kvmtop itself used.
        #[serde(rename = "self")]
        own: JsonCost = JsonCost::new(view.model),
        /// Each source of data and its state.
        sources: Vec<JsonSource> = view.sources().into_iter().map(JsonSource::new).collect(),
        /// The host.
        host: JsonHost = JsonHost::new(&view.model.host),
        /// The guests that `--domain` selects, in order of PID.
        domains: Vec<JsonDomain> = view.guests().map(|d| domain(d, view.model)).collect(),
        /// What the rules found, worst first.
        findings: Vec<Finding> = view.selected_findings().cloned().collect(),
        /// Rules that could not be judged, with the reason. Absent: none.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        cannot_tell: Vec<CannotTell> = view.selected_cannot_tell().cloned().collect(),
        /// Guests and rules that have not been watched for long enough; a missing finding says nothing about them yet.
        /// Absent: none.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(min = 1))]
        watching: Vec<StillWatched> = view.selected_watching().cloned().collect(),
        /// What of the files was left out or read otherwise than it stands there, a sentence each. Absent: nothing.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(min = 1))]
        notes: Vec<String> = view.findings.notes.clone(),
        /// Lines of the host's log, of a QEMU log or of a trace that are about KVM or a VMM and that no rule judges.
        /// Absent: none.
        #[serde(skip_serializing_if = "Option::is_none")]
        unjudged_lines: Option<JsonUnjudgedLines> = view.model.host.unjudged_lines().map(JsonUnjudgedLines::new),
    }

    /// Lines that no rule judges.
    pub struct JsonUnjudgedLines(lines: (usize, &str)) {
        /// Number of lines.
        count: u64 = lines.0 as u64,
        /// The first of them.
        first: String = lines.1.to_owned(),
    }

    /// kvmtop's own cost.
    pub struct JsonCost(m: &Model) {
        /// CPU time, percent of one host CPU. `null`: no earlier sample, or a file.
        cpu_percent: Option<f64> = m.own_cpu,
        /// Resident memory. `null`: a file.
        rss_bytes: Option<u64> = Some(m.own_rss).filter(|bytes| *bytes > 0),
        /// How much longer than asked the interval was, where that is more than half as long again: the host or what
        /// kvmtop reads was slow. 0: in time. `null`: a file. Over several intervals the sum.
        late_s: Option<f64> = Some(m.late_ns as f64 / 1e9).filter(|_| m.own_rss > 0),
    }

    /// A source of data.
    pub struct JsonSource(s: SourceStatus) {
        /// Live: `procfs`, `kvm` (/dev/kvm), `tracepoints`, `kvm-stats` (KVM's own statistics), `pmu`, `resctrl`,
        /// `kernel-log`, `libvirt`, `status-xml` (libvirt's files under /run), `monitor` (QEMU's), `recording` (being
        /// written), `domain` (a `--domain` pattern that matches no guest). Files: `session`, `perf.data`, `trace`,
        /// `text` (tables), `xml`, `cmdline`, `mtree`, `topology`, `virsh` (what virsh prints about a domain), `config`
        /// (of a VMM, other than XML).
        #[schemars(extend("enum" = [
            "procfs", "kvm", "tracepoints", "kvm-stats", "pmu", "resctrl", "kernel-log", "libvirt", "status-xml",
            "monitor", "recording", "session", "domain", "perf.data", "trace", "text", "xml", "cmdline", "mtree",
            "topology", "virsh", "config",
        ]))]
        name: &'static str = s.id.as_str(),
        /// `ok`; `degraded`: works, but gives less than it could; `missing`: gives nothing.
        #[schemars(extend("enum" = ["ok", "degraded", "missing"]))]
        state: &'static str = s.state.as_str(),
        /// What failed, on what, and why. Absent: nothing failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<String> = s.cause,
        /// A command or step that mends it. Absent: none is known or needed.
        #[serde(skip_serializing_if = "Option::is_none")]
        fix: Option<String> = s.fix,
    }

    /// The host.
    pub struct JsonHost(host: &HostModel) {
        /// Its tasks outside guests, kvmtop included, grouped by name; at most 16, largest first, read about every
        /// two seconds. `null`: not measured.
        tasks: Option<Vec<JsonHostTasks>> =
            host.task_groups.as_ref().map(|all| all.iter().map(JsonHostTasks::new).collect()),
        /// Its CPUs, by number. Empty: a file that holds no topology.
        cpus: Vec<JsonCpu> = host.cpus.iter().map(|c| JsonCpu::new(c, &host.facts.topology)).collect(),
        /// How long its tasks waited for CPUs, disks and memory. Absent: no PSI, or a file.
        #[serde(skip_serializing_if = "Option::is_none")]
        pressure: Option<PressureModel> = host.pressure,
        /// Rows of a profile that `perf top` or `perf report` printed, largest first, at most 64. Absent: no file
        /// holds one.
        #[serde(skip_serializing_if = "Option::is_none")]
        profile: Option<Vec<JsonProfileRow>> =
            host.facts.profile.as_ref().map(|profile| profile.rows.iter().map(JsonProfileRow::new).collect()),
    }

    /// A row of a profile.
    pub struct JsonProfileRow(row: &ProfileRow) {
        /// Its own share of what was sampled, percent.
        #[schemars(range(max = 100))]
        percent: f64 = row.percent,
        /// Its share with the functions that it calls. `null`: the text lacks this column.
        #[schemars(range(max = 100))]
        with_calls_percent: Option<f64> = row.with_calls,
        /// The task. `null`: the text has no tasks.
        task: Option<String> = row.task.clone(),
        /// The file that the function is in, such as `[kvm]`. `null`: the text has none.
        object: Option<String> = row.object.clone(),
        /// The function, or the text of a tracepoint; `-` in a table of tasks.
        name: String = row.name.clone(),
    }

    /// The tasks outside guests that have one name.
    pub struct JsonHostTasks(group: &TaskGroup) {
        /// Name of the process; of kernel threads the part before a slash, such as `kworker`.
        comm: String = group.comm.clone(),
        /// CPU time of all of them, percent of one host CPU.
        cpu: f64 = group.cpu_percent,
        /// How many of them used CPU time.
        #[schemars(range(min = 1))]
        count: u64 = group.count,
    }

    /// A CPU of the host. The kinds of time are percent of its time and add up to 100.
    pub struct JsonCpu(c: &CpuModel, topology: &HostTopology) {
        /// Its number.
        cpu: u32 = c.cpu,
        /// In user space, without guests. `null`: no earlier reading.
        usr: Option<f64> = c.time.map(|t| t.usr),
        /// In the kernel. `null`: no earlier reading.
        sys: Option<f64> = c.time.map(|t| t.sys),
        /// In guests. `null`: no earlier reading.
        guest: Option<f64> = c.time.map(|t| t.guest),
        /// In hard interrupts. `null`: no earlier reading.
        irq: Option<f64> = c.time.map(|t| t.irq),
        /// In soft interrupts. `null`: no earlier reading.
        softirq: Option<f64> = c.time.map(|t| t.softirq),
        /// Given to others by the hypervisor below this host. `null`: no earlier reading.
        steal: Option<f64> = c.time.map(|t| t.steal),
        /// Idle while a task waited for a disk. `null`: no earlier reading.
        iowait: Option<f64> = c.time.map(|t| t.iowait),
        /// Idle. `null`: no earlier reading.
        idle: Option<f64> = c.time.map(|t| t.idle),
        /// Busy between two timer ticks: its kind is unknown. `null`: no earlier reading.
        unsampled: Option<f64> = c.time.map(|t| t.unsampled),
        /// NUMA node. `null`: unknown.
        node: Option<u32> = topology.cpu(c.cpu).and_then(|p| p.node),
        /// Core within its socket. `null`: unknown.
        core: Option<u32> = topology.cpu(c.cpu).and_then(|p| p.core),
        /// CPUs of the same core, itself included. Empty: unknown.
        siblings: Vec<u32> = topology.cpu(c.cpu).map(|p| p.siblings.iter().collect()).unwrap_or_default(),
        /// Whether the CPU is kept out of the scheduler's load balancing (`isolcpus`). `null`: unknown.
        isolated: Option<bool> = topology.isolated.as_ref().map(|set| set.contains(c.cpu)),
        /// Frequency as last read. `null`: no cpufreq, or a kernel before 5.19.
        frequency_khz: Option<u64> = c.frequency_khz,
        /// How often it woke from a sleep state, per second, as last read. `null`: no cpuidle, or not read twice yet.
        wakes: Option<f64> = c.power.and_then(|p| p.wake_rate()),
        /// How long leaving these states takes on average, as their driver says. `null`: as above, or it did not sleep.
        wake_us: Option<f64> = c.power.and_then(|p| p.wake_us()),
        /// How often heat throttled its core or its package within the last reading (5 s). `null`: not counted.
        throttles: Option<u64> = c.power.and_then(|p| p.throttles),
    }

    /// A guest.
    pub struct JsonDomain(d: &DomainModel, m: &Model, guess: GuestGuess) {
        /// Name: from libvirt, the command line or the process.
        name: String = d.name().to_owned(),
        /// UUID. `null`: unknown.
        uuid: Option<String> = d.facts.uuid.as_ref().map(|u| u.value.clone()),
        /// Process id of the VMM. `null`: a file that does not say.
        pid: Option<i32> = d.facts.pid,
        /// Number of vCPUs. `null`: unknown.
        #[schemars(range(min = 1))]
        vcpus: Option<u32> = Some(d.vcpu_count()).filter(|n| *n > 0),
        /// Machine type, such as `pc-q35-7.2`. `null`: unknown.
        machine: Option<String> = d.facts.machine.as_ref().map(|m| m.value.clone()),
        /// Whether libvirt keeps the guest's definition when it ends; `false`: a transient domain (`virsh create`).
        /// `null`: libvirt did not say.
        persistent: Option<bool> = d.facts.persistent,
        /// The guest's system: `windows`, `linux`, `bsd`, `macos`, or the configured name itself; where none is
        /// configured, the one that several hints agree on. `null`: not known.
        guest_os: Option<String> = guest_os(&d.facts).or_else(|| guessed(&guess)),
        /// How sure the system is: `high` (configured), `medium` (several hints agree) or `low` (few hints: `guest_os`
        /// stays `null`). `null`: unknown, no hint.
        #[schemars(extend("enum" = ["high", "medium", "low", null]))]
        guest_os_confidence: Option<&'static str> = (guess.kind != GuestKind::Unknown).then_some(guess.sure.as_str()),
        /// What the confidence rests on, a few words each.
        guest_os_reasons: Vec<String> = guess.reasons,
        /// `qemu`, or the VMM's command name.
        vmm: String = d.facts.vmm.as_str().to_owned(),
        /// `ended`: the guest ended within the interval; this is its last object, with all that it did.
        #[schemars(extend("enum" = ["running", "paused", "ended"]))]
        state: &'static str = d.state.as_str(),
        /// All its threads together.
        cpu: JsonCpuTime = JsonCpuTime::new(d.cpu),
        /// Its threads, kernel helpers such as vhost included.
        threads: Vec<JsonThread> = d.threads.iter().map(JsonThread::new).collect(),
        /// Exits by reason. Only reasons that occurred. Empty where no `kvm_exit` is traced: see `userspace_exits`.
        exits: Vec<JsonExit> = exits(d),
        /// Accesses by address. Only those that occurred.
        accesses: Vec<JsonAccess> = accesses(d),
        /// Exits that the VMM served, by reason.
        userspace_exits: Vec<JsonUserspaceExit> =
            d.userspace.iter().map(|row| JsonUserspaceExit::new(*row, m)).collect(),
        /// Every other `kvm:*` tracepoint, with `--kvm-events`.
        kvm_events: Vec<JsonKvmEvent> =
            d.kvm_events.iter().map(|(event, count)| JsonKvmEvent::new(event, *count, m)).collect(),
        /// KVM's own statistics of the VM and its vCPUs, by KVM's names, per second.
        counters: BTreeMap<String, f64> = d.counters.clone(),
        /// Block devices, from the VMM's statistics.
        disks: Vec<DiskRates> = d.disks.clone(),
        /// What the host's block devices did for the guest. Absent: they are not timed (`--engine-detail disks`, the
        /// Storage view).
        #[serde(skip_serializing_if = "Option::is_none")]
        host_disks: Option<Vec<JsonHostDisk>> =
            d.host_disks.as_ref().map(|all| all.iter().map(JsonHostDisk::new).collect()),
        /// What interrupted the vCPUs, the most frequent first. Absent: it is not traced (`--engine-detail interrupts`,
        /// a guest's page).
        #[serde(skip_serializing_if = "Option::is_none")]
        interrupts: Option<Vec<JsonInterrupt>> =
            d.interrupts.as_ref().map(|all| all.iter().map(JsonInterrupt::new).collect()),
        /// Writes of the guest that KVM passed on as an eventfd and that woke a thread, the most frequent first.
        /// Absent: as for `interrupts`.
        #[serde(skip_serializing_if = "Option::is_none")]
        doorbells: Option<Vec<JsonDoorbell>> =
            d.doorbells.as_ref().map(|all| all.iter().map(JsonDoorbell::new).collect()),
        /// Migrations, block jobs, dumps and the like that run. Absent: none, or neither libvirt nor a monitor that
        /// reports them.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(min = 1))]
        jobs: Vec<JsonJob> = d.jobs.iter().map(|job| JsonJob::new(job, d)).collect(),
        /// Network interfaces, seen from the host's side.
        nics: Vec<NicRates> = d.nics.clone(),
        /// How long tasks of its cgroup waited for CPUs, disks and memory. Absent: no PSI, no cgroup of its own, or a
        /// file.
        #[serde(skip_serializing_if = "Option::is_none")]
        pressure: Option<PressureModel> = d.pressure,
        /// Its memory on the host.
        memory: JsonMemory = JsonMemory::new(d, &m.host.facts.topology),
        /// Totals since the guest's start, from a single reading of its statistics. Absent: there is none.
        #[serde(skip_serializing_if = "Option::is_none")]
        since_start: Option<SinceStart> = d.since_start.clone(),
    }

    /// A guest's memory on the host, as last read.
    pub struct JsonMemory(d: &DomainModel, topology: &HostTopology) {
        /// Resident memory of the VMM, explicit huge pages not included. `null`: not read.
        resident_bytes: Option<u64> = d.memory.resident,
        /// Explicit huge pages of the VMM. `null`: not read.
        hugetlb_bytes: Option<u64> = d.memory.hugetlb,
        /// Memory of the VMM in swap. `null`: not read.
        swap_bytes: Option<u64> = d.swap.map(|(bytes, _)| bytes),
        /// What the balloon leaves to the guest. `null`: no balloon, or neither libvirt nor a monitor that reports it.
        balloon_bytes: Option<u64> = d.memory.balloon,
        /// Transparent huge pages of the VMM, part of `resident_bytes`; read every 5 minutes. `null`: not read yet.
        transparent_huge_bytes: Option<u64> = d.memory.transparent,
        /// Memory by NUMA node. Empty on a host with one node, and until it was read.
        nodes: Vec<JsonNodeMemory> = d.node_memory.iter().map(JsonNodeMemory::new).collect(),
        /// The part on the nodes where the vCPUs ran last, percent of the memory in `nodes`. `null`: no nodes known.
        #[schemars(range(max = 100))]
        local_percent: Option<f64> = d.local_memory_percent(topology),
        /// What its resctrl groups have of the last-level cache. Absent: not read (`--engine-detail counters`); the
        /// source `resctrl` says why.
        #[serde(skip_serializing_if = "Option::is_none")]
        llc_bytes: Option<u64> = d.cache.and_then(|cache| cache.occupied),
        /// Bytes per second between that cache and memory. Absent: as above, or read once.
        #[serde(skip_serializing_if = "Option::is_none")]
        bandwidth: Option<f64> = d.cache.and_then(|cache| cache.bandwidth()[0]),
        /// Those of the cache's own node. Absent: as above.
        #[serde(skip_serializing_if = "Option::is_none")]
        local_bandwidth: Option<f64> = d.cache.and_then(|cache| cache.bandwidth()[1]),
    }

    /// Memory of a guest on one NUMA node.
    pub struct JsonNodeMemory(of_node: (&u32, &u64)) {
        /// Number of the node.
        node: u32 = *of_node.0,
        /// Bytes on it.
        bytes: u64 = *of_node.1,
    }

    /// CPU time of a guest's threads together.
    pub struct JsonCpuTime(c: Option<CpuShare>) {
        /// User time outside the guest. `null`: no earlier reading.
        usr: Option<f64> = c.and_then(|c| c.kind(|c| c.usr)),
        /// Kernel time. `null`: no earlier reading.
        sys: Option<f64> = c.and_then(|c| c.kind(|c| c.sys)),
        /// Time in the guest. `null`: no earlier reading.
        guest: Option<f64> = c.and_then(|c| c.kind(|c| c.guest)),
        /// Runnable but not running. `null`: no earlier reading, or a kernel without `schedstat`.
        wait: Option<f64> = c.and_then(|c| c.wait),
    }

    /// A thread of a guest.
    pub struct JsonThread(t: &ThreadModel) {
        /// Thread id.
        tid: i32 = t.tid,
        /// The thread's name; control characters replaced.
        comm: String = t.comm.clone(),
        /// `emulator`: the VMM's main thread. `worker`: a helper thread of the VMM.
        #[schemars(extend("enum" = ["vcpu", "emulator", "iothread", "vhost", "worker", "other"]))]
        role: &'static str = t.role.as_str(),
        /// vCPU number. `null`: not a vCPU thread, or its number is unknown.
        vcpu: Option<u32> = t.index.filter(|_| t.role == Role::Vcpu),
        /// Its `usr`, `sys`, `guest` and `wait`.
        #[serde(flatten)]
        time: JsonCpuTime = JsonCpuTime::new(t.cpu),
        /// The CPU it ran on last. `null`: unknown.
        cpu: Option<u32> = t.place.cpu,
        /// CPUs it may run on, as a list: `0-3,8`. `null`: unknown.
        affinity: Option<String> = t.place.affinity.as_ref().map(ToString::to_string),
        /// Moves between CPUs within the interval. `null`: not traced.
        migrations: Option<u64> = t.migrations.total,
        /// Those to another NUMA node. `null`: not traced.
        migrations_cross_node: Option<u64> = t.migrations.total.map(|_| t.migrations.cross_node),
        /// Context switches within the interval because it went to sleep. `null`: unknown.
        voluntary_switches: Option<u64> = t.growth.and_then(|growth| growth.voluntary),
        /// Context switches within the interval because another task took the CPU. `null`: unknown.
        involuntary_switches: Option<u64> = t.growth.and_then(|growth| growth.involuntary),
        /// Time asleep for a disk within the interval, to read a page from swap too; counted in ticks of 10 ms. `null`:
        /// it never did, or no delay accounting (`kernel.task_delayacct`, for guests that start then).
        disk_wait_ms: Option<f64> = t.growth.and_then(|growth| growth.disk_wait_ns).map(|ns| ns as f64 / 1e6),
        /// Time from woken to running, median. `null`: not traced, or never woken.
        wakeup_p50_us: Option<f64> = t.wakeups.as_ref().and_then(|times| times.quantile_us(0.5)),
        /// The same, 99th percentile. `null`: not traced, or never woken.
        wakeup_p99_us: Option<f64> = t.wakeups.as_ref().and_then(|times| times.quantile_us(0.99)),
        /// Time from woken or pre-empted to running, median. `null`: not traced, or it never waited for a CPU.
        run_delay_p50_us: Option<f64> = t.run_delays.as_ref().and_then(|times| times.quantile_us(0.5)),
        /// The same, 99th percentile. `null`: not traced, or it never waited for a CPU.
        run_delay_p99_us: Option<f64> = t.run_delays.as_ref().and_then(|times| times.quantile_us(0.99)),
        /// What the CPU counted of a vCPU. Absent: not counted (`--engine-detail counters`, the Latency view); the
        /// source `pmu` says why.
        #[serde(skip_serializing_if = "Option::is_none")]
        pmu: Option<JsonPmu> = t.pmu.as_ref().map(JsonPmu::new),
    }

    /// CPU counters of a vCPU.
    pub struct JsonPmu(counters: &PmuCounters) {
        /// In the guest.
        guest: JsonPmuCounts = JsonPmuCounts::new(&counters.guest),
        /// Outside it.
        host: JsonPmuCounts = JsonPmuCounts::new(&counters.host),
    }

    /// Counts of the interval, scaled where events took turns.
    pub struct JsonPmuCounts(counts: &PmuCounts) {
        /// CPU cycles. `null`: never counted.
        cycles: Option<f64> = counts.scaled(counts.cycles),
        /// Instructions. `null`: as above, or no such event.
        instructions: Option<f64> = counts.scaled(counts.instructions),
        /// Instructions per cycle. `null`: as above.
        ipc: Option<f64> = counts.ipc(),
        /// Reads that missed the last-level cache. `null`: as for `instructions`.
        llc_misses: Option<f64> = counts.scaled(counts.llc_misses),
        /// Part of the thread's time in which events were counted. `null`: it did not run.
        #[schemars(range(max = 100))]
        counted_percent: Option<f64> = counts.counted_percent(),
    }

    /// Exits of one reason. Shares are shares of the guest's exits, in a vCPU's row as well.
    pub struct JsonExit(r: &ExitRow, all: &ExitTable) {
        /// Name of the reason, as the kernel prints it; its number if the kernel has no name for it.
        reason: String = r.reason.clone(),
        /// Instruction set of the code: `vmx`, `svm`, `arm64`, or `isaN`. `null`: a file that does not say.
        isa: Option<String> = r.id.map(|(isa, _)| isa.to_string()),
        /// Number of the reason, without flag bits. `null`: a file that does not say.
        code: Option<u32> = r.id.map(|(_, code)| code),
        /// vCPU number. `null`: the sum over the guest.
        vcpu: Option<u32> = r.vcpu,
        /// Exits within the interval.
        count: u64 = r.span.count,
        /// Per second. `null`: no `interval_s`.
        rate: Option<f64> = r.rate,
        /// Percent of the guest's exits. `null`: unknown.
        count_percent: Option<f64> = percent(Some(r.span.count), Some(all.count)),
        /// Percent of the time in all of the guest's exits, as perf prints it. `null`: no times.
        time_percent: Option<f64> = percent(r.span.total_ns, all.total_ns),
        /// Percent of that time without idle reasons. `null`: no times, or an idle reason.
        work_percent: Option<f64> = percent(r.span.total_ns, all.work_ns).filter(|_| !r.idle),
        /// The vCPUs' own time in these exits, percent of one host CPU: without the time that another task had the CPU.
        /// `null`: no times, or an idle reason.
        cpu_percent: Option<f64> = r.cpu_percent,
        /// Shortest time from exit to the next entry. `null`: no times.
        min_us: Option<f64> = r.span.min_ns.map(|ns| ns as f64 / 1e3),
        /// Longest time. `null`: no times.
        max_us: Option<f64> = r.span.max_ns.map(|ns| ns as f64 / 1e3),
        /// Mean time. `null`: no times.
        mean_us: Option<f64> = r.span.mean_us(),
        /// 99th percentile. `null`: no histogram.
        p99_us: Option<f64> = r.span.quantile_us(0.99),
        /// Relative standard error of the mean, percent, as `perf kvm stat` prints it after `+-`. `null`: no times.
        stderr_percent: Option<f64> = r.span.stderr_percent(),
        /// Whether the guest sleeps in this exit (HLT, `WFx`, MWAIT).
        idle: bool = r.idle,
    }

    /// Accesses to one port, address or MSR in one direction. The whole time from the exit to the next entry counts as
    /// the access's.
    pub struct JsonAccess(r: &AccessRow) {
        /// Port, memory or model-specific register.
        #[schemars(extend("enum" = ["pio", "mmio", "msr"]))]
        space: &'static str = r.space.as_str(),
        /// Hexadecimal: `0x608`; the MSR's number; `other`: all that did not fit into kvmtop's tables.
        #[schemars(extend("pattern" = "^(0x[0-9a-f]+|other)$"))]
        address: String = r.address_text(),
        /// Direction.
        #[schemars(extend("enum" = ["read", "write"]))]
        access: &'static str = r.direction.as_str(),
        /// The device that owns the address, or the MSR's name. `null`: unknown.
        device: Option<String> = r.device_name().map(ToOwned::to_owned),
        /// Where the device's name comes from: `mtree` (QEMU's memory map), `libvirt`, `status-xml`, `cmdline`, `proc`,
        /// `file`, `built-in` (a table of usual addresses). `null`: no device.
        device_source: Option<&'static str> = r.device.as_ref().map(|d| d.from.as_str()),
        /// vCPU number. `null`: the sum over the guest.
        vcpu: Option<u32> = r.vcpu,
        /// Accesses within the interval.
        count: u64 = r.span.count,
        /// Per second. `null`: no `interval_s`.
        rate: Option<f64> = r.rate,
        /// Percent of the time in all of the guest's exits; in tables and traces from files, of its accesses in the
        /// same space, as perf prints it. `null`: no times.
        time_percent: Option<f64> = r.time_percent,
        /// The vCPUs' own time in the exits that served them, percent of one host CPU: without the time that another
        /// task had the CPU. For ports in tables of perf it is longer than `count` times `mean_us`: perf measures a
        /// part of each exit. `null`: no times.
        cpu_percent: Option<f64> = r.cpu_percent,
        /// Mean time. `null`: no times.
        mean_us: Option<f64> = r.span.mean_us(),
    }

    /// Exits that the VMM served.
    pub struct JsonUserspaceExit(row: (Option<u32>, i32, u64), m: &Model) {
        /// `KVM_EXIT_*` of linux/kvm.h; `restart` for an exit because of a signal; `error N` for another errno.
        reason: String = userspace_exit::display(row.1),
        /// vCPU number. `null`: the sum over the guest.
        vcpu: Option<u32> = row.0,
        /// Exits within the interval.
        count: u64 = row.2,
        /// Per second. `null`: no `interval_s`.
        rate: Option<f64> = m.interval_s.map(|s| row.2 as f64 / s),
    }

    /// A tracepoint of KVM.
    pub struct JsonKvmEvent(name: &str, n: u64, m: &Model) {
        /// Its name, without `kvm:`.
        event: String = name.to_owned(),
        /// Events within the interval.
        count: u64 = n,
        /// Per second. `null`: no `interval_s`.
        rate: Option<f64> = m.interval_s.map(|s| n as f64 / s),
    }

    /// A job of the VMM, as last read, and what the guest pays for it.
    pub struct JsonJob(job: &Job, d: &DomainModel) {
        /// What it does. `save` writes the guest's memory to a file.
        #[schemars(extend("enum" = [
            "migration", "save", "dump", "backup", "mirror", "commit", "stream", "other"
        ]))]
        kind: &'static str = job.kind.as_str(),
        /// The disk or the job's id; empty if it is about the whole guest.
        name: String = job.name.clone(),
        /// QEMU's word for its state, such as `active`, `postcopy-active`, `running`, `ready`.
        status: String = job.status.clone(),
        /// Why it failed or stands still. `null`: no error.
        error: Option<String> = job.error.clone(),
        /// Time since its start; where it is not reported, since it was first seen.
        elapsed_s: f64 = jobs::elapsed_s(job),
        /// The part of its bytes that is done. `null`: not reported.
        #[schemars(range(max = 100))]
        progress_percent: Option<f64> = jobs::progress(job),
        /// Bytes in all. `null`: not reported.
        total_bytes: Option<u64> = job.total,
        /// Bytes left; of a migration they grow again at the end of each pass. `null`: not reported.
        remaining_bytes: Option<u64> = job.remaining,
        /// Bytes moved per second. `null`: not known yet.
        bytes_rate: Option<u64> = job.rate,
        /// The most bytes per second that it may move. `null`: no limit, or not reported.
        bytes_rate_limit: Option<u64> = job.limit,
        /// How long it has moved nothing.
        still_s: f64 = job.still_ns as f64 / 1e9,
        /// Passes over the guest's memory, with the first. `null`: another job.
        rounds: Option<u64> = job.rounds,
        /// Bytes of memory that the guest writes per second; each page counts once a pass. `null`: not known
        /// before the second pass.
        dirtied_rate: Option<u64> = job.dirtied,
        /// Whether a migration ends at this rate. `null`: another job, its first pass, or not known.
        converges: Option<bool> = jobs::converges(job, jobs::ENDLESS_PERCENT),
        /// How long the guest may stand still at the end. `null`: not reported.
        downtime_limit_ms: Option<f64> = job.downtime_limit_ns.map(|ns| ns as f64 / 1e6),
        /// How long it would stand still if the job ended now, as the VMM reckons. `null`: not reported.
        expected_downtime_ms: Option<f64> = job.downtime_ns.map(|ns| ns as f64 / 1e6),
        /// The part of the time in which auto-converge holds the vCPUs back. `null`: it does not.
        throttle_percent: Option<u64> = job.throttle_percent,
        /// Exits of the guest per second for tracked writes and memory faults. `null`: none, or not traced.
        write_exits_rate: Option<f64> = jobs::tracked_writes(d),
        /// Mean time of the guest's writes to its disks before the job was first seen. `null`: not known.
        write_before_us: Option<f64> = job.write_before_ns.map(|ns| ns as f64 / 1e3),
        /// The same now. `null`: no write, or the VMM gives no times.
        write_mean_us: Option<f64> = jobs::writes(d).map(|(us, _)| us),
    }

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

    /// Interrupts of one kind to one vCPU, by one injector, in the interval.
    pub struct JsonInterrupt(i: &InjectionModel) {
        /// What it is: `gsi` (a line of the interrupt controller), `msi` (a message), `ipi` (from another vCPU),
        /// `local` (announced by nothing: the vCPU's timer, mostly), `spi` (a line on arm64, where `msi` and `ipi` are
        /// not seen).
        source: &'static str = i.source.as_str(),
        /// Number of the line (`gsi`, `spi`), else the vector.
        number: u32 = i.source.number(),
        /// The device that a PC, or QEMU's `virt`, has on this line. `null`: another line, or no line.
        line: Option<&'static str> = i.source.line_name(),
        /// KVM's number of the vCPU. `null`: not known, as of an `spi` that wakes none.
        vcpu: Option<u32> = i.vcpu,
        /// Who injected it: `main`, `iothread`, `vhost`, `vcpu`, `kworker` (irqfd's slow path), `interrupt` (of the
        /// host: an assigned device without posted interrupts), `other`.
        by: &'static str = i.by.as_str(),
        /// Name of the injecting thread. `null`: a vCPU, or no thread of the guest.
        thread: Option<String> = i.comm.clone(),
        /// Its thread id. `null`: as for `thread`.
        #[schemars(range(min = 0))]
        tid: Option<i32> = i.tid,
        /// Their number.
        #[schemars(range(min = 1))]
        count: u64 = i.count,
        /// Interrupts per second. `null`: no `interval_s`.
        rate: Option<f64> = i.rate(),
        /// Those that found another one on its way to the vCPU; no time covers them.
        joined: u64 = i.joined,
        /// Those to a vCPU that slept.
        woken: u64 = i.wake.count,
        /// Mean time from the injection until KVM woke the thread of a vCPU that slept. `null`: none slept.
        wake_mean_us: Option<f64> = i.wake.mean_us(),
        /// 99th percentile of it. `null`: none slept.
        wake_p99_us: Option<f64> = i.wake.quantile_us(0.99),
        /// Mean time from there until the thread had a CPU. `null`: none slept.
        delay_mean_us: Option<f64> = i.delay.mean_us(),
        /// 99th percentile of it. `null`: none slept.
        delay_p99_us: Option<f64> = i.delay.quantile_us(0.99),
        /// Mean time from the injection until a vCPU that slept ran the guest; what it is longer than the two above
        /// passes between the CPU and the guest. `null`: none slept, or the kernel fires no `kvm_entry`.
        slept_mean_us: Option<f64> = i.slept.mean_us(),
        /// 99th percentile of it. `null`: as for the mean.
        slept_p99_us: Option<f64> = i.slept.quantile_us(0.99),
        /// Those to a vCPU that did not sleep, less those that were posted to it (`APICv`, AVIC), which `count` alone
        /// has: they cause no exit, so nothing says when they arrived. `null`: the kernel fires no `kvm_entry`, or none
        /// arrived.
        kicked: Option<u64> = (i.kick.count + i.slept.count > 0).then_some(i.kick.count),
        /// Mean time from the injection until a vCPU that did not sleep entered the guest. `null`: none, or the kernel
        /// fires no `kvm_entry`.
        kick_mean_us: Option<f64> = i.kick.mean_us(),
        /// 99th percentile of it. `null`: as for the mean.
        kick_p99_us: Option<f64> = i.kick.quantile_us(0.99),
    }

    /// Writes of a guest to one place that woke one thread, in the interval.
    pub struct JsonDoorbell(bell: &DoorbellModel) {
        /// `pio` or `mmio`.
        space: &'static str = bell.space.as_str(),
        /// Port or guest-physical address, such as `0xfebf9000`.
        address: String = format!("{:#x}", bell.address),
        /// Its device. `null`: not known.
        device: Option<String> = bell.device.clone(),
        /// What the woken thread is: `main`, `iothread`, `vhost`, `kworker`, `other`.
        to: &'static str = bell.to.as_str(),
        /// Its name.
        thread: String = bell.comm.clone(),
        /// Its thread id.
        #[schemars(range(min = 0))]
        tid: i32 = bell.tid,
        /// Number of such writes in the interval that woke it; while it is awake none does.
        #[schemars(range(min = 1))]
        count: u64 = bell.time.count,
        /// The same per second. `null`: no `interval_s`.
        rate: Option<f64> = bell.rate(),
        /// Mean time from the wake-up until the thread had a CPU. `null`: not measured.
        mean_us: Option<f64> = bell.time.mean_us(),
        /// 99th percentile of it. `null`: not measured.
        p99_us: Option<f64> = bell.time.quantile_us(0.99),
    }

    /// What the host threads of a guest did (`profile --json`), from samples of their stacks.
    #[schemars(rename = "profile")]
    pub struct JsonProfile(view: ProfileView<'_>, times: &[FunctionTime<'_>]) {
        /// Version of this format.
        #[schemars(extend("const" = 1))]
        schema: u32 = SCHEMA,
        /// `kvmtop` and its version.
        tool: &'static str = TOOL,
        /// Begin of the sampling: RFC 3339, UTC, with milliseconds. `null`: the clock gave no such time.
        #[schemars(extend("format" = "date-time"))]
        time: Option<String> = figures::utc(view.profile.began_ms),
        /// Name of the guest.
        guest: String = view.guest.to_owned(),
        /// Its process. `null`: not known.
        pid: Option<i32> = view.pid,
        /// How long was sampled; 0 where that was refused, as `gaps` says.
        duration_s: f64 = view.profile.duration_ns as f64 / 1e9,
        /// Samples for each second of CPU time that a thread uses.
        frequency_hz: u32 = view.profile.frequency_hz,
        /// Samples in `stacks`.
        samples: u64 = view.profile.samples_of(None),
        /// Samples that were taken and are in no stack.
        lost_samples: u64 = view.profile.lost,
        /// CPU time that kvmtop used for it.
        cost_s: f64 = view.profile.cost_ns as f64 / 1e9,
        /// What is not shown and why, such as the names of the kernel's functions.
        gaps: Vec<String> = view.profile.gaps.clone(),
        /// The sampled threads, in order of `tid`.
        threads: Vec<JsonProfiledThread> =
            view.profile.threads.iter().map(|t| JsonProfiledThread::new(t, view.profile)).collect(),
        /// The functions, sorted by `own_samples`, largest first.
        functions: Vec<JsonFunction> = times.iter().map(JsonFunction::new).collect(),
        /// The different stacks, most frequent first.
        stacks: Vec<JsonStack> = stacks(view.profile, times),
    }

    /// A sampled thread.
    pub struct JsonProfiledThread(thread: &ProfiledThread, profile: &StackProfile) {
        /// Thread id.
        tid: i32 = thread.tid,
        /// Name of the thread.
        comm: String = thread.comm.clone(),
        /// As in `thread`.
        role: &'static str = thread.role.as_str(),
        /// Number of the vCPU. `null`: another thread.
        vcpu: Option<u32> = thread.index.filter(|_| thread.role == Role::Vcpu),
        /// CPU time meanwhile, percent of one host CPU, time in the guest included. `null`: could not be read.
        cpu_percent: Option<f64> = profile.cpu_percent(thread),
        /// Its samples; 0 for a thread that did not run.
        samples: u64 = profile.samples_of(Some(thread.tid)),
    }

    /// A function, or what stands for one.
    pub struct JsonFunction(time: &FunctionTime<'_>) {
        /// Its name; `+0x1234`, the offset in its file, where no symbol covers it; `[guest]` for all code of the guest.
        name: String = time.function.name.clone(),
        /// The file that it is in, without the path; `kernel` for the kernel and its modules.
        module: String = time.function.module.clone(),
        /// Whose code it is: the VMM's, the host kernel's, the guest's; `unknown` stands for callers that could not be
        /// found.
        #[schemars(extend("enum" = ["user", "kernel", "guest", "unknown"]))]
        space: &'static str = time.function.space.as_str(),
        /// Samples in which it ran itself.
        own_samples: u64 = time.own,
        /// The same with those in which something that it called ran.
        total_samples: u64 = time.total,
    }

    /// A stack and how often it was seen.
    pub struct JsonStack(stack: &StackCount, numbers: Vec<usize>) {
        /// The thread.
        tid: i32 = stack.tid,
        /// How often.
        samples: u64 = stack.samples,
        /// Positions in `functions`, counted from 0, the outermost caller first.
        functions: Vec<usize> = numbers,
    }
}

fn domain(d: &DomainModel, m: &Model) -> JsonDomain {
    JsonDomain::new(d, m, GuestGuess::of(d, &GuestConfig::of(&d.facts)))
}

fn exits(d: &DomainModel) -> Vec<JsonExit> {
    let of_vcpus = d.vcpu_exits.iter().flat_map(|(_, table)| &table.rows);
    with_vcpus(&d.exits.rows, of_vcpus, |r| &r.reason).map(|row| JsonExit::new(row, &d.exits)).collect()
}

fn accesses(d: &DomainModel) -> Vec<JsonAccess> {
    let mut of_vcpus: Vec<_> = d.vcpu_accesses.iter().collect();
    of_vcpus.sort_by_key(|r| r.vcpu);
    with_vcpus(&d.accesses, of_vcpus, |r| (r.space, r.address, r.direction)).map(JsonAccess::new).collect()
}

/// The guest's rows, each before the rows of its vCPUs that have the same key.
fn with_vcpus<'a, R, K: Eq + Hash>(
    sums: &'a [R],
    of_vcpus: impl IntoIterator<Item = &'a R>,
    key: impl Fn(&'a R) -> K,
) -> impl Iterator<Item = &'a R> {
    let mut parts: HashMap<K, Vec<&R>> = HashMap::new();
    of_vcpus.into_iter().for_each(|row| parts.entry(key(row)).or_default().push(row));
    sums.iter().flat_map(move |sum| [sum].into_iter().chain(parts.remove(&key(sum)).unwrap_or_default()))
}

fn percent(part: Option<u64>, all: Option<u64>) -> Option<f64> {
    Some(100.0 * part? as f64 / all.filter(|all| *all > 0)? as f64)
}

fn stacks(profile: &StackProfile, times: &[FunctionTime<'_>]) -> Vec<JsonStack> {
    let numbers: HashMap<&Function, usize> = times.iter().enumerate().map(|(i, time)| (time.function, i)).collect();
    let numbered = |stack: &StackCount| profile.named(stack).filter_map(|f| numbers.get(f).copied()).collect();
    profile.stacks.iter().map(|stack| JsonStack::new(stack, numbered(stack))).collect()
}
