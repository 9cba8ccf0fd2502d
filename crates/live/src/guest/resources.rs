//! A guest's resources apart from threads: KVM's counters, CPU limits, memory.

use super::cgroups::CpuLimits;
use super::counters::GuestCounters;
use super::memory::GuestMemory;
use super::nics::GuestNics;
use crate::metadata::source::DeviceActivity;
use crate::proc::fds::KvmFiles;
use crate::proc::pressure;
use crate::proc::read_context::ReadContext;
use sample::DomainSample;

/// The resources of one guest.
#[derive(Debug, Default)]
pub(crate) struct GuestResources {
    pub(crate) counters: GuestCounters,
    limits: CpuLimits,
    memory: GuestMemory,
    nics: GuestNics,
    /// What was last read.
    last: DomainSample,
}

impl GuestResources {
    /// Takes over a new list of the guest's files.
    pub(crate) fn look(&mut self, pid: i32, files: &KvmFiles, reader: &ReadContext) {
        self.counters.look(pid, files, reader);
        self.nics.look(&reader.paths, pid, files);
    }

    /// Reads what is due of a process and its user.
    pub(crate) fn read(&mut self, process: (i32, Option<u32>), reader: &mut ReadContext) {
        self.last.counters = self.counters.read(&mut reader.debugfs_budget);
        self.last.throttling = self.limits.read(process.0, reader);
        let own = self.limits.own.as_ref();
        self.last.pressure = own.and_then(|folder| pressure::read(folder, ".pressure"));
        self.memory.read(process, reader, &mut self.last);
        self.nics.read(process.0, reader);
        (self.last.nics, self.last.nics_ns) = self.nics.grown.clone();
    }

    /// The part of the guest's sample apart from threads, with what libvirt or the monitor says of
    /// its devices.
    pub(crate) fn sample(&self, devices: &DeviceActivity) -> DomainSample {
        let mut sample = self.last.clone();
        // libvirt knows more interfaces than the tap devices that the VMM holds open.
        if !devices.nics.is_empty() {
            sample.nics.clone_from(&devices.nics);
            sample.nics_ns = devices.ns;
        }
        sample.disks.clone_from(&devices.disks);
        sample.devices_ns = devices.ns;
        sample.jobs.clone_from(&devices.jobs);
        sample.memory.balloon = devices.balloon;
        sample
    }
}
