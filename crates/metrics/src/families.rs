//! The families of metrics. `docs/metrics.md` lists them.

use super::guest::{GuestMetrics, HostRequestMetrics, InterruptKind, InterruptMetrics};
use super::host::{HostCpuMetrics, HostMetrics};
use super::ranked::{Ranked, Tally};
use super::vcpu::{CpuMetrics, VcpuMetrics};
use super::write::RowValue::{Durations, Nanoseconds, Whole};
use super::write::{Labels, MetricFamily, RowValue, Rows};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use sample::{DiskSample, DomainState, NicSample, SourceState};
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

/// One value of a guest: the family, and where the value is.
type Of<T> = fn(&T) -> Option<RowValue<'_>>;

impl HostMetrics {
    fn own(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let about = [("version", env!("CARGO_PKG_VERSION"))];
        Rows::of(e, MetricFamily::info("kvmtop_build", "The kvmtop that serves this")).add(&about, Whole(1))?;
        let rss = Whole(self.own.rss_bytes);
        let family = MetricFamily::counter("process_cpu", "CPU time of kvmtop itself").seconds();
        Rows::of(e, family).add(&[], Nanoseconds(self.own.cpu_ns))?;
        Rows::of(e, MetricFamily::gauge("process_resident_memory", "Memory of kvmtop itself").bytes()).add(&[], rss)?;
        let family = MetricFamily::gauge("kvmtop_last_sample_timestamp", "When the last sample was taken").seconds();
        Rows::of(e, family).add(&[], milliseconds(self.time_ms))?;
        for (name, help, value) in [
            ("kvmtop_samples", "Samples taken", self.samples),
            ("kvmtop_events", "Events of KVM and the scheduler that were counted", self.events),
            ("kvmtop_lost_events", "Events that the kernel dropped before kvmtop read them", self.lost),
            ("kvmtop_overflow_events", "Events counted without their detail: a bounded table was full", self.overflow),
        ] {
            Rows::of(e, MetricFamily::counter(name, help)).add(&[], Whole(value))?;
        }
        let engine = [("engine", self.engine.kind.as_str()), ("level", self.engine.level.as_str())];
        Rows::of(e, MetricFamily::info("kvmtop_engine", "How exits are counted")).add(&engine, Whole(1))?;
        let mut sources =
            Rows::of(e, MetricFamily::gauge("kvmtop_source_state", "1 for the state that the source has"));
        let states = [SourceState::Ok, SourceState::Degraded, SourceState::Missing];
        let mut ids: Vec<_> = self.sources.iter().map(|s| s.id).collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let worst = self.sources.iter().filter(|s| s.id == id).map(|s| s.state).max_by_key(|s| *s as u8);
            for state in states {
                let is_it = worst == Some(state);
                sources.add(&[("source", id.as_str()), ("state", state.as_str())], Whole(u64::from(is_it)))?;
            }
        }
        Ok(())
    }

    fn host(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let facts = &self.facts;
        let kvm = facts.kvm_flavour.as_deref().unwrap_or_default();
        let about = [("host", facts.hostname.as_str()), ("kernel", &facts.kernel), ("kvm", kvm)];
        Rows::of(e, MetricFamily::info("kvmtop_host", "This host")).add(&about, Whole(1))?;
        Rows::of(e, MetricFamily::gauge("kvmtop_host_cpus", "CPUs that are online")).add(&[], Whole(self.cpus))?;
        let family =
            MetricFamily::counter("kvmtop_host_cpu", "Time of all CPUs of the host by what they did").seconds();
        let mut rows = Rows::of(e, family);
        let HostCpuMetrics { user, system, guest, idle, iowait, irq, softirq, steal } = self.cpu;
        for (mode, ns) in [
            ("user", user),
            ("system", system),
            ("guest", guest),
            ("idle", idle),
            ("iowait", iowait),
            ("irq", irq),
            ("softirq", softirq),
            ("steal", steal),
        ] {
            rows.add(&[("mode", mode)], Nanoseconds(ns))?;
        }
        if let Some(memory) = &self.memory {
            for (name, help, bytes) in [
                ("kvmtop_host_memory", "Memory of the host", memory.total),
                ("kvmtop_host_memory_available", "Memory that can be had without swapping", memory.available),
                ("kvmtop_host_swap_used", "Swap in use", memory.swap_used),
            ] {
                Rows::of(e, MetricFamily::gauge(name, help).bytes()).add(&[], Whole(bytes))?;
            }
        }
        let mut rows = Rows::of(e, MetricFamily::gauge("kvmtop_guests", "Guests by their state"));
        for state in [DomainState::Running, DomainState::Paused] {
            let guests = self.guests.values().filter(|g| g.state == state).count();
            rows.add(&[("state", state.as_str())], Whole(guests as u64))?;
        }
        let family = MetricFamily::gauge("kvmtop_guests_left_out", "Guests without series: there are too many");
        Rows::of(e, family).add(&[], Whole(self.left_out))
    }

    fn found(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut rows =
            Rows::of(e, MetricFamily::gauge("kvmtop_finding", "Findings of a rule about a guest or the host"));
        for ((rule, severity, domain), finding) in &self.findings {
            let labels = [("rule", *rule), ("severity", severity.as_str()), ("domain", domain)];
            rows.add(&labels, Whole(finding.count))?;
        }
        let help = "When the finding was first seen";
        let mut rows = Rows::of(e, MetricFamily::gauge("kvmtop_finding_since_timestamp", help).seconds());
        for ((rule, severity, domain), finding) in &self.findings {
            let labels = [("rule", *rule), ("severity", severity.as_str()), ("domain", domain)];
            rows.add_known(&labels, finding.since_ms.map(milliseconds))?;
        }
        Ok(())
    }

    fn guest_facts(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut rows = Rows::of(e, MetricFamily::info("kvmtop_guest", "A guest"));
        for (name, guest) in &self.guests {
            let facts = &guest.facts;
            let pid = facts.pid.map(|pid| pid.to_string()).unwrap_or_default();
            let text = |known: &Option<sample::Known<String>>| {
                known.as_ref().map(|k| kvm::sanitize(&k.value, 128)).unwrap_or_default()
            };
            let (uuid, machine, os) = (text(&facts.uuid), text(&facts.machine), text(&facts.guest_os));
            let about = [
                ("domain", name.as_str()),
                ("uuid", &uuid),
                ("pid", &pid),
                ("machine", &machine),
                ("os", &os),
                ("vmm", facts.vmm.as_str()),
            ];
            rows.add(&about, Whole(1))?;
        }
        let gauges: [(MetricFamily<'_>, Of<GuestMetrics>); 8] = [
            (MetricFamily::gauge("kvmtop_guest_running", "1 for a guest that runs, 0 for one that is paused"), |g| {
                Some(Whole(u64::from(g.state == DomainState::Running)))
            }),
            (MetricFamily::gauge("kvmtop_guest_start_timestamp", "When the guest's process began").seconds(), |g| {
                g.facts.started_ms.map(milliseconds)
            }),
            (MetricFamily::gauge("kvmtop_guest_vcpus", "vCPUs of the guest"), |g| {
                g.facts.vcpus.as_ref().map(|vcpus| Whole(u64::from(vcpus.value)))
            }),
            (
                MetricFamily::gauge("kvmtop_guest_memory_resident", "Memory of the VMM, without huge pages").bytes(),
                |g| g.memory.resident.map(Whole),
            ),
            (MetricFamily::gauge("kvmtop_guest_memory_hugetlb", "Explicit huge pages of the VMM").bytes(), |g| {
                g.memory.hugetlb.map(Whole)
            }),
            (
                MetricFamily::gauge("kvmtop_guest_memory_transparent", "Transparent huge pages of the VMM").bytes(),
                |g| g.memory.transparent.map(Whole),
            ),
            (
                MetricFamily::gauge("kvmtop_guest_memory_balloon", "Memory that the balloon leaves to the guest")
                    .bytes(),
                |g| g.memory.balloon.map(Whole),
            ),
            (MetricFamily::gauge("kvmtop_guest_swap", "Memory of the VMM in swap").bytes(), |g| {
                g.swap_bytes.map(Whole)
            }),
        ];
        for (family, value) in gauges {
            let mut rows = Rows::of(e, family);
            for (name, guest) in &self.guests {
                rows.add_known(&[("domain", name)], value(guest))?;
            }
        }
        let family =
            MetricFamily::gauge("kvmtop_guest_node_memory", "Memory of the VMM on a NUMA node of the host").bytes();
        let mut rows = Rows::of(e, family);
        for (name, guest) in &self.guests {
            for (node, bytes) in &guest.node_memory {
                rows.add(&[("domain", name), ("node", &node.to_string())], Whole(*bytes))?;
            }
        }
        let help = "Time in which threads of the guest were throttled by a CPU quota";
        let mut rows = Rows::of(e, MetricFamily::counter("kvmtop_guest_throttled", help).seconds());
        for (name, guest) in &self.guests {
            for (group, ns) in &guest.throttled_ns {
                rows.add(&[("domain", name), ("group", group)], Nanoseconds(*ns))?;
            }
        }
        Ok(())
    }

    /// Calls for each vCPU that has series of its own, or for each guest, with its labels.
    fn each_vcpu(&self, mut row: impl FnMut(Labels<'_>, &VcpuMetrics) -> fmt::Result) -> fmt::Result {
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
        let mut rows = Rows::of(e, MetricFamily::counter("kvmtop_vcpu_cpu", help).seconds());
        self.each_vcpu(|labels, vcpu| {
            let CpuMetrics { times, own_user_ns } = &vcpu.cpu;
            for (mode, ns) in [("user", *own_user_ns), ("system", times.system_ns), ("guest", times.guest_ns)] {
                rows.add(&with(labels, ("mode", mode)), Nanoseconds(ns))?;
            }
            Ok(())
        })?;
        let values: [(MetricFamily<'_>, Of<VcpuMetrics>); 5] = [
            (
                MetricFamily::counter("kvmtop_vcpu_run", "Time of vCPU threads on a CPU, by the scheduler's clock")
                    .seconds(),
                |v| v.cpu.times.run_ns.map(Nanoseconds),
            ),
            (
                MetricFamily::counter(
                    "kvmtop_vcpu_wait",
                    "Time of vCPU threads runnable without a CPU: what the guest sees as steal",
                )
                .seconds(),
                |v| v.cpu.times.wait_ns.map(Nanoseconds),
            ),
            (MetricFamily::counter("kvmtop_vcpu_moves", "Moves of vCPUs from one CPU of the host to another"), |v| {
                v.moves.map(Whole)
            }),
            (MetricFamily::counter("kvmtop_vcpu_node_moves", "Moves of vCPUs to another NUMA node"), |v| {
                v.node_moves.map(Whole)
            }),
            (MetricFamily::histogram("kvmtop_vcpu_wakeup_latency", "From the wake-up of a vCPU until it runs"), |v| {
                v.wakeups.as_ref().map(Durations)
            }),
        ];
        for (family, value) in values {
            let mut rows = Rows::of(e, family);
            self.each_vcpu(|labels, vcpu| rows.add_known(labels, value(vcpu)))?;
        }
        let help = "Context switches of vCPU threads; kvmtop_vcpu_wait_seconds_total over these is the mean run delay";
        let mut rows = Rows::of(e, MetricFamily::counter("kvmtop_vcpu_context_switches", help));
        self.each_vcpu(|labels, vcpu| {
            rows.add_known(&with(labels, ("kind", "voluntary")), vcpu.cpu.times.voluntary.map(Whole))?;
            rows.add_known(&with(labels, ("kind", "involuntary")), vcpu.cpu.times.involuntary.map(Whole))
        })
    }

    fn vmm(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "CPU time of the VMM's other threads by their role, in the kernel's ticks";
        let mut rows = Rows::of(e, MetricFamily::counter("kvmtop_vmm_cpu", help).seconds());
        for (name, guest) in &self.guests {
            for (role, cpu) in &guest.vmm {
                for (mode, ns) in [("user", cpu.own_user_ns), ("system", cpu.times.system_ns)] {
                    let labels = [("domain", name.as_str()), ("role", role.as_str()), ("mode", mode)];
                    rows.add(&labels, Nanoseconds(ns))?;
                }
            }
        }
        let help = "Time of the VMM's other threads on a CPU, by the scheduler's clock";
        let run = MetricFamily::counter("kvmtop_vmm_run", help).seconds();
        let help = "Time of the VMM's other threads runnable without a CPU";
        let wait = MetricFamily::counter("kvmtop_vmm_wait", help).seconds();
        let values: [(MetricFamily<'_>, Of<CpuMetrics>); 2] =
            [(run, |c| c.times.run_ns.map(Nanoseconds)), (wait, |c| c.times.wait_ns.map(Nanoseconds))];
        for (family, value) in values {
            let mut rows = Rows::of(e, family);
            for (name, guest) in &self.guests {
                for (role, cpu) in &guest.vmm {
                    let labels = [("domain", name.as_str()), ("role", role.as_str())];
                    rows.add_known(&labels, value(cpu))?;
                }
            }
        }
        Ok(())
    }

    fn exits(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let tallies: [(MetricFamily<'_>, Of<Tally>); 2] = [
            (MetricFamily::counter("kvmtop_exits", "Exits of the guest by their reason"), |t| Some(Whole(t.count))),
            (
                MetricFamily::counter("kvmtop_exit", "Time in exits of the guest by their reason, with sleep")
                    .seconds(),
                |t| t.ns.map(Nanoseconds),
            ),
        ];
        for (family, value) in tallies {
            let mut rows = Rows::of(e, family);
            self.each_vcpu(|labels, vcpu| {
                for (reason, tally) in vcpu.exits.rows() {
                    let reason = reason.map_or(OTHER, String::as_str);
                    rows.add_known(&with(labels, ("reason", reason)), value(&tally))?;
                }
                Ok(())
            })?;
        }
        let mut rows = Rows::of(e, MetricFamily::counter("kvmtop_userspace_exits", "Exits to the VMM by their reason"));
        for (name, guest) in &self.guests {
            for (reason, tally) in guest.userspace.rows() {
                let reason = reason.map_or(OTHER, String::as_str);
                rows.add(&[("domain", name), ("reason", reason)], Whole(tally.count))?;
            }
        }
        let tallies: [(MetricFamily<'_>, Of<Tally>); 2] = [
            (MetricFamily::counter("kvmtop_accesses", "Accesses of the guest to ports, device memory and MSRs"), |t| {
                Some(Whole(t.count))
            }),
            (MetricFamily::counter("kvmtop_access", "Time in exits that served an access").seconds(), |t| {
                t.ns.map(Nanoseconds)
            }),
        ];
        for (family, value) in tallies {
            let mut rows = Rows::of(e, family);
            for (name, guest) in &self.guests {
                for (access, tally) in guest.accesses.rows() {
                    let (space, device) = access.map_or((OTHER, OTHER), |(s, device)| (s.as_str(), device.as_str()));
                    let labels = [("domain", name.as_str()), ("space", space), ("device", device)];
                    rows.add_known(&labels, value(&tally))?;
                }
            }
        }
        Ok(())
    }

    fn interrupts(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Tallies = fn(&InterruptMetrics) -> &Ranked<InterruptKind>;
        let count: Of<Tally> = |t| Some(Whole(t.count));
        let time: Of<Tally> = |t| t.ns.map(Nanoseconds);
        let tallies: [(MetricFamily<'_>, Tallies, Of<Tally>); 5] = [
            (
                MetricFamily::counter("kvmtop_interrupts", "Interrupts that KVM gave to the guest's vCPUs"),
                |i| &i.injected,
                count,
            ),
            (
                MetricFamily::counter("kvmtop_interrupt_wakeups", "Interrupts that woke a sleeping vCPU"),
                |i| &i.woke,
                count,
            ),
            (
                MetricFamily::counter("kvmtop_interrupt_wakeup_time", "From their injection until the vCPU had a CPU")
                    .seconds(),
                |i| &i.woke,
                time,
            ),
            (
                MetricFamily::counter(
                    "kvmtop_interrupt_arrivals",
                    "Interrupts of which the whole way was timed, where the kernel fires kvm_entry",
                ),
                |i| &i.arrived,
                count,
            ),
            (
                MetricFamily::counter(
                    "kvmtop_interrupt_arrival_time",
                    "From their injection until the vCPU ran the guest",
                )
                .seconds(),
                |i| &i.arrived,
                time,
            ),
        ];
        for (family, of, value) in tallies {
            let mut rows = Rows::of(e, family);
            for (name, guest) in &self.guests {
                for (kind, tally) in of(&guest.interrupts).rows() {
                    let number = kind.map(|(source, _)| source.number().to_string());
                    let (source, by) = kind.map_or((OTHER, OTHER), |(source, by)| (source.as_str(), by.as_str()));
                    let number = number.as_deref().unwrap_or(OTHER);
                    let labels = [("domain", name.as_str()), ("source", source), ("number", number), ("by", by)];
                    rows.add_known(&labels, value(&tally))?;
                }
            }
        }
        let tallies: [(MetricFamily<'_>, Of<Tally>); 2] = [
            (
                MetricFamily::counter(
                    "kvmtop_doorbells",
                    "Writes of the guest that KVM passed on as an eventfd and that woke a thread",
                ),
                count,
            ),
            (MetricFamily::counter("kvmtop_doorbell_time", "From these until the thread had a CPU").seconds(), time),
        ];
        for (family, value) in tallies {
            let mut rows = Rows::of(e, family);
            for (name, guest) in &self.guests {
                for (bell, tally) in guest.interrupts.rung.rows() {
                    let (device, to) = bell.map_or((OTHER, OTHER), |(device, to)| (device.as_str(), to.as_str()));
                    rows.add_known(&[("domain", name), ("device", device), ("to", to)], value(&tally))?;
                }
            }
        }
        Ok(())
    }

    fn devices(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let disks: [(MetricFamily<'_>, Of<DiskSample>); 9] = [
            (MetricFamily::counter("kvmtop_disk_reads", "Reads that the disk completed"), |d| Some(Whole(d.read_ops))),
            (MetricFamily::counter("kvmtop_disk_writes", "Writes that the disk completed"), |d| {
                Some(Whole(d.write_ops))
            }),
            (MetricFamily::counter("kvmtop_disk_read", "Bytes read").bytes(), |d| Some(Whole(d.read_bytes))),
            (MetricFamily::counter("kvmtop_disk_written", "Bytes written").bytes(), |d| Some(Whole(d.write_bytes))),
            (MetricFamily::counter("kvmtop_disk_read_time", "Time of all reads, added up").seconds(), |d| {
                d.read_ns.map(Nanoseconds)
            }),
            (MetricFamily::counter("kvmtop_disk_write_time", "Time of all writes, added up").seconds(), |d| {
                d.write_ns.map(Nanoseconds)
            }),
            (MetricFamily::counter("kvmtop_disk_flushes", "Flushes of the disk's write cache"), |d| {
                d.flush_ops.map(Whole)
            }),
            (MetricFamily::counter("kvmtop_disk_flush_time", "Time of all flushes, added up").seconds(), |d| {
                d.flush_ns.map(Nanoseconds)
            }),
            (MetricFamily::counter("kvmtop_disk_errors", "Reads, writes and flushes that failed on the host"), |d| {
                d.failed_ops.map(Whole)
            }),
        ];
        for (family, value) in disks {
            let mut rows = Rows::of(e, family);
            for (name, guest) in &self.guests {
                for (disk, counters) in &guest.disks {
                    rows.add_known(&[("domain", name), ("device", disk)], value(counters))?;
                }
            }
        }
        let host_disks: [(MetricFamily<'_>, Of<HostRequestMetrics>); 5] = [
            (
                MetricFamily::counter(
                    "kvmtop_host_disk_requests",
                    "Requests of the guest that a block device of the host completed",
                ),
                |r| Some(Whole(r.total.count)),
            ),
            (MetricFamily::counter("kvmtop_host_disk", "Bytes of these requests").bytes(), |r| Some(Whole(r.bytes))),
            (
                MetricFamily::counter("kvmtop_host_disk_time", "Their time from submission to completion").seconds(),
                |r| r.total.ns.map(Nanoseconds),
            ),
            (
                MetricFamily::counter(
                    "kvmtop_host_disk_device_requests",
                    "Requests of which the time in the device was taken",
                ),
                |r| Some(Whole(r.device.count)),
            ),
            (
                MetricFamily::counter(
                    "kvmtop_host_disk_device_time",
                    "Their time from the issue to the driver to completion",
                )
                .seconds(),
                |r| r.device.ns.map(Nanoseconds),
            ),
        ];
        for (family, value) in host_disks {
            let mut rows = Rows::of(e, family);
            for (name, guest) in &self.guests {
                for (disk, counters) in &guest.host_disks {
                    for (kind, requests) in &counters.kinds {
                        let labels = [("domain", name.as_str()), ("device", disk), ("operation", kind)];
                        rows.add_known(&labels, value(requests))?;
                    }
                }
            }
        }
        let nics: [(MetricFamily<'_>, Of<NicSample>); 5] = [
            (MetricFamily::counter("kvmtop_nic_receive", "Bytes that the guest received").bytes(), |n| {
                Some(Whole(n.rx_bytes))
            }),
            (MetricFamily::counter("kvmtop_nic_transmit", "Bytes that the guest sent").bytes(), |n| {
                Some(Whole(n.tx_bytes))
            }),
            (MetricFamily::counter("kvmtop_nic_receive_packets", "Packets that the guest received"), |n| {
                Some(Whole(n.rx_packets))
            }),
            (MetricFamily::counter("kvmtop_nic_transmit_packets", "Packets that the guest sent"), |n| {
                Some(Whole(n.tx_packets))
            }),
            (MetricFamily::counter("kvmtop_nic_drops", "Packets dropped, both ways"), |n| Some(Whole(n.drops))),
        ];
        for (family, value) in nics {
            let mut rows = Rows::of(e, family);
            for (name, guest) in &self.guests {
                for (nic, counters) in &guest.nics {
                    rows.add_known(&[("domain", name), ("device", nic)], value(counters))?;
                }
            }
        }
        Ok(())
    }
}

/// Milliseconds since the epoch.
fn milliseconds(ms: i64) -> RowValue<'static> {
    Nanoseconds(u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000))
}

/// The labels and one more.
fn with<'a>(labels: Labels<'a>, more: (&'a str, &'a str)) -> Vec<(&'a str, &'a str)> {
    let mut all = Vec::with_capacity(labels.len() + 1);
    all.extend_from_slice(labels);
    all.push(more);
    all
}
