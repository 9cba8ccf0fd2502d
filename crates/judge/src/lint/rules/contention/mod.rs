//! Competition for CPUs: quotas, overcommitment, and other tasks on the CPUs of pinned vCPUs.

mod hog;
mod host_work;
mod vcpus;

use crate::lint::facts::Check::{Host, Setup};
use crate::lint::facts::{Hold, Rule, RuleDoc, RuleId, links, thresholds};

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule::new(RuleId::IsolatedNoise, Setup(host_work::noise), Hold::SPARSE).described(RuleDoc {
        sees: "interrupts or kernel threads disturb an isolated CPU with a vCPU",
        problem: "isolated CPU is disturbed",
        why: "isolcpus keeps other tasks away, but not interrupts, timers and kernel threads bound \
            to the CPU",
        thresholds: thresholds![pinning.isolated_irqs, pinning.isolated_cpu],
        limits: "A kernel thread counts for the CPU on which it ran last",
        fix: "The host's kernel command line and interrupt affinity",
        links: &[
            links::CPU_ISOLATION,
            links::IRQ_AFFINITY,
            links::KERNEL_PARAMETERS,
        ],
    }),
    Rule::new(RuleId::QuotaThrottled, Setup(vcpus::quota), Hold::USUAL).described(RuleDoc {
        sees: "a CPU quota stops the guest",
        problem: "a CPU quota stops it",
        why: "When the quota of a period (100 ms by default) is used up, the vCPUs stop, however \
            idle the host is",
        thresholds: thresholds![pinning.throttled, pinning.throttled_time],
        limits: "The kernel adds up the stopped time of all CPUs of a group, so it can exceed the \
            interval",
        fix: "virsh schedinfo or systemctl set-property on the host, at once",
        links: &[
            "https://docs.kernel.org/scheduler/sched-bwc.html",
            links::CPU_TUNING,
        ],
    }),
    Rule::new(RuleId::Overcommit, Host(vcpus::overcommit), Hold::USUAL).described(RuleDoc {
        sees: "more vCPUs than CPUs for them",
        problem: "too many vCPUs per CPU",
        why: "Idle vCPUs may share CPUs in any number; busy ones queue up. Red Hat's guide \
            considers 5 vCPUs per CPU safe as long as none is fully busy, and advises against more \
            than 10",
        thresholds: thresholds![pinning.overcommit, pinning.wait],
        limits: "The vCPUs have to wait, and the CPUs have to be busy: needs CPU times, which \
            files do not have",
        fix: "Fewer guests or vCPUs on these CPUs",
        links: &[links::CPU_TUNING],
    }),
    Rule::new(RuleId::RealtimeVcpu, Setup(vcpus::realtime), Hold::USUAL).described(RuleDoc {
        sees: "a vCPU with real-time priority shares its CPU or is throttled",
        problem: "real-time vCPU shares CPU",
        why: "A vCPU with real-time priority keeps everything else off its CPU: kworkers that \
            deliver its own interrupts, vhost, the emulator. These starve, or the kernel stops the \
            vCPU for 5 % of each second",
        thresholds: &[],
        limits: "A vCPU at 94 % of its CPU counts as throttled by kernel.sched_rt_runtime_us (95 % \
            by default). Where isolation is unknown, only a vCPU without a pin to one CPU is \
            reported",
        fix: "Pins, the host's kernel command line, <vcpusched> in the domain's XML, or a sysctl",
        links: &[links::KVM_REALTIME],
    }),
    Rule::new(RuleId::HostTaskHog, Host(hog::hog), Hold::USUAL).described(RuleDoc {
        sees: "tasks of the host take the CPUs that guests want",
        problem: "host tasks take its CPU",
        why: "While the vCPUs are ready to run, a task of the host has their CPU: moving it helps \
            all of them",
        thresholds: thresholds![pinning.busy, pinning.wait],
        limits: "Who had the CPU is known exactly only with scheduler tracepoints. Waits for \
            guests or a quota do not count",
        fix: "CPUs, priority or slice of the task, or another host for it",
        links: &[links::SCHED_STATS],
    }),
    Rule::new(
        RuleId::PinnedNotIsolated,
        Setup(host_work::not_isolated),
        Hold::USUAL,
    )
    .described(RuleDoc {
        sees: "host tasks run on the CPU of a pinned vCPU",
        problem: "host tasks on its CPUs",
        why: "A pin keeps the vCPU on its CPU, but keeps nothing else away, and the vCPU cannot \
            move",
        thresholds: thresholds![pinning.host_tasks, pinning.busy, pinning.wait],
        limits: "A task counts for the CPU on which it ran last, and only the busiest tasks are \
            kept",
        fix: "AllowedCPUs of systemd's slices, at once, or isolcpus on the host's kernel command \
            line",
        links: &[links::CPU_ISOLATION, links::KERNEL_PARAMETERS],
    }),
    Rule::new(
        RuleId::HostCpusStarved,
        Host(host_work::starved),
        Hold::USUAL,
    )
    .described(RuleDoc {
        sees: "pinned vCPUs leave the host no CPU of its own",
        problem: "no CPU left for the host",
        why: "Emulators, vhost, libvirtd and the kernel need CPU time too, and take it from the \
            guests' CPUs",
        thresholds: &[],
        limits: "A CPU with a pinned vCPU counts as taken, busy or not",
        fix: "Pins or number of vCPUs of the guests",
        links: &[links::CPU_ISOLATION],
    }),
];
