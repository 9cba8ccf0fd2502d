//! A guest's resources apart from threads: KVM's counters, CPU limits, memory.

use super::cgroups::Hierarchies;
use super::counter_interpolation::CounterInterpolation;
use super::counters::GuestCounters;
use super::cpu_limits::CpuLimits;
use super::memory::{GuestMemory, MemoryBudget};
use super::nics::{GuestNics, NetworkTables};
use crate::metadata::source::{CounterReading, DeviceActivity};
use crate::proc::fds::KvmFiles;
use crate::proc::read_context::ReadContext;
use sample::{DomainSample, MemoryUse, Throttling};
use std::collections::BTreeMap;

/// At most this many debugfs files are read in one tick, for all guests together.
const DEBUGFS_BUDGET: usize = 512;
/// Time between two readings of the mount table.
const MOUNTS_NS: u64 = 60_000_000_000;

/// The budget of one tick for all guests together.
#[derive(Debug, Default)]
pub(crate) struct TickBudget {
    hierarchies: Hierarchies,
    mounts_due_ns: u64,
    debugfs: usize,
    memory: MemoryBudget,
    networks: NetworkTables,
}

impl TickBudget {
    /// Begins a tick. On a host with one node the place of memory is not read.
    pub(crate) fn begin(&mut self, reader: &ReadContext, many_nodes: bool, swapped: bool) {
        if reader.now_ns >= self.mounts_due_ns {
            self.mounts_due_ns = reader.now_ns + MOUNTS_NS;
            self.hierarchies = Hierarchies::read(&reader.paths);
        }
        (self.debugfs, self.memory.may_walk, self.memory.swapped) = (DEBUGFS_BUDGET, many_nodes, swapped);
        self.networks.begin(reader.now_ns);
    }
}

/// The resources of one guest, as last read.
#[derive(Debug, Default)]
pub(crate) struct GuestResources {
    pub(super) counters: GuestCounters,
    pub(super) limits: CpuLimits,
    memory: GuestMemory,
    nics: GuestNics,
    throttling: Vec<Throttling>,
    /// KVM's counters as libvirt reads them, where kvmtop cannot.
    pub(super) interpolation: CounterInterpolation,
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
    pub(crate) fn read(&mut self, process: (i32, Option<u32>), budget: &mut TickBudget, reader: &mut ReadContext) {
        (self.vm, self.vcpus) = self.counters.read(&mut budget.debugfs);
        if self.vm.is_empty() && self.vcpus.is_empty() {
            CounterReading { vm: self.vm, vcpus: self.vcpus, .. } = self.interpolation.at(reader.now_ns);
        }
        self.throttling = self.limits.read(&budget.hierarchies, process.0, reader);
        self.memory.read(process, &mut budget.memory, reader);
        self.nics.read(process.0, &mut budget.networks, reader);
    }

    /// The part of the guest's sample apart from threads, with what libvirt or the monitor says of its devices.
    pub(crate) fn sample(&self, devices: &DeviceActivity) -> DomainSample {
        // libvirt knows more interfaces than the tap devices that the VMM holds open.
        let (nics, nics_ns) =
            if devices.nics.is_empty() { self.nics.grown() } else { (devices.nics.clone(), devices.ns) };
        DomainSample {
            nics,
            nics_ns,
            disks: devices.disks.clone(),
            devices_ns: devices.ns,
            counters: self.vm.clone(),
            throttling: self.throttling.clone(),
            node_memory: self.memory.nodes.clone(),
            swap_bytes: self.memory.swap_bytes,
            memory: MemoryUse { balloon: devices.balloon, ..self.memory.used },
            ..DomainSample::default()
        }
    }
}
