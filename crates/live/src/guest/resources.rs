//! A guest's resources apart from threads: KVM's counters, CPU limits, memory.

use super::cgroups::Hierarchies;
use super::counters::{GuestCounters, MissingCounters};
use super::cpu_limits::CpuLimits;
use super::huge_pages::{HugePages, HugePagesTurn};
use super::memory::{GuestMemory, MemoryBudget};
use super::nics::{GuestNics, NetworkTables};
use crate::proc::fds::KvmFiles;
use crate::proc::paths::SystemPaths;
use crate::proc::slow_files::SlowFiles;
use sample::{DomainSample, GroupCpus, MemoryUse, Throttling};
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
    /// Whether this tick may still read one `numa_maps`.
    walk: bool,
    /// Whether the host has anything swapped out.
    swapped: bool,
    /// From here on the huge pages of another guest may be read, monotonic nanoseconds.
    huge_pages_ns: u64,
    networks: NetworkTables,
    now_ns: u64,
    keep_below: i32,
}

impl TickBudget {
    /// Begins a tick. On a host with one node the place of memory is not read.
    pub(crate) fn begin(&mut self, paths: &SystemPaths, now_ns: u64, keep_below: i32, many_nodes: bool, swapped: bool) {
        if now_ns >= self.mounts_due_ns {
            self.mounts_due_ns = now_ns + MOUNTS_NS;
            self.hierarchies = Hierarchies::read(paths);
        }
        (self.debugfs, self.walk, self.swapped) = (DEBUGFS_BUDGET, many_nodes, swapped);
        (self.now_ns, self.keep_below) = (now_ns, keep_below);
        self.networks.begin(now_ns);
    }
}

/// The resources of one guest, as last read.
#[derive(Debug, Default)]
pub(crate) struct GuestResources {
    counters: GuestCounters,
    limits: CpuLimits,
    memory: GuestMemory,
    huge_pages: HugePages,
    nics: GuestNics,
    throttling: Vec<Throttling>,
    vm: BTreeMap<String, u64>,
    vcpus: BTreeMap<u32, BTreeMap<String, u64>>,
}

impl GuestResources {
    /// Takes over a new list of the guest's files.
    pub(crate) fn look(&mut self, paths: &SystemPaths, pid: i32, files: &KvmFiles, keep_below: i32) {
        self.counters.look(paths, pid, files, keep_below);
        self.nics.look(paths, pid, files);
    }

    /// Listing the guest's files is denied.
    pub(crate) fn deny(&mut self) {
        self.counters.deny();
    }

    /// Reads what is due of a process of user `uid`.
    pub(crate) fn read(
        &mut self,
        paths: &SystemPaths,
        (pid, uid): (i32, Option<u32>),
        budget: &mut TickBudget,
        slow_files: &mut SlowFiles,
    ) {
        let (now_ns, keep_below) = (budget.now_ns, budget.keep_below);
        (self.vm, self.vcpus) = self.counters.read(&mut budget.debugfs);
        self.throttling = self.limits.read(&budget.hierarchies, paths, pid, now_ns, keep_below);
        let mut memory = MemoryBudget { uid, swapped: budget.swapped, may_walk: &mut budget.walk, slow_files };
        self.memory.read(paths, pid, now_ns, &mut memory);
        let mut turn = HugePagesTurn { uid, next_ns: &mut budget.huge_pages_ns, slow_files };
        self.huge_pages.read(paths, pid, now_ns, &mut turn);
        self.nics.read(paths, pid, &mut budget.networks, now_ns);
    }

    /// Whether the last reading had KVM's counters.
    pub(crate) fn has_counters(&self) -> bool {
        !self.vm.is_empty() || !self.vcpus.is_empty()
    }

    /// The groups that bound the guest's CPUs.
    pub(crate) fn cpu_groups(&self) -> &[GroupCpus] {
        &self.limits.cpus
    }

    /// Why it had none.
    pub(crate) fn missing(&self) -> Option<MissingCounters> {
        self.counters.missing()
    }

    /// KVM's counters of one vCPU.
    pub(crate) fn vcpu(&self, index: u32) -> Option<&BTreeMap<String, u64>> {
        self.vcpus.get(&index)
    }

    /// The guest's own part of its sample.
    pub(crate) fn sample(&self) -> DomainSample {
        let (nics, nics_ns) = self.nics.grown();
        DomainSample {
            nics,
            nics_ns,
            counters: self.vm.clone(),
            throttling: self.throttling.clone(),
            node_memory: self.memory.nodes.clone(),
            swap_bytes: self.memory.swap_bytes,
            memory: MemoryUse { transparent: self.huge_pages.bytes, ..self.memory.used },
            ..DomainSample::default()
        }
    }
}
