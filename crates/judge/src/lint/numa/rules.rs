//! The rows of the NUMA and hardware thread rules in the table of rules.

use super::{memory_nodes, smt};
use crate::lint::engine::hold::Hold;
use crate::lint::engine::thresholds::thresholds;
use crate::lint::links;
use crate::lint::rule::Check::Setup;
use crate::lint::rule::Rule;
use crate::lint::rule_id::RuleId;

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule {
        id: RuleId::SmtMismatch,
        sees: "the hardware threads that the guest sees differ from those its vCPUs are pinned to, or its vCPUs are on \
            fast and slow cores",
        check: Setup(smt::smt),
        hold: Hold::While,
        thresholds: &[],
        limits: "Pins and configuration only: the cost is not measured. vCPUs pinned to several CPUs are not judged, \
            nor is a guest on fast and slow cores for which no more fast ones are free",
        fix: "Pins, or the <topology> of the guest's CPU in the domain's XML, after a power cycle",
        links: &[links::CPU_MODEL],
    },
    Rule {
        id: RuleId::NumaSplit,
        sees: "a guest's vCPUs, its memory or its emulator and IOThreads are spread over NUMA nodes",
        check: Setup(memory_nodes::split),
        hold: Hold::AT_ONCE,
        thresholds: thresholds![pinning.local_memory, pinning.local_memory_least, pinning.emulator],
        limits: "Only guests whose vCPUs are all pinned. Memory that automatic NUMA balancing is about to move counts \
            as remote. A guest larger than a node has to span nodes and gets an info only",
        fix: "Pins, <numatune> and <numa> cells in the domain's XML; migratepages moves memory at once",
        links: &[links::NUMA_TUNING, links::NUMA_POLICY],
    },
];
