//! The rows of the contention rules in the table of rules.

use super::{host_cpus, host_tasks, isolated_noise, overcommit, quota, realtime};
use crate::lint::engine::hold::Hold;
use crate::lint::engine::thresholds::thresholds;
use crate::lint::links;
use crate::lint::rule::Check::{Host, Setup};
use crate::lint::rule::Rule;
use crate::lint::rule_id::RuleId;

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule {
        id: RuleId::IsolatedNoise,
        sees: "interrupts or kernel threads disturb an isolated CPU with a vCPU",
        check: Setup(isolated_noise::noise),
        hold: Hold::USUAL,
        thresholds: thresholds![pinning.isolated_irqs, pinning.isolated_cpu, pinning.nohz_ticks],
        limits: "A kernel thread counts for the CPU on which it ran last. Interrupts of a large host are read only \
            every few intervals. Queues of multiqueue devices cannot be moved without managed_irq",
        fix: "The host's kernel command line and interrupt affinity",
        links: &[links::CPU_ISOLATION, links::IRQ_AFFINITY, links::KERNEL_PARAMETERS],
    },
    Rule {
        id: RuleId::QuotaThrottled,
        sees: "a CPU quota stops the guest",
        check: Setup(quota::quota),
        hold: Hold::USUAL,
        thresholds: thresholds![pinning.throttled, pinning.throttled_time],
        limits: "The kernel adds up the stopped time of all CPUs of a group, so it can exceed the interval. Whether \
            the limit is intended is not known",
        fix: "virsh schedinfo or systemctl set-property on the host, at once",
        links: &[links::CFS_BANDWIDTH, links::CPU_TUNING],
    },
    Rule {
        id: RuleId::Overcommit,
        sees: "more vCPUs than CPUs for them",
        check: Host(overcommit::overcommit),
        hold: Hold::USUAL,
        thresholds: thresholds![pinning.overcommit, pinning.wait],
        limits: "Idle vCPUs may share CPUs in any number, so where CPU times are measured the vCPUs have to wait, \
            and the CPUs have to be busy. From files alone a pinned set with more vCPUs than CPUs is reported where \
            other CPUs are free",
        fix: "Pins to free CPUs where there are any, else fewer guests or vCPUs",
        links: &[links::CPU_TUNING],
    },
    Rule {
        id: RuleId::RealtimeVcpu,
        sees: "a vCPU with real-time priority shares its CPU or is throttled",
        check: Setup(realtime::realtime),
        hold: Hold::USUAL,
        thresholds: &[],
        limits: "A vCPU at 94 % of its CPU counts as throttled by kernel.sched_rt_runtime_us (95 % by default); the \
            stops themselves are not measured. Where isolation is unknown, sharing is not reported",
        fix: "Pins, the host's kernel command line, <vcpusched> in the domain's XML, or a sysctl",
        links: &[links::KVM_REALTIME],
    },
    Rule {
        id: RuleId::PinnedNotIsolated,
        sees: "host tasks run on the CPU of a pinned vCPU",
        check: Setup(host_tasks::host_tasks),
        hold: Hold::USUAL,
        thresholds: thresholds![pinning.host_tasks, pinning.busy, pinning.wait],
        limits: "A task counts for the CPU on which it ran last, and only the busiest tasks of the host are kept. Wait \
            behind another guest is not counted as the tasks' fault",
        fix: "AllowedCPUs of systemd's slices, at once, or isolcpus on the host's kernel command line",
        links: &[links::CPU_ISOLATION, links::KERNEL_PARAMETERS],
    },
    Rule {
        id: RuleId::HostCpusStarved,
        sees: "pinned vCPUs leave the host no CPU of its own",
        check: Host(host_cpus::starved),
        hold: Hold::USUAL,
        thresholds: thresholds![pinning.starved_wait],
        limits: "A CPU with a pinned vCPU counts as taken, busy or not. The host's tasks do not run on isolated CPUs",
        fix: "Pins or number of vCPUs of the guests",
        links: &[links::CPU_ISOLATION],
    },
];
