//! Moves that help a guest and cost no other guest anything, made where there is room.

use super::assignment::assign;
use super::faults::{self, GuestFaults};
use super::solve::Work;
use super::{GuestLayout, MoveReason, helpers, running};
use kvm::CpuSet;
use std::collections::{BTreeMap, BTreeSet};

impl Work<'_> {
    /// Moves vCPUs from slow to fast cores, if other vCPUs of the guest run there and all of them fit.
    pub(super) fn leave_slow_cores(&mut self) {
        let map = self.map;
        let slow: CpuSet = map.all.iter().filter(|cpu| map.is_slow(*cpu)).collect();
        for g in 0..self.now.len() {
            let movers = self.now[g].on_slow_cores(map);
            if movers.is_empty() || !self.now[g].running {
                continue;
            }
            let found = self.moving(&BTreeMap::from([(g, movers)]), MoveReason::SlowCore);
            let free = self.free(&found, &BTreeSet::new()).without(&slow);
            if let Some(after) = assign(map, &self.now[g], &found[g], &free) {
                self.apply_if_better(vec![(g, after)], &found);
            }
        }
    }

    /// Pins all guests that are not pinned, if there is room for all of them.
    pub(super) fn place_unpinned(&mut self) {
        let map = self.map;
        let unpinned = |g: &GuestLayout| !g.one_set && !g.vcpus.is_empty() && g.vcpus.iter().all(|s| !map.restricts(s));
        let all = |g: &GuestLayout| (0..g.vcpus.len() as u32).collect::<CpuSet>();
        let guests: BTreeMap<usize, CpuSet> =
            running(&self.now).filter(|(_, g)| unpinned(g)).map(|(g, guest)| (g, all(guest))).collect();
        let wanted: usize = guests.values().map(CpuSet::len).sum();
        if guests.is_empty() || wanted >= map.all.len() || self.plans.iter().any(|p| p.shares) {
            return;
        }
        let found = self.moving(&guests, MoveReason::Unpinned);
        let (placed, failed) = self.place_all(&found, &BTreeSet::new());
        if failed.is_empty() && self.apply_if_better(placed, &found) {
            guests.keys().for_each(|g| self.plans[*g].optional = true);
        }
    }

    /// Faults that move only these vCPUs of these guests.
    fn moving(&self, vcpus: &BTreeMap<usize, CpuSet>, reason: MoveReason) -> Vec<GuestFaults> {
        let movers = |g: usize| vcpus.get(&g).into_iter().flat_map(CpuSet::iter).map(|v| (v, reason)).collect();
        (0..self.now.len()).map(|g| GuestFaults { movers: movers(g), ..GuestFaults::default() }).collect()
    }

    /// Applies changes of guests if they change pins only, leave the other guests alone, avoid busy host tasks, put no
    /// guest on both fast and slow cores, and cause no fault. Returns whether they do.
    fn apply_if_better(&mut self, placed: Vec<(usize, GuestLayout)>, found: &[GuestFaults]) -> bool {
        let map = self.map;
        let fits = |(g, after): &(usize, GuestLayout)| {
            let was = &self.now[*g];
            let moved = after.vcpus.iter().zip(&was.vcpus).filter(|(new, old)| new != old);
            (after.threads, &after.cells) == (was.threads, &was.cells)
                && moved.into_iter().all(|(new, _)| !new.intersects(&map.busy))
        };
        if !placed.iter().all(fits) {
            return false;
        }
        let before = self.now.clone();
        let wrong_before = faults::find(map, &before);
        let moved: BTreeSet<usize> = placed.iter().map(|(g, _)| *g).collect();
        placed.into_iter().for_each(|(g, after)| self.now[g] = after);
        self.bind_memory(&before);
        let required = self.now.clone();
        helpers::move_away(map, &mut self.now);
        helpers::bring_near(map, &mut self.now);
        let mixed = moved.iter().any(|g| !self.now[*g].on_slow_cores(map).is_empty());
        // What the plan itself pinned may change.
        let differs = |was: &GuestLayout, now: &GuestLayout| {
            was.helpers.iter().any(|(id, helper)| !helper.planned && now.helpers.get(id) != Some(helper))
        };
        let touched = (0..before.len()).any(|g| !moved.contains(&g) && differs(&required[g], &self.now[g]));
        let wrong = faults::find(map, &self.now);
        let is_new = |(now, before): (&GuestFaults, &GuestFaults)| *now != GuestFaults::default() && now != before;
        if mixed || touched || wrong.iter().zip(&wrong_before).any(is_new) {
            self.now = before;
            return false;
        }
        self.explain(found, |_| true);
        true
    }
}
