//! The CPUs that a guest's threads may use, as a tool or a configuration other than libvirt's XML says.

use super::CpuSet;
use std::collections::BTreeMap;

/// CPUs by thread. Nothing is known of a thread that is not in it, or no configuration restricts it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadCpus {
    /// By number of the vCPU.
    pub vcpus: BTreeMap<u32, CpuSet>,
    /// The CPU that a vCPU ran on last.
    pub last: BTreeMap<u32, u32>,
    /// The emulator: the VMM's other threads.
    pub emulator: Option<CpuSet>,
}

impl ThreadCpus {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.vcpus.is_empty() && self.last.is_empty() && self.emulator.is_none()
    }

    /// The same CPUs for all threads of a guest.
    pub fn all(vcpus: u32, cpus: &CpuSet) -> Self {
        Self {
            vcpus: (0..vcpus.min(super::cpu_set::MAX_CPUS)).map(|vcpu| (vcpu, cpus.clone())).collect(),
            emulator: Some(cpus.clone()),
            ..Self::default()
        }
    }

    /// Fills what it leaves open.
    pub fn complete(&mut self, other: Self) {
        for (vcpu, cpus) in other.vcpus {
            self.vcpus.entry(vcpu).or_insert(cpus);
        }
        for (vcpu, cpu) in other.last {
            self.last.entry(vcpu).or_insert(cpu);
        }
        self.emulator = self.emulator.take().or(other.emulator);
    }
}
