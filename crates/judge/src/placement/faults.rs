//! Faults of a placement. Rules report them, and the plan removes them.

use super::{CpuMap, GuestLayout, HelperLayout, MoveReason, Pinning, Shape};
use super::{running, singles, union};
use kvm::CpuSet;
use std::collections::{BTreeMap, BTreeSet};

/// Guests and vCPUs of one overlap that are listed.
const MAX_LISTED: usize = 64;

/// Two vCPUs of a guest and the CPUs that they are pinned to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinnedPair {
    /// The vCPU with the lower number.
    pub first_vcpu: u32,
    /// The other one.
    pub vcpu: u32,
    /// The CPU of `first_vcpu`.
    pub first_cpu: u32,
    /// The CPU of `vcpu`.
    pub cpu: u32,
}

/// Who may use a CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuUsers {
    /// The first `MAX_LISTED`.
    pub listed: Vec<GuestVcpu>,
    /// The number of all.
    pub count: usize,
}

/// A vCPU of one of several guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestVcpu {
    /// The guest, by its position.
    pub guest: usize,
    /// The number of the vCPU.
    pub vcpu: u32,
}

/// vCPUs that share CPUs with a vCPU that is pinned to one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuOverlap {
    /// The guests, by their position; the first `MAX_LISTED`.
    pub guests: Vec<usize>,
    /// The number of all guests.
    pub guest_count: usize,
    /// The users of each CPU; the first `MAX_LISTED`.
    pub cpus: BTreeMap<u32, CpuUsers>,
}

/// The faults of one guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct GuestFaults {
    /// vCPUs that have to move, and why.
    pub movers: BTreeMap<u32, MoveReason>,
    /// The number of hardware threads with which its pins would be right.
    pub show_threads: Option<u32>,
}

impl GuestFaults {
    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.movers.is_empty() && self.show_threads.is_none()
    }

    pub fn mark(&mut self, vcpus: impl IntoIterator<Item = u32>, reason: MoveReason) {
        for v in vcpus {
            self.movers.entry(v).or_insert(reason);
        }
    }
}

impl GuestLayout {
    /// Whether the plan may move it.
    pub(super) fn may_move(&self) -> bool {
        self.running && self.cells.is_none_or(|cells| cells < 2)
    }

    /// Whether it may be on several nodes: it has more vCPUs than a node has CPUs, or may see the
    /// nodes.
    pub(super) fn may_span(&self, map: &CpuMap) -> bool {
        self.cells.is_none() || map.nodes.values().all(|node| node.len() < self.vcpus.len())
    }

    /// The single CPU that a vCPU is pinned to.
    pub fn pin(&self, map: &CpuMap, vcpu: u32) -> Option<u32> {
        map.pinned(self.vcpus.get(vcpu as usize)?)
    }

    /// The vCPUs that are pinned to one CPU each.
    pub fn pins<'a>(&'a self, map: &'a CpuMap) -> impl Iterator<Item = (u32, u32)> + 'a {
        (0..)
            .zip(&self.vcpus)
            .filter_map(|(v, set)| Some((v, map.pinned(set)?)))
    }

    /// The CPUs of vCPUs that are pinned to one CPU each.
    pub fn single(&self, map: &CpuMap) -> CpuSet {
        self.pins(map).map(|(_, cpu)| cpu).collect()
    }

    /// vCPUs that are pinned to several CPUs.
    pub fn pooled<'a>(&'a self, map: &'a CpuMap) -> impl Iterator<Item = (u32, &'a CpuSet)> + 'a {
        (0..)
            .zip(&self.vcpus)
            .filter(move |(_, set)| set.len() > 1 && map.restricts(set))
    }

    /// All CPUs of vCPUs that are pinned to several.
    pub fn reach(&self, map: &CpuMap) -> CpuSet {
        union(self.pooled(map).map(|(_, set)| set))
    }

    /// All CPUs that its vCPUs may use; `None` if one of them is not pinned.
    pub fn confined(&self, map: &CpuMap) -> Option<CpuSet> {
        let bound = self
            .vcpus
            .iter()
            .all(|set| map.restricts(set) && !set.is_empty());
        (bound && !self.vcpus.is_empty()).then(|| union(&self.vcpus))
    }

    /// The vCPUs without a pin, if all others are pinned to one CPU each.
    pub fn partly_pinned(&self, map: &CpuMap) -> Vec<u32> {
        if self.pinning == Pinning::PartlyKnown
            || self.pooled(map).next().is_some()
            || self.single(map).is_empty()
        {
            return Vec::new();
        }
        (0..)
            .zip(&self.vcpus)
            .filter(|(_, set)| !map.restricts(set))
            .map(|(v, _)| v)
            .collect()
    }

    /// Threads of one guest core that are pinned to different cores of the host. Hybrid hosts also
    /// have cores of one thread. A guest with vCPUs on both kinds sees the same number of threads
    /// on each core, so threads on two such cores are no fault.
    pub fn threads_apart(&self, map: &CpuMap) -> Vec<PinnedPair> {
        if self.shape == Shape::Unknown || self.threads <= 1 || map.threads() <= 1 {
            return Vec::new();
        }
        let has_pairs = self.pins(map).any(|(_, cpu)| !map.is_single(cpu));
        let mut apart = Vec::new();
        for (vcpu, cpu) in self.pins(map) {
            let first_vcpu = vcpu - vcpu % self.threads;
            let Some(first_cpu) = self.pin(map, first_vcpu) else {
                continue;
            };
            let both_single = has_pairs && map.is_single(first_cpu) && map.is_single(cpu);
            if vcpu != first_vcpu && !both_single && !map.same_core(first_cpu, cpu) {
                apart.push(PinnedPair {
                    first_vcpu,
                    vcpu,
                    first_cpu,
                    cpu,
                });
            }
        }
        apart
    }

    /// vCPUs pinned to threads of the same host core, in a guest that sees one thread per core.
    pub fn shared_cores(&self, map: &CpuMap) -> Vec<PinnedPair> {
        if self.shape == Shape::Unknown || self.threads > 1 || map.threads() <= 1 {
            return Vec::new();
        }
        let mut first: BTreeMap<usize, (u32, u32)> = BTreeMap::new();
        let mut pairs = Vec::new();
        for (vcpu, cpu) in self.pins(map) {
            let Some(core) = map.core_of(cpu) else {
                continue;
            };
            let (first_vcpu, first_cpu) = *first.entry(core).or_insert((vcpu, cpu));
            if first_cpu != cpu {
                pairs.push(PinnedPair {
                    first_vcpu,
                    vcpu,
                    first_cpu,
                    cpu,
                });
            }
        }
        pairs
    }

    /// The nodes of its vCPUs; empty if one of them is not pinned, or the host has one node.
    pub fn nodes(&self, map: &CpuMap) -> CpuSet {
        match self.confined(map) {
            Some(cpus) if map.nodes.len() > 1 => map.nodes_of(&cpus),
            _ => CpuSet::new(),
        }
    }

    /// Whether it runs on several nodes and sees only one.
    pub fn is_split(&self, map: &CpuMap) -> bool {
        self.cells.is_some_and(|cells| cells < 2) && self.nodes(map).len() > 1
    }

    /// Whether its memory is bound to nodes on which none of its vCPUs runs.
    pub fn memory_elsewhere(&self, map: &CpuMap) -> bool {
        let nodes = self.nodes(map);
        self.bound.as_ref().is_some_and(|bound| {
            !bound.is_empty() && !nodes.is_empty() && !bound.intersects(&nodes)
        })
    }

    /// Whether one of the guest's helpers disturbs its pinned vCPUs.
    pub fn disturbs(&self, map: &CpuMap, helper: &HelperLayout) -> bool {
        let single = self.single(map);
        if let Some(cpus) = &helper.cpus {
            return cpus.intersects(&single) && (!helper.is_idle || cpus.is_subset(&single));
        }
        // The scheduler puts unpinned threads on other CPUs than the isolated ones.
        let known = !map.all.is_empty() && !single.is_empty();
        known && !helper.is_idle && self.confined(map).is_some() && !single.is_subset(&map.isolated)
    }
}

/// CPUs that one vCPU is pinned to and other vCPUs may use too. CPUs with the same guests form one
/// overlap.
pub fn overlaps(map: &CpuMap, guests: &[GuestLayout]) -> Vec<CpuOverlap> {
    let pinned = singles(map, guests, false);
    let mut users: BTreeMap<u32, (BTreeSet<usize>, CpuUsers)> = BTreeMap::new();
    for (g, guest) in running(guests) {
        for (v, cpu) in guest.pins(map) {
            add_user(users.entry(cpu).or_default(), g, v);
        }
    }
    for (g, guest) in running(guests) {
        for (v, set) in guest.pooled(map) {
            for cpu in set.intersection(&pinned).iter() {
                add_user(users.entry(cpu).or_default(), g, v);
            }
        }
    }
    let mut found: BTreeMap<BTreeSet<usize>, CpuOverlap> = BTreeMap::new();
    for (cpu, (guests, of_cpu)) in users {
        if of_cpu.count > 1 {
            found.entry(guests).or_default().cpus.insert(cpu, of_cpu);
        }
    }
    for (guests, overlap) in &mut found {
        overlap.guests = guests.iter().copied().take(MAX_LISTED).collect();
        overlap.guest_count = guests.len();
    }
    found.into_values().collect()
}

/// Adds a vCPU to the guests and vCPUs that want a CPU.
fn add_user((guests, users): &mut (BTreeSet<usize>, CpuUsers), guest: usize, vcpu: u32) {
    guests.insert(guest);
    users.count += 1;
    if users.listed.len() < MAX_LISTED {
        users.listed.push(GuestVcpu { guest, vcpu });
    }
}

/// Whether pinned vCPUs leave no CPU for the host's own tasks.
pub fn starved(map: &CpuMap, guests: &[GuestLayout]) -> bool {
    let single = singles(map, guests, false);
    !single.is_empty() && map.general().is_subset(&single)
}

/// A vCPU that is pinned to a CPU, in the order in which vCPUs may keep their CPUs.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    /// Whether other vCPUs of the guest move anyway.
    has_movers: bool,
    guest: usize,
    vcpu: u32,
    cpu: u32,
}

/// The faults of each guest, chosen so that as few vCPUs as possible have to move.
pub(super) fn find(map: &CpuMap, guests: &[GuestLayout]) -> Vec<GuestFaults> {
    let mut faults: Vec<GuestFaults> = guests.iter().map(|g| faults_of_one(map, g)).collect();
    give_way(map, guests, &mut faults);
    // CPUs that vCPUs keep.
    let mut kept = CpuSet::new();
    let mut claims: Vec<Claim> = Vec::new();
    for (g, guest) in running(guests) {
        let movers = &faults[g].movers;
        for (v, set) in guest.pooled(map) {
            if !movers.contains_key(&v) {
                kept = kept.union(set);
            }
        }
        if !guest.may_move() {
            kept = kept.union(&guest.single(map));
            continue;
        }
        for (v, cpu) in guest.pins(map) {
            if !movers.contains_key(&v) {
                claims.push(Claim {
                    has_movers: !movers.is_empty(),
                    guest: g,
                    vcpu: v,
                    cpu,
                });
            }
        }
    }
    // Of several vCPUs on one CPU, the first in this order keeps it: of a guest without another
    // fault.
    claims.sort_unstable();
    for claim in claims {
        if !kept.insert(claim.cpu) {
            faults[claim.guest].mark([claim.vcpu], MoveReason::Overlap);
        }
    }
    for (g, guest) in running(guests) {
        move_whole_cores(map, guest, &mut faults[g]);
    }
    if let Some(cpu) = map.general().first()
        && starved(map, guests)
    {
        for (g, guest) in running(guests) {
            let there = guest.pins(map).filter(|(_, c)| *c == cpu).map(|(v, _)| v);
            if guest.may_move() {
                faults[g].mark(there, MoveReason::HostStarved);
                move_whole_cores(map, guest, &mut faults[g]);
            }
        }
    }
    faults
}

/// The faults of a guest that do not depend on other guests; none if the plan may not move it.
fn faults_of_one(map: &CpuMap, guest: &GuestLayout) -> GuestFaults {
    let mut faults = GuestFaults::default();
    if !guest.may_move() {
        return faults;
    }
    let vcpus: Vec<(u32, &CpuSet)> = (0..).zip(&guest.vcpus).collect();
    let unable = vcpus.iter().filter(|(_, set)| set.is_empty());
    faults.mark(unable.map(|(v, _)| *v), MoveReason::Absent);
    faults.mark(guest.partly_pinned(map), MoveReason::Partly);
    let on_isolated = guest
        .pooled(map)
        .filter(|(_, set)| set.is_subset(&map.isolated))
        .map(|(v, _)| v);
    if guest.piled_up && guest.pinning != Pinning::OneSet {
        faults.mark(on_isolated, MoveReason::Isolated);
    }
    if guest.is_split(map) && !guest.may_span(map) {
        faults.mark(vcpus.iter().map(|(v, _)| *v), MoveReason::NodeSplit);
    }
    let apart = guest.threads_apart(map);
    faults.mark(
        apart.iter().flat_map(|pair| [pair.first_vcpu, pair.vcpu]),
        MoveReason::ThreadsApart,
    );
    let shared = guest.shared_cores(map);
    // Where pairs cover all vCPUs in order, the pins are right once the guest sees hardware
    // threads.
    let in_order = shared.len() * 2 == guest.vcpus.len()
        && shared
            .iter()
            .all(|pair| pair.first_vcpu + 1 == pair.vcpu && pair.first_vcpu.is_multiple_of(2));
    if !shared.is_empty() && guest.shape >= Shape::Threads && in_order {
        faults.show_threads = Some(2);
    } else {
        faults.mark(shared.iter().map(|pair| pair.vcpu), MoveReason::SharedCore);
    }
    faults
}

/// Whether a placement is worse than the one before: it has more faults, a fault of a guest that
/// had none, or fewer CPUs than vCPUs in a set that had enough.
pub(super) fn is_worse(map: &CpuMap, before: &[GuestLayout], after: &[GuestLayout]) -> bool {
    let old_counts = fault_counts(map, before);
    let new_counts = fault_counts(map, after);
    let mut counts = new_counts.iter().zip(&old_counts);
    if new_counts.iter().sum::<usize>() > old_counts.iter().sum()
        || counts.any(|(new, old)| *new > 0 && *old == 0)
    {
        return true;
    }
    for (was, is) in before.iter().zip(after) {
        let [had, has] =
            [was, is].map(|guest| guest.confined(map).map_or(map.all.len(), |cpus| cpus.len()));
        let had_sets = was.pooled(map).count() == was.vcpus.len();
        if had_sets && had >= is.vcpus.len() && has < is.vcpus.len() {
            return true;
        }
    }
    false
}

/// The number of threads of each running guest that have to move.
fn fault_counts(map: &CpuMap, guests: &[GuestLayout]) -> Vec<usize> {
    let mut counts = Vec::new();
    for (faults, guest) in find(map, guests).iter().zip(guests) {
        let vcpus = faults.movers.len();
        let helpers = guest
            .helpers
            .values()
            .filter(|helper| guest.disturbs(map, helper))
            .count();
        counts.push(if guest.running { vcpus + helpers } else { 0 });
    }
    counts
}

/// Marks the other threads of guest cores with a thread that has to move.
fn move_whole_cores(map: &CpuMap, guest: &GuestLayout, faults: &mut GuestFaults) {
    let threads = vcpus_per_core(map, guest);
    if threads <= 1 {
        return;
    }
    let cores: BTreeSet<u32> = faults.movers.keys().map(|v| v / threads).collect();
    faults.mark(
        guest
            .pins(map)
            .map(|(v, _)| v)
            .filter(|v| cores.contains(&(v / threads))),
        MoveReason::Together,
    );
}

/// How many vCPUs belong on one core of the host: those of a guest core, or 1 if the host's cores
/// have one thread.
pub(super) fn vcpus_per_core(map: &CpuMap, guest: &GuestLayout) -> u32 {
    if guest.shape != Shape::Unknown && map.threads() > 1 {
        guest.threads.max(1)
    } else {
        1
    }
}

/// Marks guests whose sets contain CPUs of pinned vCPUs, where fewer threads move if these guests
/// do than if the pinned vCPUs do.
fn give_way(map: &CpuMap, guests: &[GuestLayout], faults: &mut [GuestFaults]) {
    let mut pinned: BTreeMap<u32, usize> = BTreeMap::new();
    running(guests)
        .flat_map(|(_, g)| g.pins(map))
        .for_each(|(_, cpu)| *pinned.entry(cpu).or_default() += 1);
    for (g, guest) in running(guests) {
        let sets: Vec<u32> = guest.pooled(map).map(|(v, _)| v).collect();
        let count: usize = guest
            .reach(map)
            .iter()
            .filter_map(|cpu| pinned.get(&cpu))
            .sum();
        if count > sets.len() && guest.may_move() {
            faults[g].mark(sets, MoveReason::PoolOverlap);
        }
    }
}
