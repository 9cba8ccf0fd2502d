//! Makes a sample out of a file as consistent as one of a live host, so that everything behind it may rely on that.
//!
//! Every source of samples that is a file calls this once for each sample and its facts. Behind it:
//!
//! - A figure is at most [`MOST_FIGURE`]: two of them add up, subtract and convert to a signed number. Sums of many
//!   saturate. A distribution has at most [`BUCKETS`] buckets.
//! - Times of the wall clock are between 1970 and 9999.
//! - CPUs, nodes and vCPUs have numbers below [`MAX_CPUS`]. A host's CPUs are sorted, each of them once.
//! - The host's topology is as [`HostTopology::normalise`](crate::kvm::topology::HostTopology::normalise) leaves it.
//!
//! What is beyond that is cut to the limit, or left out where it is a number of something. Every struct is taken apart
//! without `..`, so that a new field does not compile before its limit is written here.

use super::{
    AccessCell, BUCKETS, Burst, CpuTimes, DiskSample, DomainFacts, DomainSample, EngineStatus, ExitCell, Histogram,
    HostFacts, HostMemory, HostSample, HostTask, MemoryUse, Migrations, NicSample, OtherTask, OwnCost, Placement,
    Sample, ThreadEvents, ThreadSample, ThreadTimes, Throttling, Timing, UserspaceCell,
};
use crate::kvm::cpu_set::MAX_CPUS;
use crate::kvm::domain_xml::{BandwidthXml, DomainXml};
use std::sync::Arc;

/// The largest figure: as nanoseconds 36 years, as bytes an exbibyte.
pub const MOST_FIGURE: u64 = 1 << 60;
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
        let EngineStatus { kind: _, level: _, generation: _, lost, overflow, fires_kvm_exit: _, events, program_ns } =
            engine;
        cut([lost, overflow, events].into_iter().chain(program_ns));
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
    /// As [`Sample::normalise`].
    pub fn normalise(&mut self) {
        let Self {
            name: _,
            uuid: _,
            vmm: _,
            pid: _,
            start_ticks,
            started_ms,
            machine: _,
            vcpus,
            guest_os: _,
            xml,
            xml_text: _,
            command,
            devices: _,
        } = self;
        cut([start_ticks]);
        *started_ms = started_ms.map(calendar_ms);
        vcpus.take_if(|known| known.value > MAX_CPUS);
        if let Some(xml) = xml {
            normalise_xml(Arc::make_mut(&mut xml.value));
        }
        if let Some(command) = command {
            let command = Arc::make_mut(command);
            let smp = &mut command.smp;
            for number in [&mut smp.cpus, &mut smp.maxcpus, &mut smp.sockets, &mut smp.dies, &mut smp.cores] {
                number.take_if(|n| *n > MAX_CPUS);
            }
            smp.threads.take_if(|n| *n > MAX_CPUS);
            cut(&mut command.memory);
        }
    }
}

/// The numbers of a domain XML that came decoded out of a recording, without its parser.
fn normalise_xml(xml: &mut DomainXml) {
    xml.vcpus.take_if(|n| *n > MAX_CPUS);
    xml.topology.take_if(|t| [t.sockets, t.dies, t.cores, t.threads].iter().any(|n| *n > MAX_CPUS));
    xml.iothreads = xml.iothreads.min(MAX_CPUS);
    for pins in [&mut xml.vcpu_pins, &mut xml.iothread_pins] {
        pins.retain(|number, _| *number < MAX_CPUS);
    }
    for threads in [&mut xml.vcpu_threads, &mut xml.iothread_threads] {
        threads.retain(|number, _| *number < MAX_CPUS);
    }
    xml.numa_cells.retain(|cell| cell.id < MAX_CPUS);
    let BandwidthXml { period, quota, global_period, global_quota, emulator_period, emulator_quota } =
        &mut xml.bandwidth;
    let quotas = [quota, global_quota, emulator_quota];
    let most = MOST_FIGURE as i64;
    quotas.into_iter().flatten().for_each(|n| *n = (*n).clamp(-most, most));
    cut([period, global_period, emulator_period].into_iter().flatten());
    cut(xml.memory.iter_mut().chain(xml.numa_cells.iter_mut().flat_map(|cell| &mut cell.memory)));
    cut(xml.clock.timers.iter_mut().flat_map(|timer| &mut timer.frequency));
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
            memory: MemoryUse { resident, hugetlb, balloon },
        } = self;
        threads.iter_mut().for_each(ThreadSample::normalise);
        unattributed.normalise();
        node_memory.retain(|node, _| *node < MAX_CPUS);
        cut(counters.values_mut().chain(kvm_events.values_mut()).chain(node_memory.values_mut()));
        cut([devices_ns].into_iter().chain(swap_bytes));
        cut([resident, hugetlb, balloon].into_iter().flatten());
        for DiskSample { name: _, read_ops, write_ops, read_bytes, write_bytes, read_ns, write_ns } in disks {
            cut([read_ops, write_ops, read_bytes, write_bytes].into_iter().chain(read_ns).chain(write_ns));
        }
        for NicSample { name: _, rx_bytes, tx_bytes, rx_packets, tx_packets, drops } in nics {
            cut([rx_bytes, tx_bytes, rx_packets, tx_packets, drops]);
        }
        for Throttling { group: _, periods, throttled, throttled_ns } in throttling {
            cut([periods, throttled, throttled_ns]);
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
        let Self { exits, accesses, userspace, migrations, wakeups, woken_by, preempted_by } = self;
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
        wakeups.iter_mut().for_each(Timing::normalise);
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
    figures.into_iter().for_each(|n| *n = (*n).min(MOST_FIGURE));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_and_numbers_beyond_any_host_are_cut() {
        let times = |cpu| CpuTimes { cpu, idle_ns: u64::MAX, ..CpuTimes::default() };
        let histogram = Some(Histogram(vec![u64::MAX; 99]));
        let time = Timing { count: u64::MAX, histogram, ..Timing::default() };
        let events = ThreadEvents { wakeups: Some(time), ..ThreadEvents::default() };
        let thread = ThreadSample { index: Some(u32::MAX), events, ..ThreadSample::default() };
        let mut sample = Sample { time_ms: i64::MIN, mono_ns: u64::MAX, ..Sample::default() };
        sample.host.cpus = vec![times(u32::MAX), times(1), times(0), times(1)];
        sample.domains = vec![DomainSample { threads: vec![thread], ..DomainSample::default() }];
        sample.normalise();
        assert_eq!((sample.time_ms, sample.mono_ns), (0, MOST_FIGURE));
        let cpus: Vec<_> = sample.host.cpus.iter().map(|c| (c.cpu, c.idle_ns)).collect();
        assert_eq!(cpus, [(0, MOST_FIGURE), (1, MOST_FIGURE)]);
        let thread = &sample.domains[0].threads[0];
        assert_eq!(thread.index, None);
        let wakeups = thread.events.wakeups.as_ref().unwrap();
        assert_eq!((wakeups.count, wakeups.histogram.as_ref().unwrap().0.len()), (MOST_FIGURE, BUCKETS));
    }
}
