//! Makes the plan: gives the vCPUs with a fault CPUs of their own, else a set to share, else all
//! CPUs, and checks that nothing got worse.

use super::assignment::{FreeCpus, assign};
use super::faults::{self, GuestFaults};
use super::{
    CpuMap, GuestLayout, GuestPlan, MoveReason, Pinning, PlacementPlan, Shape, helpers, union,
};
use kvm::CpuSet;
use std::cmp::Reverse;

/// Rounds until nothing changes any more.
const ROUNDS: usize = 8;

/// Plans a host from the guests' current layouts. Threads without a fault stay.
pub fn plan(map: &CpuMap, guests: &[GuestLayout]) -> PlacementPlan {
    let plans = vec![GuestPlan::default(); guests.len()];
    let nothing = PlacementPlan {
        guests: plans.clone(),
        after: guests.to_vec(),
    };
    if map.all.is_empty() {
        return nothing;
    }
    let mut work = Work {
        map,
        was: guests,
        now: guests.to_vec(),
        plans,
    };
    work.undo_drift();
    let mut repaired = CpuSet::new();
    for _ in 0..ROUNDS {
        let before = work.now.clone();
        work.repair(&mut repaired);
        work.place_helpers();
        if work.now == before {
            break;
        }
    }
    work.bind_memory(guests);
    if faults::is_worse(map, guests, &work.now) {
        return nothing;
    }
    work.place_unpinned();
    for g in 0..guests.len() {
        work.record_changes(g);
    }
    PlacementPlan {
        guests: work.plans,
        after: work.now,
    }
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
    /// Gives each guest with a fault other CPUs, the guest with the most movers first. A guest in
    /// `repaired` was given CPUs in an earlier round: if it still has a fault, it gets all CPUs.
    fn repair(&mut self, repaired: &mut CpuSet) {
        let map = self.map;
        let mut found = faults::find(map, &self.now);
        self.record_reasons(&found);
        let mut order: Vec<usize> = (0..found.len()).filter(|g| !found[*g].is_empty()).collect();
        order.sort_by_key(|g| Reverse(found[*g].movers.len()));
        let mut sharing = Vec::new();
        for g in order {
            if !repaired.insert(g as u32) {
                self.unpin(g);
            } else if let Some(after) = self.own_cpus(g, &found) {
                self.now[g] = after;
            } else {
                sharing.push((g, std::mem::take(&mut found[g].movers)));
                continue;
            }
            found[g] = GuestFaults::default();
        }
        for (g, movers) in &sharing {
            // The CPUs that they leave are shared by all of them.
            movers
                .keys()
                .for_each(|v| self.now[*g].vcpus[*v as usize].clone_from(&map.all));
        }
        let pools = self.pools(sharing.iter().map(|(_, movers)| movers.len()).sum());
        let mut users = vec![0; pools.len()];
        for (g, movers) in sharing {
            self.share(g, &movers.into_keys().collect(), &pools, &mut users);
        }
    }

    /// The guest with CPUs of its own for the vCPUs with a fault; `None` without room, and for a
    /// guest whose vCPUs have sets of CPUs.
    fn own_cpus(&self, g: usize, found: &[GuestFaults]) -> Option<GuestLayout> {
        let (map, guest) = (self.map, &self.now[g]);
        let is_isolated = found[g]
            .movers
            .values()
            .any(|reason| *reason == MoveReason::Isolated);
        if !is_isolated && !guest.vcpus.is_empty() && guest.pooled(map).count() == guest.vcpus.len()
        {
            return None;
        }
        let after = assign(map, guest, &found[g], &self.free_cpus(found))?;
        // The last CPU stays with the host.
        let taken = self.taken_cpus(found);
        let is_last = map.general().is_subset(&taken.union(&after.single(map)))
            && !map.general().is_subset(&taken);
        if is_last { None } else { Some(after) }
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

    /// Moves helpers away from vCPUs, and gives all threads of a guest one set where its manager
    /// knows nothing else.
    fn place_helpers(&mut self) {
        self.give_one_set(false);
        helpers::place(self.map, &mut self.now);
        self.give_one_set(true);
    }

    /// Gives all threads of such a guest the union of its vCPUs' sets, and of its helpers' if
    /// asked.
    fn give_one_set(&mut self, with_helpers: bool) {
        let map = self.map;
        for guest in self
            .now
            .iter_mut()
            .filter(|g| g.pinning == Pinning::OneSet && g.confined(map).is_some())
        {
            let mut sets: Vec<&CpuSet> = guest.vcpus.iter().collect();
            if with_helpers {
                sets.extend(
                    guest
                        .helpers
                        .values()
                        .filter_map(|helper| helper.cpus.as_ref()),
                );
            }
            let set = union(sets);
            guest
                .helpers
                .values_mut()
                .filter(|h| h.cpus.is_some())
                .for_each(|h| h.cpus = Some(set.clone()));
            guest.vcpus.fill(set);
        }
    }

    /// Records why vCPUs move.
    fn record_reasons(&mut self, found: &[GuestFaults]) {
        for (plan, faults) in self.plans.iter_mut().zip(found) {
            for (v, reason) in &faults.movers {
                plan.reasons.entry(*reason).or_default().insert(*v);
            }
        }
    }

    /// The CPUs to which vCPUs that stay are pinned.
    fn taken_cpus(&self, found: &[GuestFaults]) -> CpuSet {
        let mut taken = CpuSet::new();
        for (guest, faults) in self.now.iter().zip(found) {
            let pins = guest
                .pins(self.map)
                .filter(|(v, _)| !faults.movers.contains_key(v));
            taken.extend(pins.map(|(_, cpu)| cpu));
        }
        taken
    }

    /// The CPUs that vCPUs may get which move.
    fn free_cpus(&self, found: &[GuestFaults]) -> FreeCpus {
        let map = self.map;
        let taken = self.taken_cpus(found);
        let mut used = taken.clone();
        for (guest, faults) in self.now.iter().zip(found) {
            let stays = guest
                .pooled(map)
                .filter(|(v, _)| !faults.movers.contains_key(v));
            used = stays.fold(used, |all, (_, set)| all.union(set));
        }
        let left = map.general().difference(&taken);
        // One core stays with the host: the first that has a CPU left.
        let of_host = map
            .cores
            .iter()
            .find(|c| c.cpus.iter().any(|cpu| left.contains(*cpu)));
        let of_host: CpuSet = of_host
            .into_iter()
            .flat_map(|c| c.cpus.iter().copied())
            .collect();
        let starved = found
            .iter()
            .flat_map(|f| f.movers.values())
            .any(|r| *r == MoveReason::HostStarved);
        let banned = if starved {
            map.general().first().into_iter().collect()
        } else {
            CpuSet::new()
        };
        let open = map.all.difference(&used).difference(&banned);
        let new = open.difference(&helpers::settled(map, self.was, &self.now));
        let mut levels = vec![
            new.difference(&map.first_cores()).difference(&of_host),
            new.difference(&of_host),
        ];
        if !map.isolated.is_empty() {
            levels.insert(0, new.intersection(&map.isolated));
        }
        if !map.busy.is_empty() {
            let calm: Vec<CpuSet> = levels
                .iter()
                .map(|level| level.difference(&map.busy))
                .collect();
            levels.splice(..0, calm);
        }
        FreeCpus { open, levels }
    }

    /// The sets that guests without room may share, one of each node: neither isolated nor taken by
    /// single vCPUs, and without the first cores of the nodes and the CPUs of helpers where the
    /// rest has room for so many vCPUs.
    fn pools(&self, vcpus: usize) -> Vec<CpuSet> {
        let map = self.map;
        let left = map
            .general()
            .difference(&super::singles(map, &self.now, true));
        let calm = left.difference(&helpers::settled(map, self.was, &self.now));
        let choices = [
            calm.difference(&map.first_cores()),
            calm,
            left.difference(&map.first_cores()),
        ];
        let mut nodes: Vec<&CpuSet> = map.nodes.values().collect();
        if nodes.len() <= 1 {
            nodes = vec![&map.all];
        }
        let mut sets = Vec::new();
        for node in nodes {
            let mut on_node = choices.iter().map(|cpus| cpus.intersection(node));
            let chosen = on_node.find(|cpus| cpus.len() >= vcpus);
            sets.push(chosen.unwrap_or_else(|| left.intersection(node)));
        }
        sets
    }

    /// Gives vCPUs of a guest without room a set to share, else all CPUs to the guest. `users`
    /// counts the vCPUs that were given each set.
    fn share(&mut self, g: usize, movers: &CpuSet, pools: &[CpuSet], users: &mut [usize]) {
        let (map, guest) = (self.map, &self.now[g]);
        let near = guest.bound.as_ref().unwrap_or(&guest.memory);
        let home = map.nodes_of(&guest.single(map));
        let had = self.was[g].reach(map);
        // A guest that had a set before needs a CPU for each vCPU, not only for those that move.
        let had_set = self.was[g].pooled(map).count() == guest.vcpus.len();
        let least = if had_set {
            guest.vcpus.len()
        } else {
            movers.len().max(2)
        };
        // The greatest tuple is the best set. Its first field decides, then the second, and so on.
        let mut best = None;
        for (index, pool) in pools.iter().enumerate() {
            let nodes = map.nodes_of(pool);
            if pool.len() < least || (!home.is_empty() && !nodes.is_subset(&home)) {
                continue;
            }
            let has_room = pool.len() >= users[index] + movers.len();
            let kept = pool.intersection(&had).len();
            best = best.max(Some((
                has_room,
                nodes.intersects(near),
                kept,
                pool.len(),
                Reverse(index),
            )));
        }
        let Some((.., Reverse(index))) = best else {
            return self.unpin(g);
        };
        users[index] += movers.len();
        self.plans[g].shares |= !had_set;
        movers
            .iter()
            .for_each(|v| self.now[g].vcpus[v as usize].clone_from(&pools[index]));
    }

    /// Removes all pins of a guest.
    fn unpin(&mut self, g: usize) {
        self.plans[g].shares = true;
        self.now[g].vcpus.fill(self.map.all.clone());
    }

    /// Binds memory to the nodes of the vCPUs, where the plan moved them away from it.
    fn bind_memory(&mut self, was: &[GuestLayout]) {
        let map = self.map;
        for (guest, was) in self
            .now
            .iter_mut()
            .zip(was)
            .filter(|(_, was)| was.may_move())
        {
            let nodes = guest.nodes(map);
            let has_left = !nodes.is_empty() && guest.vcpus != was.vcpus && was.nodes(map) != nodes;
            // The memory of a guest whose configuration is unknown stays where its vCPUs were.
            let may_bind = guest.shape != Shape::Unknown || !nodes.is_subset(&was.memory);
            if guest.memory_elsewhere(map) || (has_left && may_bind) {
                guest.bound = Some(nodes);
            }
        }
    }

    /// Pins all guests that are not pinned, if there is room for all of them, no busy CPU of the
    /// host's tasks is needed, nothing but pins changes, and nothing gets worse.
    fn place_unpinned(&mut self) {
        let map = self.map;
        let mut found = vec![GuestFaults::default(); self.now.len()];
        for (guest, faults) in self.now.iter().zip(&mut found) {
            let may_pin = guest.pinning != Pinning::OneSet && guest.may_move();
            if may_pin && guest.vcpus.iter().all(|set| !map.restricts(set)) {
                faults.mark(0..guest.vcpus.len() as u32, MoveReason::Unpinned);
            }
        }
        let unpinned: Vec<usize> = (0..found.len()).filter(|g| !found[*g].is_empty()).collect();
        let wanted: usize = found.iter().map(|faults| faults.movers.len()).sum();
        if unpinned.is_empty() || wanted >= map.all.len() || self.plans.iter().any(|p| p.shares) {
            return;
        }
        let before = self.now.clone();
        let mut still_unpinned = found.clone();
        for g in &unpinned {
            let was = &self.now[*g];
            let Some(after) = self.own_cpus(*g, &still_unpinned) else {
                break;
            };
            if after.threads != was.threads || after.single(map).intersects(&map.busy) {
                break;
            }
            self.now[*g] = after;
            still_unpinned[*g] = GuestFaults::default();
        }
        self.bind_memory(&before);
        self.place_helpers();
        let is_done = still_unpinned.iter().all(GuestFaults::is_empty);
        let is_touched =
            (0..before.len()).any(|g| found[g].is_empty() && self.moves_settled(g, &before[g]));
        if !is_done || is_touched || faults::is_worse(map, &before, &self.now) {
            self.now = before;
            return;
        }
        self.record_reasons(&found);
        unpinned.iter().for_each(|g| self.plans[*g].optional = true);
    }

    /// Whether vCPUs, or helpers that the plan had left alone, moved since `before`.
    fn moves_settled(&self, g: usize, before: &GuestLayout) -> bool {
        let (was, now) = (&self.was[g], &self.now[g]);
        now.vcpus != before.vcpus
            || was.helpers.iter().any(|(id, helper)| {
                before.helpers.get(id) == Some(helper) && now.helpers.get(id) != Some(helper)
            })
    }

    /// Records what changed of one guest.
    fn record_changes(&mut self, g: usize) {
        let (was, now, plan) = (&self.was[g], &self.now[g], &mut self.plans[g]);
        for (v, (new, old)) in (0..).zip(now.vcpus.iter().zip(&was.vcpus)) {
            if new != old || (was.absent.contains(v) && !new.is_empty()) {
                plan.vcpus.insert(v, new.clone());
                if was.absent.contains(v) {
                    plan.reasons
                        .entry(MoveReason::Absent)
                        .or_default()
                        .insert(v);
                }
            }
        }
        for (id, new) in &now.helpers {
            if was.helpers.get(id) != Some(new)
                && let Some(cpus) = &new.cpus
            {
                plan.helpers.insert(*id, cpus.clone());
            }
        }
        plan.threads = Some(now.threads).filter(|threads| *threads != was.threads);
        if now.bound != was.bound {
            plan.memory.clone_from(&now.bound);
        }
        let moved: CpuSet = plan.vcpus.keys().copied().collect();
        for vcpus in plan.reasons.values_mut() {
            *vcpus = vcpus.intersection(&moved);
        }
        plan.reasons.retain(|_, vcpus| !vcpus.is_empty());
    }
}
