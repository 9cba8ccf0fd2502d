//! Placement of all guests' threads on a host. Pure: it makes new pins from topology, pins and
//! needs.
//!
//! [`plan`] changes as little as possible. It finds faults of the pins ([`faults`]), gives the
//! vCPUs concerned CPUs of their own (`assignment`) or, where none is left, a set to share
//! (`solve`), and moves helper threads away from pinned vCPUs (`helpers`). Then it moves threads
//! that can run in a better place without cost to others. The placement rules find faults with the
//! same functions, so they report nothing about a configuration that follows the plan.
//!
//! A vCPU is pinned if it may use one CPU (`pin`, `single`), and pooled if it may use a set of
//! several (`pooled`, `reach`); otherwise it may use all CPUs. Movers are vCPUs that have to get
//! other CPUs. A helper is a thread of the VMM that is no vCPU. Lists with an element for each
//! guest all have the order of the guests: `g` is a position in them, and `v` the number of a vCPU.

mod assignment;
mod cpu_map;
pub mod faults;
mod helpers;
mod solve;

pub use cpu_map::{CpuMap, PhysicalCore};
pub use solve::plan;

use kvm::CpuSet;
use std::collections::BTreeMap;

/// Where a guest's threads may run, and what the guest needs. All CPUs are in the [`CpuMap`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GuestLayout {
    /// Whether the guest runs. A paused guest keeps its CPUs, and the plan moves nothing for it.
    pub running: bool,
    /// What is known of the guest's topology, and what of it can change.
    pub shape: Shape,
    /// Hardware threads of a guest core; at least 1.
    pub threads: u32,
    /// The number of NUMA cells that it sees; `None` where that is not known. A guest with several
    /// was laid out for this host by hand: the plan leaves it where it is.
    pub cells: Option<usize>,
    /// How its vCPUs are pinned.
    pub pinning: Pinning,
    /// The CPUs that each vCPU may use: all CPUs if it is not pinned, none if its CPUs are offline
    /// or missing.
    pub vcpus: Vec<CpuSet>,
    /// The CPU on which a vCPU was seen.
    pub runs_on: BTreeMap<u32, u32>,
    /// vCPUs whose configured pins name CPUs that are offline or missing.
    pub absent: CpuSet,
    /// The configured pins of vCPUs that run under other pins.
    pub drifted: BTreeMap<u32, CpuSet>,
    /// The emulator, without a number, and IOThreads by number.
    pub helpers: BTreeMap<Option<u32>, HelperLayout>,
    /// Nodes that all its memory is bound to.
    pub bound: Option<CpuSet>,
    /// The nodes that hold most of its memory.
    pub memory: CpuSet,
    /// Whether its busy vCPUs pile up on one CPU of a set of isolated CPUs, among which nothing
    /// balances load.
    pub piled_up: bool,
}

/// What is known of a guest's topology, and what of it can change. A later shape includes the
/// earlier ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// It is not known what hardware threads the guest sees.
    #[default]
    Unknown,
    /// They are known.
    Fixed,
    /// They can be changed: the configuration is known and covers these vCPUs only.
    Threads,
}

/// How the vCPUs of a guest are pinned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pinning {
    /// Each has a set of CPUs, or none.
    #[default]
    Each,
    /// Not all pins are known: a vCPU without one may have one.
    PartlyKnown,
    /// The guest's manager gives all of its threads one set of CPUs, as Proxmox does.
    OneSet,
}

/// An emulator or `IOThread`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HelperLayout {
    /// The CPUs that it may use; `None` if it is not pinned and its CPUs are not measured.
    pub cpus: Option<CpuSet>,
    /// The configured pin, if it runs under another.
    pub drifted: Option<CpuSet>,
    /// Whether the configuration pins it.
    pub pinned: bool,
    /// Whether its pin names CPUs that are offline or missing.
    pub absent: bool,
    /// Whether it uses so little of a CPU that it may share one with a vCPU at times; false where
    /// its share is not known.
    pub is_idle: bool,
}

/// Why the plan moves a thread, the most important reason first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveReason {
    /// Its pin names CPUs that are offline or missing.
    Absent,
    /// It does not run where its configuration says.
    Drift,
    /// It shares a CPU with a pinned vCPU.
    Overlap,
    /// It is free while other vCPUs of the guest are pinned.
    Partly,
    /// It may use several isolated CPUs, among which nothing balances load.
    Isolated,
    /// It is not on the core of the other threads of its guest core.
    ThreadsApart,
    /// It shares a core with a vCPU that the guest sees on another core.
    SharedCore,
    /// It is on another node than other vCPUs, and the guest does not know.
    NodeSplit,
    /// Pinned vCPUs leave no CPU for the host's tasks.
    HostStarved,
    /// Pinned vCPUs have CPUs within its set.
    PoolOverlap,
    /// It moves with vCPUs of its guest that have to.
    Together,
    /// It is not pinned, and there are enough CPUs to pin it.
    Unpinned,
}

/// The changes of one guest; empty if it stays as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GuestPlan {
    /// vCPUs with new CPUs.
    pub vcpus: BTreeMap<u32, CpuSet>,
    /// Emulator and IOThreads with new CPUs.
    pub helpers: BTreeMap<Option<u32>, CpuSet>,
    /// The new number of hardware threads of a guest core.
    pub threads: Option<u32>,
    /// Nodes to bind its memory to.
    pub memory: Option<CpuSet>,
    /// Why vCPUs move.
    pub reasons: BTreeMap<MoveReason, CpuSet>,
    /// Whether its vCPUs share CPUs with others because too few are left.
    pub shares: bool,
    /// Whether the changes are optional: the guest is not pinned, and there are enough CPUs to pin
    /// it.
    pub optional: bool,
}

impl GuestPlan {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.vcpus.is_empty()
            && self.helpers.is_empty()
            && self.threads.is_none()
            && self.memory.is_none()
    }
}

/// One placement for all guests of a host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlacementPlan {
    /// The changes, in the order of the guests.
    pub guests: Vec<GuestPlan>,
    /// Where each guest's threads may run after the plan and its optional changes, in the same
    /// order.
    pub after: Vec<GuestLayout>,
}

impl PlacementPlan {
    /// The guests that change.
    pub fn changed(&self) -> impl Iterator<Item = (usize, &GuestPlan)> {
        self.guests
            .iter()
            .enumerate()
            .filter(|(_, g)| !g.is_empty())
    }
}

/// The CPUs in any of some sets.
fn union<'a>(sets: impl IntoIterator<Item = &'a CpuSet>) -> CpuSet {
    sets.into_iter()
        .fold(CpuSet::new(), |all, set| all.union(set))
}

/// The guests that run, by their position.
fn running(guests: &[GuestLayout]) -> impl Iterator<Item = (usize, &GuestLayout)> {
    guests.iter().enumerate().filter(|(_, g)| g.running)
}

/// The CPUs to which running guests, or with `all` also paused ones, have pinned vCPUs.
pub(crate) fn singles(map: &CpuMap, guests: &[GuestLayout], all: bool) -> CpuSet {
    guests
        .iter()
        .filter(|g| all || g.running)
        .flat_map(|g| g.pins(map))
        .map(|(_, cpu)| cpu)
        .collect()
}

#[cfg(test)]
mod tests;
