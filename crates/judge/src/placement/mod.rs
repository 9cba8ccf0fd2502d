//! Where the threads of all guests should run: one plan for a whole host. Pure: topology, pins and needs in, pins out.
//!
//! [`plan`] changes as little as possible. It finds what is wrong with the pins ([`faults`]), gives the vCPUs concerned
//! cores of their own (`seats`), lets those share a set for which no CPU is left (`pools`), moves helper threads
//! away from pinned vCPUs (`helpers`), and looks again until nothing is wrong (`solve`). What then could be better and
//! can be where it belongs without taking anything from anybody is moved too (`improve`). The rules about placement use
//! the same functions to find faults, so that a configuration that follows the plan has no finding.

mod cores;
mod cpu_map;
pub mod faults;
mod helpers;
mod improve;
mod pools;
mod seats;
mod solve;

pub use cpu_map::{CpuMap, PhysicalCore};
pub use solve::plan;

use kvm::CpuSet;
use std::collections::BTreeMap;

/// Where a guest's threads may run, and what the guest needs. CPU sets hold CPUs of the [`CpuMap`] only.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a guest")]
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GuestLayout {
    /// Whether it runs. The CPUs of a paused guest stay its own, and nothing is moved for it.
    pub running: bool,
    /// Whether its configuration is known: without it nothing is said about the cores and nodes that it sees.
    pub known: bool,
    /// Hardware threads of a core, as the guest sees them; at least 1.
    pub threads: u32,
    /// The CPUs that each vCPU may use: all CPUs where it is not pinned, none where none of its CPUs is there.
    pub vcpus: Vec<CpuSet>,
    /// vCPUs whose configured pins name CPUs that are offline or missing.
    pub absent: CpuSet,
    /// The pins that its configuration wants for vCPUs that run under others.
    pub drifted: BTreeMap<u32, CpuSet>,
    /// The emulator.
    pub emulator: HelperLayout,
    /// IOThreads by number.
    pub iothreads: BTreeMap<u32, HelperLayout>,
    /// The NUMA cells that it sees.
    pub cells: Vec<CellLayout>,
    /// Nodes that all its memory is bound to.
    pub bound: Option<CpuSet>,
    /// The nodes that hold most of its memory.
    pub memory: CpuSet,
    /// Whether other hardware threads can be shown to it: its configuration is known, and about these vCPUs only.
    pub reshapes: bool,
    /// Whether NUMA cells can be shown to it.
    pub takes_cells: bool,
    /// Whether vCPUs that share a set of isolated CPUs do harm: measured, or likely where nothing is measured.
    pub piles: bool,
    /// Whether CPU times are measured, so that sharing is judged by what it costs.
    pub measured: bool,
}

/// An emulator or `IOThread`.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a thread")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HelperLayout {
    /// The CPUs that it may use; `None`: nothing restricts it, and where it runs is not measured.
    pub cpus: Option<CpuSet>,
    /// The pin that its configuration wants, where it runs under another.
    pub drifted: Option<CpuSet>,
    /// Whether the configuration pins it.
    pub pinned: bool,
    /// Whether its pin names CPUs that are offline or missing.
    pub absent: bool,
    /// Whether it is measured to use so little that it may share a vCPU's CPU now and then.
    pub idle: bool,
    /// Whether it is measured to use so little that it matters nowhere.
    pub rests: bool,
}

/// A NUMA cell of a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CellLayout {
    /// Its vCPUs.
    pub vcpus: CpuSet,
    /// The host nodes that `<memnode>` binds its memory to.
    pub nodes: Option<CpuSet>,
}

/// Why the plan moves something. In this order where one vCPU has several reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveReason {
    /// Its pin names CPUs that are offline or missing.
    Absent,
    /// It runs elsewhere than its configuration says.
    Drift,
    /// It shares a CPU with a pinned vCPU.
    Overlap,
    /// It is free while other vCPUs of the guest are pinned.
    Partly,
    /// It may use several isolated CPUs, among which nothing balances load.
    Isolated,
    /// It is on another core than the other threads of its guest core.
    ThreadsApart,
    /// It shares a core with a vCPU that the guest takes for another core.
    SharedCore,
    /// It is on another node than other vCPUs, and the guest does not know.
    NodeSplit,
    /// It is on another node than the memory of its cell.
    CellElsewhere,
    /// It is on a slow core while other vCPUs of the guest are on fast ones.
    SlowCore,
    /// Its set has fewer CPUs than vCPUs while other CPUs are free.
    Crowded,
    /// The host has no CPU of its own.
    HostStarved,
    /// Pinned vCPUs have CPUs within its set.
    PoolOverlap,
    /// It has its CPUs already, and vCPUs for which no other CPU is left are pinned there too.
    Shared,
    /// It moves with vCPUs of its guest that have to.
    Together,
    /// It is not pinned, and there is room for CPUs of its own.
    Unpinned,
}

/// What the plan changes of one guest. Empty where the guest stays as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GuestPlan {
    /// vCPUs with new CPUs.
    pub vcpus: BTreeMap<u32, CpuSet>,
    /// New CPUs of the emulator.
    pub emulator: Option<CpuSet>,
    /// IOThreads with new CPUs.
    pub iothreads: BTreeMap<u32, CpuSet>,
    /// The hardware threads of a core that the guest has to see.
    pub threads: Option<u32>,
    /// NUMA cells that the guest has to see, each with its host nodes.
    pub cells: Vec<(CpuSet, CpuSet)>,
    /// Host nodes to bind existing cells to, by the cells' positions.
    pub memnodes: BTreeMap<usize, CpuSet>,
    /// Nodes to bind its memory to.
    pub memory: Option<CpuSet>,
    /// Why vCPUs move.
    pub reasons: BTreeMap<MoveReason, CpuSet>,
    /// Whether its vCPUs share a set with others because too few CPUs are left.
    pub shares: bool,
    /// Whether nothing is wrong with it: it is not pinned, and could have CPUs of its own.
    pub optional: bool,
}

impl GuestPlan {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.vcpus.is_empty()
            && self.emulator.is_none()
            && self.iothreads.is_empty()
            && self.threads.is_none()
            && self.cells.is_empty()
            && self.memnodes.is_empty()
            && self.memory.is_none()
    }
}

/// One placement for all guests of a host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlacementPlan {
    /// What changes, in the order of the guests.
    pub guests: Vec<GuestPlan>,
    /// Where every guest's threads may run afterwards, in the same order; optional changes included.
    pub after: Vec<GuestLayout>,
}

impl PlacementPlan {
    /// The guests that change.
    pub fn changed(&self) -> impl Iterator<Item = (usize, &GuestPlan)> {
        self.guests.iter().enumerate().filter(|(_, g)| !g.is_empty())
    }
}

#[cfg(test)]
mod tests;
