//! Finds room for one guest: near the vCPUs that stay, on one node, on whole cores.

use super::cores::{CoreRequest, choose};
use super::faults::{self, GuestFaults};
use super::{CpuMap, GuestLayout};
use kvm::CpuSet;
use std::collections::{BTreeMap, BTreeSet};

/// Where vCPUs of a guest go.
#[derive(Debug, Default)]
pub(super) struct GuestSeats {
    pub pins: BTreeMap<u32, u32>,
    pub threads: Option<u32>,
    pub cells: Vec<(CpuSet, u32)>,
    pub memnodes: BTreeMap<usize, CpuSet>,
}

/// What is free for vCPUs that move.
pub(super) struct FreeCpus {
    /// CPUs that no vCPU has that stays.
    pub open: CpuSet,
    /// Of these, CPUs for vCPUs that are not there yet: best first.
    pub levels: Vec<CpuSet>,
}

impl FreeCpus {
    pub fn without(&self, used: &CpuSet) -> Self {
        let levels = self.levels.iter().map(|l| l.difference(used)).collect();
        Self { open: self.open.difference(used), levels }
    }
}

/// Looks for room on a host.
pub(super) struct SeatSearch<'a> {
    pub map: &'a CpuMap,
}

impl SeatSearch<'_> {
    /// Room for one guest: near the vCPUs that stay, else for all of it elsewhere, else as a guest of another shape.
    pub fn place(&self, guest: &GuestLayout, faults: &GuestFaults, free: &FreeCpus) -> Option<GuestSeats> {
        if faults.movers.is_empty() {
            return Some(GuestSeats { threads: faults.show_threads, ..GuestSeats::default() });
        }
        let movers: BTreeSet<u32> = faults.movers.keys().copied().collect();
        let all: BTreeSet<u32> = (0..guest.vcpus.len() as u32).collect();
        // Moving all frees the CPUs of those that could stay.
        let own: CpuSet = guest.pins(self.map).filter(|(v, _)| !movers.contains(v)).map(|(_, cpu)| cpu).collect();
        let wider = FreeCpus {
            open: free.open.union(&own),
            levels: free.levels.iter().map(|level| level.union(&own)).collect(),
        };
        let threads = faults::unit(self.map, guest);
        if guest.cells.len() > 1 {
            let strict = self.in_cells(guest, &movers, free, threads);
            return strict
                .or_else(|| self.in_cells(guest, &all, &wider, threads))
                .filter(|seats| Self::after(guest, seats).cells_elsewhere(self.map).is_empty())
                .or_else(|| self.with_other_memory(guest, &movers, free, threads));
        }
        let shapes = self.shapes(guest, threads);
        let one_node = |movers: &BTreeSet<u32>, free: &FreeCpus, threads: u32| {
            self.nodes_for(guest, movers, free)
                .into_iter()
                .find_map(|cpus| self.fill(guest, movers, free, threads, &cpus, &BTreeSet::new()))
        };
        if let Some(pins) = one_node(&movers, free, threads).or_else(|| one_node(&all, &wider, threads)) {
            return Some(GuestSeats { pins, ..GuestSeats::default() });
        }
        for shape in &shapes {
            if let Some(pins) = one_node(&all, &wider, *shape) {
                return Some(GuestSeats { pins, threads: Some(*shape), ..GuestSeats::default() });
            }
        }
        let reshaped = |shape: &u32| {
            let seats = self.over_nodes(guest, &all, &wider, *shape)?;
            Some(GuestSeats { threads: Some(*shape), ..seats })
        };
        self.over_nodes(guest, &movers, free, threads).or_else(|| shapes.iter().find_map(reshaped))
    }

    /// Other numbers of hardware threads that could be shown to a guest.
    fn shapes(&self, guest: &GuestLayout, threads: u32) -> Vec<u32> {
        let most = self.map.threads();
        let fits = |n: u32| n != threads && (guest.vcpus.len() as u32).is_multiple_of(n);
        let others = if threads == 1 { vec![most] } else { vec![1] };
        if guest.reshapes && guest.known && most > 1 {
            others.into_iter().filter(|n| fits(*n)).collect()
        } else {
            Vec::new()
        }
    }

    /// The CPUs of each node on which the guest might be, best first: that of its memory, of the vCPUs that stay, the
    /// one with the most room.
    fn nodes_for(&self, guest: &GuestLayout, movers: &BTreeSet<u32>, free: &FreeCpus) -> Vec<CpuSet> {
        let map = self.map;
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

    /// CPUs for the vCPUs that move, within a scope in which all others must be, and not on cores that the guest has
    /// besides.
    fn fill(
        &self,
        guest: &GuestLayout,
        movers: &BTreeSet<u32>,
        free: &FreeCpus,
        threads: u32,
        scope: &CpuSet,
        beside: &BTreeSet<usize>,
    ) -> Option<BTreeMap<u32, u32>> {
        let map = self.map;
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

    /// Room on several nodes. A guest whose configuration is known has to see them.
    fn over_nodes(
        &self,
        guest: &GuestLayout,
        movers: &BTreeSet<u32>,
        free: &FreeCpus,
        threads: u32,
    ) -> Option<GuestSeats> {
        let map = self.map;
        if map.nodes.len() < 2 || guest.known && !guest.takes_cells {
            return None;
        }
        let pins = self.fill(guest, movers, free, threads, &map.all, &BTreeSet::new())?;
        if !guest.known {
            return Some(GuestSeats { pins, ..GuestSeats::default() });
        }
        let mut cells: BTreeMap<u32, CpuSet> = BTreeMap::new();
        for v in 0..guest.vcpus.len() as u32 {
            let cpu = pins.get(&v).copied().or_else(|| guest.pin(map, v))?;
            cells.entry(map.node_of(cpu)?).or_default().insert(v);
        }
        let cells = if cells.len() > 1 { cells.into_iter().map(|(n, v)| (v, n)).collect() } else { Vec::new() };
        Some(GuestSeats { pins, cells, ..GuestSeats::default() })
    }

    /// Room for a guest with NUMA cells: each on the nodes that hold its memory, else on one node.
    fn in_cells(
        &self,
        guest: &GuestLayout,
        movers: &BTreeSet<u32>,
        free: &FreeCpus,
        threads: u32,
    ) -> Option<GuestSeats> {
        let map = self.map;
        let mut seats = GuestSeats::default();
        let mut free = free.without(&CpuSet::new());
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
            let scopes = scope.map_or_else(|| self.nodes_for(guest, &part, &free), |c| vec![c]);
            // Only this cell has to be in its scope.
            let mut alone = guest.clone();
            for (v, set) in (0..).zip(&mut alone.vcpus).filter(|(v, _)| !cell.vcpus.contains(*v)) {
                if !part.contains(&v) {
                    set.clone_from(&map.all);
                }
            }
            let fixed = guest.pins(map).filter(|(v, _)| !movers.contains(v)).map(|(_, cpu)| cpu);
            let cores = fixed.chain(seats.pins.values().copied()).filter_map(|cpu| map.core_of(cpu)).collect();
            let pins = scopes.into_iter().find_map(|cpus| self.fill(&alone, &part, &free, threads, &cpus, &cores))?;
            free = free.without(&pins.values().copied().collect());
            seats.pins.extend(pins);
        }
        // vCPUs in no cell.
        let part: BTreeSet<u32> = rest.iter().collect();
        if !part.is_empty() {
            seats.pins.extend(self.fill(guest, &part, &free, threads, &map.all, &BTreeSet::new())?);
        }
        Some(seats)
    }

    /// Room for a guest with cells wherever it is, with the memory of each cell bound to where the cell then is.
    fn with_other_memory(
        &self,
        guest: &GuestLayout,
        movers: &BTreeSet<u32>,
        free: &FreeCpus,
        threads: u32,
    ) -> Option<GuestSeats> {
        if !guest.takes_cells {
            return None;
        }
        let pins = self.fill(guest, movers, free, threads, &self.map.all, &BTreeSet::new())?;
        let mut seats = GuestSeats { pins, ..GuestSeats::default() };
        let after = Self::after(guest, &seats);
        for (cell, _) in after.cells_elsewhere(self.map) {
            let vcpus = after.cells.get(cell)?.vcpus.iter();
            let cpus = vcpus.filter_map(|v| after.vcpus.get(v as usize)).fold(CpuSet::new(), |a, b| a.union(b));
            seats.memnodes.insert(cell, self.map.nodes_of(&cpus));
        }
        Some(seats)
    }

    /// A guest once it is placed.
    pub fn after(guest: &GuestLayout, seats: &GuestSeats) -> GuestLayout {
        let mut after = guest.clone();
        for (v, cpu) in &seats.pins {
            if let Some(set) = after.vcpus.get_mut(*v as usize) {
                *set = CpuSet::from_iter([*cpu]);
            }
        }
        for (cell, nodes) in &seats.memnodes {
            if let Some(cell) = after.cells.get_mut(*cell) {
                cell.nodes = Some(nodes.clone());
            }
        }
        after
    }
}
