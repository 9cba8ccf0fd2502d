//! Sets of CPUs for vCPUs that have to share.

use super::{CpuMap, GuestLayout};
use kvm::CpuSet;
use std::collections::BTreeMap;

/// The CPUs that may be shared, and their number of vCPUs, by node. A host with one node or unknown nodes has one
/// entry without a number.
type SharedPools = BTreeMap<Option<u32>, (CpuSet, usize)>;

/// The CPUs that are neither isolated nor taken by single vCPUs, without the first cores of the nodes if enough are
/// left.
pub(super) fn shared(map: &CpuMap, taken: &CpuSet) -> SharedPools {
    let left = map.general().difference(taken);
    let rest = left.difference(&map.first_cores());
    let pool =
        |cpus: &CpuSet| [rest.intersection(cpus), left.intersection(cpus)].into_iter().find(|pool| pool.len() > 1);
    if map.nodes.len() > 1 {
        map.nodes.iter().filter_map(|(n, cpus)| Some((Some(*n), (pool(cpus)?, 0)))).collect()
    } else {
        pool(&map.all).map(|cpus| (None, (cpus, 0))).into_iter().collect()
    }
}

/// Takes a set for some vCPUs of a guest: on one of `nodes` if there are any, else on a node of its memory, else where
/// the fewest vCPUs share a CPU.
pub(super) fn take(
    pools: &mut SharedPools,
    guest: &GuestLayout,
    nodes: Option<&CpuSet>,
    vcpus: usize,
) -> Option<CpuSet> {
    let near = guest.bound.as_ref().unwrap_or(&guest.memory);
    let fits = |node: &Option<u32>| nodes.is_none_or(|n| node.is_none_or(|node| n.contains(node)));
    let (_, (cpus, users)) = pools.iter_mut().filter(|(node, _)| fits(node)).min_by_key(|(node, (cpus, users))| {
        let load = (*users + vcpus) * 1000 / cpus.len().max(1);
        (!near.is_empty() && !node.is_some_and(|n| near.contains(n)), load)
    })?;
    *users += vcpus;
    Some(cpus.clone())
}
