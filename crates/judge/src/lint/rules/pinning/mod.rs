//! Which threads may run where: pins against pins, helper threads against vCPUs, affinity against
//! configuration.

mod emulator;
mod siblings;
mod vcpus;

use crate::lint::facts::Check::{Host, Setup};
use crate::lint::facts::{Hold, Rule, RuleDoc, RuleId, links, thresholds};

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule::new(RuleId::PinOverlap, Host(vcpus::overlap), Hold::USUAL).described(RuleDoc {
        sees: "vCPUs of several guests are pinned to the same CPU",
        problem: "shares a pinned CPU",
        why: "A vCPU that may use only one CPU cannot move away: busy ones divide it, whatever is \
            free elsewhere",
        thresholds: thresholds![pinning.overlap_busy],
        limits: "A pin to one CPU counts as exclusive. Without CPU times the conflict is a \
            warning, whatever the load",
        fix: "Pins of as few vCPUs as possible, at once and in the domain's XML; a common set \
            where CPUs are short",
        links: &[links::CPU_TUNING],
    }),
    Rule::new(
        RuleId::SiblingContention,
        Host(siblings::siblings),
        Hold::USUAL,
    )
    .described(RuleDoc {
        sees: "vCPUs of two guests share a core while other cores are idle",
        problem: "shares a core with a guest",
        why: "The two hardware threads of a core have one set of execution units: two that are \
            busy at once do some 1.3 times the work of one. A vCPU that is pinned to the core \
            cannot move to an idle one",
        thresholds: thresholds![pinning.busy],
        limits: "Only vCPUs that are pinned to one core: the scheduler spreads others over idle \
            cores by itself. How much of the time both ran at once is not measured; what it is at \
            least follows from their CPU times",
        fix: "Another pin for one of the two vCPUs, at once and in the domain's XML",
        links: &[links::CPU_TUNING],
    }),
    Rule::new(
        RuleId::EmulatorOnVcpu,
        Host(emulator::emulator),
        Hold::USUAL,
    )
    .described(RuleDoc {
        sees: "emulator, IOThread or vhost may run on a pinned vCPU's CPU",
        problem: "emulator on a vCPU's CPU",
        why: "While such a thread runs there, the vCPU does not: work for a device stops the guest",
        thresholds: thresholds![pinning.emulator],
        limits: "Where a thread runs is read once per interval. From files alone only the \
            configuration is judged",
        fix: "<emulatorpin> and <iothreadpin>, at once and in the domain's XML",
        links: &[links::CPU_TUNING, links::KVM_REALTIME],
    }),
    Rule::new(RuleId::IsolatedPileUp, Host(vcpus::pile_up), Hold::USUAL).described(RuleDoc {
        sees: "the guest's vCPUs pile up on one CPU of an isolated set, where nothing balances \
            load",
        problem: "vCPUs crowd one CPU",
        why: "The scheduler does not balance load on isolated CPUs: tasks with several of them \
            pile up on the first",
        thresholds: thresholds![pinning.busy],
        limits: "A cpuset partition of type root balances load and does not count as isolated here",
        fix: "Pins of the guest's threads, at once and in the domain's XML",
        links: &[links::KERNEL_PARAMETERS, links::CPU_ISOLATION],
    }),
    Rule::new(
        RuleId::AffinityDrift,
        Setup(vcpus::affinity),
        Hold::For(5.0, 6.0),
    )
    .described(RuleDoc {
        sees: "a thread's CPUs are not those of its configuration, or are offline",
        problem: "pins are not as configured",
        why: "Something else set it: taskset, a cpuset of the service manager, or a CPU that was \
            offline",
        thresholds: &[],
        limits: "libvirt guests with pins only",
        fix: "virsh vcpupin and emulatorpin, at once",
        links: &[links::CPU_TUNING],
    }),
];
