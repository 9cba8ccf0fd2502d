//! Makes the plan: finds what is wrong, moves what has to move, and looks again until nothing is wrong.

use super::cores::{CoreRequest, choose};
use super::faults::{self, GuestFaults};
use super::pools::SharedPools;
use super::{CpuMap, GuestLayout, GuestPlan, MoveReason, PlacementPlan, helpers};
use crate::kvm::CpuSet;
use std::collections::{BTreeMap, BTreeSet};

/// After so many rounds, guests that still have a fault get all CPUs.
const ROUNDS: usize = 6;
/// How often a round begins again because a guest has found no room.
const ATTEMPTS: usize = 3;

/// Plans a host. The guests' layouts are what is now; nothing is moved that stands well.
pub fn plan(map: &CpuMap, guests: &[GuestLayout]) -> PlacementPlan {
    let mut work = Work { map, now: guests.to_vec(), plans: guests.iter().map(|_| GuestPlan::default()).collect() };
    if map.all.is_empty() {
        return PlacementPlan { guests: work.plans, after: work.now };
    }
    work.undo_drift();
    let mut concerned: Vec<bool> = Vec::new();
    for round in 0..ROUNDS {
        let before = work.now.clone();
        let mut found = faults::find(map, &work.now);
        if round == 0 {
            let shared: CpuSet = faults::overlaps(map, guests).iter().flat_map(|o| o.cpus.keys().copied()).collect();
            let shares = |g: &GuestLayout| g.single(map).intersects(&shared) || g.reach(map).intersects(&shared);
            concerned = found.iter().zip(guests).map(|(f, g)| !f.movers.is_empty() || shares(g)).collect();
        } else {
            work.spare_others(&mut found, &concerned);
        }
        work.solve(found, round + 2 >= ROUNDS);
        helpers::move_away(map, &mut work.now);
        if work.now == before {
            break;
        }
    }
    work.bind_memory(guests);
    work.place_unpinned();
    for (g, was) in guests.iter().enumerate() {
        work.changes(g, was);
    }
    PlacementPlan { guests: work.plans, after: work.now }
}

/// The plan while it is made.
struct Work<'a> {
    map: &'a CpuMap,
    now: Vec<GuestLayout>,
    plans: Vec<GuestPlan>,
}

/// Where vCPUs of a guest go.
#[derive(Debug, Default)]
struct GuestSeats {
    pins: BTreeMap<u32, u32>,
    threads: Option<u32>,
    cells: Vec<(CpuSet, u32)>,
    memnodes: BTreeMap<usize, CpuSet>,
}

/// What is free for vCPUs that move.
struct FreeCpus {
    /// CPUs that no vCPU has that stays.
    open: CpuSet,
    /// Of these, CPUs for vCPUs that are not there yet: best first.
    levels: Vec<CpuSet>,
}

impl FreeCpus {
    fn without(&self, used: &CpuSet) -> Self {
        let levels = self.levels.iter().map(|l| l.difference(used)).collect();
        Self { open: self.open.difference(used), levels }
    }
}

impl Work<'_> {
    /// The plan begins where the configuration wants the vCPUs.
    fn undo_drift(&mut self) {
        for (guest, plan) in self.now.iter_mut().zip(&mut self.plans) {
            for (v, cpus) in std::mem::take(&mut guest.drifted) {
                if let Some(now) = guest.vcpus.get_mut(v as usize) {
                    *now = cpus;
                    plan.reasons.entry(MoveReason::Drift).or_default().insert(v);
                }
            }
            for helper in std::iter::once(&mut guest.emulator).chain(guest.iothreads.values_mut()) {
                helper.cpus = helper.drifted.take().or(helper.cpus.take());
            }
        }
    }

    /// One round: every guest with a fault gets CPUs of its own, else a share of what is left.
    fn solve(&mut self, found: Vec<GuestFaults>, give_up: bool) {
        for (plan, faults) in self.plans.iter_mut().zip(&found) {
            for (v, reason) in &faults.movers {
                plan.reasons.entry(*reason).or_default().insert(*v);
            }
        }
        if give_up {
            for (g, _) in found.iter().enumerate().filter(|(_, f)| !f.movers.is_empty()) {
                self.unpin(g);
            }
            return;
        }
        let groups = self.groups();
        let mut sharing: BTreeSet<usize> = BTreeSet::new();
        for attempt in 0..ATTEMPTS {
            let (seats, failed) = self.place_all(&found, &sharing);
            let crowded = |g: &usize| found[*g].movers.values().all(|r| *r == MoveReason::Crowded);
            let (stay, failed): (Vec<usize>, Vec<usize>) = failed.into_iter().partition(crowded);
            let failed: BTreeSet<usize> = failed.into_iter().collect();
            if failed.is_subset(&sharing) || attempt + 1 == ATTEMPTS {
                for (g, seats) in seats {
                    self.seat(g, &seats);
                }
                sharing.extend(failed);
                self.share(&found, &sharing);
                self.widen(&stay);
                return;
            }
            // Guests that want the same CPUs share: none of them is worse off than the others.
            let wanted: BTreeSet<usize> = failed.iter().map(|g| groups[*g]).collect();
            sharing.extend(failed);
            sharing.extend((0..self.now.len()).filter(|g| wanted.contains(&groups[*g])));
        }
    }

    /// Guests that stood well before do not move because others share their CPUs now: these get all CPUs instead.
    fn spare_others(&mut self, found: &mut [GuestFaults], concerned: &[bool]) {
        let mut crowded = CpuSet::new();
        for (g, faults) in found.iter_mut().enumerate().filter(|(g, f)| !f.movers.is_empty() && !concerned[*g]) {
            crowded = self.now[g].vcpus.iter().fold(crowded, |a, set| a.union(set));
            *faults = GuestFaults { memory_elsewhere: faults.memory_elsewhere, ..GuestFaults::default() };
        }
        for g in 0..self.now.len() {
            if self.plans[g].shares && self.now[g].reach(self.map).intersects(&crowded) {
                self.unpin(g);
            }
        }
    }

    /// Guests that have vCPUs on common CPUs, directly or by way of others, have the same number.
    fn groups(&self) -> Vec<usize> {
        let mut groups: Vec<usize> = (0..self.now.len()).collect();
        let mut owner: BTreeMap<u32, usize> = BTreeMap::new();
        fn root(groups: &mut [usize], mut g: usize) -> usize {
            while groups[g] != g {
                groups[g] = groups[groups[g]];
                g = groups[g];
            }
            g
        }
        for (g, guest) in self.now.iter().enumerate().filter(|(_, g)| g.running) {
            for cpu in guest.single(self.map).iter() {
                let other = *owner.entry(cpu).or_insert(g);
                let (a, b) = (root(&mut groups, other), root(&mut groups, g));
                groups[a.max(b)] = a.min(b);
            }
        }
        (0..groups.len()).map(|g| root(&mut groups, g)).collect()
    }

    /// Places all guests that move, the largest first. Returns where, and the guests for which there is no room.
    fn place_all(&self, found: &[GuestFaults], sharing: &BTreeSet<usize>) -> (Vec<(usize, GuestSeats)>, Vec<usize>) {
        let mut free = self.free(found, sharing);
        let moves = |g: &usize| {
            let f = &found[*g];
            !sharing.contains(g) && !f.gives_way && (!f.movers.is_empty() || f.show_threads.is_some())
        };
        let mut order: Vec<usize> = (0..self.now.len()).filter(moves).collect();
        order.sort_by_key(|g| std::cmp::Reverse(found[*g].movers.len()));
        let (mut placed, mut failed) = (Vec::new(), Vec::new());
        for g in order {
            match self.place(g, &found[g], &free) {
                Some(seats) => {
                    free = free.without(&seats.pins.values().copied().collect());
                    placed.push((g, seats));
                }
                None => failed.push(g),
            }
        }
        (placed, failed)
    }

    /// CPUs of vCPUs that stay.
    fn taken(&self, found: &[GuestFaults], sharing: &BTreeSet<usize>) -> CpuSet {
        let mut taken = CpuSet::new();
        for (g, guest) in self.now.iter().enumerate() {
            let stays = |v: u32| !found[g].movers.contains_key(&v) && !(sharing.contains(&g) && guest.running);
            taken.extend(guest.pins(self.map).filter(|(v, _)| stays(*v)).map(|(_, cpu)| cpu));
        }
        taken
    }

    fn free(&self, found: &[GuestFaults], sharing: &BTreeSet<usize>) -> FreeCpus {
        let map = self.map;
        let taken = self.taken(found, sharing);
        let mut used = taken.clone();
        for (g, guest) in self.now.iter().enumerate() {
            let stays = |v: &u32| !found[g].movers.contains_key(v) && !sharing.contains(&g);
            used = guest.pooled(map).filter(|(v, _)| stays(v)).fold(used, |a, (_, set)| a.union(set));
        }
        let left = map.general().difference(&taken);
        // One core stays with the host: the first that has a CPU left.
        let own = map.cores.iter().find(|c| c.cpus.iter().any(|cpu| left.contains(*cpu)));
        let own: CpuSet = own.into_iter().flat_map(|c| c.cpus.iter().copied()).collect();
        let starved = found.iter().flat_map(|f| f.movers.values()).any(|r| *r == MoveReason::HostStarved);
        let banned = if starved { map.general().first().into_iter().collect() } else { CpuSet::new() };
        let open = map.all.difference(&used).difference(&banned);
        let new = open.difference(&helpers::settled(map, &self.now));
        let mut levels = Vec::new();
        if !map.isolated.is_empty() {
            levels.push(new.intersection(&map.isolated));
        }
        levels.push(new.difference(&map.first_cores()).difference(&own));
        levels.push(new.difference(&own));
        FreeCpus { open, levels }
    }

    /// Room for one guest: near the vCPUs that stay, else for all of it elsewhere, else as a guest of another shape.
    fn place(&self, g: usize, faults: &GuestFaults, free: &FreeCpus) -> Option<GuestSeats> {
        let guest = &self.now[g];
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
                .filter(|seats| self.after(guest, seats).cells_elsewhere(self.map).is_empty())
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
        self.over_nodes(guest, &movers, free, threads)
    }

    /// Other numbers of hardware threads that could be shown to a guest.
    fn shapes(&self, guest: &GuestLayout, threads: u32) -> Vec<u32> {
        let most = self.map.threads();
        let fits = |n: u32| n != threads && guest.vcpus.len() as u32 % n == 0;
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
        let after = self.after(guest, &seats);
        for (cell, _) in after.cells_elsewhere(self.map) {
            let vcpus = after.cells.get(cell)?.vcpus.iter();
            let cpus = vcpus.filter_map(|v| after.vcpus.get(v as usize)).fold(CpuSet::new(), |a, b| a.union(b));
            seats.memnodes.insert(cell, self.map.nodes_of(&cpus));
        }
        Some(seats)
    }

    /// A guest once it is placed.
    fn after(&self, guest: &GuestLayout, seats: &GuestSeats) -> GuestLayout {
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

    fn seat(&mut self, g: usize, seats: &GuestSeats) {
        self.now[g] = self.after(&self.now[g], seats);
        self.plans[g].memnodes.extend(seats.memnodes.clone());
        if let Some(threads) = seats.threads {
            self.now[g].threads = threads;
            self.plans[g].threads = Some(threads);
        }
        if !seats.cells.is_empty() {
            self.show_cells(g, &seats.cells);
        }
    }

    fn show_cells(&mut self, g: usize, cells: &[(CpuSet, u32)]) {
        let layout = |(vcpus, node): &(CpuSet, u32)| super::CellLayout {
            vcpus: vcpus.clone(),
            nodes: Some(CpuSet::from_iter([*node])),
        };
        self.now[g].cells = cells.iter().map(layout).collect();
        self.now[g].bound = Some(cells.iter().map(|c| c.1).collect());
        self.plans[g].cells = cells.to_vec();
    }

    /// Sets that have to leave CPUs of pinned vCPUs, and common sets for the guests without room.
    fn share(&mut self, found: &[GuestFaults], sharing: &BTreeSet<usize>) {
        let map = self.map;
        let gives_way = |g: &usize| found[*g].gives_way;
        for g in (0..self.now.len()).filter(|g| !sharing.contains(g)).filter(gives_way).collect::<Vec<_>>() {
            let others: CpuSet = self.now.iter().flat_map(|guest| guest.pins(map)).map(|(_, cpu)| cpu).collect();
            for (v, set) in faults::shrunk(map, &self.now[g], &others).unwrap_or_default() {
                self.now[g].vcpus[v as usize] = set;
            }
        }
        let mut taken = CpuSet::new();
        for (_, guest) in self.now.iter().enumerate().filter(|(g, guest)| !(sharing.contains(g) && guest.running)) {
            taken.extend(guest.pins(map).map(|(_, cpu)| cpu));
        }
        let mut pools = SharedPools::new(map, &taken);
        for g in sharing.iter().copied() {
            let guest = &self.now[g];
            if !guest.running {
                continue;
            }
            let pinned: CpuSet = (0..).zip(&guest.vcpus).filter(|(_, s)| map.restricts(s)).map(|(v, _)| v).collect();
            if pinned.is_empty() {
                continue;
            }
            let mut sets: BTreeMap<u32, CpuSet> = BTreeMap::new();
            let parts = if guest.cells.len() > 1 {
                guest.cells.iter().map(|c| (c.vcpus.clone(), c.nodes.clone())).collect()
            } else {
                vec![((0..guest.vcpus.len() as u32).collect::<CpuSet>(), None)]
            };
            for (vcpus, nodes) in parts {
                if let Some(set) = pools.take(guest, nodes.as_ref(), vcpus.len()) {
                    sets.extend(vcpus.iter().map(|v| (v, set.clone())));
                }
            }
            self.plans[g].shares = true;
            if sets.len() < guest.vcpus.len() {
                self.unpin(g);
                continue;
            }
            for (v, set) in sets {
                if let Some(now) = self.now[g].vcpus.get_mut(v as usize) {
                    *now = set;
                }
            }
        }
    }

    /// Crowded sets for which no vCPU could get a CPU of its own take in what is left.
    fn widen(&mut self, guests: &[usize]) {
        let taken = self.now.iter().fold(CpuSet::new(), |a, g| a.union(&g.single(self.map)));
        let crowded = faults::crowded(self.map, &self.now);
        for g in guests {
            let guest = &self.now[*g];
            if !crowded.iter().any(|set| set.cpus == guest.reach(self.map)) {
                continue;
            }
            let nodes = self.map.nodes_of(&guest.reach(self.map));
            let Some(pool) = SharedPools::new(self.map, &taken).take(guest, Some(&nodes), guest.vcpus.len()) else {
                continue;
            };
            let reach = guest.reach(self.map);
            if reach.is_subset(&pool) && pool.len() > reach.len() {
                let vcpus: Vec<u32> = guest.pooled(self.map).map(|(v, _)| v).collect();
                vcpus.into_iter().for_each(|v| self.now[*g].vcpus[v as usize].clone_from(&pool));
            }
        }
    }

    /// Takes all pins of a guest away.
    fn unpin(&mut self, g: usize) {
        self.plans[g].shares = true;
        let all = &self.map.all;
        self.now[g].vcpus.iter_mut().for_each(|set| set.clone_from(all));
    }

    /// Binds memory to where the vCPUs are, where they were moved away from it.
    fn bind_memory(&mut self, was: &[GuestLayout]) {
        let map = self.map;
        for (g, was) in was.iter().enumerate().filter(|(_, g)| g.running) {
            let guest = &self.now[g];
            let nodes = guest.confined(map).map(|cpus| map.nodes_of(&cpus)).unwrap_or_default();
            let moved = map.nodes.len() > 1 && !nodes.is_empty() && guest.vcpus != was.vcpus;
            let left = moved && was.confined(map).map(|cpus| map.nodes_of(&cpus)).as_ref() != Some(&nodes);
            let binds = guest.cells.len() < 2 && guest.bound.as_ref() != Some(&nodes);
            if guest.memory_elsewhere(map) || left && binds {
                self.now[g].bound = Some(nodes.clone());
                self.plans[g].memory = Some(nodes);
            }
        }
    }

    /// Gives all guests that are not pinned CPUs of their own, if there is room for all of them.
    fn place_unpinned(&mut self) {
        let map = self.map;
        let unpinned = |g: &GuestLayout| g.running && !g.vcpus.is_empty() && g.vcpus.iter().all(|s| !map.restricts(s));
        let guests: Vec<usize> =
            (0..self.now.len()).filter(|g| unpinned(&self.now[*g]) && !self.plans[*g].shares).collect();
        let wanted: usize = guests.iter().map(|g| self.now[*g].vcpus.len()).sum();
        if guests.is_empty() || wanted >= map.all.len() || self.plans.iter().any(|p| p.shares) {
            return;
        }
        let mut found: Vec<GuestFaults> = self.now.iter().map(|_| GuestFaults::default()).collect();
        for g in &guests {
            found[*g].movers = (0..self.now[*g].vcpus.len() as u32).map(|v| (v, MoveReason::Unpinned)).collect();
        }
        let (seats, failed) = self.place_all(&found, &BTreeSet::new());
        let reshaped = |(_, s): &(usize, GuestSeats)| s.threads.is_some() || !s.cells.is_empty();
        if !failed.is_empty() || seats.iter().any(reshaped) {
            return;
        }
        let before = (self.now.clone(), self.plans.clone());
        for (g, seats) in &seats {
            self.seat(*g, seats);
            self.plans[*g].optional = true;
            self.plans[*g].reasons.entry(MoveReason::Unpinned).or_default().extend(seats.pins.keys().copied());
        }
        self.bind_memory(&before.0);
        let required: Vec<_> =
            (0..self.now.len()).filter(|g| !guests.contains(g)).map(|g| self.now[g].clone()).collect();
        helpers::move_away(map, &mut self.now);
        let untouched =
            (0..self.now.len()).filter(|g| !guests.contains(g)).zip(&required).all(|(g, r)| self.now[g] == *r);
        let wrong = faults::find(map, &self.now).iter().any(|f| !f.movers.is_empty() || f.show_threads.is_some());
        if wrong || !untouched {
            (self.now, self.plans) = before;
        }
    }

    /// What has changed of one guest since the beginning.
    fn changes(&mut self, g: usize, was: &GuestLayout) {
        let (now, plan) = (&self.now[g], &mut self.plans[g]);
        if !plan.cells.is_empty() {
            let cell = |c: &super::CellLayout| Some((c.vcpus.clone(), c.nodes.as_ref()?.first()?));
            plan.cells = now.cells.iter().filter_map(cell).collect();
            plan.memnodes.clear();
        }
        for (v, (new, old)) in (0..).zip(now.vcpus.iter().zip(&was.vcpus)) {
            if new != old || was.absent.contains(v) && !new.is_empty() {
                plan.vcpus.insert(v, new.clone());
                if was.absent.contains(v) {
                    plan.reasons.entry(MoveReason::Absent).or_default().insert(v);
                }
            }
        }
        if now.emulator != was.emulator {
            plan.emulator.clone_from(&now.emulator.cpus);
        }
        for (id, new) in &now.iothreads {
            if was.iothreads.get(id) != Some(new)
                && let Some(cpus) = &new.cpus
            {
                plan.iothreads.insert(*id, cpus.clone());
            }
        }
        let moved: CpuSet = plan.vcpus.keys().copied().collect();
        for vcpus in plan.reasons.values_mut() {
            *vcpus = vcpus.intersection(&moved);
        }
        plan.reasons.retain(|_, vcpus| !vcpus.is_empty());
    }
}
