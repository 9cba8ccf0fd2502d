//! The table of all rules.

use super::engine::hold::Hold;
use super::rule::{Family, Rule};
use super::rule_id::RuleId;
use super::{apic, contention, devices, disks, machine, numa, pinning, scheduling, timers};

/// All rules, by family. A new rule is a row in its family's `RULES`.
pub const FAMILIES: &[Family] = &[
    Family { name: "Timers and clocks", rules: timers::RULES },
    Family { name: "Interrupt controller", rules: apic::RULES },
    Family { name: "Devices", rules: devices::RULES },
    Family { name: "Disks", rules: disks::RULES },
    Family { name: "Scheduling", rules: scheduling::RULES },
    Family { name: "Pinning", rules: pinning::RULES },
    Family { name: "Contention for CPUs", rules: contention::RULES },
    Family { name: "NUMA and hardware threads", rules: numa::RULES },
    Family { name: "Machine", rules: machine::RULES },
];

/// All rules, in the order of the table.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    FAMILIES.iter().flat_map(|f| f.rules)
}

/// The rule of a name.
pub fn rule(name: &str) -> Option<&'static Rule> {
    rules().find(|r| r.id.as_str() == name)
}

/// The place of a rule in the table.
pub(super) fn rank(id: RuleId) -> usize {
    rules().position(|r| r.id == id).unwrap_or(usize::MAX)
}

/// How long a rule's pattern has to last.
pub(super) fn hold(id: RuleId) -> Hold {
    rules().find(|r| r.id == id).map_or(Hold::USUAL, |r| r.hold)
}
