//! The families of metrics. `docs/metrics.md` lists them.

use super::devices::{DISKS, HOST_DISKS, NICS, OPERATIONS};
use super::guest::GuestMetrics;
use super::host::{FindingMetrics, HOST_CPU, HostMetrics};
use super::ranked::{Ranked, Tally};
use super::vcpu::{CpuMetrics, VcpuMetrics};
use super::write::{Column, Labels, histograms, table, table_of_sums};
use judge::model::jobs;
use kvm::sanitize;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use sample::{DomainState, Job, Known, SourceState, StopReason};
use std::collections::BTreeMap;
use std::fmt;

/// The label of the rest, where the number of labels is bounded.
const OTHER: &str = "other";

const SOURCES: &[Column<u64>] =
    &[Column::gauge("kvmtop_source_state", "1 for the state that the source has", |is_it| Some(*is_it))];

const HOST: &[Column<HostMetrics>] = &[
    Column::instant("process_start_time", "When kvmtop itself began", |m| Some(nanoseconds(m.began_ms))),
    Column::time("process_cpu", "CPU time of kvmtop itself", |m| Some(m.own.cpu_ns)),
    Column::size("process_resident_memory", "Memory of kvmtop itself", |m| Some(m.own.rss_bytes)),
    Column::instant("kvmtop_last_sample_timestamp", "When the last sample was taken", |m| Some(nanoseconds(m.time_ms))),
    Column::count("kvmtop_samples", "Samples taken", |m| Some(m.samples)),
    Column::count("kvmtop_events", "Events of KVM and the scheduler that were counted", |m| Some(m.events)),
    Column::count("kvmtop_lost_events", "Events that the kernel dropped before kvmtop read them", |m| Some(m.lost)),
    Column::count("kvmtop_overflow_events", "Events counted without their detail: a bounded table was full", |m| {
        Some(m.overflow)
    }),
    Column::gauge("kvmtop_host_cpus", "CPUs that are online", |m| Some(m.cpus)),
    Column::size("kvmtop_host_memory", "Memory of the host", |m| m.memory.map(|memory| memory.total)),
    Column::size("kvmtop_host_memory_available", "Memory that can be had without swapping", |m| {
        m.memory.map(|memory| memory.available)
    }),
    Column::size("kvmtop_host_swap_used", "Swap in use", |m| m.memory.map(|memory| memory.swap_used)),
    Column::gauge("kvmtop_guests_left_out", "Guests without series: there are too many", |m| Some(m.left_out)),
];

const GUESTS: &[Column<u64>] = &[Column::gauge("kvmtop_guests", "Guests by their state", |guests| Some(*guests))];

const FINDINGS: &[Column<FindingMetrics>] = &[
    Column::gauge("kvmtop_finding", "Findings of a rule about a guest or the host", |f| Some(f.count)),
    Column::instant("kvmtop_finding_since_timestamp", "When the finding was first seen", |f| {
        f.since_ms.map(nanoseconds)
    }),
];

const GUEST_GAUGES: &[Column<GuestMetrics>] = &[
    Column::gauge("kvmtop_guest_running", "1 for a guest that runs, 0 for one that is paused", |g| {
        Some(u64::from(g.state == DomainState::Running))
    }),
    Column::instant("kvmtop_guest_start_timestamp", "When the guest's process began", |g| {
        g.facts.started_ms.map(nanoseconds)
    }),
    Column::gauge("kvmtop_guest_vcpus", "vCPUs of the guest", |g| {
        g.facts.vcpus.as_ref().map(|vcpus| u64::from(vcpus.value))
    }),
    Column::size("kvmtop_guest_memory_resident", "Memory of the VMM, without huge pages", |g| g.memory.resident),
    Column::size("kvmtop_guest_memory_hugetlb", "Explicit huge pages of the VMM", |g| g.memory.hugetlb),
    Column::size("kvmtop_guest_memory_transparent", "Transparent huge pages of the VMM", |g| g.memory.transparent),
    Column::size("kvmtop_guest_memory_balloon", "Memory that the balloon leaves to the guest", |g| g.memory.balloon),
    Column::size("kvmtop_guest_swap", "Memory of the VMM in swap", |g| g.swap_bytes),
];

const STOPPED: &[Column<u64>] =
    &[Column::gauge("kvmtop_guest_stopped", "1 for a guest that is paused, with the reason", |is| Some(*is))];

const NODE_MEMORY: &[Column<u64>] =
    &[Column::size("kvmtop_guest_node_memory", "Memory of the VMM on a NUMA node of the host", |bytes| Some(*bytes))];

const JOBS: &[Column<Job>] = &[
    Column::gauge("kvmtop_job_progress_percent", "How far a migration, block job or dump of the guest is", |job| {
        jobs::progress(job).map(|percent| percent as u64)
    }),
    Column::size("kvmtop_job_remaining", "Bytes that the job has left", |job| job.remaining),
    Column::size("kvmtop_job_rate", "Bytes that the job moves per second", |job| job.rate),
    Column::size("kvmtop_job_dirtied", "Bytes of memory that the guest writes per second", |job| job.dirtied),
    Column::gauge("kvmtop_job_converges", "1 for a migration that ends at this rate, 0 for one that does not", |job| {
        jobs::converges(job, jobs::ENDLESS_PERCENT).map(u64::from)
    }),
];

const THROTTLED: &[Column<u64>] = &[Column::time(
    "kvmtop_guest_throttled",
    "Time in which threads of the guest were throttled by a CPU quota",
    |ns| Some(*ns),
)];

const VCPU_CPU: &str = "CPU time of vCPU threads by kind, in the kernel's ticks";
const SWITCHES: &str =
    "Context switches of vCPU threads; kvmtop_vcpu_wait_seconds_total over these is the mean run delay";

const VCPUS: &[Column<VcpuMetrics>] = &[
    Column::with("mode", "user", &Column::time("kvmtop_vcpu_cpu", VCPU_CPU, |v| Some(v.cpu.own_user_ns))),
    Column::with("mode", "system", &Column::time("kvmtop_vcpu_cpu", VCPU_CPU, |v| Some(v.cpu.times.system_ns))),
    Column::with("mode", "guest", &Column::time("kvmtop_vcpu_cpu", VCPU_CPU, |v| Some(v.cpu.times.guest_ns))),
    Column::time("kvmtop_vcpu_run", "Time of vCPU threads on a CPU, by the scheduler's clock", |v| v.cpu.times.run_ns),
    Column::time(
        "kvmtop_vcpu_wait",
        "Time of vCPU threads runnable without a CPU: what the guest sees as steal",
        |v| v.cpu.times.wait_ns,
    ),
    Column::count("kvmtop_vcpu_moves", "Moves of vCPUs from one CPU of the host to another", |v| v.moves),
    Column::count("kvmtop_vcpu_node_moves", "Moves of vCPUs to another NUMA node", |v| v.node_moves),
    switches("voluntary", |v| v.cpu.times.voluntary),
    switches("involuntary", |v| v.cpu.times.involuntary),
];

const fn switches(kind: &'static str, value: fn(&VcpuMetrics) -> Option<u64>) -> Column<VcpuMetrics> {
    Column::with("kind", kind, &Column::count("kvmtop_vcpu_context_switches", SWITCHES, value))
}

const VMM_CPU: &str = "CPU time of the VMM's other threads by their role, in the kernel's ticks";

const VMM: &[Column<CpuMetrics>] = &[
    Column::with("mode", "user", &Column::time("kvmtop_vmm_cpu", VMM_CPU, |c| Some(c.own_user_ns))),
    Column::with("mode", "system", &Column::time("kvmtop_vmm_cpu", VMM_CPU, |c| Some(c.times.system_ns))),
    Column::time("kvmtop_vmm_run", "Time of the VMM's other threads on a CPU, by the scheduler's clock", |c| {
        c.times.run_ns
    }),
    Column::time("kvmtop_vmm_wait", "Time of the VMM's other threads runnable without a CPU", |c| c.times.wait_ns),
];

const EXITS: &[Column<Tally>] = &[
    Column::count("kvmtop_exits", "Exits of the guest by their reason", |t| Some(t.count)),
    Column::time("kvmtop_exit", "Time in exits of the guest by their reason, with sleep", |t| t.ns),
];

const USERSPACE: &[Column<Tally>] =
    &[Column::count("kvmtop_userspace_exits", "Exits to the VMM by their reason", |t| Some(t.count))];

const ACCESSES: &[Column<Tally>] = &[
    Column::count("kvmtop_accesses", "Accesses of the guest to ports, device memory and MSRs", |t| Some(t.count)),
    Column::time("kvmtop_access", "Time in exits that served an access", |t| t.ns),
];

const INJECTED: &[Column<Tally>] =
    &[Column::count("kvmtop_interrupts", "Interrupts that KVM gave to the guest's vCPUs", |t| Some(t.count))];

const WOKE: &[Column<Tally>] = &[
    Column::count("kvmtop_interrupt_wakeups", "Interrupts that woke a sleeping vCPU", |t| Some(t.count)),
    Column::time("kvmtop_interrupt_wakeup_time", "From their injection until the vCPU had a CPU", |t| t.ns),
];

const ARRIVED: &[Column<Tally>] = &[
    Column::count(
        "kvmtop_interrupt_arrivals",
        "Interrupts of which the whole way was timed, where the kernel fires kvm_entry",
        |t| Some(t.count),
    ),
    Column::time("kvmtop_interrupt_arrival_time", "From their injection until the vCPU ran the guest", |t| t.ns),
];

const DOORBELLS: &[Column<Tally>] = &[
    Column::count(
        "kvmtop_doorbells",
        "Writes of the guest that KVM passed on as an eventfd and that woke a thread",
        |t| Some(t.count),
    ),
    Column::time("kvmtop_doorbell_time", "From these until the thread had a CPU", |t| t.ns),
];

impl Collector for HostMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.about_host(&mut encoder)?;
        self.about_guests(&mut encoder)?;
        self.about_threads(&mut encoder)?;
        self.about_devices(&mut encoder)
    }
}

impl HostMetrics {
    fn about_host(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let version = Labels::default().with("version", env!("CARGO_PKG_VERSION"));
        table(e, &[Column::info("kvmtop_build", "The kvmtop that serves this")], [(version, ())])?;
        table(e, HOST, [(Labels::default(), self)])?;
        let engine = Labels::default().with("engine", self.engine.kind.as_str());
        let engine = engine.with("level", self.engine.level.as_str());
        table(e, &[Column::info("kvmtop_engine", "How exits are counted")], [(engine, ())])?;
        let mut worst = BTreeMap::new();
        for source in &self.sources {
            let worst = worst.entry(source.id).or_insert(source.state);
            if source.state as u8 > *worst as u8 {
                *worst = source.state;
            }
        }
        let states = worst.into_iter().flat_map(|(id, worst)| {
            [SourceState::Ok, SourceState::Degraded, SourceState::Missing].map(|state| {
                let labels = Labels::default().with("source", id.as_str()).with("state", state.as_str());
                (labels, u64::from(state == worst))
            })
        });
        table(e, SOURCES, states)?;
        let facts = &self.facts;
        let labels = Labels::default().with("host", &facts.hostname).with("kernel", &facts.kernel);
        let labels = labels.with("kvm", facts.kvm_flavour.as_deref().unwrap_or_default());
        table(e, &[Column::info("kvmtop_host", "This host")], [(labels, ())])?;
        table_of_sums(e, HOST_CPU, [(Labels::default(), &self.cpu)])?;
        let states = [DomainState::Running, DomainState::Paused].map(|state| {
            let guests = self.guests.values().filter(|guest| guest.state == state).count() as u64;
            (Labels::default().with("state", state.as_str()), guests)
        });
        table(e, GUESTS, states)?;
        let findings = self.findings.iter().map(|((rule, severity, domain), finding)| {
            let labels = Labels::default().with("rule", *rule).with("severity", severity.as_str());
            (labels.with("domain", domain), finding)
        });
        table(e, FINDINGS, findings)
    }

    /// Rows of all guests, whose labels begin with the guest's name.
    fn each<'a, T: 'a, R: IntoIterator<Item = (Labels<'a>, T)> + 'a>(
        &'a self,
        rows: impl Fn(Labels<'a>, &'a GuestMetrics) -> R + 'a,
    ) -> impl Iterator<Item = (Labels<'a>, T)> {
        self.guests.iter().flat_map(move |(name, guest)| rows(Labels::default().with("domain", name), guest))
    }

    fn about_guests(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let facts = self.each(|labels, guest| {
            let facts = &guest.facts;
            let text =
                |known: &Option<Known<String>>| known.as_ref().map(|k| sanitize(&k.value, 128)).unwrap_or_default();
            let labels = labels.with("uuid", text(&facts.uuid));
            let labels = labels.with("pid", facts.pid.map(|pid| pid.to_string()).unwrap_or_default());
            let labels = labels.with("machine", text(&facts.machine)).with("os", text(&facts.guest_os));
            [(labels.with("vmm", facts.vmm.as_str()), ())]
        });
        table(e, &[Column::info("kvmtop_guest", "A guest")], facts)?;
        table(e, GUEST_GAUGES, self.each(|labels, guest| [(labels, guest)]))?;
        let stopped = self.each(|labels, guest| {
            let reason = guest.stop_reason.map_or("", StopReason::as_str);
            [(labels.with("reason", reason), u64::from(guest.state == DomainState::Paused))]
        });
        table(e, STOPPED, stopped)?;
        table(e, NODE_MEMORY, self.each(|labels, guest| by("node", labels, &guest.node_memory)))?;
        table(e, THROTTLED, self.each(|labels, guest| by("group", labels, &guest.throttled_ns)))
    }

    /// Rows of each vCPU, or of each guest if vCPUs lack their own series.
    fn vcpus(&self) -> impl Iterator<Item = (Labels<'_>, &VcpuMetrics)> {
        self.each(move |labels, guest| {
            guest.vcpus.iter().map(move |(vcpu, metrics)| {
                let vcpu = || vcpu.map_or_else(|| OTHER.to_owned(), |vcpu| vcpu.to_string());
                let labels = labels.clone();
                (if self.per_vcpu { labels.with("vcpu", vcpu()) } else { labels }, metrics)
            })
        })
    }

    fn about_threads(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        table(e, VCPUS, self.vcpus())?;
        let wakeups = self.vcpus().filter_map(|(labels, vcpu)| Some((labels, vcpu.wakeups.as_ref()?)));
        histograms(e, ("kvmtop_vcpu_wakeup_latency", "From the wake-up of a vCPU until it runs"), wakeups)?;
        let roles = self.each(|labels, guest| {
            guest.vmm.iter().map(move |(role, cpu)| (labels.clone().with("role", role.as_str()), cpu))
        });
        table(e, VMM, roles)?;
        table(e, EXITS, self.vcpus().flat_map(|(labels, vcpu)| ranked(["reason"], labels, &vcpu.exits)))?;
        table(e, USERSPACE, self.each(|labels, guest| ranked(["reason"], labels, &guest.userspace)))?;
        table(e, ACCESSES, self.each(|labels, guest| ranked(["space", "device"], labels, &guest.accesses)))?;
        let kind = ["source", "number", "by"];
        table(e, INJECTED, self.each(|labels, guest| ranked(kind, labels, &guest.injected)))?;
        table(e, WOKE, self.each(|labels, guest| ranked(kind, labels, &guest.woke)))?;
        table(e, ARRIVED, self.each(|labels, guest| ranked(kind, labels, &guest.arrived)))?;
        table(e, DOORBELLS, self.each(|labels, guest| ranked(["device", "to"], labels, &guest.doorbells)))
    }

    fn about_devices(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        table_of_sums(e, DISKS, self.each(|labels, guest| by("device", labels, &guest.disks)))?;
        let operations =
            self.each(|labels, guest| by("device", labels, &guest.host_disks)).flat_map(|(labels, kinds)| {
                OPERATIONS.iter().zip(kinds).map(move |(name, sums)| (labels.clone().with("operation", *name), sums))
            });
        table_of_sums(e, HOST_DISKS, operations)?;
        let jobs = self.each(|labels, guest| {
            guest
                .jobs
                .iter()
                .map(move |job| (labels.clone().with("kind", job.kind.as_str()).with("name", &job.name), job))
        });
        table(e, JOBS, jobs)?;
        table_of_sums(e, NICS, self.each(|labels, guest| by("device", labels, &guest.nics)))
    }
}

/// A row for each entry, whose key is a label of this name.
fn by<'a, K: ToString, T>(
    name: &'static str,
    labels: Labels<'a>,
    all: &'a BTreeMap<K, T>,
) -> impl Iterator<Item = (Labels<'a>, &'a T)> {
    all.iter().map(move |(key, value)| (labels.clone().with(name, key.to_string()), value))
}

/// A row for each label that has a series, and for the rest.
fn ranked<'a, const N: usize>(
    names: [&'static str; N],
    labels: Labels<'a>,
    all: &'a Ranked<[String; N]>,
) -> impl Iterator<Item = (Labels<'a>, Tally)> {
    all.rows().map(move |(values, tally)| {
        let label = |n: usize| values.map_or(OTHER, |values| &values[n]);
        let with = |labels: Labels<'a>, (n, name)| labels.with(name, label(n));
        (names.into_iter().enumerate().fold(labels.clone(), with), tally)
    })
}

/// Nanoseconds since the epoch.
fn nanoseconds(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000)
}
