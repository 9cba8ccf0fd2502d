//! How the guest's vCPUs get their CPUs, and what the host does meanwhile.

mod vcpus;

use crate::lint::facts::rule::Check::Behaviour;
use crate::lint::facts::{Hold, Rule, RuleDoc, RuleId, links, thresholds};
use vcpus::interrupts;

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule::new(RuleId::PauseLoops, Behaviour(vcpus::pauses), Hold::USUAL).described(RuleDoc {
        sees: "vCPUs spin on locks whose holder does not run",
        problem: "vCPUs spin on locks",
        why: "A vCPU that spins (4096 cycles of PAUSE) exits: where vCPUs wait for a CPU, the \
            lock's holder is one of them",
        thresholds: thresholds![scheduling.pause, scheduling.pause_wait],
        limits: "Whether the lock's holder waits is inferred from the wait of all vCPUs; without \
            it, an info only",
        fix: "Pins, fewer vCPUs or less load on the guest's CPUs; without wait, the program inside \
            the guest",
        links: &[links::KERNEL_PARAMETERS, links::SCHED_STATS],
    }),
    Rule::new(RuleId::HostInterrupts, Behaviour(interrupts), Hold::USUAL).described(RuleDoc {
        sees: "interrupts of the host stop the guest far more often than its tick",
        problem: "host interrupts stop it",
        why: "Each interrupt that a host CPU receives while it runs a guest is an exit: device \
            interrupts routed to that CPU, rescheduling and function calls from other CPUs, timers \
            of other tasks",
        thresholds: thresholds![scheduling.interrupts_ticks, scheduling.interrupts_isolated],
        limits: "Which interrupts they are is not known. Without the host's tick rate 1000 Hz is \
            assumed",
        fix: "Interrupt affinity on the host",
        links: &[links::IRQ_AFFINITY],
    }),
    Rule::new(
        RuleId::HaltPollBurn,
        Behaviour(vcpus::halt_poll),
        Hold::USUAL,
    )
    .described(RuleDoc {
        sees: "halt polling turns the guest's idle time into host CPU time",
        problem: "halt polling burns CPU",
        why: "Before KVM lets a halted vCPU sleep, it polls a little for its next interrupt. That \
            saves a wake-up when the interrupt comes soon; when it comes later, the polling only \
            costs host CPU (shown as system time)",
        thresholds: thresholds![scheduling.halt_poll, scheduling.halt_poll_guest],
        limits: "Needs KVM's counters of each vCPU. A host that is idle for more than 20 % of its \
            time gets an info only",
        fix: "A KVM module parameter on the host",
        links: &[links::HALT_POLLING],
    }),
    Rule::new(
        RuleId::VcpuMigrating,
        Behaviour(vcpus::migrating),
        Hold::USUAL,
    )
    .described(RuleDoc {
        sees: "busy vCPUs are moved from CPU to CPU",
        problem: "vCPUs move between CPUs",
        why: "A move to another core leaves the caches behind, one to another node the memory too",
        thresholds: thresholds![pinning.busy, pinning.migrations, pinning.far_migrations],
        limits: "A move to a sibling thread counts half; without wait and moves to another cache \
            it is an info",
        fix: "Pins of the guest's threads, at once and in the domain's XML",
        links: &[
            links::CPU_TUNING,
            "https://docs.kernel.org/scheduler/sched-domains.html",
        ],
    }),
    Rule::new(RuleId::VcpuWait, Behaviour(vcpus::wait), Hold::USUAL).described(RuleDoc {
        sees: "the guest's vCPUs are ready to run and wait for a CPU",
        problem: "vCPUs wait for a CPU",
        why: "The guest sees this time as steal. More tasks want these CPUs than there are, or a \
            quota stops the guest",
        thresholds: thresholds![pinning.busy, pinning.wait],
        limits: "A less busy vCPU: a warning from 5 % of a CPU on, if its wait would be critical. \
            Who ran meanwhile is known only with scheduler tracepoints. A finding that explains it \
            includes this one",
        fix: "Less load on the guest's CPUs; pins of its threads where the host has CPUs to spare",
        links: &[links::SCHED_STATS, links::CPU_TUNING],
    }),
    Rule::new(
        RuleId::WakeupLatency,
        Behaviour(vcpus::wakeups),
        Hold::USUAL,
    )
    .described(RuleDoc {
        sees: "woken vCPUs start late though their CPU is free",
        problem: "vCPUs wake up late",
        why: "On an idle CPU of its own a vCPU should run about 50 us after its interrupt. A \
            longer delay usually means a deep sleep state that the CPU has to leave, or kernel \
            work with interrupts disabled",
        thresholds: thresholds![pinning.wakeup_us],
        limits: "Needs scheduler tracepoints and a vCPU pinned to one CPU. What delays the wake-up \
            is not visible",
        fix: "CPU sleep states on the host, which costs power; or -overcommit cpu-pm=on for the \
            guest",
        links: &[
            "https://docs.kernel.org/admin-guide/pm/cpuidle.html",
            links::HALT_POLLING,
        ],
    }),
];
