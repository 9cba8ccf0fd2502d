//! Emulators and `IOThreads` on the CPUs of pinned vCPUs, of their guest or of another.

use super::{CpuMap, GuestLayout, HelperLayout, singles};
use kvm::CpuSet;

/// The most CPUs for a helper that could use all CPUs, or none that is online.
const UNPINNED_WIDTH: usize = 8;

/// Whether a helper has to move, given the current pins of vCPUs.
fn is_wrong(map: &CpuMap, guest: &GuestLayout, helper: &HelperLayout) -> bool {
    helper.absent || guest.disturbs(map, helper)
}

/// CPUs of helpers that were pinned before the plan, and disturb no vCPU. Nothing else is placed
/// there.
pub(super) fn settled(map: &CpuMap, was: &[GuestLayout], now: &[GuestLayout]) -> CpuSet {
    let mut cpus = CpuSet::new();
    for (was, now) in was.iter().zip(now) {
        for (id, helper) in now.helpers.iter().filter(|(_, helper)| helper.pinned) {
            if was.helpers.get(id) == Some(helper) && !is_wrong(map, now, helper) {
                cpus = cpus.union(&helper.cpus.clone().unwrap_or_default());
            }
        }
    }
    cpus
}

/// Moves helpers away from pinned vCPUs and to the node of their guest's vCPUs, with as few changes
/// as possible.
pub(super) fn place(map: &CpuMap, guests: &mut [GuestLayout]) {
    // Helpers keep off the CPUs of paused guests as well, if that leaves any.
    let mut free = map.general().difference(&singles(map, guests, true));
    if free.is_empty() {
        free = map.general().difference(&singles(map, guests, false));
    }
    for guest in guests.iter_mut().filter(|g| g.running) {
        let mut moved = Vec::new();
        for (id, helper) in &guest.helpers {
            if !is_wrong(map, guest, helper) {
                continue;
            }
            let cpus = room_for(map, guest, helper, &free);
            if cpus.is_empty() {
                continue;
            }
            let new = HelperLayout {
                cpus: Some(cpus),
                pinned: true,
                ..HelperLayout::default()
            };
            if new != *helper {
                moved.push((*id, new));
            }
        }
        guest.helpers.extend(moved);
    }
}

/// The CPUs for a helper: those of its own within `room`, if these are half of them or more. Else
/// as many as it had: first its own, then those of the first cores of its vCPUs' nodes, then others
/// of these nodes. Without room on these nodes they are of any node.
fn room_for(map: &CpuMap, guest: &GuestLayout, helper: &HelperLayout, room: &CpuSet) -> CpuSet {
    let now = helper
        .cpus
        .as_ref()
        .filter(|c| helper.pinned || map.restricts(c));
    let kept = now.map(|c| c.intersection(room)).unwrap_or_default();
    let width = now
        .map(CpuSet::len)
        .filter(|width| *width > 0)
        .unwrap_or(UNPINNED_WIDTH);
    if kept.len() * 2 >= width {
        return kept;
    }
    let near = room.intersection(&map.cpus_of(&map.nodes_of(&guest.single(map))));
    let calm = near.intersection(&map.first_cores());
    let near = if near.is_empty() { room } else { &near };
    let mut cpus = CpuSet::new();
    for set in [&kept, &calm, &near.difference(&map.busy), near] {
        let missing = width.saturating_sub(cpus.len());
        cpus = cpus.union(&set.difference(&cpus).iter().take(missing).collect());
    }
    cpus
}
