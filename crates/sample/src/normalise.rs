//! Makes a sample of a file as consistent as one of a live host.
//!
//! Every source that reads files calls this once for each sample and its facts. After that:
//!
//! - A figure is at most [`MAX_FIGURE`]: two of them add up, subtract and convert to a signed
//!   number. Sums of many saturate. A histogram has at most [`BUCKETS`](super::BUCKETS) buckets.
//! - Times of the wall clock are between 1970 and 9999.
//! - XML, command lines and device maps are within the limits of their parsers
//!   ([`limits`](kvm::limits)), and names and XML no characters that a terminal acts on.
//! - CPUs, nodes and vCPUs have numbers below [`MAX_CPUS`]. A host's CPUs are sorted, each of them
//!   once.
//! - The host's topology is as [`HostTopology::normalise`](kvm::topology::HostTopology::normalise)
//!   leaves it.
//!
//! Larger figures are cut to the limit; numbers of CPUs and the like that are too large are left
//! out.

use super::figures::Bounded;
use super::{
    DomainFacts, DomainSample, GuestInterrupts, HostDisk, Job, MAX_STOP_DISKS, MAX_STOP_GUESTS,
    Sample, Stop, StopDisk,
};
use kvm::cmdline::{self, QemuCommand};
use kvm::cpu_set::MAX_CPUS;
use kvm::device_property::MAX_PROPERTIES;
use kvm::domain_xml::DomainXml;
use kvm::{limits, sanitize, sanitize_name, without_hidden};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum length of a path, characters.
pub const MAX_FOLDER: usize = 1024;
/// Maximum number of jobs of a guest.
pub const MAX_JOBS: usize = 64;
/// Maximum length of a guest's name, UUID, machine or system, characters.
const MAX_NAME: usize = 256;
/// Maximum number of devices below a block device.
const MAX_NAMES: usize = 256;
/// The last second of the year 9998, milliseconds since the epoch. The calendar ends a year later,
/// in any time zone.
const LAST_MS: i64 = 253_370_764_799_000;

/// A time of the wall clock, milliseconds since the epoch, as a calendar has it.
pub fn calendar_ms(time_ms: i64) -> i64 {
    time_ms.clamp(0, LAST_MS)
}

impl Sample {
    /// Cuts what no host can have; see the module. Facts of host and guests are normalised
    /// separately.
    pub fn normalise(&mut self) {
        self.bound();
        self.time_ms = calendar_ms(self.time_ms);
        let cpus = &mut self.host.cpus;
        cpus.retain(|cpu| cpu.cpu < MAX_CPUS);
        cpus.sort_by_key(|cpu| cpu.cpu);
        cpus.dedup_by_key(|cpu| cpu.cpu);
        for disk in self.host.disks.iter_mut().flatten() {
            clean_name(&mut disk.name);
            disk.alias.iter_mut().for_each(clean_name);
        }
        for link in self.host.links.iter_mut().flatten() {
            clean_name(&mut link.name);
        }
        self.domains.iter_mut().for_each(DomainSample::normalise);
    }
}

impl DomainFacts {
    /// As [`Sample::normalise`]; XML, command line and device map keep the bounds of their parsers.
    pub fn normalise(&mut self) {
        self.bound();
        clean_name(&mut self.name.value);
        for known in [&mut self.uuid, &mut self.machine, &mut self.guest_os]
            .into_iter()
            .flatten()
        {
            clean_name(&mut known.value);
        }
        self.labels.normalise();
        self.started_ms = self.started_ms.map(calendar_ms);
        self.vcpus.take_if(|known| known.value > limits::VCPUS);
        if let Some(xml) = &mut self.xml {
            normalise_xml(Arc::make_mut(&mut xml.value));
        }
        if let Some(command) = &mut self.command {
            normalise_command(Arc::make_mut(command));
        }
        if let Some(devices) = &mut self.devices {
            Arc::make_mut(&mut devices.value).normalise();
        }
    }
}

/// As a parser leaves a text.
fn clean(text: &mut String, most: usize, sanitize: fn(&str, usize) -> String) {
    if text.len() > most || without_hidden(text) != *text {
        *text = sanitize(text, most);
    }
}

fn clean_name(name: &mut String) {
    clean(name, MAX_NAME, sanitize_name);
}

/// A command line that came decoded out of a recording, without its parser.
fn normalise_command(command: &mut QemuCommand) {
    let smp = &mut command.smp;
    for number in [
        &mut smp.cpus,
        &mut smp.maxcpus,
        &mut smp.sockets,
        &mut smp.dies,
        &mut smp.cores,
        &mut smp.threads,
    ] {
        number.take_if(|n| *n > limits::VCPUS);
    }
    command
        .memory
        .take_if(|bytes| *bytes > limits::GUEST_MEMORY);
    command.plugged_vcpus = command.plugged_vcpus.min(limits::VCPUS);
    command.disks.truncate(cmdline::MAX_ARGS);
    command
        .disks
        .iter_mut()
        .for_each(|disk| normalise_limits(&mut disk.limits));
    command.device_properties.truncate(MAX_PROPERTIES);
    for list in [
        &mut command.qmp_sockets,
        &mut command.peer_sockets,
        &mut command.other_netdevs,
        &mut command.iothreads,
        &mut command.cpu_options,
        &mut command.drive_files,
    ] {
        list.truncate(cmdline::MAX_ARGS);
    }
}

/// A disk's limits, of which a parser keeps at most six.
fn normalise_limits(limits: &mut BTreeMap<String, u64>) {
    if limits.len() > 6 {
        limits.clear();
    }
    limits.bound();
}

/// A domain XML that came decoded out of a recording, without its parser.
fn normalise_xml(xml: &mut DomainXml) {
    let most = limits::ELEMENTS;
    xml.vcpus.take_if(|n| *n > limits::VCPUS);
    xml.topology.take_if(|t| {
        [t.sockets, t.dies, t.cores, t.threads]
            .iter()
            .any(|n| *n > limits::VCPUS)
    });
    xml.iothreads = xml.iothreads.min(limits::IOTHREADS);
    xml.vcpu_pins.retain(|number, _| *number < limits::VCPUS);
    xml.iothread_pins
        .retain(|number, _| *number <= limits::IOTHREADS);
    xml.numa_cells.retain(|cell| cell.id < limits::NUMA_CELLS);
    xml.numa_cells.truncate(limits::NUMA_CELLS as usize);
    xml.clock.timers.truncate(most);
    xml.disks.truncate(most);
    xml.bandwidths.truncate(most);
    xml.disks
        .iter_mut()
        .for_each(|disk| normalise_limits(&mut disk.iotune));
    xml.device_properties.truncate(MAX_PROPERTIES);
    for memory in xml
        .numa_cells
        .iter_mut()
        .map(|cell| &mut cell.memory)
        .chain([&mut xml.memory])
    {
        memory.take_if(|bytes| *bytes > limits::GUEST_MEMORY);
    }
    if let Some(command) = &mut xml.qemu_command {
        normalise_command(command);
    }
}

impl DomainSample {
    fn normalise(&mut self) {
        self.storage.truncate(MAX_NAMES);
        for disk in &mut self.storage {
            clean(&mut disk.file, MAX_FOLDER, sanitize);
            clean_name(&mut disk.storage);
        }
        self.node_memory.retain(|node, _| *node < MAX_CPUS);
        for thread in &mut self.threads {
            thread.index.take_if(|n| *n >= MAX_CPUS);
            thread.place.cpu.take_if(|n| *n >= MAX_CPUS);
        }
        for HostDisk {
            name, alias, below, ..
        } in self.host_disks.iter_mut().flatten()
        {
            below.truncate(MAX_NAMES);
            [name]
                .into_iter()
                .chain(alias)
                .chain(below)
                .for_each(clean_name);
        }
        self.jobs.truncate(MAX_JOBS);
        for Job {
            name,
            status,
            error,
            ..
        } in &mut self.jobs
        {
            [name, status].into_iter().chain(error).for_each(clean_name);
        }
        if let Some(Stop { disks, .. }) = &mut self.stop {
            disks.truncate(MAX_STOP_DISKS);
            for StopDisk {
                name, file, also, ..
            } in disks
            {
                also.truncate(MAX_STOP_GUESTS);
                [name].into_iter().chain(also).for_each(clean_name);
                file.iter_mut()
                    .for_each(|file| clean(file, MAX_FOLDER, sanitize));
            }
        }
        if let Some(GuestInterrupts {
            injections,
            doorbells,
        }) = &mut self.interrupts
        {
            doorbells
                .iter_mut()
                .for_each(|bell| clean_name(&mut bell.comm));
            injections
                .iter_mut()
                .filter_map(|injection| injection.comm.as_mut())
                .for_each(clean_name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BUCKETS, CpuTimes, Histogram, Known, MAX_FIGURE, Origin, ThreadEvents, ThreadSample, Timing,
    };
    use kvm::CpuSet;
    use kvm::domain_xml::DiskXml;
    use kvm::domain_xml::GuestNumaCell;

    #[test]
    fn a_decoded_guest_has_the_bounds_of_a_pasted_one() {
        let smp = cmdline::Smp {
            cpus: Some(1 << 30),
            cores: Some(2),
            ..cmdline::Smp::default()
        };
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
            numa_cells: vec![
                GuestNumaCell {
                    memory: Some(u64::MAX),
                    ..GuestNumaCell::default()
                };
                1000
            ],
            disks: vec![DiskXml::default(); 2 * limits::ELEMENTS],
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
            command: Some(Arc::new(command)),
            ..DomainFacts::default()
        };
        facts.normalise();
        assert_eq!(facts.name.value.chars().count(), MAX_NAME);
        assert!(!facts.name.value.contains('\u{1b}') && facts.vcpus.is_none());
        let xml = &facts.xml.as_ref().unwrap().value;
        assert_eq!(
            (xml.vcpus, xml.memory, xml.vcpu_pins.len()),
            (None, None, 1)
        );
        assert_eq!(
            (xml.numa_cells.len(), xml.disks.len()),
            (limits::NUMA_CELLS as usize, limits::ELEMENTS)
        );
        assert!(xml.numa_cells.iter().all(|cell| cell.memory.is_none()));
        for command in [
            xml.qemu_command.as_ref().unwrap(),
            facts.command.as_ref().unwrap(),
        ] {
            assert_eq!(
                (command.smp.cpus, command.smp.cores, command.memory),
                (None, Some(2), None)
            );
            assert_eq!(command.iothreads.len(), cmdline::MAX_ARGS);
        }
        let before = facts.clone();
        facts.normalise();
        assert_eq!(facts, before, "what is normal stays as it is");
    }

    #[test]
    fn figures_and_numbers_beyond_any_host_are_cut() {
        let times = |cpu| CpuTimes {
            cpu,
            idle_ns: u64::MAX,
            ..CpuTimes::default()
        };
        let histogram = Some(Histogram(vec![u64::MAX; 99]));
        let time = Timing {
            count: u64::MAX,
            histogram,
            ..Timing::default()
        };
        let events = ThreadEvents {
            wakeups: Some(Box::new(time)),
            ..ThreadEvents::default()
        };
        let thread = ThreadSample {
            index: Some(u32::MAX),
            events,
            ..ThreadSample::default()
        };
        let mut sample = Sample {
            time_ms: i64::MIN,
            mono_ns: u64::MAX,
            ..Sample::default()
        };
        sample.host.cpus = vec![times(u32::MAX), times(1), times(0), times(1)];
        sample.domains = vec![DomainSample {
            threads: vec![thread],
            ..DomainSample::default()
        }];
        sample.normalise();
        assert_eq!((sample.time_ms, sample.mono_ns), (0, MAX_FIGURE));
        let cpus: Vec<_> = sample
            .host
            .cpus
            .iter()
            .map(|c| (c.cpu, c.idle_ns))
            .collect();
        assert_eq!(cpus, [(0, MAX_FIGURE), (1, MAX_FIGURE)]);
        let thread = &sample.domains[0].threads[0];
        assert_eq!(thread.index, None);
        let wakeups = thread.events.wakeups.as_ref().unwrap();
        assert_eq!(
            (wakeups.count, wakeups.histogram.as_ref().unwrap().0.len()),
            (MAX_FIGURE, BUCKETS)
        );
    }
}
