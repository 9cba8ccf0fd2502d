//! Makes the plan: finds what is wrong, moves what has to move, and looks again until nothing is wrong.

use super::faults::{self, GuestFaults};
use super::pools::SharedPools;
use super::seats::{FreeCpus, GuestSeats, SeatSearch};
use super::{CpuMap, GuestLayout, GuestPlan, MoveReason, PlacementPlan, helpers};
use kvm::CpuSet;
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

/// The plan while it is made.
pub(super) struct Work<'a> {
    pub map: &'a CpuMap,
    pub now: Vec<GuestLayout>,
    pub plans: Vec<GuestPlan>,
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
    fn solve(&mut self, found: &[GuestFaults], round: usize) {
        for (plan, faults) in self.plans.iter_mut().zip(found) {
            // What later rounds find is of the plan's own making, and explains only who stood well at first.
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
            let (seats, failed) = self.place_all(found, &sharing);
            let crowded = |g: &usize| found[*g].movers.values().all(|r| *r == MoveReason::Crowded);
            let (stay, failed): (Vec<usize>, Vec<usize>) = failed.into_iter().partition(crowded);
            let failed: BTreeSet<usize> = failed.into_iter().collect();
            if failed.is_subset(&sharing) || attempt + 1 == ATTEMPTS {
                for (g, seats) in seats {
                    self.seat(g, &seats);
                }
                sharing.extend(failed);
                self.share(found, &sharing);
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
        for (g, guest) in self.now.iter().enumerate().filter(|(_, g)| g.running) {
            for cpu in guest.single(self.map).iter() {
                let other = *owner.entry(cpu).or_insert(g);
                let (a, b) = (root(&mut groups, other), root(&mut groups, g));
                groups[a.max(b)] = a.min(b);
            }
        }
        (0..groups.len()).map(|g| root(&mut groups, g)).collect()
    }

    /// Places all guests that move, the largest first. Returns where, and the guests for which there is no room: one
    /// CPU stays with the host.
    pub(super) fn place_all(
        &self,
        found: &[GuestFaults],
        sharing: &BTreeSet<usize>,
    ) -> (Vec<(usize, GuestSeats)>, Vec<usize>) {
        let mut free = self.free(found, sharing);
        let mut of_host = self.map.general().difference(&self.taken(found, sharing, |guest| guest.running));
        let moves = |g: &usize| {
            let f = &found[*g];
            !sharing.contains(g) && !f.gives_way && (!f.movers.is_empty() || f.show_threads.is_some())
        };
        let mut order: Vec<usize> = (0..self.now.len()).filter(moves).collect();
        order.sort_by_key(|g| std::cmp::Reverse(found[*g].movers.len()));
        let (mut placed, mut failed) = (Vec::new(), Vec::new());
        let search = SeatSearch { map: self.map };
        for g in order {
            match search.place(&self.now[g], &found[g], &free) {
                Some(seats) => {
                    let cpus: CpuSet = seats.pins.values().copied().collect();
                    if of_host.intersects(&cpus) && of_host.is_subset(&cpus) {
                        failed.push(g);
                        continue;
                    }
                    of_host = of_host.difference(&cpus);
                    free = free.without(&cpus);
                    placed.push((g, seats));
                }
                None => failed.push(g),
            }
        }
        (placed, failed)
    }

    /// CPUs of vCPUs that stay, of some guests.
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

    pub(super) fn seat(&mut self, g: usize, seats: &GuestSeats) {
        self.now[g] = SeatSearch::after(&self.now[g], seats);
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
        // The cells as they are in the end follow in `changes`.
        self.plans[g].cells = cells.iter().map(|(vcpus, node)| (vcpus.clone(), CpuSet::from_iter([*node]))).collect();
    }

    /// Sets that have to leave CPUs of pinned vCPUs, and common sets for the guests without room.
    fn share(&mut self, found: &[GuestFaults], sharing: &BTreeSet<usize>) {
        let map = self.map;
        let gives_way = |g: &usize| found[*g].gives_way;
        for g in (0..self.now.len()).filter(|g| !sharing.contains(g)).filter(gives_way).collect::<Vec<_>>() {
            let others = |all: bool| {
                let guests = self.now.iter().filter(|guest| all || guest.running);
                guests.flat_map(|guest| guest.pins(map)).map(|(_, cpu)| cpu).collect::<CpuSet>()
            };
            // A paused guest keeps its CPUs to itself as long as that leaves the others enough.
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

    /// What has changed of one guest since the beginning.
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
