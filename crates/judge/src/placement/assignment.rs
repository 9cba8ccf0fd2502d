//! Finds CPUs for the vCPUs of one guest: near the vCPUs that stay, on one node, on whole cores.

use super::cores::{CoreRequest, choose};
use super::faults::{self, GuestFaults};
use super::{CpuMap, GuestLayout};
use kvm::CpuSet;
use std::collections::{BTreeMap, BTreeSet};

/// New CPUs for vCPUs of a guest, and the changes of the guest that they need.
#[derive(Debug, Default)]
pub(super) struct Assignment {
    pub pins: BTreeMap<u32, u32>,
    pub threads: Option<u32>,
    pub cells: Vec<(CpuSet, u32)>,
    pub memnodes: BTreeMap<usize, CpuSet>,
}

impl Assignment {
    fn from_pins(pins: BTreeMap<u32, u32>) -> Self {
        Self { pins, ..Self::default() }
    }

    /// The guest's layout under this assignment.
    pub fn applied_to(&self, guest: &GuestLayout) -> GuestLayout {
        let mut after = guest.clone();
        for (v, cpu) in &self.pins {
            if let Some(set) = after.vcpus.get_mut(*v as usize) {
                *set = CpuSet::from_iter([*cpu]);
            }
        }
        for (cell, nodes) in &self.memnodes {
            if let Some(cell) = after.cells.get_mut(*cell) {
                cell.nodes = Some(nodes.clone());
            }
        }
        after
    }
}

/// CPUs for vCPUs that move.
pub(super) struct FreeCpus {
    /// CPUs not used by any vCPU that stays.
    pub open: CpuSet,
    /// The part of them for vCPUs that are not there yet, best first.
    pub levels: Vec<CpuSet>,
}

impl FreeCpus {
    pub fn without(&self, used: &CpuSet) -> Self {
        let levels = self.levels.iter().map(|l| l.difference(used)).collect();
        Self { open: self.open.difference(used), levels }
    }

    fn with(&self, more: &CpuSet) -> Self {
        let levels = self.levels.iter().map(|l| l.union(more)).collect();
        Self { open: self.open.union(more), levels }
    }
}

/// A search for CPUs for some vCPUs of a guest.
#[derive(Clone, Copy)]
struct Search<'a> {
    map: &'a CpuMap,
    guest: &'a GuestLayout,
    /// The vCPUs that move.
    movers: &'a BTreeSet<u32>,
    free: &'a FreeCpus,
    /// Hardware threads of a guest core.
    threads: u32,
}

/// Finds CPUs for a guest: near the vCPUs that stay, else for all of its vCPUs elsewhere, else with other hardware
/// threads or cells.
pub(super) fn assign(map: &CpuMap, guest: &GuestLayout, faults: &GuestFaults, free: &FreeCpus) -> Option<Assignment> {
    if faults.movers.is_empty() {
        return Some(Assignment { threads: faults.show_threads, ..Assignment::default() });
    }
    let movers: BTreeSet<u32> = faults.movers.keys().copied().collect();
    let all: BTreeSet<u32> = (0..guest.vcpus.len() as u32).collect();
    // Moving all frees the CPUs of those that could stay.
    let own: CpuSet = guest.pins(map).filter(|(v, _)| !movers.contains(v)).map(|(_, cpu)| cpu).collect();
    let wider = free.with(&own);
    let near = Search { map, guest, movers: &movers, free, threads: faults::unit(map, guest) };
    let whole = Search { movers: &all, free: &wider, ..near };
    if guest.cells.len() > 1 {
        return near
            .in_cells()
            .or_else(|| whole.in_cells())
            .filter(|found| found.applied_to(guest).cells_elsewhere(map).is_empty())
            .or_else(|| near.with_other_memory());
    }
    if let Some(pins) = near.on_one_node().or_else(|| whole.on_one_node()) {
        return Some(Assignment::from_pins(pins));
    }
    let reshaped = near.other_threads().map(|threads| Search { threads, ..whole });
    let one_node = reshaped.and_then(|search| search.on_one_node()).map(Assignment::from_pins);
    let with_threads = |found: Assignment| Assignment { threads: reshaped.map(|search| search.threads), ..found };
    one_node
        .map(with_threads)
        .or_else(|| near.over_nodes())
        .or_else(|| reshaped.and_then(|search| search.over_nodes()).map(with_threads))
}

impl Search<'_> {
    /// Another number of hardware threads that could be shown to the guest.
    fn other_threads(&self) -> Option<u32> {
        let most = self.map.threads();
        let other = if self.threads == 1 { most } else { 1 };
        let fits = other != self.threads && (self.guest.vcpus.len() as u32).is_multiple_of(other);
        (self.guest.reshapes && self.guest.known && most > 1 && fits).then_some(other)
    }

    /// The CPUs of each node, best first: the node that memory is bound to, the node of the vCPUs that stay, the node
    /// of its memory, the node with the most free CPUs.
    fn nodes(&self) -> Vec<CpuSet> {
        let Self { map, guest, movers, free, .. } = *self;
        if map.nodes.len() < 2 {
            return vec![map.all.clone()];
        }
        let bound = guest.bound.as_ref().filter(|b| !b.is_empty());
        let stays = |v: u32| !movers.contains(&v);
        let fixed: CpuSet = guest.pins(map).filter(|(v, _)| stays(*v)).map(|(_, cpu)| cpu).collect();
        let own = guest.single(map);
        let mut nodes: Vec<(u32, CpuSet)> = map.nodes.iter().map(|(n, cpus)| (*n, cpus.clone())).collect();
        nodes.sort_by_key(|(node, cpus)| {
            std::cmp::Reverse((
                bound.is_some_and(|b| b.contains(*node)),
                cpus.intersection(&fixed).len(),
                guest.memory.contains(*node),
                cpus.intersection(&own).len(),
                cpus.intersection(&free.open).len(),
            ))
        });
        nodes.into_iter().map(|(_, cpus)| cpus).collect()
    }

    fn on_one_node(&self) -> Option<BTreeMap<u32, u32>> {
        self.nodes().iter().find_map(|cpus| self.fill(cpus, &BTreeSet::new()))
    }

    /// CPUs for the vCPUs that move, within a scope in which all others must be, and not on the cores `beside`, which
    /// the guest has as well.
    fn fill(&self, scope: &CpuSet, beside: &BTreeSet<usize>) -> Option<BTreeMap<u32, u32>> {
        let Self { map, guest, movers, free, threads } = *self;
        let open = free.open.intersection(scope);
        let mut cores = beside.clone();
        let mut pins = BTreeMap::new();
        let mut missing: Vec<Vec<u32>> = Vec::new();
        let mut near = None;
        let vcpus: Vec<u32> = (0..guest.vcpus.len() as u32).collect();
        let units: Vec<&[u32]> = vcpus.chunks(threads as usize).collect();
        let (moving, fixed): (Vec<&[u32]>, Vec<&[u32]>) =
            units.into_iter().partition(|unit| unit.iter().any(|v| movers.contains(v)));
        for v in fixed.into_iter().flatten() {
            let set = &guest.vcpus[*v as usize];
            if !set.is_subset(scope) && map.restricts(set) {
                return None;
            }
            if let Some(core) = map.pinned(set).and_then(|cpu| map.core_of(cpu)) {
                near = near.or(Some(core));
                cores.insert(core);
            }
        }
        let mut left = open.clone();
        for unit in moving {
            let now: Vec<u32> = unit.iter().filter_map(|v| guest.pin(map, *v)).collect();
            let here = now.len() == unit.len() && now.iter().all(|c| left.contains(*c));
            let together = now.windows(2).all(|two| map.same_core(two[0], two[1]) && two[0] != two[1]);
            let core = now.first().and_then(|c| map.core_of(*c));
            let alone = threads > 1 || map.threads() == 1 || !guest.known || core.is_some_and(|c| !cores.contains(&c));
            if here && together && alone {
                near = near.or(core);
                cores.extend(core);
                left = left.difference(&now.iter().copied().collect());
                pins.extend(unit.iter().copied().zip(now));
            } else {
                missing.push(unit.to_vec());
            }
        }
        let own = guest.single(map);
        for level in &free.levels {
            let request = CoreRequest {
                count: missing.len(),
                threads: threads as usize,
                free: level.intersection(&left),
                not: (threads == 1).then_some(&cores),
                own: &own,
                near,
            };
            if let Some(chosen) = choose(map, &request) {
                for (unit, cpus) in missing.iter().zip(chosen) {
                    pins.extend(unit.iter().copied().zip(cpus));
                }
                return Some(pins);
            }
        }
        None
    }

    /// CPUs on several nodes. A guest whose configuration is known has to see them.
    fn over_nodes(&self) -> Option<Assignment> {
        let Self { map, guest, .. } = *self;
        if map.nodes.len() < 2 || guest.known && !guest.takes_cells {
            return None;
        }
        let pins = self.fill(&map.all, &BTreeSet::new())?;
        if !guest.known {
            return Some(Assignment::from_pins(pins));
        }
        let mut cells: BTreeMap<u32, CpuSet> = BTreeMap::new();
        for v in 0..guest.vcpus.len() as u32 {
            let cpu = pins.get(&v).copied().or_else(|| guest.pin(map, v))?;
            cells.entry(map.node_of(cpu)?).or_default().insert(v);
        }
        let cells = if cells.len() > 1 { cells.into_iter().map(|(n, v)| (v, n)).collect() } else { Vec::new() };
        Some(Assignment { pins, cells, ..Assignment::default() })
    }

    /// CPUs for a guest with NUMA cells: each cell on the nodes that hold its memory, else on one node.
    fn in_cells(&self) -> Option<Assignment> {
        let Self { map, guest, movers, .. } = *self;
        let mut found = Assignment::default();
        let mut free = self.free.without(&CpuSet::new());
        let mut rest: CpuSet = movers.iter().copied().collect();
        for cell in &guest.cells {
            let part: BTreeSet<u32> = cell.vcpus.iter().filter(|v| rest.contains(*v)).collect();
            rest = rest.difference(&cell.vcpus);
            if part.is_empty() {
                continue;
            }
            let nodes = cell.nodes.clone().unwrap_or_else(|| {
                let pins = cell.vcpus.iter().filter(|v| !part.contains(v)).filter_map(|v| guest.pin(map, v));
                map.nodes_of(&pins.collect())
            });
            let scope = Some(map.cpus_of(&nodes)).filter(|c| !c.is_empty());
            let scopes = scope.map_or_else(|| Search { movers: &part, free: &free, ..*self }.nodes(), |c| vec![c]);
            // Only this cell has to be in its scope.
            let mut alone = guest.clone();
            for (v, set) in (0..).zip(&mut alone.vcpus).filter(|(v, _)| !cell.vcpus.contains(*v)) {
                if !part.contains(&v) {
                    set.clone_from(&map.all);
                }
            }
            let fixed = guest.pins(map).filter(|(v, _)| !movers.contains(v)).map(|(_, cpu)| cpu);
            let cores = fixed.chain(found.pins.values().copied()).filter_map(|cpu| map.core_of(cpu)).collect();
            let search = Search { guest: &alone, movers: &part, free: &free, ..*self };
            let pins = scopes.iter().find_map(|cpus| search.fill(cpus, &cores))?;
            free = free.without(&pins.values().copied().collect());
            found.pins.extend(pins);
        }
        // vCPUs in no cell.
        let part: BTreeSet<u32> = rest.iter().collect();
        if !part.is_empty() {
            let search = Search { movers: &part, free: &free, ..*self };
            found.pins.extend(search.fill(&map.all, &BTreeSet::new())?);
        }
        Some(found)
    }

    /// CPUs for a guest with cells anywhere, with the memory of each cell bound to the nodes where the cell then is.
    fn with_other_memory(&self) -> Option<Assignment> {
        let Self { map, guest, .. } = *self;
        if !guest.takes_cells {
            return None;
        }
        let pins = self.fill(&map.all, &BTreeSet::new())?;
        let mut found = Assignment::from_pins(pins);
        let after = found.applied_to(guest);
        for (cell, _) in after.cells_elsewhere(map) {
            let vcpus = after.cells.get(cell)?.vcpus.iter();
            let cpus = vcpus.filter_map(|v| after.vcpus.get(v as usize)).fold(CpuSet::new(), |a, b| a.union(b));
            found.memnodes.insert(cell, map.nodes_of(&cpus));
        }
        Some(found)
    }
}
