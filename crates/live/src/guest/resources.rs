//! A guest's resources apart from threads: KVM's counters, CPU limits, memory.

use super::cgroups::CpuLimits;
use super::counters::GuestCounters;
use super::memory::GuestMemory;
use super::nics::GuestNics;
use crate::metadata::source::DeviceActivity;
use crate::proc::fds::KvmFiles;
use crate::proc::pressure;
use crate::proc::read_context::ReadContext;
use sample::{DomainSample, MemoryUse, Pressure, Throttling};
use std::collections::BTreeMap;

/// The resources of one guest, as last read.
#[derive(Debug, Default)]
pub(crate) struct GuestResources {
    pub(crate) counters: GuestCounters,
    pub(super) limits: CpuLimits,
    memory: GuestMemory,
    nics: GuestNics,
    throttling: Vec<Throttling>,
    pressure: Option<Pressure>,
    pressure_due_ns: u64,
    /// KVM's counters of the VM.
    vm: BTreeMap<String, u64>,
    /// KVM's counters of each vCPU.
    pub(super) vcpus: BTreeMap<u32, BTreeMap<String, u64>>,
}

impl GuestResources {
    /// Takes over a new list of the guest's files.
    pub(crate) fn look(&mut self, pid: i32, files: &KvmFiles, reader: &ReadContext) {
        self.counters.look(pid, files, reader);
        self.nics.look(&reader.paths, pid, files);
    }

    /// Reads what is due of a process and its user.
    pub(crate) fn read(&mut self, process: (i32, Option<u32>), reader: &mut ReadContext) {
        (self.vm, self.vcpus) = self.counters.read(&mut reader.debugfs_budget);
        self.throttling = self.limits.read(process.0, reader);
        if reader.now_ns >= self.pressure_due_ns {
            self.pressure_due_ns = reader.now_ns + pressure::PERIOD_NS;
            self.pressure = self
                .limits
                .own
                .as_ref()
                .and_then(|folder| pressure::read(folder, ".pressure"));
        }
        self.memory.read(process, reader);
        self.nics.read(process.0, reader);
    }

    /// The part of the guest's sample apart from threads, with what libvirt or the monitor says of
    /// its devices.
    pub(crate) fn sample(&self, devices: &DeviceActivity) -> DomainSample {
        // libvirt knows more interfaces than the tap devices that the VMM holds open.
        let (nics, nics_ns) = if devices.nics.is_empty() {
            self.nics.grown.clone()
        } else {
            (devices.nics.clone(), devices.ns)
        };
        DomainSample {
            nics,
            nics_ns,
            disks: devices.disks.clone(),
            devices_ns: devices.ns,
            jobs: devices.jobs.clone(),
            counters: self.vm.clone(),
            throttling: self.throttling.clone(),
            pressure: self.pressure,
            node_memory: self.memory.nodes.clone(),
            swap_bytes: self.memory.swap_bytes,
            memory: MemoryUse {
                balloon: devices.balloon,
                ..self.memory.used
            },
            ..DomainSample::default()
        }
    }
}
