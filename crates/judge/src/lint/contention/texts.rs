//! The prose of the contention rules.

use crate::figures::figure;
use crate::model::HostTaskModel;

pub(super) const CROWDED_WHY: &str = "vCPUs that are pinned to a set cannot leave it: when all of them are busy they \
    queue up there, while other CPUs of the host are free";

// Fixes.
pub(super) const FEWER_VCPUS: &str = "If the limit is intended, give the guest fewer vCPUs: \
    it then gets the same amount of CPU without stops";
pub(super) const RAISE_CGROUP_LIMIT: &str =
    "Raise cpu.max (cpu.cfs_quota_us in version 1) of the guest's cgroup, or CPUQuota= of its unit";
pub(super) const UNIT_QUOTA_NEED: &str =
    "takes effect at once, until the next boot; removes the limit for all guests in the unit";
pub(super) const TRANSIENT_QUOTA_NEED: &str = "takes effect at once, and the guest may then use as much CPU as it \
    wants; it is transient, so whoever creates it has to take the quota out of the XML that it is created from";
pub(super) const QUOTA_NEED: &str = "takes effect at once; the guest may then use as much CPU as it wants";
pub(super) const SPREAD_GUESTS: &str = "Move guests to another host, \
    remove unused vCPUs, or spread the guests over more CPUs";
pub(super) const IRQ_AFFINITY_NEED: &str = "takes effect at once, until the next boot; it leaves the interrupts that \
    refuse it, as those of a multiqueue device's queues do: for them isolcpus=managed_irq,domain,CPUS";
/// `managed_irq` is of Linux 5.6 (kernel/irq/manage.c, `irq_do_set_affinity`).
pub(super) const NOISE_OPTIONS_NEED: &str = "update the boot loader's configuration and reboot the host; it leaves the \
    queues of multiqueue devices: for them write managed_irq,domain, before the list of isolcpus=";
pub(super) const WORKQUEUES_NEED: &str = "takes effect at once, until the next boot; it leaves the work that is bound \
    to its CPU (ksoftirqd, migration, kworker/N:M without a u), which stops when its cause does: the interrupts above";
pub(super) const KEPT_TICK: &str = "Look at which tasks run on this CPU beside the vCPU (ps -eLo psr,pcpu,comm) and \
    move them: a nohz_full CPU with two runnable tasks has its tick. A CPU clock that is not the TSC \
    (current_clocksource) keeps it, too";
pub(super) const NO_RT_LIMIT_NEED: &str = "takes effect at once, until the next boot; \
    only where every real-time task has its own CPU, because nothing stops a runaway one";
pub(super) const NO_REALTIME: &str =
    "Or remove <vcpusched> from the domain: without its own CPUs a real-time vCPU does more harm than good";
pub(super) const SLICES_NEED: &str = "takes effect at once, until the next boot; needs cgroup v2";
pub(super) const SLICES_NEED_BY_HAND: &str = "takes effect at once, until the next boot; needs cgroup v2; a guest that \
    runs in one of these slices itself loses its pins (systemd-cgls shows which): set its scope's AllowedCPUs instead";
pub(super) const ISOLATED_BOOT_CPU: &str = "Take CPU 0 out of isolcpus=: the kernel keeps it for its own work, so \
    nohz_full= and rcu_nocbs= of the same CPUs are not taken";
pub(super) const ALL_ISOLATED: &str = "Leave the host a CPU that is not isolated: with all of them isolated nothing \
    keeps interrupts and kernel threads away from the vCPUs";

// Evidence.
pub(super) const RT_LIMIT: &str =
    "a real-time vCPU uses more than 94 % of its CPU, and sched_rt_runtime_us stops real-time tasks at 95 %";

/// The first few tasks, each with its use of a CPU.
pub(super) fn tasks(tasks: &[&HostTaskModel]) -> String {
    let task = |t: &&HostTaskModel| format!("{} ({} %)", t.comm, figure(t.cpu_percent));
    tasks.iter().take(4).map(task).collect::<Vec<_>>().join(", ")
}
