//! Makes a sample out of a file as consistent as one of a live host, so that everything behind it may rely on that.
//!
//! Every source of samples that is a file calls this once for each sample and its facts. Behind it:
//!
//! - A figure is at most [`MAX_FIGURE`]: two of them add up, subtract and convert to a signed number. Sums of many
//!   saturate. A distribution has at most [`BUCKETS`] buckets.
//! - Times of the wall clock are between 1970 and 9999.
//! - XML, command lines and device maps have no more and no larger parts than their parsers accept
//!   ([`limits`](kvm::limits)), and names and XML no characters that a terminal acts on.
//! - CPUs, nodes and vCPUs have numbers below [`MAX_CPUS`]. A host's CPUs are sorted, each of them once.
//! - The host's topology is as [`HostTopology::normalise`](kvm::topology::HostTopology::normalise) leaves it.
//!
//! What is beyond that is cut to the limit, or left out where it is a number of something. Every struct is taken apart
//! without `..`, so that a new field does not compile before its limit is written here.

use super::{
    AccessCell, BUCKETS, Burst, CpuTimes, DiskSample, DomainFacts, DomainSample, Doorbell, EngineStatus, ExitCell,
    Function, GuestInterrupts, Histogram, HostDisk, HostFacts, HostMemory, HostRequests, HostSample, HostTask,
    Injection, MemoryUse, Migrations, NicSample, OtherTask, OwnCost, Placement, ProfiledThread, Sample, StackCount,
    StackProfile, ThreadEvents, ThreadSample, ThreadTimes, Throttling, Timing, UserspaceCell,
};
use kvm::cmdline::{self, QemuCommand};
use kvm::cpu_set::MAX_CPUS;
use kvm::device_property::MAX_PROPERTIES;
use kvm::domain_xml::{self, BandwidthXml, DomainXml};
use kvm::{limits, sanitize, sanitize_name, without_hidden};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The largest figure: as nanoseconds 36 years, as bytes an exbibyte.
pub const MAX_FIGURE: u64 = 1 << 60;
/// The most groups of one guest that bound its CPUs.
pub const MAX_GROUPS: usize = 16;
/// The most characters of the folder of a group.
pub const MAX_FOLDER: usize = 1024;
/// The most characters of a guest's name, UUID, machine or system.
const MAX_NAME: usize = 256;
/// The last second of the year 9998, milliseconds since the epoch. The calendar ends a year later, in any time zone.
const LAST_MS: i64 = 253_370_764_799_000;

/// A time of the wall clock, milliseconds since the epoch, as a calendar has it.
pub fn calendar_ms(time_ms: i64) -> i64 {
    time_ms.clamp(0, LAST_MS)
}

impl Sample {
    /// Cuts what no host has; see the module. The facts of host and guests have methods of their own.
    pub fn normalise(&mut self) {
        let Self { time_ms, mono_ns, boot_ns, host, domains, engine, sources: _, own } = self;
        *time_ms = calendar_ms(*time_ms);
        cut([mono_ns, boot_ns]);
        host.normalise();
        domains.iter_mut().for_each(DomainSample::normalise);
        let EngineStatus { kind: _, level: _, generation: _, lost, overflow, fires_kvm_exit: _, events } = engine;
        cut([lost, overflow, events]);
        let OwnCost { cpu_ns, rss_bytes } = own;
        cut([cpu_ns, rss_bytes]);
    }
}

impl HostFacts {
    /// As [`Sample::normalise`].
    pub fn normalise(&mut self) {
        self.topology.normalise();
    }
}

impl DomainFacts {
    /// As [`Sample::normalise`]; XML, command line and device map keep the bounds of their parsers.
    pub fn normalise(&mut self) {
        let Self {
            name,
            uuid,
            vmm: _,
            pid: _,
            start_ticks,
            started_ms,
            machine,
            vcpus,
            guest_os,
            xml,
            xml_text,
            command,
            devices,
            persistent: _,
            cpu_groups,
        } = self;
        clean_name(&mut name.value);
        [uuid, machine, guest_os].into_iter().flatten().for_each(|known| clean_name(&mut known.value));
        cut([start_ticks]);
        cpu_groups.truncate(MAX_GROUPS);
        cpu_groups.iter_mut().for_each(|group| clean_folder(&mut group.folder));
        *started_ms = started_ms.map(calendar_ms);
        vcpus.take_if(|known| known.value > limits::VCPUS);
        if let Some(xml) = xml {
            normalise_xml(Arc::make_mut(&mut xml.value));
        }
        xml_text.take_if(|text| text.len() > domain_xml::MAX_TEXT);
        if let Some(text) = xml_text
            && let Cow::Owned(plain) = without_hidden(text)
        {
            *text = plain.into();
        }
        if let Some(command) = command {
            normalise_command(Arc::make_mut(command));
        }
        if let Some(devices) = devices {
            Arc::make_mut(&mut devices.value).normalise();
        }
    }
}

/// As a reader leaves the folder of a group.
fn clean_folder(folder: &mut String) {
    if folder.len() > MAX_FOLDER || without_hidden(folder) != *folder {
        *folder = sanitize(folder, MAX_FOLDER);
    }
}

/// As a parser leaves a name.
fn clean_name(name: &mut String) {
    if name.len() > MAX_NAME || without_hidden(name) != *name {
        *name = sanitize_name(name, MAX_NAME);
    }
}

/// A command line that came decoded out of a recording, without its parser.
fn normalise_command(command: &mut QemuCommand) {
    let smp = &mut command.smp;
    for number in [&mut smp.cpus, &mut smp.maxcpus, &mut smp.sockets, &mut smp.dies, &mut smp.cores, &mut smp.threads] {
        number.take_if(|n| *n > limits::VCPUS);
    }
    command.memory.take_if(|bytes| *bytes > limits::GUEST_MEMORY);
    command.devices.truncate(cmdline::MAX_ARGS);
    command.disks.truncate(cmdline::MAX_ARGS);
    command.disks.iter_mut().for_each(|disk| normalise_limits(&mut disk.limits));
    command.device_properties.truncate(MAX_PROPERTIES);
    for list in [&mut command.qmp_sockets, &mut command.iothreads, &mut command.cpu_options, &mut command.drive_files] {
        list.truncate(cmdline::MAX_ARGS);
    }
}

/// A disk's limits. A parser keeps six of them at most.
fn normalise_limits(limits: &mut BTreeMap<String, u64>) {
    if limits.len() > 6 {
        limits.clear();
    }
    cut(limits.values_mut());
}

/// A domain XML that came decoded out of a recording, without its parser.
fn normalise_xml(xml: &mut DomainXml) {
    let most = limits::ELEMENTS;
    xml.vcpus.take_if(|n| *n > limits::VCPUS);
    xml.topology.take_if(|t| [t.sockets, t.dies, t.cores, t.threads].iter().any(|n| *n > limits::VCPUS));
    xml.iothreads = xml.iothreads.min(limits::IOTHREADS);
    xml.vcpu_pins.retain(|number, _| *number < limits::VCPUS);
    xml.iothread_pins.retain(|number, _| *number <= limits::IOTHREADS);
    xml.vcpu_threads.retain(|number, _| *number < limits::VCPU_IDS);
    xml.iothread_threads.retain(|number, _| *number <= limits::IOTHREADS);
    xml.numa_cells.retain(|cell| cell.id < limits::NUMA_CELLS);
    xml.numa_cells.truncate(limits::NUMA_CELLS as usize);
    xml.scheds.truncate(most);
    xml.clock.timers.truncate(most);
    xml.disks.truncate(most);
    xml.disks.iter_mut().for_each(|disk| normalise_limits(&mut disk.iotune));
    xml.device_properties.truncate(MAX_PROPERTIES);
    xml.interfaces.truncate(most);
    for list in [&mut xml.consoles, &mut xml.graphics, &mut xml.videos] {
        list.truncate(most);
    }
    (xml.serials, xml.hostdevs) = (xml.serials.min(most as u32), xml.hostdevs.min(most as u32));
    let BandwidthXml { period, quota, global_period, global_quota, emulator_period, emulator_quota } =
        &mut xml.bandwidth;
    let quotas = [quota, global_quota, emulator_quota];
    let most = MAX_FIGURE as i64;
    quotas.into_iter().flatten().for_each(|n| *n = (*n).clamp(-most, most));
    cut([period, global_period, emulator_period].into_iter().flatten());
    for memory in xml.numa_cells.iter_mut().map(|cell| &mut cell.memory).chain([&mut xml.memory]) {
        memory.take_if(|bytes| *bytes > limits::GUEST_MEMORY);
    }
    cut(xml.clock.timers.iter_mut().flat_map(|timer| &mut timer.frequency));
    if let Some(command) = &mut xml.qemu_command {
        normalise_command(command);
    }
}

impl HostSample {
    fn normalise(&mut self) {
        let Self { facts: _, cpus, tasks, memory, kernel_log: _ } = self;
        cpus.retain(|cpu| cpu.cpu < MAX_CPUS);
        cpus.sort_by_key(|cpu| cpu.cpu);
        cpus.dedup_by_key(|cpu| cpu.cpu);
        for CpuTimes {
            cpu: _,
            user_ns,
            nice_ns,
            system_ns,
            idle_ns,
            iowait_ns,
            irq_ns,
            softirq_ns,
            steal_ns,
            guest_ns,
            guest_nice_ns,
            device_irqs,
            timer_irqs,
            frequency_khz,
        } in cpus
        {
            cut([user_ns, nice_ns, system_ns, idle_ns, iowait_ns, irq_ns, softirq_ns, steal_ns]);
            cut([guest_ns, guest_nice_ns].into_iter().chain(device_irqs).chain(timer_irqs));
            cut(frequency_khz);
        }
        for HostTask { tid: _, pid: _, comm: _, kernel: _, used_ns, over_ns, last_cpu: _ } in tasks {
            cut([used_ns, over_ns]);
        }
        if let Some(HostMemory { total, available, swap_used, swapped_out_pages, ksm_running: _ }) = memory {
            cut([total, available, swap_used, swapped_out_pages]);
        }
    }
}

impl DomainSample {
    fn normalise(&mut self) {
        let Self {
            facts: _,
            state: _,
            threads,
            unattributed,
            counters,
            kvm_events,
            disks,
            nics,
            devices_ns,
            throttling,
            node_memory,
            swap_bytes,
            memory: MemoryUse { resident, hugetlb, balloon, transparent },
            nics_ns,
            profile,
            host_disks,
            interrupts,
        } = self;
        threads.iter_mut().for_each(ThreadSample::normalise);
        unattributed.normalise();
        node_memory.retain(|node, _| *node < MAX_CPUS);
        cut(counters.values_mut().chain(kvm_events.values_mut()).chain(node_memory.values_mut()));
        cut([devices_ns, nics_ns].into_iter().chain(swap_bytes));
        cut([resident, hugetlb, balloon, transparent].into_iter().flatten());
        for DiskSample {
            name: _,
            read_ops,
            write_ops,
            read_bytes,
            write_bytes,
            read_ns,
            write_ns,
            flush_ops,
            flush_ns,
            failed_ops,
        } in disks
        {
            cut([read_ops, write_ops, read_bytes, write_bytes]);
            cut([read_ns, write_ns, flush_ops, flush_ns, failed_ops].into_iter().flatten());
        }
        for NicSample { name: _, rx_bytes, tx_bytes, rx_packets, tx_packets, drops } in nics {
            cut([rx_bytes, tx_bytes, rx_packets, tx_packets, drops]);
        }
        for Throttling { group: _, periods, throttled, throttled_ns } in throttling {
            cut([periods, throttled, throttled_ns]);
        }
        if let Some(profile) = profile {
            Arc::make_mut(profile).normalise();
        }
        host_disks.iter_mut().flatten().for_each(HostDisk::normalise);
        interrupts.iter_mut().for_each(GuestInterrupts::normalise);
    }
}

/// The most devices below one.
const MAX_NAMES: usize = 256;

impl HostDisk {
    fn normalise(&mut self) {
        let Self { name, number: _, alias, below, reads, writes, flushes, others, submitters } = self;
        below.truncate(MAX_NAMES);
        [name].into_iter().chain(alias).chain(below).for_each(clean_name);
        for HostRequests { bytes, total, device } in [reads, writes, flushes, others] {
            cut([bytes]);
            total.normalise();
            device.normalise();
        }
        cut(submitters.values_mut());
    }
}

impl GuestInterrupts {
    fn normalise(&mut self) {
        let Self { injections, doorbells } = self;
        for Doorbell { space: _, address: _, to: _, tid: _, comm, time } in doorbells {
            clean_name(comm);
            time.normalise();
        }
        for Injection { source: _, vcpu: _, by: _, tid: _, comm, count, joined, wake, delay, slept, kick } in injections
        {
            comm.iter_mut().for_each(clean_name);
            cut([count, joined]);
            [wake, delay, slept, kick].into_iter().for_each(Timing::normalise);
        }
    }
}

/// The most characters of a sentence.
const MAX_SENTENCE: usize = 1024;
/// The most calls of a stack: the kernel's limit for each of its two parts, and those between.
const MAX_CALLS: usize = 300;

impl StackProfile {
    fn normalise(&mut self) {
        let Self { began_ms, duration_ns, frequency_hz: _, lost, cost_ns, gaps, threads, functions, stacks } = self;
        *began_ms = calendar_ms(*began_ms);
        cut([duration_ns, lost, cost_ns]);
        for gap in gaps {
            *gap = sanitize(gap, MAX_SENTENCE);
        }
        for ProfiledThread { tid: _, comm, role: _, index, cpu_ns } in threads {
            clean_name(comm);
            index.take_if(|n| *n >= MAX_CPUS);
            cut(cpu_ns);
        }
        let known = functions.len();
        for Function { name, module, space: _ } in functions {
            clean_name(name);
            clean_name(module);
        }
        for StackCount { tid: _, functions, samples } in stacks {
            functions.retain(|number| (*number as usize) < known);
            functions.truncate(MAX_CALLS);
            cut([samples]);
        }
    }
}

impl ThreadSample {
    fn normalise(&mut self) {
        let Self { tid: _, start_ticks, comm: _, role: _, index, cpu, cpu_before, place, events, counters } = self;
        index.take_if(|n| *n >= MAX_CPUS);
        for ThreadTimes { user_ns, system_ns, guest_ns, run_ns, wait_ns, voluntary, involuntary } in
            cpu.iter_mut().chain(cpu_before)
        {
            cut([user_ns, system_ns, guest_ns]);
            cut([run_ns, wait_ns, voluntary, involuntary].into_iter().flatten());
        }
        let Placement { cpu, affinity: _, policy: _, rt_priority: _ } = place;
        cpu.take_if(|n| *n >= MAX_CPUS);
        events.normalise();
        cut(counters.values_mut().chain([start_ticks]));
    }
}

impl ThreadEvents {
    fn normalise(&mut self) {
        let Self { exits, accesses, userspace, migrations, wakeups, woken_by, preempted_by, run_delays } = self;
        for ExitCell { isa: _, code: _, name: _, time, userspace_ns, halted_ns, preempted_ns } in exits {
            time.normalise();
            cut([userspace_ns, halted_ns, preempted_ns].into_iter().flatten());
        }
        for AccessCell { space: _, address: _, direction: _, time, faults, burst } in accesses {
            time.normalise();
            cut([faults]);
            if let Some(Burst { count, ns }) = burst {
                cut([count, ns]);
            }
        }
        cut(userspace.iter_mut().map(|UserspaceCell { reason: _, count }| count));
        let Migrations { total, cross_core, cross_llc, cross_node, from: _ } = migrations;
        cut([cross_core, cross_llc, cross_node].into_iter().chain(total));
        wakeups.iter_mut().chain(run_delays).for_each(|times| times.normalise());
        for OtherTask { tid: _, comm: _, count, ns } in woken_by.iter_mut().chain(preempted_by) {
            cut([count, ns]);
        }
    }
}

impl Timing {
    fn normalise(&mut self) {
        // The sum of squares is 128 bits wide and only ever added up saturating.
        let Self { count, total_ns, sum_sq: _, min_ns, max_ns, histogram } = self;
        cut([count].into_iter().chain(total_ns).chain(min_ns).chain(max_ns));
        if let Some(Histogram(buckets)) = histogram {
            buckets.truncate(BUCKETS);
            cut(buckets);
        }
    }
}

fn cut<'a>(figures: impl IntoIterator<Item = &'a mut u64>) {
    figures.into_iter().for_each(|n| *n = (*n).min(MAX_FIGURE));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Known, Origin};
    use kvm::CpuSet;
    use kvm::guest_numa::GuestNumaCell;

    #[test]
    fn a_decoded_guest_has_the_bounds_of_a_pasted_one() {
        let smp = cmdline::Smp { cpus: Some(1 << 30), cores: Some(2), ..cmdline::Smp::default() };
        let command = QemuCommand {
            smp,
            memory: Some(u64::MAX),
            iothreads: vec![String::new(); 2 * cmdline::MAX_ARGS],
            ..QemuCommand::default()
        };
        let pin = CpuSet::range(0, 1);
        let xml = DomainXml {
            vcpus: Some(limits::VCPUS + 1),
            vcpu_pins: [(0, pin.clone()), (limits::VCPUS, pin)].into(),
            numa_cells: vec![GuestNumaCell { memory: Some(u64::MAX), ..GuestNumaCell::default() }; 1000],
            videos: vec![String::new(); 2 * limits::ELEMENTS],
            memory: Some(limits::GUEST_MEMORY + 1),
            qemu_command: Some(command.clone()),
            ..DomainXml::default()
        };
        let known = |text: &str| Known::new(text.repeat(300), Origin::Libvirt);
        let mut facts = DomainFacts {
            name: known("a\u{1b}[2J"),
            uuid: Some(known("x\u{202e}")),
            vcpus: Some(Known::new(limits::VCPUS + 1, Origin::Libvirt)),
            xml: Some(Known::new(Arc::new(xml), Origin::Libvirt)),
            xml_text: Some("<a>\n\u{9b}31m</a>".into()),
            command: Some(Arc::new(command)),
            ..DomainFacts::default()
        };
        facts.normalise();
        assert_eq!(facts.name.value.chars().count(), MAX_NAME);
        assert!(!facts.name.value.contains('\u{1b}') && facts.vcpus.is_none());
        let xml = &facts.xml.as_ref().unwrap().value;
        assert_eq!((xml.vcpus, xml.memory, xml.vcpu_pins.len()), (None, None, 1));
        assert_eq!((xml.numa_cells.len(), xml.videos.len()), (limits::NUMA_CELLS as usize, limits::ELEMENTS));
        assert!(xml.numa_cells.iter().all(|cell| cell.memory.is_none()));
        for command in [xml.qemu_command.as_ref().unwrap(), facts.command.as_ref().unwrap()] {
            assert_eq!((command.smp.cpus, command.smp.cores, command.memory), (None, Some(2), None));
            assert_eq!(command.iothreads.len(), cmdline::MAX_ARGS);
        }
        assert_eq!(facts.xml_text.as_deref(), Some("<a>\n31m</a>"));
        facts.xml_text = Some("x".repeat(domain_xml::MAX_TEXT + 1).into());
        let before = DomainFacts { xml_text: None, ..facts.clone() };
        facts.normalise();
        assert_eq!(facts, before, "what is normal stays as it is");
    }

    #[test]
    fn figures_and_numbers_beyond_any_host_are_cut() {
        let times = |cpu| CpuTimes { cpu, idle_ns: u64::MAX, ..CpuTimes::default() };
        let histogram = Some(Histogram(vec![u64::MAX; 99]));
        let time = Timing { count: u64::MAX, histogram, ..Timing::default() };
        let events = ThreadEvents { wakeups: Some(Box::new(time)), ..ThreadEvents::default() };
        let thread = ThreadSample { index: Some(u32::MAX), events, ..ThreadSample::default() };
        let mut sample = Sample { time_ms: i64::MIN, mono_ns: u64::MAX, ..Sample::default() };
        sample.host.cpus = vec![times(u32::MAX), times(1), times(0), times(1)];
        sample.domains = vec![DomainSample { threads: vec![thread], ..DomainSample::default() }];
        sample.normalise();
        assert_eq!((sample.time_ms, sample.mono_ns), (0, MAX_FIGURE));
        let cpus: Vec<_> = sample.host.cpus.iter().map(|c| (c.cpu, c.idle_ns)).collect();
        assert_eq!(cpus, [(0, MAX_FIGURE), (1, MAX_FIGURE)]);
        let thread = &sample.domains[0].threads[0];
        assert_eq!(thread.index, None);
        let wakeups = thread.events.wakeups.as_ref().unwrap();
        assert_eq!((wakeups.count, wakeups.histogram.as_ref().unwrap().0.len()), (MAX_FIGURE, BUCKETS));
    }
}
