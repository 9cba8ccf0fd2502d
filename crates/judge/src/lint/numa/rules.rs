//! The rows of the NUMA and hardware thread rules in the table of rules.

use super::{memory_nodes, smt};
use crate::lint::prelude::*;

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule::new(RuleId::SmtMismatch, Setup(smt::smt), Hold::While).described(RuleDoc {
        sees: "the hardware threads that the guest sees differ from those its vCPUs are pinned to, or its vCPUs are on \
            fast and slow cores",
        why: "",
        thresholds: &[],
        limits: "Pins and configuration only: the cost is not measured. vCPUs pinned to several CPUs are not judged, \
            nor is a guest on fast and slow cores for which no more fast ones are free",
        fix: "Pins, or the <topology> of the guest's CPU in the domain's XML, after a power cycle",
        links: &[links::CPU_MODEL],
    }),
    Rule::new(RuleId::NumaSplit, Setup(memory_nodes::split), Hold::AT_ONCE).described(RuleDoc {
        sees: "a guest's vCPUs, its memory or its emulator and IOThreads are spread over NUMA nodes",
        why: "Half of its memory accesses go to the other node at a higher cost. The guest's scheduler and allocator \
            cannot avoid that, because they see one node. Red Hat measured a loss of 10 % and more",
        thresholds: thresholds![pinning.local_memory, pinning.local_memory_least, pinning.emulator],
        limits: "Only guests whose vCPUs are all pinned. Memory that automatic NUMA balancing is about to move counts \
            as remote. A guest larger than a node has to span nodes and gets an info only",
        fix: "Pins, <numatune> and <numa> cells in the domain's XML; migratepages moves memory at once",
        links: &[links::NUMA_TUNING, links::NUMA_POLICY],
    }),
];
