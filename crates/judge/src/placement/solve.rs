//! Makes the plan: finds faults, moves threads, and repeats this until no fault is left.

use super::assignment::{FreeCpus, assign};
use super::faults::{self, GuestFaults};
use super::{CpuMap, GuestLayout, GuestPlan, MoveReason, PlacementPlan, helpers, pools, running, singles, union};
use kvm::CpuSet;
use std::collections::{BTreeMap, BTreeSet};

/// Rounds after which guests that still have a fault get all CPUs.
const ROUNDS: usize = 6;
/// Attempts of one round, which starts again when a guest found no room.
const ATTEMPTS: usize = 3;
/// The most guests that get another set one by one, which costs a look at all guests each.
const MAX_WIDE: usize = 64;

/// Plans a host from the guests' current layouts. Threads without a fault stay.
pub fn plan(map: &CpuMap, guests: &[GuestLayout]) -> PlacementPlan {
    let mut work = Work { map, now: guests.to_vec(), plans: vec![GuestPlan::default(); guests.len()] };
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
        work.solve(&mut found, round);
        work.unify(false);
        helpers::move_away(map, &mut work.now);
        work.unify(true);
        if work.now == before {
            work.leave_slow_cores();
            helpers::bring_near(map, &mut work.now);
        }
        if work.now == before {
            break;
        }
    }
    work.bind_memory(guests);
    if faults::is_worse(map, guests, &work.now) {
        return PlacementPlan { guests: vec![GuestPlan::default(); guests.len()], after: guests.to_vec() };
    }
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
            for helper in guest.helpers.values_mut() {
                helper.cpus = helper.drifted.take().or(helper.cpus.take());
            }
        }
    }

    /// One round: each guest with a fault gets its own CPUs, else a share of the CPUs that are left.
    fn solve(&mut self, found: &mut [GuestFaults], round: usize) {
        // Later rounds find faults that the plan made, which explain only the vCPUs that had none at first.
        let known: Vec<CpuSet> = self.plans.iter().map(|plan| union(plan.reasons.values())).collect();
        self.explain(found, |(g, v)| round == 0 || !known[g].contains(v));
        if round + 2 >= ROUNDS {
            return (0..found.len()).filter(|g| !found[*g].movers.is_empty()).for_each(|g| self.unpin(g));
        }
        self.keep_wide(found);
        let mut sharing: BTreeSet<usize> = BTreeSet::new();
        for attempt in 0..ATTEMPTS {
            let (placed, failed) = self.place_all(found, &sharing);
            let crowded = |g: &usize| found[*g].movers.values().all(|r| *r == MoveReason::Crowded);
            let pools = pools::shared(self.map, &singles(self.map, &self.now, true));
            let widest = pools.values().map(|(cpus, _)| cpus.len()).max().unwrap_or(0);
            // A crowded set stays as it is where no larger one is left.
            let shares = |g: &usize| !crowded(g) || self.now[*g].reach(self.map).len() < widest;
            let failed: BTreeSet<usize> = failed.into_iter().filter(shares).collect();
            if failed.is_subset(&sharing) || attempt + 1 == ATTEMPTS {
                placed.into_iter().for_each(|(g, after)| self.now[g] = after);
                sharing.extend(failed);
                self.share(&sharing);
                return;
            }
            // Guests that want the same CPUs share them, so that none is worse off than the others.
            sharing.extend(self.with_neighbours(failed));
        }
    }

    /// Gives guests whose vCPUs have sets of CPUs another set without faults, and not CPUs of their own.
    fn keep_wide(&mut self, found: &mut [GuestFaults]) {
        let map = self.map;
        for (g, found) in found.iter_mut().enumerate().filter(|(_, f)| !f.movers.is_empty()).take(MAX_WIDE) {
            let was = self.now[g].clone();
            let isolated = found.movers.values().any(|reason| *reason == MoveReason::Isolated);
            if isolated || was.cells.len() > 1 || was.pooled(map).count() < was.vcpus.len() {
                continue;
            }
            let before = faults::crowded(map, &self.now).len();
            for set in pools::wide(map, &self.now, g) {
                self.now[g].vcpus.fill(set);
                let crowded = faults::crowded(map, &self.now);
                let others = crowded.len() <= before && !crowded.iter().any(|set| set.guests.contains(&g));
                if others && faults::alone(map, &self.now[g]).movers.is_empty() {
                    *found = GuestFaults::default();
                    break;
                }
                self.now[g].clone_from(&was);
            }
        }
    }

    /// Gives all threads of a guest one set, where its manager knows nothing else.
    fn unify(&mut self, with_helpers: bool) {
        for guest in self.now.iter_mut().filter(|guest| guest.one_set && guest.confined(self.map).is_some()) {
            let helpers = guest.helpers.values().filter(|_| with_helpers).filter_map(|helper| helper.cpus.as_ref());
            let set = union(guest.vcpus.iter().chain(helpers));
            guest.helpers.values_mut().filter(|h| h.cpus.is_some()).for_each(|h| h.cpus = Some(set.clone()));
            guest.vcpus.fill(set);
        }
    }

    /// Records why vCPUs move.
    pub(super) fn explain(&mut self, found: &[GuestFaults], fits: impl Fn((usize, u32)) -> bool) {
        for (g, (plan, faults)) in self.plans.iter_mut().zip(found).enumerate() {
            for (v, reason) in faults.movers.iter().filter(|(v, _)| fits((g, **v))) {
                plan.reasons.entry(*reason).or_default().insert(*v);
            }
        }
    }

    /// Keeps guests without an earlier fault in place: guests that now share their CPUs get all CPUs instead.
    fn spare_others(&mut self, found: &mut [GuestFaults], concerned: &[bool]) {
        let mut crowded = CpuSet::new();
        for (g, faults) in found.iter_mut().enumerate().filter(|(g, f)| !f.movers.is_empty() && !concerned[*g]) {
            crowded = crowded.union(&union(&self.now[g].vcpus));
            *faults = GuestFaults::default();
        }
        for g in 0..self.now.len() {
            if self.plans[g].shares && self.now[g].reach(self.map).intersects(&crowded) {
                self.unpin(g);
            }
        }
    }

    /// Adds the guests that have pinned vCPUs to the CPUs of some guests, directly or through others.
    fn with_neighbours(&self, mut guests: BTreeSet<usize>) -> BTreeSet<usize> {
        let all: Vec<(usize, CpuSet)> = running(&self.now).map(|(g, guest)| (g, guest.single(self.map))).collect();
        loop {
            let count = guests.len();
            let cpus = union(all.iter().filter(|(g, _)| guests.contains(g)).map(|(_, single)| single));
            guests.extend(all.iter().filter(|(_, single)| single.intersects(&cpus)).map(|(g, _)| *g));
            if guests.len() == count {
                return guests;
            }
        }
    }

    /// Places all guests that move, the largest first. Returns these guests as they then are, and the guests that
    /// found no room. One CPU stays with the host.
    pub(super) fn place_all(
        &self,
        found: &[GuestFaults],
        sharing: &BTreeSet<usize>,
    ) -> (Vec<(usize, GuestLayout)>, Vec<usize>) {
        let mut free = self.free(found, sharing);
        let mut of_host = self.map.general().difference(&self.taken(found, sharing, false));
        let moves = |g: &usize| {
            let f = &found[*g];
            !sharing.contains(g) && (!f.movers.is_empty() || f.show_threads.is_some())
        };
        let mut order: Vec<usize> = (0..self.now.len()).filter(moves).collect();
        order.sort_by_key(|g| std::cmp::Reverse(found[*g].movers.len()));
        let (mut placed, mut failed) = (Vec::new(), Vec::new());
        for g in order {
            let after = assign(self.map, &self.now[g], &found[g], &free).map(|after| (after.single(self.map), after));
            match after.filter(|(cpus, _)| !of_host.intersects(cpus) || !of_host.is_subset(cpus)) {
                Some((cpus, after)) => {
                    of_host = of_host.difference(&cpus);
                    free = free.without(&cpus);
                    placed.push((g, after));
                }
                None => failed.push(g),
            }
        }
        (placed, failed)
    }

    /// CPUs of the vCPUs that stay, of running guests or of all.
    fn taken(&self, found: &[GuestFaults], sharing: &BTreeSet<usize>, all: bool) -> CpuSet {
        let mut taken = CpuSet::new();
        for (g, guest) in self.now.iter().enumerate().filter(|(_, guest)| all || guest.running) {
            let moves = |v: u32| found.get(g).is_some_and(|f| f.movers.contains_key(&v));
            let stays = |v: u32| !(moves(v) || sharing.contains(&g) && guest.running);
            taken.extend(guest.pins(self.map).filter(|(v, _)| stays(*v)).map(|(_, cpu)| cpu));
        }
        taken
    }

    pub(super) fn free(&self, found: &[GuestFaults], sharing: &BTreeSet<usize>) -> FreeCpus {
        let map = self.map;
        let taken = self.taken(found, sharing, true);
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

    /// Gives common sets to guests without room.
    fn share(&mut self, sharing: &BTreeSet<usize>) {
        let map = self.map;
        let taken = self.taken(&[], sharing, true);
        // CPUs that are kept for helpers are shared only where the rest is too small.
        let most = sharing.iter().map(|g| self.now[*g].vcpus.len()).max().unwrap_or(0);
        let calm = pools::shared(map, &taken.union(&helpers::settled(map, &self.now)));
        let is_enough = !calm.is_empty() && calm.values().all(|(cpus, _)| cpus.len() >= most);
        let mut shared = if is_enough { calm } else { pools::shared(map, &taken) };
        for g in sharing.iter().copied() {
            let (guest, plan) = (&mut self.now[g], &mut self.plans[g]);
            let pinned = (0..).zip(&guest.vcpus).filter(|(_, s)| map.restricts(s)).map(|(v, _)| v);
            let pinned: CpuSet = pinned.filter(|_| guest.running).collect();
            if pinned.is_empty() {
                continue;
            }
            plan.shares = true;
            if plan.reasons.is_empty() {
                plan.reasons.insert(MoveReason::Shared, pinned);
            }
            let mut parts = vec![((0..guest.vcpus.len() as u32).collect::<CpuSet>(), None)];
            if guest.cells.len() > 1 {
                parts = guest.cells.iter().map(|c| (c.vcpus.clone(), c.nodes.clone())).collect();
            }
            let mut sets: BTreeMap<u32, CpuSet> = BTreeMap::new();
            for (vcpus, nodes) in parts {
                if let Some(set) = pools::take(&mut shared, guest, nodes.as_ref(), vcpus.len()) {
                    sets.extend(vcpus.iter().map(|v| (v, set.clone())));
                }
            }
            // All CPUs are better than a set with too few that replaces a wider one, or one CPU each.
            let (set, vcpus) = (union(sets.values()), guest.vcpus.len());
            let now = guest.confined(map).filter(|now| set.len() < now.len() && vcpus <= map.all.len());
            if sets.len() < vcpus || set.len() < vcpus && now.is_some() {
                self.unpin(g);
                continue;
            }
            for (v, set) in sets {
                if let Some(now) = guest.vcpus.get_mut(v as usize) {
                    *now = set;
                }
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
        for (guest, was) in self.now.iter_mut().zip(was).filter(|(_, was)| was.running) {
            let nodes = guest.nodes(map);
            let left = !nodes.is_empty() && guest.vcpus != was.vcpus && was.nodes(map) != nodes;
            // The memory of a guest whose configuration is unknown stays where its vCPUs were.
            let moves = guest.known || !nodes.is_subset(&was.memory);
            if guest.memory_elsewhere(map) || left && moves && guest.cells.len() < 2 {
                guest.bound = Some(nodes);
            }
        }
    }

    /// Records what changed of one guest.
    fn changes(&mut self, g: usize, was: &GuestLayout) {
        let (now, plan) = (&self.now[g], &mut self.plans[g]);
        for (v, (new, old)) in (0..).zip(now.vcpus.iter().zip(&was.vcpus)) {
            if new != old || was.absent.contains(v) && !new.is_empty() {
                plan.vcpus.insert(v, new.clone());
                if was.absent.contains(v) {
                    plan.reasons.entry(MoveReason::Absent).or_default().insert(v);
                }
            }
        }
        let moved = now.helpers.iter().filter(|(id, new)| was.helpers.get(id) != Some(new));
        plan.helpers = moved.filter_map(|(id, new)| Some((*id, new.cpus.clone()?))).collect();
        plan.threads = Some(now.threads).filter(|threads| *threads != was.threads);
        if now.cells.len() == was.cells.len() {
            let cells = now.cells.iter().zip(&was.cells).enumerate().filter(|(_, (new, old))| new.nodes != old.nodes);
            plan.memnodes = cells.filter_map(|(i, (new, _))| Some((i, new.nodes.clone()?))).collect();
            plan.memory = now.bound.clone().filter(|_| now.bound != was.bound);
        } else {
            plan.cells = now.cells.iter().filter_map(|c| Some((c.vcpus.clone(), c.nodes.clone()?))).collect();
        }
        let moved: CpuSet = plan.vcpus.keys().copied().collect();
        for vcpus in plan.reasons.values_mut() {
            *vcpus = vcpus.intersection(&moved);
        }
        plan.reasons.retain(|_, vcpus| !vcpus.is_empty());
    }
}
