//! The online CPUs of a host, by core and node.

use super::union;
use kvm::CpuSet;
use kvm::topology::HostTopology;
use std::collections::{BTreeMap, BTreeSet};

/// The kind of the slower cores of a hybrid host.
const EFFICIENCY: u32 = 0;

/// A core with its online hardware threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhysicalCore {
    /// Its CPUs, ascending.
    pub cpus: Vec<u32>,
    /// Its NUMA node.
    pub node: Option<u32>,
    /// Its last-level cache.
    pub llc: Option<u32>,
    /// Cores of one kind are equal: 0 for efficiency cores, else the number of threads.
    pub kind: u32,
}

/// The CPUs that threads may use, by core and node. Each CPU belongs to exactly one core.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuMap {
    /// All CPUs that are online.
    pub all: CpuSet,
    /// The CPUs without load balancing; empty if that is all of them.
    pub isolated: CpuSet,
    /// The cores, by their first CPU.
    pub cores: Vec<PhysicalCore>,
    /// The CPUs of each node; empty if nodes are unknown.
    pub nodes: BTreeMap<u32, CpuSet>,
    /// CPUs with busy tasks of the host. No thread is moved there while others are free.
    pub busy: CpuSet,
    core_of: BTreeMap<u32, usize>,
}

impl CpuMap {
    /// The CPUs of a topology that are online. `efficiency` names the slower CPUs of a hybrid host,
    /// where known.
    pub fn new(host: &HostTopology, online: &CpuSet, efficiency: &CpuSet) -> Self {
        let all = host.all().intersection(online);
        let mut map = Self {
            isolated: host.isolated.clone().unwrap_or_default().intersection(&all),
            ..Self::default()
        };
        if map.isolated == all {
            map.isolated = CpuSet::new();
        }
        for cpu in all.iter() {
            if let Some(node) = host.node_of(cpu) {
                map.nodes.entry(node).or_default().insert(cpu);
            }
            if map.core_of.contains_key(&cpu) {
                continue;
            }
            // A topology may contradict itself, so a CPU joins the first of its cores only.
            let mut cpus: CpuSet = host
                .siblings(cpu)
                .intersection(&all)
                .iter()
                .filter(|c| !map.core_of.contains_key(c))
                .collect();
            cpus.insert(cpu);
            map.core_of
                .extend(cpus.iter().map(|c| (c, map.cores.len())));
            map.cores.push(PhysicalCore {
                node: host.node_of(cpu),
                llc: host.cpu(cpu).and_then(|c| c.llc),
                kind: if efficiency.contains(cpu) {
                    EFFICIENCY
                } else {
                    cpus.len() as u32
                },
                cpus: cpus.iter().collect(),
            });
        }
        map.all = all;
        map
    }

    /// The same host with CPUs that its own tasks keep busy.
    #[must_use]
    pub fn with_busy(mut self, cpus: &CpuSet) -> Self {
        self.busy = cpus.intersection(&self.all);
        self
    }

    /// The position of a CPU's core in [`Self::cores`].
    pub fn core_of(&self, cpu: u32) -> Option<usize> {
        self.core_of.get(&cpu).copied()
    }

    /// Whether two CPUs are threads of one core.
    pub fn same_core(&self, a: u32, b: u32) -> bool {
        a == b
            || self
                .core_of(a)
                .is_some_and(|core| self.core_of(b) == Some(core))
    }

    /// Whether a CPU is the only online thread of its core.
    pub fn is_single(&self, cpu: u32) -> bool {
        self.core_of(cpu)
            .and_then(|core| self.cores.get(core))
            .is_some_and(|core| core.cpus.len() == 1)
    }

    /// The node of a CPU.
    pub fn node_of(&self, cpu: u32) -> Option<u32> {
        self.cores.get(self.core_of(cpu)?)?.node
    }

    /// The nodes of a set of CPUs.
    pub fn nodes_of(&self, cpus: &CpuSet) -> CpuSet {
        self.nodes
            .iter()
            .filter(|(_, of_node)| of_node.intersects(cpus))
            .map(|(node, _)| *node)
            .collect()
    }

    /// The CPUs of some nodes.
    pub fn cpus_of(&self, nodes: &CpuSet) -> CpuSet {
        union(nodes.iter().filter_map(|n| self.nodes.get(&n)))
    }

    /// The largest number of hardware threads of a core.
    pub fn threads(&self) -> u32 {
        self.cores
            .iter()
            .map(|c| c.cpus.len() as u32)
            .max()
            .unwrap_or(1)
    }

    /// The CPUs for the host's own tasks: all but the isolated ones.
    pub fn general(&self) -> CpuSet {
        self.all.difference(&self.isolated)
    }

    /// The first core of each node, or of the host, that is not isolated.
    pub fn first_cores(&self) -> CpuSet {
        let mut seen = BTreeSet::new();
        let mut first: Vec<u32> = Vec::new();
        for core in &self.cores {
            let is_isolated = core.cpus.iter().any(|cpu| self.isolated.contains(*cpu));
            if !is_isolated && seen.insert(core.node) {
                first.extend(&core.cpus);
            }
        }
        first.into_iter().collect()
    }

    /// Whether a set lacks a CPU of the host, so that it restricts a thread. On an unknown host
    /// each set does, except a list from CPU 0 without a gap: libvirt prints all CPUs for a thread
    /// without a pin.
    pub fn restricts(&self, cpus: &CpuSet) -> bool {
        if !self.all.is_empty() {
            return !self.all.is_subset(cpus);
        }
        let may_be_all = cpus.len() > 1 && matches!(cpus.ranges().as_slice(), [(0, _)]);
        !cpus.is_empty() && !may_be_all
    }

    /// The CPU of a set of one CPU, on a host with several.
    pub fn pinned(&self, cpus: &CpuSet) -> Option<u32> {
        if self.restricts(cpus) {
            cpus.single()
        } else {
            None
        }
    }
}
