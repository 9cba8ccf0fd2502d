//! Finds CPUs for the vCPUs of one guest: near the vCPUs that stay, on one node, on whole cores of
//! one kind, in as few last-level caches as possible.

use super::faults::{self, GuestFaults};
use super::{CpuMap, GuestLayout, PhysicalCore, Shape, union};
use kvm::CpuSet;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// CPUs for vCPUs that move.
pub(super) struct FreeCpus {
    /// CPUs that no vCPU that stays uses.
    pub open: CpuSet,
    /// Choices of these CPUs for vCPUs that are not there yet, best first.
    pub levels: Vec<CpuSet>,
}

impl FreeCpus {
    pub fn without(&self, used: &CpuSet) -> Self {
        self.each(|cpus| cpus.difference(used))
    }

    /// CPUs for this guest: isolated ones only if it has some already, because others may be meant
    /// for something else.
    fn for_guest(&self, map: &CpuMap, guest: &GuestLayout) -> Self {
        let of_guest = guest.single(map).union(&guest.reach(map));
        if of_guest.intersects(&map.isolated) {
            self.without(&CpuSet::new())
        } else {
            self.without(&map.isolated)
        }
    }

    fn each(&self, change: impl Fn(&CpuSet) -> CpuSet) -> Self {
        Self {
            open: change(&self.open),
            levels: self.levels.iter().map(&change).collect(),
        }
    }
}

/// A search for CPUs for some vCPUs of a guest.
#[derive(Clone, Copy)]
pub(super) struct Search<'a> {
    pub map: &'a CpuMap,
    pub guest: &'a GuestLayout,
    /// The vCPUs that move.
    movers: &'a CpuSet,
    free: &'a FreeCpus,
    /// Hardware threads of a guest core.
    pub threads: u32,
}

/// Finds CPUs for a guest on one node: near the vCPUs that stay, else for all of its vCPUs
/// elsewhere. Returns the guest as it then is.
pub(super) fn assign(
    map: &CpuMap,
    guest: &GuestLayout,
    faults: &GuestFaults,
    free: &FreeCpus,
) -> Option<GuestLayout> {
    if faults.movers.is_empty() {
        return Some(GuestLayout {
            threads: faults.show_threads.unwrap_or(guest.threads),
            ..guest.clone()
        });
    }
    let free = &free.for_guest(map, guest);
    let movers: CpuSet = faults.movers.keys().copied().collect();
    let all_vcpus: CpuSet = (0..guest.vcpus.len() as u32).collect();
    let near = Search {
        map,
        guest,
        movers: &movers,
        free,
        threads: faults::vcpus_per_core(map, guest),
    };
    // If all vCPUs move, the CPUs of those that could stay are free as well.
    let of_staying = near.cpus_of_staying();
    let wider = free.each(|cpus| cpus.union(&of_staying));
    let whole = Search {
        movers: &all_vcpus,
        free: &wider,
        ..near
    };
    near.on_one_node().or_else(|| whole.on_one_node())
}

impl Search<'_> {
    /// The CPUs that vCPUs which stay are pinned to.
    fn cpus_of_staying(&self) -> CpuSet {
        self.guest
            .pins(self.map)
            .filter(|(v, _)| !self.movers.contains(*v))
            .map(|(_, cpu)| cpu)
            .collect()
    }

    /// The CPUs of each node, best first: the node that memory is bound to, the node of the vCPUs
    /// that stay, the node of its memory, the node with the most free CPUs; at last all CPUs for a
    /// guest that may span nodes.
    fn nodes_by_preference(&self) -> Vec<CpuSet> {
        let Self {
            map, guest, free, ..
        } = *self;
        if map.nodes.len() < 2 {
            return vec![map.all.clone()];
        }
        let fixed = self.cpus_of_staying();
        let pinned = guest.single(map);
        let mut nodes: Vec<(&u32, &CpuSet)> = map.nodes.iter().collect();
        nodes.sort_by_key(|(node, cpus)| {
            Reverse((
                guest.bound.as_ref().is_some_and(|b| b.contains(**node)),
                cpus.intersection(&fixed).len(),
                guest.memory.contains(**node),
                cpus.intersection(&pinned).len(),
                cpus.intersection(&free.open).len(),
            ))
        });
        let whole = guest.may_span(map).then(|| map.all.clone());
        nodes
            .into_iter()
            .map(|(_, cpus)| cpus.clone())
            .chain(whole)
            .collect()
    }

    /// The guest with CPUs for the vCPUs that move, all of them on the best node that has room.
    fn on_one_node(&self) -> Option<GuestLayout> {
        let nodes = self.nodes_by_preference();
        let pins = nodes.iter().find_map(|cpus| self.cpus_for_movers(cpus))?;
        let mut after = self.guest.clone();
        for (v, cpu) in pins {
            after.vcpus[v as usize] = CpuSet::from_iter([cpu]);
        }
        Some(after)
    }

    /// The vCPUs that move, each with its CPU in `scope`; `None` without room, or if a vCPU that
    /// stays has CPUs outside of the scope. Guest cores stay together, and where they are if they
    /// can.
    fn cpus_for_movers(&self, scope: &CpuSet) -> Option<BTreeMap<u32, u32>> {
        let Self {
            map,
            guest,
            movers,
            free,
            threads,
        } = *self;
        let mut used_cores = BTreeSet::new();
        let mut pins = BTreeMap::new();
        let mut unplaced: Vec<&[u32]> = Vec::new();
        let mut near = None;
        let vcpus: Vec<u32> = (0..guest.vcpus.len() as u32).collect();
        let (moving, fixed): (Vec<&[u32]>, Vec<&[u32]>) = vcpus
            .chunks(threads as usize)
            .partition(|guest_core| guest_core.iter().any(|v| movers.contains(*v)));
        for v in fixed.into_iter().flatten() {
            let set = &guest.vcpus[*v as usize];
            if !set.is_subset(scope) && map.restricts(set) {
                return None;
            }
            let core = map.pinned(set).and_then(|cpu| map.core_of(cpu));
            near = near.or(core);
            used_cores.extend(core);
        }
        let mut left = free.open.intersection(scope);
        let allowed = union(&free.levels);
        for guest_core in moving {
            // A guest core stays where it is pinned, else where it runs.
            let pinned: Vec<u32> = guest_core
                .iter()
                .filter_map(|v| guest.pin(map, *v))
                .collect();
            let seen: Vec<u32> = guest_core
                .iter()
                .filter_map(|v| guest.runs_on.get(v).copied())
                .collect();
            let mut stays = None;
            if self.may_stay(guest_core, &pinned, &left, &used_cores) {
                stays = Some(pinned);
            } else if self.may_stay(guest_core, &seen, &left.intersection(&allowed), &used_cores) {
                stays = Some(seen);
            }
            if let Some(now) = stays {
                let core = now.first().and_then(|c| map.core_of(*c));
                near = near.or(core);
                used_cores.extend(core);
                left = left.difference(&now.iter().copied().collect());
                pins.extend(guest_core.iter().copied().zip(now));
            } else {
                unplaced.push(guest_core);
            }
        }
        let free = free.levels.iter().map(|level| level.intersection(&left));
        let chosen = free
            .into_iter()
            .find_map(|free| self.choose_cores(unplaced.len(), &free, &used_cores, near))?;
        for (guest_core, cpus) in unplaced.into_iter().zip(chosen) {
            pins.extend(guest_core.iter().copied().zip(cpus));
        }
        Some(pins)
    }

    /// Whether the vCPUs of a guest core may stay on the CPUs `now`: these are threads of one core
    /// and all `among` the free ones. The guest's other vCPUs are on `used_cores`.
    fn may_stay(
        &self,
        guest_core: &[u32],
        now: &[u32],
        among: &CpuSet,
        used_cores: &BTreeSet<usize>,
    ) -> bool {
        let map = self.map;
        let is_together = now
            .windows(2)
            .all(|two| map.same_core(two[0], two[1]) && two[0] != two[1]);
        let core = now.first().and_then(|c| map.core_of(*c));
        let is_alone = self.threads > 1
            || map.threads() == 1
            || self.guest.shape == Shape::Unknown
            || core.is_some_and(|c| !used_cores.contains(&c));
        now.len() == guest_core.len()
            && now.iter().all(|c| among.contains(*c))
            && is_together
            && is_alone
    }

    /// The cores that have enough free CPUs. The guest's other vCPUs are on `used_cores`.
    fn free_cores(&self, free: &CpuSet, used_cores: &BTreeSet<usize>) -> Vec<FreeCore<'_>> {
        let threads = self.threads as usize;
        let pinned = self.guest.single(self.map);
        let mut found = Vec::new();
        for (index, core) in self.map.cores.iter().enumerate() {
            // A guest that sees one thread per core gets no second thread of a core.
            if threads == 1 && used_cores.contains(&index) {
                continue;
            }
            let mut left: Vec<u32> = core
                .cpus
                .iter()
                .copied()
                .filter(|c| free.contains(*c))
                .collect();
            let is_whole = left.len() == core.cpus.len();
            left.sort_by_key(|c| (!pinned.contains(*c), *c));
            let parts = if threads == 1 { 1 } else { left.len() };
            for part in left.chunks_exact(threads).take(parts) {
                let mut cpus = part.to_vec();
                cpus.sort_unstable();
                let kept = cpus.iter().filter(|c| pinned.contains(**c)).count();
                found.push(FreeCore {
                    core,
                    cpus,
                    kept,
                    is_whole,
                });
            }
        }
        found
    }

    /// Free CPUs for `count` guest cores, those of each in numerical order; `None` if there are too
    /// few. The guest's other vCPUs are on `used_cores`. The kind and the cache of the core `near`
    /// are preferred.
    fn choose_cores(
        &self,
        count: usize,
        free: &CpuSet,
        used_cores: &BTreeSet<usize>,
        near: Option<usize>,
    ) -> Option<Vec<Vec<u32>>> {
        let near = near.and_then(|core| self.map.cores.get(core));
        let mut found = self.free_cores(free, used_cores);
        let mut of_kind: BTreeMap<u32, usize> = BTreeMap::new();
        let mut of_cache: BTreeMap<(u32, Option<u32>), CacheRoom> = BTreeMap::new();
        for FreeCore { core, kept, .. } in &found {
            *of_kind.entry(core.kind).or_default() += 1;
            let cache = of_cache.entry((core.kind, core.llc)).or_default();
            cache.cores += 1;
            cache.kept += kept;
        }
        let mut chosen: Vec<Vec<u32>> = Vec::new();
        while chosen.len() < count {
            let missing = count - chosen.len();
            // Cores of one kind before a mixture; the cache that the guest uses, then the smallest
            // with room for the rest, else the largest.
            let best = found.iter().min_by_key(|free| {
                let core = free.core;
                let cache = &of_cache[&(core.kind, core.llc)];
                let kind = (
                    of_kind[&core.kind] < count,
                    near.is_some_and(|n| n.kind != core.kind),
                    Reverse(core.kind),
                );
                let is_near = near.is_some_and(|n| (n.kind, n.llc) == (core.kind, core.llc));
                let spare = if cache.cores >= missing {
                    cache.cores
                } else {
                    usize::MAX - cache.cores
                };
                (kind, !is_near, Reverse(cache.kept), spare, core.llc)
            })?;
            let cache = (best.core.kind, best.core.llc);
            let (mut here, rest): (Vec<_>, Vec<_>) = found
                .into_iter()
                .partition(|f| (f.core.kind, f.core.llc) == cache);
            here.sort_by_key(|free| {
                (
                    Reverse(free.kept),
                    !free.is_whole,
                    free.cpus.first().copied(),
                )
            });
            chosen.extend(here.into_iter().take(missing).map(|free| free.cpus));
            found = rest;
        }
        chosen.sort();
        Some(chosen)
    }
}

/// A core with enough free threads.
struct FreeCore<'a> {
    core: &'a PhysicalCore,
    /// The threads.
    cpus: Vec<u32>,
    /// How many of them the guest has now.
    kept: usize,
    /// Whether all threads of the core are free.
    is_whole: bool,
}

/// The free cores of a last-level cache.
#[derive(Default)]
struct CacheRoom {
    cores: usize,
    /// How many of their threads the guest has now.
    kept: usize,
}
