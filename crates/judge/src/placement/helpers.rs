//! Emulators and `IOThreads` on the CPUs of pinned vCPUs, of their guest or of another.

use super::{CpuMap, GuestLayout, HelperLayout, singles};
use kvm::CpuSet;

/// The most CPUs of a helper that had all, or none that is online.
const UNPINNED_WIDTH: usize = 8;

/// For each guest, the CPUs that other running guests have pinned single vCPUs to.
fn pinned_by_others(map: &CpuMap, guests: &[GuestLayout]) -> Vec<CpuSet> {
    let (mut once, mut twice) = (CpuSet::new(), CpuSet::new());
    // A paused guest cannot be disturbed.
    let single = |g: &GuestLayout| if g.running { g.single(map) } else { CpuSet::new() };
    let singles: Vec<CpuSet> = guests.iter().map(single).collect();
    for single in &singles {
        twice = twice.union(&once.intersection(single));
        once = once.union(single);
    }
    singles.iter().map(|own| once.difference(&own.difference(&twice))).collect()
}

/// Whether a helper has to move, given the current pins of vCPUs.
fn is_wrong(map: &CpuMap, guest: &GuestLayout, helper: &HelperLayout, others: &CpuSet) -> bool {
    let on_others = helper.pinned && helper.cpus.as_ref().is_some_and(|c| c.intersects(others));
    helper.absent || guest.disturbs(map, helper) || on_others
}

/// CPUs of helpers that an admin pinned and that disturb no vCPU. Nothing else is placed there.
pub(super) fn settled(map: &CpuMap, guests: &[GuestLayout]) -> CpuSet {
    let mut cpus = CpuSet::new();
    for (guest, others) in guests.iter().zip(pinned_by_others(map, guests)) {
        let settled = guest.helpers.values().filter(|h| h.pinned && !h.planned && !is_wrong(map, guest, h, &others));
        cpus = settled.filter_map(|h| h.cpus.as_ref()).fold(cpus, |all, c| all.union(c));
    }
    cpus
}

/// Moves helpers to the node of their guest's vCPUs, if a CPU is left there.
pub(super) fn bring_near(map: &CpuMap, guests: &mut [GuestLayout]) {
    let room = map.general().difference(&singles(map, guests, true));
    for guest in guests.iter_mut().filter(|g| g.running) {
        let near = room.intersection(&map.cpus_of(&guest.nodes(map)));
        let elsewhere = guest.helpers.iter().filter(|(_, h)| guest.is_elsewhere(map, h));
        let moved: Vec<_> = elsewhere.map(|(id, helper)| (*id, room_for(map, guest, helper, &near))).collect();
        moved.iter().for_each(|(id, cpus)| pin(guest, *id, cpus));
    }
}

/// Pins a helper, if there is a CPU for it.
fn pin(guest: &mut GuestLayout, id: Option<u32>, cpus: &CpuSet) {
    if !cpus.is_empty() {
        let new = HelperLayout { cpus: Some(cpus.clone()), pinned: true, planned: true, ..HelperLayout::default() };
        guest.helpers.insert(id, new);
    }
}

/// Moves helpers away from pinned vCPUs, with as few changes as possible.
pub(super) fn move_away(map: &CpuMap, guests: &mut [GuestLayout]) {
    // A paused guest keeps its CPUs if some are left for the others.
    let left = |all: bool| map.general().difference(&singles(map, guests, all));
    let room = [true, false].map(left).into_iter().find(|room| !room.is_empty()).unwrap_or_default();
    let others = pinned_by_others(map, guests);
    for (guest, others) in guests.iter_mut().zip(others).filter(|(g, _)| g.running) {
        let wrong = guest.helpers.iter().filter(|(_, h)| is_wrong(map, guest, h, &others));
        let moved: Vec<_> = wrong.map(|(id, helper)| (*id, room_for(map, guest, helper, &room))).collect();
        moved.iter().for_each(|(id, cpus)| pin(guest, *id, cpus));
    }
}

/// The CPUs that a helper can keep. Where that is less than half of them, as many as it had: of its own, of the first
/// core of the nodes of its vCPUs, of these nodes, of any without a pinned vCPU.
fn room_for(map: &CpuMap, guest: &GuestLayout, helper: &HelperLayout, room: &CpuSet) -> CpuSet {
    let now = helper.cpus.as_ref().filter(|c| helper.pinned || map.restricts(c));
    let kept = now.map(|c| c.intersection(room)).unwrap_or_default();
    let width = now.map(CpuSet::len).filter(|width| *width > 0).unwrap_or(UNPINNED_WIDTH);
    if kept.len() * 2 >= width {
        return kept;
    }
    let near = room.intersection(&map.cpus_of(&map.nodes_of(&guest.single(map))));
    let calm = near.intersection(&map.first_cores());
    let near = if near.is_empty() { room } else { &near };
    let sets = [&kept, &calm, &near.difference(&map.busy), near];
    sets.into_iter().fold(CpuSet::new(), |all, set| {
        let missing = width.saturating_sub(all.len());
        all.union(&set.difference(&all).iter().take(missing).collect())
    })
}
