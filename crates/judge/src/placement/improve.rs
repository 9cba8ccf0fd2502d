//! Moves that help a guest and cost no other guest anything, made where there is room.

use super::assignment::{Assignment, FreeCpus, assign};
use super::faults::{self, GuestFaults};
use super::solve::Work;
use super::{GuestLayout, GuestPlan, MoveReason, helpers};
use kvm::CpuSet;
use std::collections::{BTreeMap, BTreeSet};

impl Work<'_> {
    /// Moves vCPUs from slow to fast cores, if other vCPUs of the guest run there and all of them fit.
    pub(super) fn leave_slow_cores(&mut self) {
        let map = self.map;
        let slow: CpuSet = map.all.iter().filter(|cpu| map.is_slow(*cpu)).collect();
        for g in (0..self.now.len()).filter(|g| self.now[*g].running).collect::<Vec<_>>() {
            let movers = self.now[g].on_slow_cores(map);
            if movers.is_empty() {
                continue;
            }
            let found = self.moving(&BTreeMap::from([(g, (movers.clone(), MoveReason::SlowCore))]));
            let free: FreeCpus = self.free(&found, &BTreeSet::new()).without(&slow);
            let Some(assignment) = assign(map, &self.now[g], &found[g], &free) else { continue };
            self.apply_if_better(&[(g, assignment)], |plan, _| {
                plan.reasons.entry(MoveReason::SlowCore).or_default().extend(movers.iter());
            });
        }
    }

    /// Pins all guests that are not pinned, if there is room for all of them.
    pub(super) fn place_unpinned(&mut self) {
        let map = self.map;
        let unpinned = |g: &GuestLayout| g.running && !g.vcpus.is_empty() && g.vcpus.iter().all(|s| !map.restricts(s));
        let guests: Vec<usize> =
            (0..self.now.len()).filter(|g| unpinned(&self.now[*g]) && !self.plans[*g].shares).collect();
        let wanted: usize = guests.iter().map(|g| self.now[*g].vcpus.len()).sum();
        if guests.is_empty() || wanted >= map.all.len() || self.plans.iter().any(|p| p.shares) {
            return;
        }
        let all = |g: &usize| (*g, ((0..self.now[*g].vcpus.len() as u32).collect(), MoveReason::Unpinned));
        let found = self.moving(&guests.iter().map(all).collect());
        let (assignments, failed) = self.place_all(&found, &BTreeSet::new());
        if failed.is_empty() {
            self.apply_if_better(&assignments, |plan, assignment| {
                plan.optional = true;
                plan.reasons.entry(MoveReason::Unpinned).or_default().extend(assignment.pins.keys().copied());
            });
        }
    }

    /// Faults that move only these vCPUs of these guests.
    fn moving(&self, vcpus: &BTreeMap<usize, (CpuSet, MoveReason)>) -> Vec<GuestFaults> {
        let of_guest = |g: usize| {
            let movers = vcpus.get(&g).map(|(vcpus, reason)| vcpus.iter().map(|v| (v, *reason)).collect());
            GuestFaults { movers: movers.unwrap_or_default(), ..GuestFaults::default() }
        };
        (0..self.now.len()).map(of_guest).collect()
    }

    /// Applies assignments if they change pins only, leave the other guests alone, avoid busy host tasks, put no guest
    /// on both fast and slow cores, and cause no fault.
    fn apply_if_better(&mut self, assignments: &[(usize, Assignment)], explain: impl Fn(&mut GuestPlan, &Assignment)) {
        let map = self.map;
        let reshaped = |s: &Assignment| s.threads.is_some() || !s.cells.is_empty() || !s.memnodes.is_empty();
        let disturbed = |s: &Assignment| s.pins.values().any(|cpu| map.busy.contains(*cpu));
        if assignments.iter().any(|(_, s)| reshaped(s) || disturbed(s)) {
            return;
        }
        let (now, plans) = (self.now.clone(), self.plans.clone());
        let wrong_before = faults::find(map, &now);
        for (g, assignment) in assignments {
            self.apply(*g, assignment);
            explain(&mut self.plans[*g], assignment);
        }
        self.bind_memory(&now);
        let others: Vec<usize> = (0..now.len()).filter(|g| assignments.iter().all(|(moved, _)| moved != g)).collect();
        let required: Vec<GuestLayout> = others.iter().map(|g| self.now[*g].clone()).collect();
        helpers::move_away(map, &mut self.now);
        helpers::bring_near(map, &mut self.now);
        let mixed = assignments.iter().any(|(g, _)| !self.now[*g].on_slow_cores(map).is_empty());
        let untouched = others.iter().zip(&required).all(|(g, required)| self.now[*g] == *required);
        let wrong = faults::find(map, &self.now);
        let is_new = |(now, before): (&GuestFaults, &GuestFaults)| *now != GuestFaults::default() && now != before;
        if mixed || !untouched || wrong.iter().zip(&wrong_before).any(is_new) {
            (self.now, self.plans) = (now, plans);
        }
    }
}
