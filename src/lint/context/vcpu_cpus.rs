//! Where a guest's vCPUs may run.

use crate::kvm::CpuSet;
use crate::kvm::limits;
use crate::kvm::topology::HostTopology;
use crate::model::{DomainModel, GuestConfig};

/// The CPUs that a guest's vCPUs may use: as measured, else as configured.
#[derive(Debug, Clone, Default)]
pub(crate) struct VcpuCpus {
    /// vCPUs that may not use all CPUs, each with the CPUs that it may use.
    pub masks: Vec<(u32, CpuSet)>,
    /// All vCPUs whose CPUs are known, also where the host has no other CPUs.
    pub all: Vec<(u32, CpuSet)>,
    /// CPUs to which a single vCPU is pinned.
    pub single: CpuSet,
    /// All CPUs of `masks`.
    pub reach: CpuSet,
}

impl VcpuCpus {
    pub fn new(domain: &DomainModel, config: &GuestConfig, host: &HostTopology) -> Self {
        let cpus = host.all();
        let restricts = |set: &CpuSet| !set.is_empty() && (cpus.is_empty() || !cpus.is_subset(set));
        let measured: Vec<(u32, CpuSet)> =
            domain.vcpus().filter_map(|t| Some((t.index?, (**t.place.affinity.as_ref()?).clone()))).collect();
        let all = if measured.is_empty() { configured(domain, config) } else { measured };
        let masks: Vec<(u32, CpuSet)> = all.iter().filter(|(_, set)| restricts(set)).cloned().collect();
        Self {
            single: all.iter().filter_map(|(_, set)| set.single()).collect(),
            reach: masks.iter().fold(CpuSet::new(), |a, m| a.union(&m.1)),
            masks,
            all,
        }
    }
}

fn configured(domain: &DomainModel, config: &GuestConfig) -> Vec<(u32, CpuSet)> {
    let count = match domain.vcpu_count() {
        0 => config.vcpus.unwrap_or(0),
        n => n,
    };
    let last = config.pins.vcpus.keys().last().map_or(0, |v| v.saturating_add(1));
    (0..count.max(last).min(limits::VCPUS)).filter_map(|v| Some((v, config.pins.vcpu(v)?.clone()))).collect()
}
