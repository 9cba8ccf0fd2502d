//! The families of metrics. `docs/metrics.md` lists them.

use super::guest::GuestMetrics;
use super::host::{FindingMetrics, HostMetrics};
use super::ranked::{Ranked, Tally};
use super::vcpu::{CpuMetrics, VcpuMetrics};
use super::write::{Column, Labels, histograms, table};
use kvm::sanitize;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use sample::{DomainState, Known, SourceId, SourceState, StopReason};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The label of the rest, where the number of labels is bounded.
const OTHER: &str = "other";

const SOURCES: &[Column<u64>] = &[Column::gauge(
    "kvmtop_source_state",
    "1 for the state that the source has",
    |is_it| Some(*is_it),
)];

const HOST: &[Column<HostMetrics>] = &[
    Column::time("process_cpu", "CPU time of kvmtop itself", |m| {
        Some(m.own.cpu_ns)
    }),
    Column::size("process_resident_memory", "Memory of kvmtop itself", |m| {
        Some(m.own.rss_bytes)
    }),
    Column::instant(
        "kvmtop_last_sample_timestamp",
        "When the last sample was taken",
        |m| Some(nanoseconds(m.time_ms)),
    ),
    Column::count("kvmtop_samples", "Samples taken", |m| Some(m.samples)),
    Column::count(
        "kvmtop_lost_events",
        "Events that the kernel dropped before kvmtop read them",
        |m| Some(m.lost),
    ),
    Column::count(
        "kvmtop_overflow_events",
        "Events counted without their detail: a bounded table was full",
        |m| Some(m.overflow),
    ),
    Column::gauge("kvmtop_host_cpus", "CPUs that are online", |m| Some(m.cpus)),
    Column::gauge(
        "kvmtop_guests_left_out",
        "Guests without series: there are too many",
        |m| Some(m.left_out),
    ),
];

const HOST_CPU: &[Column<u64>] = &[Column::time(
    "kvmtop_host_cpu",
    "Time of all CPUs of the host by what they did",
    |ns| Some(*ns),
)];

const GUESTS: &[Column<u64>] = &[Column::gauge(
    "kvmtop_guests",
    "Guests by their state",
    |guests| Some(*guests),
)];

const FINDINGS: &[Column<FindingMetrics>] = &[
    Column::gauge(
        "kvmtop_finding",
        "Findings of a rule about a guest or the host",
        |f| Some(f.count),
    ),
    Column::instant(
        "kvmtop_finding_since_timestamp",
        "When the finding was first seen",
        |f| f.since_ms.map(nanoseconds),
    ),
];

const GUEST_GAUGES: &[Column<GuestMetrics>] = &[
    Column::gauge("kvmtop_guest_vcpus", "vCPUs of the guest", |g| {
        g.facts.vcpus.as_ref().map(|vcpus| u64::from(vcpus.value))
    }),
    Column::size(
        "kvmtop_guest_memory_resident",
        "Memory of the VMM, without huge pages",
        |g| g.resident_bytes,
    ),
    Column::size("kvmtop_guest_swap", "Memory of the VMM in swap", |g| {
        g.swap_bytes
    }),
    Column::gauge(
        "kvmtop_guest_disk_bytes_per_second",
        "What its disks read and write",
        |g| g.disk_rate,
    ),
    Column::instant(
        "kvmtop_guest_disk_latency",
        "Mean time of a request of its slowest disk",
        |g| g.disk_latency_ns,
    ),
    Column::gauge(
        "kvmtop_guest_disk_limit_percent",
        "What its disk nearest to a limit uses of that",
        |g| g.disk_limit_percent,
    ),
    Column::gauge(
        "kvmtop_guest_network_bytes_per_second",
        "What its network interfaces receive and send",
        |g| g.net_rate,
    ),
    Column::gauge(
        "kvmtop_guest_receive_drops_per_second",
        "Packets for the guest that its interfaces dropped",
        |g| g.rx_drop_rate,
    ),
    Column::size(
        "kvmtop_guest_storage_free",
        "Free room on the fullest file system with its disks",
        |g| g.storage_free_bytes,
    ),
];

const STOPPED: &[Column<u64>] = &[Column::gauge(
    "kvmtop_guest_stopped",
    "1 for a guest that is paused, with the reason",
    |is| Some(*is),
)];

const VCPU_CPU: &[Column<u64>] = &[Column::time(
    "kvmtop_vcpu_cpu",
    "CPU time of vCPU threads by kind, in the kernel's ticks",
    |ns| Some(*ns),
)];

const VCPUS: &[Column<VcpuMetrics>] = &[
    Column::time(
        "kvmtop_vcpu_run",
        "Time of vCPU threads on a CPU, by the scheduler's clock",
        |v| v.cpu.times.run_ns,
    ),
    Column::time(
        "kvmtop_vcpu_wait",
        "Time of vCPU threads runnable without a CPU: what the guest sees as steal",
        |v| v.cpu.times.wait_ns,
    ),
    Column::count(
        "kvmtop_vcpu_moves",
        "Moves of vCPUs from one CPU of the host to another",
        |v| v.moves,
    ),
    Column::count(
        "kvmtop_vcpu_node_moves",
        "Moves of vCPUs to another NUMA node",
        |v| v.node_moves,
    ),
];

const VMM: &[Column<CpuMetrics>] = &[
    Column::time(
        "kvmtop_vmm_run",
        "Time of the VMM's other threads on a CPU, by the scheduler's clock",
        |c| c.times.run_ns,
    ),
    Column::time(
        "kvmtop_vmm_wait",
        "Time of the VMM's other threads runnable without a CPU",
        |c| c.times.wait_ns,
    ),
];

const EXITS: &[Column<Tally>] = &[
    Column::count("kvmtop_exits", "Exits of the guest by their reason", |t| {
        Some(t.count)
    }),
    Column::time(
        "kvmtop_exit",
        "Time in exits of the guest by their reason, with sleep",
        |t| t.ns,
    ),
];

const USERSPACE: &[Column<Tally>] = &[Column::count(
    "kvmtop_userspace_exits",
    "Exits to the VMM by their reason",
    |t| Some(t.count),
)];

const ACCESSES: &[Column<Tally>] = &[
    Column::count(
        "kvmtop_accesses",
        "Accesses of the guest to ports, device memory and MSRs",
        |t| Some(t.count),
    ),
    Column::time(
        "kvmtop_access",
        "Time in exits that served an access",
        |t| t.ns,
    ),
];

/// The metrics as `OpenMetrics` 1.0.
///
/// # Errors
/// Memory for the text could not be had.
pub fn openmetrics(metrics: &Arc<HostMetrics>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics.clone()));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

impl Collector for HostMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.about_host(&mut encoder)?;
        self.about_guests(&mut encoder)?;
        self.about_threads(&mut encoder)
    }
}

impl HostMetrics {
    fn about_host(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let version = Labels::default().with("version", env!("CARGO_PKG_VERSION"));
        table(
            e,
            &[Column::info("kvmtop_build", "The kvmtop that serves this")],
            [(version, ())],
        )?;
        table(e, HOST, [(Labels::default(), self)])?;
        let states = self.worst_states().into_iter().flat_map(|(id, worst)| {
            [SourceState::Ok, SourceState::Degraded, SourceState::Missing].map(|state| {
                let labels = Labels::default()
                    .with("source", id.as_str())
                    .with("state", state.as_str());
                (labels, u64::from(state == worst))
            })
        });
        table(e, SOURCES, states)?;
        let facts = &self.facts;
        let labels = Labels::default()
            .with("host", &facts.hostname)
            .with("kernel", &facts.kernel)
            .with("kvm", facts.kvm_flavour.as_deref().unwrap_or_default());
        table(
            e,
            &[Column::info("kvmtop_host", "This host")],
            [(labels, ())],
        )?;
        table(
            e,
            HOST_CPU,
            self.cpu_ns
                .iter()
                .map(|(mode, ns)| (Labels::default().with("mode", *mode), ns)),
        )?;
        let states = [DomainState::Running, DomainState::Paused].map(|state| {
            let guests = self
                .guests
                .values()
                .filter(|guest| guest.state == state)
                .count() as u64;
            (Labels::default().with("state", state.as_str()), guests)
        });
        table(e, GUESTS, states)?;
        let findings = self
            .findings
            .iter()
            .map(|((rule, severity, domain), finding)| {
                let labels = Labels::default()
                    .with("rule", *rule)
                    .with("severity", severity.as_str());
                (labels.with("domain", domain), finding)
            });
        table(e, FINDINGS, findings)
    }

    /// The worst state of each source.
    fn worst_states(&self) -> BTreeMap<SourceId, SourceState> {
        let mut worst = BTreeMap::new();
        for source in &self.sources {
            let worst = worst.entry(source.id).or_insert(source.state);
            if source.state as u8 > *worst as u8 {
                *worst = source.state;
            }
        }
        worst
    }

    /// The guests, each with its name as the first label.
    fn labelled_guests(&self) -> impl Iterator<Item = (Labels<'_>, &GuestMetrics)> {
        self.guests
            .iter()
            .map(|(name, guest)| (Labels::default().with("domain", name), guest))
    }

    fn about_guests(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let facts = self.labelled_guests().map(|(labels, guest)| {
            let facts = &guest.facts;
            let pid = facts.pid.map(|pid| pid.to_string()).unwrap_or_default();
            let labels = labels
                .with("uuid", text_of(facts.uuid.as_ref()))
                .with("pid", pid)
                .with("machine", text_of(facts.machine.as_ref()))
                .with("os", text_of(facts.guest_os.as_ref()))
                .with("title", facts.labels.title.as_deref().unwrap_or_default())
                .with("owner", facts.labels.owner.as_deref().unwrap_or_default())
                .with("vmm", facts.vmm.as_str());
            (labels, ())
        });
        table(e, &[Column::info("kvmtop_guest", "A guest")], facts)?;
        table(e, GUEST_GAUGES, self.labelled_guests())?;
        let stopped = self.labelled_guests().map(|(labels, guest)| {
            let reason = guest.stop_reason.map_or("", StopReason::as_str);
            let is_paused = guest.state == DomainState::Paused;
            (labels.with("reason", reason), u64::from(is_paused))
        });
        table(e, STOPPED, stopped)
    }

    /// Rows of each vCPU, or of each guest if vCPUs lack their own series.
    fn vcpus(&self) -> impl Iterator<Item = (Labels<'_>, &VcpuMetrics)> {
        self.labelled_guests().flat_map(move |(labels, guest)| {
            guest.vcpus.iter().map(move |(vcpu, metrics)| {
                let labels = labels.clone();
                if !self.per_vcpu {
                    return (labels, metrics);
                }
                let vcpu = vcpu.map_or_else(|| OTHER.to_owned(), |vcpu| vcpu.to_string());
                (labels.with("vcpu", vcpu), metrics)
            })
        })
    }

    fn about_threads(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let modes = self.vcpus().flat_map(|(labels, vcpu)| {
            let times = &vcpu.cpu.times;
            let modes = [
                ("user", vcpu.cpu.own_user_ns),
                ("system", times.system_ns),
                ("guest", times.guest_ns),
            ];
            modes.map(|(mode, ns)| (labels.clone().with("mode", mode), ns))
        });
        table(e, VCPU_CPU, modes)?;
        table(e, VCPUS, self.vcpus())?;
        let wakeups = self
            .vcpus()
            .filter_map(|(labels, vcpu)| Some((labels, vcpu.wakeups.as_ref()?)));
        histograms(
            e,
            (
                "kvmtop_vcpu_wakeup_latency",
                "From the wake-up of a vCPU until it runs",
            ),
            wakeups,
        )?;
        let roles = self.labelled_guests().flat_map(|(labels, guest)| {
            guest
                .vmm
                .iter()
                .map(move |(role, cpu)| (labels.clone().with("role", role.as_str()), cpu))
        });
        table(e, VMM, roles)?;
        table(
            e,
            EXITS,
            self.vcpus()
                .flat_map(|(labels, vcpu)| ranked(["reason"], labels, &vcpu.exits)),
        )?;
        table(
            e,
            USERSPACE,
            self.labelled_guests()
                .flat_map(|(labels, guest)| ranked(["reason"], labels, &guest.userspace)),
        )?;
        table(
            e,
            ACCESSES,
            self.labelled_guests()
                .flat_map(|(labels, guest)| ranked(["space", "device"], labels, &guest.accesses)),
        )
    }
}

/// What is known, or an empty text.
fn text_of(known: Option<&Known<String>>) -> String {
    known
        .map(|known| sanitize(&known.value, 128))
        .unwrap_or_default()
}

/// A row for each label that has a series, and for the rest.
fn ranked<'a, const N: usize>(
    names: [&'static str; N],
    labels: Labels<'a>,
    all: &'a Ranked<[String; N]>,
) -> impl Iterator<Item = (Labels<'a>, Tally)> {
    all.rows().map(move |(values, tally)| {
        let mut labels = labels.clone();
        for (n, name) in names.into_iter().enumerate() {
            labels = labels.with(name, values.map_or(OTHER, |values| &values[n]));
        }
        (labels, tally)
    })
}

/// Nanoseconds since the epoch.
fn nanoseconds(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000)
}
