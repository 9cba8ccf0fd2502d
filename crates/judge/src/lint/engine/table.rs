//! The table of all rules.

use crate::lint::facts::{Family, Hold, Rule, RuleId};
use crate::lint::rules::{
    apic, contention, devices, disks, jobs, machine, network, numa, pinning, scheduling, timers,
};

/// All rules, by family. A new rule is a row in its family's `RULES`.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "Timers and clocks",
        rules: timers::RULES,
        of_kvm: true,
    },
    Family {
        name: "Interrupt controller",
        rules: apic::RULES,
        of_kvm: true,
    },
    Family {
        name: "Devices",
        rules: devices::RULES,
        of_kvm: true,
    },
    Family {
        name: "Disks",
        rules: disks::RULES,
        of_kvm: false,
    },
    Family {
        name: "Network",
        rules: network::RULES,
        of_kvm: false,
    },
    Family {
        name: "Jobs",
        rules: jobs::RULES,
        of_kvm: false,
    },
    Family {
        name: "Scheduling",
        rules: scheduling::RULES,
        of_kvm: false,
    },
    Family {
        name: "Pinning",
        rules: pinning::RULES,
        of_kvm: false,
    },
    Family {
        name: "Contention for CPUs",
        rules: contention::RULES,
        of_kvm: false,
    },
    Family {
        name: "NUMA and hardware threads",
        rules: numa::RULES,
        of_kvm: false,
    },
    Family {
        name: "Machine",
        rules: machine::RULES,
        of_kvm: false,
    },
];

/// All rules, in the order of the table.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    FAMILIES.iter().flat_map(|f| f.rules)
}

/// Whether a rule is about what KVM makes cheap or costly.
pub(super) fn is_of_kvm(id: RuleId) -> bool {
    FAMILIES
        .iter()
        .any(|f| f.of_kvm && f.rules.iter().any(|r| r.id == id))
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
pub(in crate::lint) fn hold(id: RuleId) -> Hold {
    rules().find(|r| r.id == id).map_or(Hold::USUAL, |r| r.hold)
}
