//! Where a guest's vCPUs may run.

use crate::kvm::CpuSet;
use crate::kvm::topology::HostTopology;
use crate::model::{DomainModel, GuestConfig};

/// The CPUs of a guest's vCPUs: as they are, else as configured.
#[derive(Debug, Clone, Default)]
pub(crate) struct VcpuCpus {
    /// vCPUs whose CPUs are restricted, with the CPUs they may use.
    pub masks: Vec<(u32, CpuSet)>,
    /// The same with vCPUs that may use the only CPUs there are.
    pub all: Vec<(u32, CpuSet)>,
    /// CPUs that hold a vCPU which may run there only.
    pub single: CpuSet,
    /// All CPUs of `masks`.
    pub reach: CpuSet,
}

impl VcpuCpus {
    pub fn new(domain: &DomainModel, config: &GuestConfig, host: &HostTopology) -> Self {
        let cpus = host.all();
        let restricts = |set: &CpuSet| !set.is_empty() && (cpus.is_empty() || !cpus.is_subset(set));
        let live: Vec<(u32, CpuSet)> =
            domain.vcpus().filter_map(|t| Some((t.index?, (**t.place.affinity.as_ref()?).clone()))).collect();
        let all = if live.is_empty() { configured(domain, config) } else { live };
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
    let last = config.pins.vcpus.keys().last().map_or(0, |v| v + 1);
    // Numbers come from files: no guest has more vCPUs than KVM_MAX_VCPUS.
    (0..count.max(last).min(8192)).filter_map(|v| Some((v, config.pins.vcpu(v)?.clone()))).collect()
}
