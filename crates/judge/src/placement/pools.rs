//! Sets of CPUs for vCPUs that have to share.

use super::{CpuMap, GuestLayout, helpers, singles, union};
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

/// Sets that are large enough for all vCPUs of a guest that has sets, best first: what pinned vCPUs leave of them, and
/// on each node that part with as many other CPUs of the node as are missing.
pub(super) fn wide(map: &CpuMap, guests: &[GuestLayout], g: usize) -> Vec<CpuSet> {
    let (guest, vcpus) = (&guests[g], guests[g].vcpus.len());
    let left = map.general().difference(&singles(map, guests, true));
    let own = guest.reach(map).intersection(&left);
    let reach: Vec<CpuSet> = guests.iter().map(|guest| guest.reach(map)).collect();
    let others = union(reach.iter().enumerate().filter(|(at, _)| *at != g).map(|(_, set)| set));
    let calm = left.difference(&others).difference(&helpers::settled(map, guests)).difference(&map.busy);
    let mut nodes: Vec<CpuSet> = map.nodes.values().cloned().collect();
    if nodes.is_empty() {
        nodes.push(map.all.clone());
    }
    let is_of = |nodes: &CpuSet, cpus: &CpuSet| map.cpus_of(nodes).intersects(cpus);
    let bound = |cpus: &CpuSet| guest.bound.as_ref().is_some_and(|nodes| is_of(nodes, cpus));
    let key = |cpus: &CpuSet| (bound(cpus), own.intersection(cpus).len(), is_of(&guest.memory, cpus));
    nodes.sort_by_key(|cpus| std::cmp::Reverse(key(cpus)));
    let more = [calm.difference(&map.first_cores()), calm, left];
    let part = |node: &CpuSet| {
        more.iter().fold(own.intersection(node), |all, set| {
            let missing = vcpus.saturating_sub(all.len());
            all.union(&set.intersection(node).difference(&all).iter().take(missing).collect())
        })
    };
    [own.clone()].into_iter().chain(nodes.iter().map(part)).filter(|set| set.len() >= vcpus).collect()
}
