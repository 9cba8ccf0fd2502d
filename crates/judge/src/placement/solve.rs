//! Makes the plan: finds faults, moves threads, and repeats this until no fault is left.

use super::assignment::{Assignment, FreeCpus, assign};
use super::faults::{self, GuestFaults};
use super::pools::SharedPools;
use super::{CpuMap, GuestLayout, GuestPlan, MoveReason, PlacementPlan, helpers};
use kvm::CpuSet;
use std::collections::{BTreeMap, BTreeSet};

/// Rounds after which guests that still have a fault get all CPUs.
const ROUNDS: usize = 6;
/// Attempts of one round, which starts again when a guest found no room.
const ATTEMPTS: usize = 3;

/// Plans a host from the guests' current layouts. Threads without a fault stay.
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
        work.solve(&found, round);
        helpers::move_away(map, &mut work.now);
        if work.now == before {
            work.leave_slow_cores();
            helpers::bring_near(map, &mut work.now);
        }
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

/// An unfinished plan.
pub(super) struct Work<'a> {
    pub map: &'a CpuMap,
    pub now: Vec<GuestLayout>,
    pub plans: Vec<GuestPlan>,
}

impl Work<'_> {
    /// Starts the plan from the configured pins.
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

    /// One round: each guest with a fault gets its own CPUs, else a share of the CPUs that are left.
    fn solve(&mut self, found: &[GuestFaults], round: usize) {
        for (plan, faults) in self.plans.iter_mut().zip(found) {
            // Later rounds find faults that the plan made, which explain only the vCPUs that had none at first.
            let known = plan.reasons.values().fold(CpuSet::new(), |a, b| a.union(b));
            for (v, reason) in faults.movers.iter().filter(|(v, _)| round == 0 || !known.contains(**v)) {
                plan.reasons.entry(*reason).or_default().insert(*v);
            }
        }
        if round + 2 >= ROUNDS {
            for (g, _) in found.iter().enumerate().filter(|(_, f)| !f.movers.is_empty()) {
                self.unpin(g);
            }
            return;
        }
        let groups = self.groups();
        let mut sharing: BTreeSet<usize> = BTreeSet::new();
        for attempt in 0..ATTEMPTS {
            let (assignments, failed) = self.place_all(found, &sharing);
            let crowded = |g: &usize| found[*g].movers.values().all(|r| *r == MoveReason::Crowded);
            let (stay, failed): (Vec<usize>, Vec<usize>) = failed.into_iter().partition(crowded);
            let failed: BTreeSet<usize> = failed.into_iter().collect();
            if failed.is_subset(&sharing) || attempt + 1 == ATTEMPTS {
                for (g, assignment) in assignments {
                    self.apply(g, &assignment);
                }
                sharing.extend(failed);
                self.share(found, &sharing);
                self.widen(&stay);
                return;
            }
            // Guests that want the same CPUs share them, so that none is worse off than the others.
            let wanted: BTreeSet<usize> = failed.iter().map(|g| groups[*g]).collect();
            sharing.extend(failed);
            sharing.extend((0..self.now.len()).filter(|g| wanted.contains(&groups[*g])));
        }
    }

    /// Keeps guests without an earlier fault in place: guests that now share their CPUs get all CPUs instead.
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

    /// The group of each guest. Guests with vCPUs on common CPUs, directly or through others, are one group.
    fn groups(&self) -> Vec<usize> {
        let mut groups: Vec<usize> = (0..self.now.len()).collect();
        let mut owner: BTreeMap<u32, usize> = BTreeMap::new();
        for (g, guest) in self.now.iter().enumerate().filter(|(_, g)| g.running) {
            for cpu in guest.single(self.map).iter() {
                let other = *owner.entry(cpu).or_insert(g);
                let (a, b) = (root(&mut groups, other), root(&mut groups, g));
                groups[a.max(b)] = a.min(b);
            }
        }
        (0..groups.len()).map(|g| root(&mut groups, g)).collect()
    }

    /// Places all guests that move, the largest first. Returns the assignments, and the guests that found no
    /// room. One CPU stays with the host.
    pub(super) fn place_all(
        &self,
        found: &[GuestFaults],
        sharing: &BTreeSet<usize>,
    ) -> (Vec<(usize, Assignment)>, Vec<usize>) {
        let mut free = self.free(found, sharing);
        let mut of_host = self.map.general().difference(&self.taken(found, sharing, |guest| guest.running));
        let moves = |g: &usize| {
            let f = &found[*g];
            !sharing.contains(g) && !f.gives_way && (!f.movers.is_empty() || f.show_threads.is_some())
        };
        let mut order: Vec<usize> = (0..self.now.len()).filter(moves).collect();
        order.sort_by_key(|g| std::cmp::Reverse(found[*g].movers.len()));
        let (mut placed, mut failed) = (Vec::new(), Vec::new());
        for g in order {
            match assign(self.map, &self.now[g], &found[g], &free) {
                Some(assignment) => {
                    let cpus: CpuSet = assignment.pins.values().copied().collect();
                    if of_host.intersects(&cpus) && of_host.is_subset(&cpus) {
                        failed.push(g);
                        continue;
                    }
                    of_host = of_host.difference(&cpus);
                    free = free.without(&cpus);
                    placed.push((g, assignment));
                }
                None => failed.push(g),
            }
        }
        (placed, failed)
    }

    /// CPUs of the vCPUs that stay, for the guests that `of` selects.
    fn taken(&self, found: &[GuestFaults], sharing: &BTreeSet<usize>, of: impl Fn(&GuestLayout) -> bool) -> CpuSet {
        let mut taken = CpuSet::new();
        for (g, guest) in self.now.iter().enumerate().filter(|(_, guest)| of(guest)) {
            let stays = |v: u32| !(found[g].movers.contains_key(&v) || sharing.contains(&g) && guest.running);
            taken.extend(guest.pins(self.map).filter(|(v, _)| stays(*v)).map(|(_, cpu)| cpu));
        }
        taken
    }

    pub(super) fn free(&self, found: &[GuestFaults], sharing: &BTreeSet<usize>) -> FreeCpus {
        let map = self.map;
        let taken = self.taken(found, sharing, |_| true);
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
        if !map.busy.is_empty() {
            let calm: Vec<CpuSet> = levels.iter().map(|level| level.difference(&map.busy)).collect();
            levels.splice(..0, calm);
        }
        FreeCpus { open, levels }
    }

    pub(super) fn apply(&mut self, g: usize, assignment: &Assignment) {
        self.now[g] = assignment.applied_to(&self.now[g]);
        self.plans[g].memnodes.extend(assignment.memnodes.clone());
        if let Some(threads) = assignment.threads {
            self.now[g].threads = threads;
            self.plans[g].threads = Some(threads);
        }
        if !assignment.cells.is_empty() {
            self.show_cells(g, &assignment.cells);
        }
    }

    fn show_cells(&mut self, g: usize, cells: &[(CpuSet, u32)]) {
        let layout = |(vcpus, node): &(CpuSet, u32)| super::CellLayout {
            vcpus: vcpus.clone(),
            nodes: Some(CpuSet::from_iter([*node])),
        };
        self.now[g].cells = cells.iter().map(layout).collect();
        self.now[g].bound = Some(cells.iter().map(|c| c.1).collect());
        // `changes` replaces them by the final cells.
        self.plans[g].cells = cells.iter().map(|(vcpus, node)| (vcpus.clone(), CpuSet::from_iter([*node]))).collect();
    }

    /// Removes the CPUs of pinned vCPUs from sets that give way, and gives common sets to guests without room.
    fn share(&mut self, found: &[GuestFaults], sharing: &BTreeSet<usize>) {
        let map = self.map;
        let gives_way = |g: &usize| found[*g].gives_way;
        for g in (0..self.now.len()).filter(|g| !sharing.contains(g)).filter(gives_way).collect::<Vec<_>>() {
            let others = |all: bool| {
                let guests = self.now.iter().filter(|guest| all || guest.running);
                guests.flat_map(|guest| guest.pins(map)).map(|(_, cpu)| cpu).collect::<CpuSet>()
            };
            // A paused guest keeps its CPUs if enough are left for the others.
            let sets = [true, false].into_iter().find_map(|all| faults::shrunk(map, &self.now[g], &others(all)));
            for (v, set) in sets.unwrap_or_default() {
                self.now[g].vcpus[v as usize] = set;
            }
        }
        let mut taken = CpuSet::new();
        let unplanned = |g: &usize| self.plans[*g].reasons.is_empty() && self.now[*g].running;
        for g in sharing.iter().copied().filter(unplanned).collect::<Vec<_>>() {
            let shared = (0..).zip(&self.now[g].vcpus).filter(|(_, set)| map.restricts(set)).map(|(v, _)| v);
            self.plans[g].reasons.entry(MoveReason::Shared).or_default().extend(shared);
        }
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

    /// Widens crowded sets by the CPUs that are left, where no vCPU could get its own.
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

    /// Removes all pins of a guest.
    fn unpin(&mut self, g: usize) {
        self.plans[g].shares = true;
        let all = &self.map.all;
        self.now[g].vcpus.iter_mut().for_each(|set| set.clone_from(all));
    }

    /// Binds memory to the nodes of the vCPUs, where the plan moved them away from it.
    pub(super) fn bind_memory(&mut self, was: &[GuestLayout]) {
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

    /// Records what changed of one guest.
    fn changes(&mut self, g: usize, was: &GuestLayout) {
        let (now, plan) = (&self.now[g], &mut self.plans[g]);
        if !plan.cells.is_empty() {
            let cell = |c: &super::CellLayout| Some((c.vcpus.clone(), c.nodes.clone()?));
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

/// The first guest of a guest's group.
fn root(groups: &mut [usize], mut g: usize) -> usize {
    while groups[g] != g {
        groups[g] = groups[groups[g]];
        g = groups[g];
    }
    g
}
