//! The prose of the NUMA and hardware thread rules.

use crate::figures::{bytes, figure};
use crate::lint::engine::prose::Prose;
use crate::lint::pinning::helper_name;
use crate::placement::faults::PinnedPair;
use kvm::CpuSet;

/// The most pairs and cells that a sentence names.
const MAX_NAMED: usize = 32;

pub(super) const THREADS_APART: Prose = Prose {
    title: "vCPUs that the guest sees as threads of one core are pinned to different cores",
    why: "The guest's scheduler expects the two to share a core and its cache: it keeps work off the second while the \
        first is busy. With pins across cores both assumptions are wrong",
};
pub(super) const SHARED_CORE: Prose = Prose {
    title: "vCPUs share a core, and the guest does not know",
    why: "Two busy threads of a core get about half of it each. A guest that sees its threads fills whole cores first; \
        this one cannot",
};
pub(super) const SLOW_CORES: Prose = Prose {
    title: "The guest's vCPUs are spread over fast and slow cores",
    why: "The guest takes its vCPUs for equal and puts work on any of them. What lands on a slow core takes longer, \
        and what waits for it, for a lock or the last part of a job, waits as long",
};
pub(super) const HELPERS_ELSEWHERE: Prose = Prose {
    title: "The guest's emulator or IOThreads are on another NUMA node than its vCPUs",
    why: "These threads serve the vCPUs' devices: they read and write the guest's memory and wake its vCPUs. From \
        another node each of these accesses and interrupts goes over the link between the nodes",
};
pub(super) const VCPUS_SPLIT: Prose = Prose {
    title: "The guest's vCPUs are spread over NUMA nodes that it does not see",
    why: "Half of its memory accesses go to the other node at a higher cost. The guest's scheduler and allocator \
        cannot avoid that, because they see one node. Red Hat measured a loss of 10 % and more",
};
pub(super) const MEMORY_ELSEWHERE: Prose = Prose {
    title: "The guest's memory is on another NUMA node than its vCPUs",
    why: "vCPU pins do not move memory: it stays on the node where the guest first used it. Every access to the other \
        node costs more",
};
pub(super) const CELLS_CROSSED: Prose = Prose {
    title: "The guest's NUMA cells have their vCPUs and their memory on different nodes",
    why: "The guest keeps each program's memory in the cell where it runs, and on this host that is the other node: \
        every access that it takes for a near one is a far one",
};
pub(super) const MEMORY_BOUND_ELSEWHERE: Prose = Prose {
    title: "The guest's memory is bound to another NUMA node than its vCPUs",
    why: "Every memory access of the guest goes to the other node",
};

// Fixes.
pub(super) const MATCH_CELLS: &str = "Pin the vCPUs of each cell to the node that its memory is bound to, or change \
    what it is bound to (libvirt: <memnode>, QEMU: host-nodes=, Proxmox: hostnodes=)";
pub(super) const PIN_CORES_OR_ONE_THREAD: &str =
    "Pin the vCPUs of a guest core to the hardware threads of one core, or show the guest threads='1'";
pub(super) const SHOW_THREADS_OR_PIN_CORES: &str = "Show the guest the threads it gets (<topology … threads='2'/>) and \
    pin the vCPUs of a guest core to one core, or pin each vCPU to its own core";
pub(super) const SHOW_NODES: &str = "Show a guest that has to span nodes its nodes: <numa> cells in <cpu>, each with \
    its vCPUs, and <memnode> in <numatune> to bind each cell's memory";

// Evidence.
pub(super) const CHECK_SIBLINGS: &str = "check: lscpu -e";
pub(super) const CHECK_KINDS: &str = "look at: lscpu -e=CPU,MAXMHZ";
pub(super) const CHECK_NODES: &str = "check: lscpu -e; numactl --hardware";

/// `vCPUs 0 and 1 on CPUs 2 and 3, …`.
fn named(pairs: &[PinnedPair]) -> String {
    let one = |(v, w, a, b): &PinnedPair| format!("vCPUs {v} and {w} on CPUs {a} and {b}");
    let mut all: Vec<String> = pairs.iter().take(MAX_NAMED).map(one).collect();
    if pairs.len() > MAX_NAMED {
        all.push(format!("and {} pairs more", pairs.len() - MAX_NAMED));
    }
    all.join(", ")
}

pub(super) fn threads_apart(threads: u32, pairs: &[PinnedPair]) -> String {
    format!("the guest sees {threads} threads per core, yet these are on different cores: {}", named(pairs))
}

pub(super) fn shared_core(pairs: &[PinnedPair]) -> String {
    format!("the guest sees one thread per core, yet these are on threads of one core: {}", named(pairs))
}

pub(super) fn cell_elsewhere(cell: usize, vcpus: &CpuSet, now: &CpuSet, memory: &CpuSet) -> String {
    format!("cell {cell}: memory on node {memory}, vCPUs {vcpus} pinned to node {now}")
}

/// vCPUs with their CPUs, those on slow cores and those on fast ones.
pub(super) fn slow_cores(slow: &[(u32, u32)], fast: &[(u32, u32)]) -> String {
    let vcpus = |of: &[(u32, u32)]| of.iter().map(|(v, _)| *v).collect::<CpuSet>();
    let cpus = |of: &[(u32, u32)]| of.iter().map(|(_, cpu)| *cpu).collect::<CpuSet>();
    format!(
        "vCPUs {} are pinned to slow cores (CPUs {}), vCPUs {} to fast ones (CPUs {})",
        vcpus(slow),
        cpus(slow),
        vcpus(fast),
        cpus(fast)
    )
}

pub(super) fn helper_elsewhere(iothread: Option<u32>, cpus: &CpuSet, nodes: &CpuSet) -> String {
    format!("{} is pinned to CPUs {cpus} on node {nodes}", helper_name(iothread))
}

pub(super) fn vcpus_on(cpus: &CpuSet, nodes: &CpuSet) -> String {
    format!("the vCPUs are pinned to CPUs {cpus} on node {nodes}")
}

pub(super) fn vcpus_split(cpus: &CpuSet, nodes: &CpuSet) -> String {
    format!("its vCPUs may use CPUs {cpus}, on nodes {nodes}; the guest sees one node")
}

pub(super) fn bound_away(bound: &CpuSet, vcpu_nodes: &CpuSet) -> String {
    format!("its memory is bound to node {bound}, away from the vCPUs on node {vcpu_nodes}")
}

pub(super) fn local_share(percent: f64, nodes: &CpuSet, by_node: &[(u32, u64)]) -> String {
    let by_node: Vec<String> = by_node.iter().map(|(n, b)| format!("node {n} {}", bytes(*b))).collect();
    format!("{} % of its memory is on the nodes of its vCPUs ({nodes}): {}", figure(percent), by_node.join(", "))
}

pub(super) fn check_memory(pid: i32) -> String {
    format!("look at: numastat -p {pid}")
}

pub(super) fn bound_elsewhere(bound: &CpuSet, cpus: &CpuSet, nodes: &CpuSet) -> String {
    format!("<numatune> binds memory to node {bound}; the vCPUs are pinned to CPUs {cpus} on node {nodes}")
}

pub(super) fn check_binding(numatune: &str) -> String {
    format!("look at: {numatune}")
}
