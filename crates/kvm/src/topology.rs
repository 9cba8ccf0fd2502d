//! The host's CPUs: which of them share a core, a last-level cache or a NUMA node, and which are
//! isolated.

use super::cpu_set::{CpuSet, MAX_CPUS};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name of the host parameter that lists the slower CPUs of a hybrid host, as the kernel names
/// their perf events (`/sys/devices/cpu_atom/cpus`, arch/x86/events/intel/core.c).
pub const EFFICIENCY_CPUS: &str = "cpu_atom.cpus";

/// The name of the host parameter that holds the CPU's model, as /proc/cpuinfo and `lscpu` name it.
pub const CPU_MODEL: &str = "cpu.model";

/// The names of the host parameters that say how fast CPUs run, after the files of `cpufreq` in
/// sysfs (Documentation/admin-guide/pm/cpufreq.rst): what chooses their frequency;
pub const CPU_GOVERNOR: &str = "cpufreq.scaling_governor";
/// the driver, on which the meaning of a governor depends;
pub const CPU_DRIVER: &str = "cpufreq.scaling_driver";
/// the highest frequency of the hardware, kHz;
pub const CPU_MAX_KHZ: &str = "cpufreq.cpuinfo_max_freq";
/// the frequency that all CPUs can keep up, kHz;
pub const CPU_BASE_KHZ: &str = "cpufreq.base_frequency";

/// The CPUs that do less than four fifths of what the fastest does. The fastest of equal cores
/// differ by less: a favoured core by some 5 %.
pub fn slower(speeds: &[(u32, u64)]) -> CpuSet {
    let most = speeds.iter().map(|(_, speed)| *speed).max().unwrap_or(0);
    speeds
        .iter()
        .filter(|(_, speed)| speed.saturating_mul(5) < most.saturating_mul(4))
        .map(|(cpu, _)| *cpu)
        .collect()
}

/// The position of one host CPU. `None` means that the source does not report it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuTopo {
    /// The CPU's number.
    pub cpu: u32,
    /// Core id, unique within its socket.
    pub core: Option<u32>,
    /// Socket (`physical_package_id`).
    pub socket: Option<u32>,
    /// Die within the socket.
    pub die: Option<u32>,
    /// NUMA node.
    pub node: Option<u32>,
    /// Id of the last-level cache; equal ids share it.
    pub llc: Option<u32>,
    /// All hardware threads of the core, this one included.
    pub siblings: CpuSet,
}

/// The host's CPUs and the sets that the kernel treats specially.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostTopology {
    /// One entry for each CPU, sorted by number.
    pub cpus: Vec<CpuTopo>,
    /// CPUs taken out of load balancing (`isolcpus=`, isolated cpuset partitions); `None` when not
    /// known.
    pub isolated: Option<CpuSet>,
    /// CPUs without a periodic tick while one task runs (`nohz_full=`); `None` when not known.
    pub nohz_full: Option<CpuSet>,
}

impl HostTopology {
    /// The entry of a CPU.
    pub fn cpu(&self, cpu: u32) -> Option<&CpuTopo> {
        let index = self
            .cpus
            .binary_search_by_key(&cpu, |entry| entry.cpu)
            .ok()?;
        self.cpus.get(index)
    }

    /// All CPUs.
    pub fn all(&self) -> CpuSet {
        self.cpus.iter().map(|entry| entry.cpu).collect()
    }

    /// The hardware threads of the core of this CPU, itself included; only itself when the CPU is
    /// unknown.
    pub fn siblings(&self, cpu: u32) -> CpuSet {
        match self.cpu(cpu) {
            Some(entry) if !entry.siblings.is_empty() => entry.siblings.clone(),
            _ => CpuSet::from_iter([cpu]),
        }
    }

    /// Whether two CPUs are hardware threads of one core.
    pub fn same_core(&self, a: u32, b: u32) -> bool {
        a == b || self.siblings(a).contains(b)
    }

    /// Whether two CPUs share their last-level cache; `None` when that is not known.
    pub fn same_llc(&self, a: u32, b: u32) -> Option<bool> {
        Some(self.cpu(a)?.llc? == self.cpu(b)?.llc?)
    }

    /// Whether two CPUs are in one NUMA node; `None` when that is not known.
    pub fn same_node(&self, a: u32, b: u32) -> Option<bool> {
        Some(self.node_of(a)? == self.node_of(b)?)
    }

    /// The NUMA node of a CPU.
    pub fn node_of(&self, cpu: u32) -> Option<u32> {
        self.cpu(cpu)?.node
    }

    /// The NUMA nodes, ascending.
    pub fn nodes(&self) -> CpuSet {
        self.cpus.iter().filter_map(|entry| entry.node).collect()
    }

    /// Whether a CPU is isolated; false when the isolated set is not known.
    pub fn is_isolated(&self, cpu: u32) -> bool {
        self.isolated.as_ref().is_some_and(|set| set.contains(cpu))
    }

    /// Whether any core has more than one hardware thread.
    pub fn has_smt(&self) -> bool {
        self.cpus.iter().any(|entry| entry.siblings.len() > 1)
    }

    /// Fills what this topology leaves open from another description of the same host.
    pub fn complete(&mut self, other: &Self) {
        let mut known: BTreeMap<u32, CpuTopo> = BTreeMap::new();
        for entry in self.cpus.iter().chain(&other.cpus) {
            let cpu = known.entry(entry.cpu).or_insert_with(|| entry.clone());
            if cpu.core.is_none() {
                cpu.core = entry.core;
                cpu.socket = entry.socket.or(cpu.socket);
                cpu.die = entry.die.or(cpu.die);
            }
            cpu.socket = cpu.socket.or(entry.socket);
            cpu.node = cpu.node.or(entry.node);
            cpu.llc = cpu.llc.or(entry.llc);
            if cpu.siblings.len() <= 1 && entry.siblings.len() > 1 {
                cpu.siblings.clone_from(&entry.siblings);
            }
        }
        self.cpus = known.into_values().collect();
        self.isolated = self.isolated.take().or_else(|| other.isolated.clone());
        self.nohz_full = self.nohz_full.take().or_else(|| other.nohz_full.clone());
    }

    /// Makes it consistent, whatever said it. Behind this, CPUs are sorted and each of them is
    /// there once; CPUs and nodes have numbers below [`MAX_CPUS`]; and siblings are a partition:
    /// every CPU is among its own, all siblings of a core have the same ones, and all of them are
    /// CPUs of the host. Missing siblings come from equal (socket, die, core) ids. A CPU whose
    /// siblings contradict it has only itself.
    pub fn normalise(&mut self) {
        self.cpus.retain(|entry| entry.cpu < MAX_CPUS);
        self.cpus.sort_by_key(|entry| entry.cpu);
        self.cpus.dedup_by_key(|entry| entry.cpu);
        for entry in &mut self.cpus {
            entry.node = entry.node.filter(|node| *node < MAX_CPUS);
        }
        let mut cores: BTreeMap<(Option<u32>, Option<u32>, u32), CpuSet> = BTreeMap::new();
        for entry in &self.cpus {
            if let Some(core) = entry.core {
                cores
                    .entry((entry.socket, entry.die, core))
                    .or_default()
                    .insert(entry.cpu);
            }
        }
        for entry in &mut self.cpus {
            if entry.siblings.is_empty() {
                entry.siblings = entry
                    .core
                    .and_then(|core| cores.get(&(entry.socket, entry.die, core)).cloned())
                    .unwrap_or_else(|| CpuSet::from_iter([entry.cpu]));
            }
        }
        // The CPUs that name the same siblings. Only those of them are a core.
        let mut agreeing: BTreeMap<CpuSet, CpuSet> = BTreeMap::new();
        for entry in &mut self.cpus {
            entry.siblings.insert(entry.cpu);
            agreeing
                .entry(entry.siblings.clone())
                .or_default()
                .insert(entry.cpu);
        }
        for entry in &mut self.cpus {
            if let Some(cpus) = agreeing.get(&entry.siblings) {
                entry.siblings = entry.siblings.intersection(cpus);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> HostTopology {
        let mut host = HostTopology {
            cpus: (0..8u32)
                .rev()
                .map(|cpu| CpuTopo {
                    cpu,
                    core: Some(cpu % 2),
                    socket: Some(cpu % 4 / 2),
                    node: Some(cpu % 4 / 2),
                    llc: Some(cpu % 4 / 2),
                    ..CpuTopo::default()
                })
                .collect(),
            isolated: Some(CpuSet::range(2, 3)),
            nohz_full: None,
        };
        host.normalise();
        host
    }

    #[test]
    fn what_contradicts_itself_is_made_consistent() {
        let cpu = |cpu, siblings: &str| CpuTopo {
            cpu,
            node: Some(cpu),
            siblings: CpuSet::parse(siblings).unwrap(),
            ..CpuTopo::default()
        };
        let entries = [
            cpu(0, "1"),
            cpu(1, "2"),
            cpu(2, "0-8000"),
            cpu(4, "4-5"),
            cpu(5, "4-5"),
            cpu(5, "0-5"),
            cpu(6, "6,99"),
            cpu(u32::MAX, "3"),
        ];
        let mut host = HostTopology {
            cpus: entries.into(),
            ..HostTopology::default()
        };
        host.cpus[0].node = Some(u32::MAX);
        host.normalise();
        let siblings: Vec<_> = host
            .cpus
            .iter()
            .map(|c| (c.cpu, c.siblings.to_string()))
            .collect();
        let expected = [
            (0, "0"),
            (1, "1"),
            (2, "2"),
            (4, "4-5"),
            (5, "4-5"),
            (6, "6"),
        ];
        assert_eq!(
            siblings,
            expected.map(|(cpu, siblings)| (cpu, siblings.to_string()))
        );
        assert_eq!(host.nodes().to_string(), "1-2,4-6");
    }

    #[test]
    fn siblings_come_from_equal_core_ids_in_one_socket() {
        let host = host();
        assert_eq!(host.siblings(0).to_string(), "0,4");
        assert!(host.same_core(3, 7) && !host.same_core(0, 2));
        assert_eq!(host.same_llc(0, 1), Some(true));
        assert_eq!(host.same_node(0, 2), Some(false));
        assert_eq!(host.node_of(99), None);
        assert_eq!(host.same_node(0, 99), None);
        assert!(host.is_isolated(2) && !host.is_isolated(0) && host.has_smt());
        assert_eq!(host.siblings(99).to_string(), "99");
    }
}
