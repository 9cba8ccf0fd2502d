//! The families of metrics. `docs/metrics.md` lists them.

use super::devices::{DISKS, HOST_DISKS, NICS, OPERATIONS};
use super::guest::{GuestMetrics, InterruptKind};
use super::host::{CPU_MODES, FindingMetrics, HostMetrics};
use super::ranked::{Ranked, Tally};
use super::vcpu::{CpuMetrics, VcpuMetrics};
use super::write::{Column, Labels, MetricFamily, Rows, Sums, WriteRow, table, table_of_sums};
use kvm::sanitize;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use sample::{DomainState, Known, SourceState};
use std::collections::BTreeMap;
use std::fmt;

/// The label of the rest, where the number of labels is bounded.
const OTHER: &str = "other";

impl Collector for HostMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let e = &mut encoder;
        self.own(e)?;
        self.host(e)?;
        self.found(e)?;
        self.guest_facts(e)?;
        self.vcpus(e)?;
        self.vmm(e)?;
        self.exits(e)?;
        self.interrupts(e)?;
        self.devices(e)
    }
}

const OWN: &[Column<HostMetrics>] = &[
    Column::time("process_cpu", "CPU time of kvmtop itself", |m| Some(m.own.cpu_ns)),
    Column::size("process_resident_memory", "Memory of kvmtop itself", |m| Some(m.own.rss_bytes)),
    Column::instant("kvmtop_last_sample_timestamp", "When the last sample was taken", |m| Some(nanoseconds(m.time_ms))),
    Column::count("kvmtop_samples", "Samples taken", |m| Some(m.samples)),
    Column::count("kvmtop_events", "Events of KVM and the scheduler that were counted", |m| Some(m.events)),
    Column::count("kvmtop_lost_events", "Events that the kernel dropped before kvmtop read them", |m| Some(m.lost)),
    Column::count("kvmtop_overflow_events", "Events counted without their detail: a bounded table was full", |m| {
        Some(m.overflow)
    }),
];

const HOST_MEMORY: &[Column<HostMetrics>] = &[
    Column::size("kvmtop_host_memory", "Memory of the host", |m| m.memory.map(|memory| memory.total)),
    Column::size("kvmtop_host_memory_available", "Memory that can be had without swapping", |m| {
        m.memory.map(|memory| memory.available)
    }),
    Column::size("kvmtop_host_swap_used", "Swap in use", |m| m.memory.map(|memory| memory.swap_used)),
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

const VCPUS: &[Column<VcpuMetrics>] = &[
    Column::time("kvmtop_vcpu_run", "Time of vCPU threads on a CPU, by the scheduler's clock", |v| v.cpu.times.run_ns),
    Column::time(
        "kvmtop_vcpu_wait",
        "Time of vCPU threads runnable without a CPU: what the guest sees as steal",
        |v| v.cpu.times.wait_ns,
    ),
    Column::count("kvmtop_vcpu_moves", "Moves of vCPUs from one CPU of the host to another", |v| v.moves),
    Column::count("kvmtop_vcpu_node_moves", "Moves of vCPUs to another NUMA node", |v| v.node_moves),
];

const VMM: &[Column<CpuMetrics>] = &[
    Column::time("kvmtop_vmm_run", "Time of the VMM's other threads on a CPU, by the scheduler's clock", |c| {
        c.times.run_ns
    }),
    Column::time("kvmtop_vmm_wait", "Time of the VMM's other threads runnable without a CPU", |c| c.times.wait_ns),
];

const EXITS: &[Column<Tally>] = &[
    Column::count("kvmtop_exits", "Exits of the guest by their reason", Tally::known_count),
    Column::time("kvmtop_exit", "Time in exits of the guest by their reason, with sleep", |t| t.ns),
];

const ACCESSES: &[Column<Tally>] = &[
    Column::count("kvmtop_accesses", "Accesses of the guest to ports, device memory and MSRs", Tally::known_count),
    Column::time("kvmtop_access", "Time in exits that served an access", |t| t.ns),
];

const INJECTED: &[Column<Tally>] =
    &[Column::count("kvmtop_interrupts", "Interrupts that KVM gave to the guest's vCPUs", Tally::known_count)];

const WOKE: &[Column<Tally>] = &[
    Column::count("kvmtop_interrupt_wakeups", "Interrupts that woke a sleeping vCPU", Tally::known_count),
    Column::time("kvmtop_interrupt_wakeup_time", "From their injection until the vCPU had a CPU", |t| t.ns),
];

const ARRIVED: &[Column<Tally>] = &[
    Column::count(
        "kvmtop_interrupt_arrivals",
        "Interrupts of which the whole way was timed, where the kernel fires kvm_entry",
        Tally::known_count,
    ),
    Column::time("kvmtop_interrupt_arrival_time", "From their injection until the vCPU ran the guest", |t| t.ns),
];

const DOORBELLS: &[Column<Tally>] = &[
    Column::count(
        "kvmtop_doorbells",
        "Writes of the guest that KVM passed on as an eventfd and that woke a thread",
        Tally::known_count,
    ),
    Column::time("kvmtop_doorbell_time", "From these until the thread had a CPU", |t| t.ns),
];

impl HostMetrics {
    fn own(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let about = [("version", env!("CARGO_PKG_VERSION"))];
        Rows::new(e, MetricFamily::info("kvmtop_build", "The kvmtop that serves this")).add(&about, 1)?;
        table(e, OWN, |row| row(&[], self))?;
        let engine = [("engine", self.engine.kind.as_str()), ("level", self.engine.level.as_str())];
        Rows::new(e, MetricFamily::info("kvmtop_engine", "How exits are counted")).add(&engine, 1)?;
        let mut sources =
            Rows::new(e, MetricFamily::gauge("kvmtop_source_state", "1 for the state that the source has"));
        let mut ids: Vec<_> = self.sources.iter().map(|s| s.id).collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let worst = self.sources.iter().filter(|s| s.id == id).map(|s| s.state).max_by_key(|s| *s as u8);
            for state in [SourceState::Ok, SourceState::Degraded, SourceState::Missing] {
                let labels = [("source", id.as_str()), ("state", state.as_str())];
                sources.add(&labels, u64::from(worst == Some(state)))?;
            }
        }
        Ok(())
    }

    fn host(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let facts = &self.facts;
        let kvm = facts.kvm_flavour.as_deref().unwrap_or_default();
        let about = [("host", facts.hostname.as_str()), ("kernel", &facts.kernel), ("kvm", kvm)];
        Rows::new(e, MetricFamily::info("kvmtop_host", "This host")).add(&about, 1)?;
        Rows::new(e, MetricFamily::gauge("kvmtop_host_cpus", "CPUs that are online")).add(&[], self.cpus)?;
        let help = "Time of all CPUs of the host by what they did";
        let mut rows = Rows::new(e, MetricFamily::counter("kvmtop_host_cpu", help).seconds());
        for ((mode, _), ns) in CPU_MODES.iter().zip(self.cpu) {
            rows.add(&[("mode", mode)], ns)?;
        }
        table(e, HOST_MEMORY, |row| row(&[], self))?;
        let mut rows = Rows::new(e, MetricFamily::gauge("kvmtop_guests", "Guests by their state"));
        for state in [DomainState::Running, DomainState::Paused] {
            let guests = self.guests.values().filter(|g| g.state == state).count();
            rows.add(&[("state", state.as_str())], guests as u64)?;
        }
        let family = MetricFamily::gauge("kvmtop_guests_left_out", "Guests without series: there are too many");
        Rows::new(e, family).add(&[], self.left_out)
    }

    fn found(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let columns = [
            Column::gauge("kvmtop_finding", "Findings of a rule about a guest or the host", |f: &FindingMetrics| {
                Some(f.count)
            }),
            Column::instant("kvmtop_finding_since_timestamp", "When the finding was first seen", |f| {
                f.since_ms.map(nanoseconds)
            }),
        ];
        table(e, &columns, |row| {
            self.findings.iter().try_for_each(|((rule, severity, domain), finding)| {
                row(&[("rule", rule), ("severity", severity.as_str()), ("domain", domain)], finding)
            })
        })
    }

    fn guest_facts(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut rows = Rows::new(e, MetricFamily::info("kvmtop_guest", "A guest"));
        for (name, guest) in &self.guests {
            let facts = &guest.facts;
            let pid = facts.pid.map(|pid| pid.to_string()).unwrap_or_default();
            let text =
                |known: &Option<Known<String>>| known.as_ref().map(|k| sanitize(&k.value, 128)).unwrap_or_default();
            let (uuid, machine, os) = (text(&facts.uuid), text(&facts.machine), text(&facts.guest_os));
            let vmm = facts.vmm.as_str();
            let about = [("domain", name.as_str()), ("uuid", &uuid), ("pid", &pid), ("machine", &machine), ("os", &os)];
            rows.add(&with(&about, ("vmm", vmm)), 1)?;
        }
        table(e, GUEST_GAUGES, |row| self.guests.iter().try_for_each(|(name, guest)| row(&[("domain", name)], guest)))?;
        let help = "Memory of the VMM on a NUMA node of the host";
        let mut rows = Rows::new(e, MetricFamily::gauge("kvmtop_guest_node_memory", help).bytes());
        for (name, guest) in &self.guests {
            for (node, bytes) in &guest.node_memory {
                rows.add(&[("domain", name), ("node", &node.to_string())], *bytes)?;
            }
        }
        let help = "Time in which threads of the guest were throttled by a CPU quota";
        let mut rows = Rows::new(e, MetricFamily::counter("kvmtop_guest_throttled", help).seconds());
        for (name, guest) in &self.guests {
            for (group, ns) in &guest.throttled_ns {
                rows.add(&[("domain", name), ("group", group)], *ns)?;
            }
        }
        Ok(())
    }

    /// Writes a row for each vCPU, or for each guest if vCPUs lack their own series.
    fn each_vcpu(&self, row: WriteRow<'_, VcpuMetrics>) -> fmt::Result {
        for (name, guest) in &self.guests {
            for (vcpu, metrics) in &guest.vcpus {
                if self.per_vcpu {
                    let vcpu = vcpu.map_or_else(|| OTHER.to_owned(), |vcpu| vcpu.to_string());
                    row(&[("domain", name), ("vcpu", &vcpu)], metrics)?;
                } else {
                    row(&[("domain", name)], metrics)?;
                }
            }
        }
        Ok(())
    }

    fn vcpus(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "CPU time of vCPU threads by kind, in the kernel's ticks";
        let mut rows = Rows::new(e, MetricFamily::counter("kvmtop_vcpu_cpu", help).seconds());
        self.each_vcpu(&mut |labels, vcpu| {
            let CpuMetrics { times, own_user_ns } = &vcpu.cpu;
            for (mode, ns) in [("user", *own_user_ns), ("system", times.system_ns), ("guest", times.guest_ns)] {
                rows.add(&with(labels, ("mode", mode)), ns)?;
            }
            Ok(())
        })?;
        table(e, VCPUS, |row| self.each_vcpu(row))?;
        let help = "From the wake-up of a vCPU until it runs";
        let mut rows = Rows::new(e, MetricFamily::histogram("kvmtop_vcpu_wakeup_latency", help));
        self.each_vcpu(&mut |labels, vcpu| {
            vcpu.wakeups.as_ref().map_or(Ok(()), |wakeups| rows.add_durations(labels, wakeups))
        })?;
        let help = "Context switches of vCPU threads; kvmtop_vcpu_wait_seconds_total over these is the mean run delay";
        let mut rows = Rows::new(e, MetricFamily::counter("kvmtop_vcpu_context_switches", help));
        self.each_vcpu(&mut |labels, vcpu| {
            rows.add_known(&with(labels, ("kind", "voluntary")), vcpu.cpu.times.voluntary)?;
            rows.add_known(&with(labels, ("kind", "involuntary")), vcpu.cpu.times.involuntary)
        })
    }

    fn vmm(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let each = |row: WriteRow<'_, CpuMetrics>| {
            let roles = |(name, guest): (&String, &GuestMetrics)| {
                guest.vmm.iter().try_for_each(|(role, cpu)| row(&[("domain", name), ("role", role.as_str())], cpu))
            };
            self.guests.iter().try_for_each(roles)
        };
        let help = "CPU time of the VMM's other threads by their role, in the kernel's ticks";
        let mut rows = Rows::new(e, MetricFamily::counter("kvmtop_vmm_cpu", help).seconds());
        each(&mut |labels, cpu| {
            rows.add(&with(labels, ("mode", "user")), cpu.own_user_ns)?;
            rows.add(&with(labels, ("mode", "system")), cpu.times.system_ns)
        })?;
        table(e, VMM, each)
    }

    fn exits(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        table(e, EXITS, |row| {
            self.each_vcpu(&mut |labels, vcpu| {
                vcpu.exits.rows().try_for_each(|(reason, tally)| {
                    row(&with(labels, ("reason", reason.map_or(OTHER, String::as_str))), &tally)
                })
            })
        })?;
        let mut rows =
            Rows::new(e, MetricFamily::counter("kvmtop_userspace_exits", "Exits to the VMM by their reason"));
        for (name, guest) in &self.guests {
            for (reason, tally) in guest.userspace.rows() {
                let reason = reason.map_or(OTHER, String::as_str);
                rows.add(&[("domain", name), ("reason", reason)], tally.count)?;
            }
        }
        table(e, ACCESSES, |row| {
            for (name, guest) in &self.guests {
                for (access, tally) in guest.accesses.rows() {
                    let (space, device) = access.map_or((OTHER, OTHER), |(s, device)| (s.as_str(), device.as_str()));
                    row(&[("domain", name), ("space", space), ("device", device)], &tally)?;
                }
            }
            Ok(())
        })
    }

    fn interrupts(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Tallies = fn(&GuestMetrics) -> &Ranked<InterruptKind>;
        let tables: [(&[Column<Tally>], Tallies); 3] = [
            (INJECTED, |g| &g.interrupts.injected),
            (WOKE, |g| &g.interrupts.woke),
            (ARRIVED, |g| &g.interrupts.arrived),
        ];
        for (columns, tallies) in tables {
            table(e, columns, |row| {
                for (name, guest) in &self.guests {
                    for (kind, tally) in tallies(guest).rows() {
                        let number = kind.map(|(source, _)| source.number().to_string());
                        let (source, by) = kind.map_or((OTHER, OTHER), |(source, by)| (source.as_str(), by.as_str()));
                        let number = number.as_deref().unwrap_or(OTHER);
                        row(&[("domain", name), ("source", source), ("number", number), ("by", by)], &tally)?;
                    }
                }
                Ok(())
            })?;
        }
        table(e, DOORBELLS, |row| {
            for (name, guest) in &self.guests {
                for (bell, tally) in guest.interrupts.rung.rows() {
                    let (device, to) = bell.map_or((OTHER, OTHER), |(device, to)| (device.as_str(), to.as_str()));
                    row(&[("domain", name), ("device", device), ("to", to)], &tally)?;
                }
            }
            Ok(())
        })
    }

    fn devices(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let each = |devices: fn(&GuestMetrics) -> &BTreeMap<String, Sums>, row: WriteRow<'_, Sums>| {
            let of_guest = |(name, guest): (&String, &GuestMetrics)| {
                devices(guest).iter().try_for_each(|(device, sums)| row(&[("domain", name), ("device", device)], sums))
            };
            self.guests.iter().try_for_each(of_guest)
        };
        table_of_sums(e, DISKS, |row| each(|guest| &guest.disks, row))?;
        table_of_sums(e, HOST_DISKS, |row| {
            for (name, guest) in &self.guests {
                for (device, kinds) in &guest.host_disks {
                    for (operation, sums) in OPERATIONS.iter().zip(kinds) {
                        row(&[("domain", name), ("device", device), ("operation", operation)], sums)?;
                    }
                }
            }
            Ok(())
        })?;
        table_of_sums(e, NICS, |row| each(|guest| &guest.nics, row))
    }
}

/// Nanoseconds since the epoch.
fn nanoseconds(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000)
}

/// The labels and one more.
fn with<'a>(labels: Labels<'a>, more: (&'a str, &'a str)) -> Vec<(&'a str, &'a str)> {
    [labels, &[more]].concat()
}
