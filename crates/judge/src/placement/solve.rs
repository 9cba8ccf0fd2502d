//! Makes the plan: finds faults, gives the threads concerned other CPUs, and checks that nothing got worse.

use super::assignment::{FreeCpus, assign};
use super::faults::{self, GuestFaults};
use super::{CpuMap, GuestLayout, GuestPlan, MoveReason, Pinning, PlacementPlan, helpers, running, union};
use kvm::CpuSet;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Passes until nothing changes any more.
const PASSES: usize = 3;
/// Rounds of a pass. After the first, guests that still have a fault get all CPUs.
const ROUNDS: usize = 4;
/// Attempts to place all guests, each with more guests that share a set.
const ATTEMPTS: usize = 3;

/// Plans a host from the guests' current layouts. Threads without a fault stay.
pub fn plan(map: &CpuMap, guests: &[GuestLayout]) -> PlacementPlan {
    let mut work = Work { map, was: guests, now: guests.to_vec(), plans: vec![GuestPlan::default(); guests.len()] };
    if map.all.is_empty() {
        return PlacementPlan { guests: work.plans, after: work.now };
    }
    work.undo_drift();
    for _ in 0..PASSES {
        let before = work.now.clone();
        work.pass();
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

/// CPUs that several vCPUs share.
struct SharedPool {
    cpus: CpuSet,
    /// The vCPUs that were given it.
    users: usize,
}

/// An unfinished plan.
struct Work<'a> {
    map: &'a CpuMap,
    /// The guests as they are.
    was: &'a [GuestLayout],
    now: Vec<GuestLayout>,
    plans: Vec<GuestPlan>,
}

impl Work<'_> {
    /// Moves threads with faults, until none is left.
    fn pass(&mut self) {
        let first = faults::find(self.map, &self.now);
        let mut found = first.clone();
        for round in 0..ROUNDS {
            let before = self.now.clone();
            if round == 0 {
                self.solve(&found);
            } else {
                self.give_up(&found, &first);
            }
            self.place_helpers();
            if self.now == before {
                break;
            }
            found = faults::find(self.map, &self.now);
        }
        self.leave_slow_cores();
    }

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

    /// Gives each vCPU with a fault a CPU of its own, else a part of the CPUs that are left.
    fn solve(&mut self, found: &[GuestFaults]) {
        self.explain(found);
        // Guests that have sets get another set.
        let mut sharing: BTreeSet<usize> = BTreeSet::new();
        for (g, faults) in found.iter().enumerate().filter(|(_, faults)| !faults.movers.is_empty()) {
            let guest = &self.now[g];
            let isolated = faults.movers.values().any(|reason| *reason == MoveReason::Isolated);
            if !isolated && guest.cells.len() < 2 && guest.pooled(self.map).count() == guest.vcpus.len() {
                sharing.insert(g);
            }
        }
        for _ in 0..ATTEMPTS {
            let (placed, failed) = self.place_all(found, &sharing);
            if failed.is_empty() {
                placed.into_iter().for_each(|(g, after)| self.now[g] = after);
                break;
            }
            sharing.extend(failed);
        }
        loop {
            let before = self.now.clone();
            let mut pools = self.pools(found, &sharing);
            let mut without_room = Vec::new();
            for g in &sharing {
                if !self.share(*g, &found[*g], &mut pools) {
                    without_room.push(*g);
                }
            }
            if without_room.is_empty() {
                break;
            }
            // What they had is for the others now.
            self.now = before;
            for g in without_room {
                self.unpin(g);
                sharing.remove(&g);
            }
        }
    }

    /// Gives all CPUs to guests that still have a fault; to all that had one, where other guests have one now.
    fn give_up(&mut self, found: &[GuestFaults], first: &[GuestFaults]) {
        let has_new = found.iter().zip(first).any(|(now, was)| !now.movers.is_empty() && was.movers.is_empty());
        for g in 0..self.now.len() {
            let has_fault = found[g].movers.values().any(|reason| *reason != MoveReason::Crowded);
            let had_fault = !first[g].movers.is_empty() || first[g].show_threads.is_some();
            if had_fault && (has_fault || has_new) {
                self.unpin(g);
            }
        }
    }

    /// Moves helpers away from vCPUs, and gives all threads of a guest one set where its manager knows nothing else.
    fn place_helpers(&mut self) {
        self.unify(false);
        helpers::place(self.map, &mut self.now);
        self.unify(true);
    }

    fn unify(&mut self, with_helpers: bool) {
        let map = self.map;
        for guest in self.now.iter_mut().filter(|g| g.pinning == Pinning::OneSet && g.confined(map).is_some()) {
            let helpers = guest.helpers.values().filter(|_| with_helpers).filter_map(|helper| helper.cpus.as_ref());
            let set = union(guest.vcpus.iter().chain(helpers));
            guest.helpers.values_mut().filter(|h| h.cpus.is_some()).for_each(|h| h.cpus = Some(set.clone()));
            guest.vcpus.fill(set);
        }
    }

    /// Records why vCPUs move.
    fn explain(&mut self, found: &[GuestFaults]) {
        for (plan, faults) in self.plans.iter_mut().zip(found) {
            for (v, reason) in &faults.movers {
                plan.reasons.entry(*reason).or_default().insert(*v);
            }
        }
    }

    /// Places all guests that move, the largest first. Returns these guests as they then are, and the guests that
    /// found no room. One CPU stays with the host.
    fn place_all(&self, found: &[GuestFaults], sharing: &BTreeSet<usize>) -> (Vec<(usize, GuestLayout)>, Vec<usize>) {
        let mut free = self.free(found, sharing);
        let mut of_host = self.map.general().difference(&self.taken(found, sharing, false));
        let mut order: Vec<usize> = (0..self.now.len()).filter(|g| !sharing.contains(g)).collect();
        order.retain(|g| !found[*g].movers.is_empty() || found[*g].show_threads.is_some());
        order.sort_by_key(|g| Reverse(found[*g].movers.len()));
        let (mut placed, mut failed) = (Vec::new(), Vec::new());
        for g in order {
            let after = assign(self.map, &self.now[g], &found[g], &free);
            let cpus = after.as_ref().map(|after| after.single(self.map)).unwrap_or_default();
            let takes_last = of_host.intersects(&cpus) && of_host.is_subset(&cpus);
            match after {
                Some(after) if !takes_last => {
                    of_host = of_host.difference(&cpus);
                    free = free.without(&cpus);
                    placed.push((g, after));
                }
                _ => failed.push(g),
            }
        }
        (placed, failed)
    }

    /// CPUs of the vCPUs that stay, of running guests or of all.
    fn taken(&self, found: &[GuestFaults], sharing: &BTreeSet<usize>, all: bool) -> CpuSet {
        let mut taken = CpuSet::new();
        for (g, guest) in self.now.iter().enumerate().filter(|(_, guest)| all || guest.running) {
            let moves_all = guest.running && sharing.contains(&g) && !self.keeps_pins(g, &found[g]);
            let pins = guest.pins(self.map).filter(|(v, _)| !moves_all && !found[g].movers.contains_key(v));
            taken.extend(pins.map(|(_, cpu)| cpu));
        }
        taken
    }

    /// Whether the vCPUs of a guest that have no fault keep their CPUs while the others share a set.
    fn keeps_pins(&self, g: usize, faults: &GuestFaults) -> bool {
        self.now[g].pins(self.map).any(|(v, _)| !faults.movers.contains_key(&v))
    }

    fn free(&self, found: &[GuestFaults], sharing: &BTreeSet<usize>) -> FreeCpus {
        let map = self.map;
        let taken = self.taken(found, sharing, true);
        let mut used = taken.clone();
        for (g, guest) in self.now.iter().enumerate().filter(|(g, _)| !sharing.contains(g)) {
            let stays = guest.pooled(map).filter(|(v, _)| !found[g].movers.contains_key(v));
            used = stays.fold(used, |all, (_, set)| all.union(set));
        }
        let left = map.general().difference(&taken);
        // One core stays with the host: the first that has a CPU left.
        let own = map.cores.iter().find(|c| c.cpus.iter().any(|cpu| left.contains(*cpu)));
        let own: CpuSet = own.into_iter().flat_map(|c| c.cpus.iter().copied()).collect();
        let starved = found.iter().flat_map(|f| f.movers.values()).any(|r| *r == MoveReason::HostStarved);
        let banned = if starved { map.general().first().into_iter().collect() } else { CpuSet::new() };
        let open = map.all.difference(&used).difference(&banned);
        let new = open.difference(&helpers::settled(map, self.was, &self.now));
        let mut levels = vec![new.difference(&map.first_cores()).difference(&own), new.difference(&own)];
        if !map.isolated.is_empty() {
            levels.insert(0, new.intersection(&map.isolated));
        }
        if !map.busy.is_empty() {
            let calm: Vec<CpuSet> = levels.iter().map(|level| level.difference(&map.busy)).collect();
            levels.splice(..0, calm);
        }
        FreeCpus { open, levels }
    }

    /// The CPUs that guests without room share, by node: neither isolated nor taken by single vCPUs, and without the
    /// first cores of the nodes and the CPUs of helpers where the rest is large enough.
    fn pools(&self, found: &[GuestFaults], sharing: &BTreeSet<usize>) -> Vec<SharedPool> {
        let map = self.map;
        let vcpus: usize = sharing.iter().map(|g| self.now[*g].vcpus.len()).sum();
        let left = map.general().difference(&self.taken(found, sharing, true));
        let calm = left.difference(&helpers::settled(map, self.was, &self.now));
        let whole = [map.all.clone()];
        let nodes: Vec<&CpuSet> =
            if map.nodes.len() > 1 { map.nodes.values().collect() } else { whole.iter().collect() };
        let mut pools = Vec::new();
        for node in nodes {
            let choices = [calm.difference(&map.first_cores()), calm.clone(), left.difference(&map.first_cores())];
            let choices = choices.into_iter().map(|cpus| cpus.intersection(node));
            let cpus = choices.into_iter().find(|cpus| cpus.len() >= vcpus).unwrap_or_else(|| left.intersection(node));
            pools.push(SharedPool { cpus, users: 0 });
        }
        pools
    }

    /// Gives a guest without room a set to share: to the vCPUs with a fault if the others can stay, else to all.
    /// Returns whether there is one; a crowded set stays where no larger one has room for all.
    fn share(&mut self, g: usize, faults: &GuestFaults, pools: &mut [SharedPool]) -> bool {
        let (map, guest) = (self.map, &self.now[g]);
        let keeps = self.keeps_pins(g, faults);
        let all: CpuSet = (0..guest.vcpus.len() as u32).collect();
        let movers: CpuSet = if keeps { faults.movers.keys().copied().collect() } else { all };
        let near = guest.bound.as_ref().unwrap_or(&guest.memory);
        let home = Some(map.nodes_of(&guest.single(map))).filter(|nodes| keeps && !nodes.is_empty());
        let mut parts = vec![(movers.clone(), home)];
        if guest.cells.len() > 1 {
            parts = guest.cells.iter().map(|c| (c.vcpus.intersection(&movers), c.nodes.clone())).collect();
        }
        let is_crowded = faults.movers.values().all(|reason| *reason == MoveReason::Crowded);
        let reach = guest.reach(map);
        let mut sets: BTreeMap<u32, CpuSet> = BTreeMap::new();
        for (vcpus, nodes) in parts {
            let mut best = None;
            for (at, pool) in pools.iter().enumerate() {
                let of_pool = map.nodes_of(&pool.cpus);
                let has_room = pool.cpus.len() >= pool.users + vcpus.len();
                let is_larger = pool.cpus.len() > reach.len();
                let is_elsewhere = nodes.as_ref().is_some_and(|nodes| !of_pool.is_subset(nodes));
                if pool.cpus.len() < vcpus.len().max(2) || is_elsewhere || is_crowded && !(has_room && is_larger) {
                    continue;
                }
                let kept = pool.cpus.intersection(&reach).len();
                let rank = (has_room, of_pool.intersects(near), kept, pool.cpus.len(), Reverse(at));
                best = best.max(Some((rank, at)));
            }
            if let Some((_, at)) = best {
                pools[at].users += vcpus.len();
                sets.extend(vcpus.iter().map(|v| (v, pools[at].cpus.clone())));
            }
        }
        if sets.len() < movers.len() {
            return is_crowded;
        }
        // Who had a set before has as much as before.
        self.plans[g].shares |= guest.pooled(map).count() < guest.vcpus.len();
        for (v, set) in sets {
            if let Some(now) = self.now[g].vcpus.get_mut(v as usize) {
                *now = set;
            }
        }
        true
    }

    /// Removes all pins of a guest.
    fn unpin(&mut self, g: usize) {
        self.plans[g].shares = true;
        self.now[g].vcpus.fill(self.map.all.clone());
    }

    /// Binds memory to the nodes of the vCPUs, where the plan moved them away from it.
    fn bind_memory(&mut self, was: &[GuestLayout]) {
        let map = self.map;
        for (guest, was) in self.now.iter_mut().zip(was).filter(|(_, was)| was.running) {
            let nodes = guest.nodes(map);
            let left = !nodes.is_empty() && guest.vcpus != was.vcpus && was.nodes(map) != nodes;
            // The memory of a guest whose configuration is unknown stays where its vCPUs were.
            let moves = guest.shape != super::Shape::Unknown || !nodes.is_subset(&was.memory);
            if guest.memory_elsewhere(map) || left && moves && guest.cells.len() < 2 {
                guest.bound = Some(nodes);
            }
        }
    }

    /// Moves vCPUs from slow to fast cores, if other vCPUs of the guest run there and all of them fit.
    fn leave_slow_cores(&mut self) {
        let slow: CpuSet = self.map.all.iter().filter(|cpu| self.map.is_slow(*cpu)).collect();
        for g in 0..self.now.len() {
            let movers = self.now[g].on_slow_cores(self.map);
            if !movers.is_empty() && self.now[g].running {
                self.try_pins(&BTreeMap::from([(g, movers)]), MoveReason::SlowCore, &slow);
            }
        }
    }

    /// Pins all guests that are not pinned, if there is room for all of them.
    fn place_unpinned(&mut self) {
        let map = self.map;
        let mut unpinned: BTreeMap<usize, CpuSet> = BTreeMap::new();
        for (g, guest) in running(&self.now).filter(|(_, guest)| guest.pinning != Pinning::OneSet) {
            if !guest.vcpus.is_empty() && guest.vcpus.iter().all(|set| !map.restricts(set)) {
                unpinned.insert(g, (0..guest.vcpus.len() as u32).collect());
            }
        }
        let wanted: usize = unpinned.values().map(CpuSet::len).sum();
        if unpinned.is_empty() || wanted >= map.all.len() || self.plans.iter().any(|p| p.shares) {
            return;
        }
        if self.try_pins(&unpinned, MoveReason::Unpinned, &CpuSet::new()) {
            unpinned.keys().for_each(|g| self.plans[*g].optional = true);
        }
    }

    /// Gives these vCPUs CPUs of their own other than `avoided`, if that changes pins only, leaves other guests alone,
    /// avoids busy host tasks, mixes no fast and slow cores, and makes nothing worse. Returns whether it does.
    fn try_pins(&mut self, vcpus: &BTreeMap<usize, CpuSet>, reason: MoveReason, avoided: &CpuSet) -> bool {
        let map = self.map;
        let before = self.now.clone();
        let mut found = vec![GuestFaults::default(); before.len()];
        let mut free_of = BTreeSet::new();
        for (g, vcpus) in vcpus {
            found[*g].movers = vcpus.iter().map(|v| (v, reason)).collect();
            free_of.insert(*g);
        }
        let mut free = self.free(&found, &BTreeSet::new()).without(avoided);
        for g in free_of {
            let was = &self.now[g];
            let Some(after) = assign(map, was, &found[g], &free) else { break };
            let moved: CpuSet = union(after.vcpus.iter().zip(&was.vcpus).filter(|(new, old)| new != old).map(|p| p.0));
            if after.threads != was.threads || after.cells != was.cells || moved.intersects(&map.busy) {
                break;
            }
            free = free.without(&after.single(map));
            self.now[g] = after;
        }
        let is_done = vcpus.iter().all(|(g, _)| self.now[*g] != before[*g]);
        self.bind_memory(&before);
        self.place_helpers();
        let is_mixed = vcpus.keys().any(|g| !self.now[*g].on_slow_cores(map).is_empty());
        let is_touched = (0..before.len()).any(|g| !vcpus.contains_key(&g) && self.moves_settled(g, &before[g]));
        if !is_done || is_mixed || is_touched || faults::is_worse(map, &before, &self.now) {
            self.now = before;
            return false;
        }
        self.explain(&found);
        true
    }

    /// Whether a guest changed since `before` where the plan had not changed it.
    fn moves_settled(&self, g: usize, before: &GuestLayout) -> bool {
        let (was, now) = (&self.was[g], &self.now[g]);
        let settled = was.helpers.iter().filter(|(id, helper)| before.helpers.get(id) == Some(helper));
        now.vcpus != before.vcpus || settled.into_iter().any(|(id, helper)| now.helpers.get(id) != Some(helper))
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
