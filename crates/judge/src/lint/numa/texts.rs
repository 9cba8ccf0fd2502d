//! The prose of the NUMA and hardware thread rules.

use crate::lint::engine::prose::Prose;

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
