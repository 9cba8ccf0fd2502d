//! The prose of the contention rules.

use crate::figures::figure;
use crate::lint::engine::prose::Prose;
use crate::lint::fixes::shell::unit_argument;
use crate::model::HostTaskModel;
use kvm::CpuSet;

pub(super) const QUOTA: Prose = Prose {
    title: "A CPU quota stops the guest",
    why: "The quota gives the vCPUs a budget of CPU time per period (100 ms by default). When it is used up they stop \
        until the period ends, however idle the host is. The guest sees its vCPUs stop for tens of milliseconds",
};
pub(super) const OVERCOMMIT_WHY: &str = "Idle vCPUs may share CPUs in any number; busy ones queue up. Red Hat's guide \
    considers 5 vCPUs per CPU safe as long as none is fully busy, and advises against more than 10";
pub(super) const NOISE: Prose = Prose {
    title: "Interrupts or kernel threads disturb an isolated CPU with a vCPU",
    why: "isolcpus keeps other tasks away, but not interrupts, timers and kernel threads bound to the CPU. Each of \
        them costs the vCPU an exit and a wait",
};
pub(super) const REALTIME_SHARES: Prose = Prose {
    title: "A real-time vCPU shares its CPU",
    why: "A vCPU with real-time priority keeps everything else off its CPU: kworkers that deliver its own interrupts, \
        vhost, the emulator. These starve, or the kernel stops the vCPU for 5 % of each second",
};
pub(super) const REALTIME_THROTTLED_TITLE: &str = "The kernel stops a real-time vCPU that uses its whole CPU";
pub(super) const HOST_TASKS: Prose = Prose {
    title: "Host tasks run on the CPU of a pinned vCPU",
    why: "A pin keeps the vCPU on its CPU, but keeps nothing else away. Whatever else runs there stops the vCPU, which \
        cannot move",
};
pub(super) const STARVED: Prose = Prose {
    title: "Pinned vCPUs leave the host no CPU of its own",
    why: "Emulators, vhost, libvirtd, ssh and the kernel need CPU time too. With a vCPU pinned to every CPU, they \
        take it from the guests at unpredictable moments",
};

pub(super) fn overcommit_title(vcpus: usize, cpus: usize) -> String {
    format!("{vcpus} vCPUs share {cpus} CPUs, and they wait")
}

pub(super) const CROWDED_WHY: &str = "vCPUs that are pinned to a set cannot leave it: when all of them are busy they \
    queue up there, while other CPUs of the host are free";

pub(super) fn crowded_title(vcpus: usize, cpus: usize) -> String {
    format!("{vcpus} vCPUs are pinned to {cpus} CPUs while others are free")
}

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

pub(super) fn lift_unit_quota(unit: &str) -> String {
    format!("systemctl set-property --runtime {} CPUQuota=", unit_argument(unit))
}

pub(super) fn raise_group_limit(group: &str) -> String {
    format!(
        "The limit belongs to cgroup {group}, which contains the guest's: \
         raise its cpu.max (cpu.cfs_quota_us in version 1)"
    )
}

pub(super) fn limit_slices(cpus: &CpuSet) -> String {
    format!(
        "systemctl set-property --runtime user.slice AllowedCPUs={cpus}\n\
         systemctl set-property --runtime system.slice AllowedCPUs={cpus}"
    )
}

pub(super) fn move_irqs(cpus: &CpuSet) -> String {
    format!("for i in /proc/irq/[0-9]*/smp_affinity_list; do echo {cpus} > $i 2>/dev/null; done")
}

/// Work that no CPU is bound to (Documentation/core-api/workqueue.rst, "Affinity Scopes"). The mask is hexadecimal, in
/// groups of 32 CPUs.
pub(super) fn move_workqueues(cpus: &CpuSet) -> String {
    format!("echo {} > /sys/devices/virtual/workqueue/cpumask", cpus.mask())
}

// Evidence.
pub(super) const CHECK_OVERCOMMIT: &str = "check: virsh vcpuinfo of each guest";
pub(super) const CHECK_NOISE: &str = "look at: watch -d cat /proc/interrupts; perf top -C CPU";
pub(super) const RT_LIMIT: &str =
    "a real-time vCPU uses more than 94 % of its CPU, and sched_rt_runtime_us stops real-time tasks at 95 %";
pub(super) const CHECK_REALTIME: &str = "look at: chrt -ap PID; cat /proc/sys/kernel/sched_rt_runtime_us";
pub(super) const CHECK_STARVED: &str = "check: lscpu -e; virsh vcpupin of each guest";

/// `time` is percent of one CPU. The kernel adds up the stopped time of all CPUs of the group.
pub(super) fn throttled(group: &str, periods: f64, window: &str, time: f64) -> String {
    let stopped = if time <= 100.0 {
        format!("it was stopped for {} % of the time", figure(time))
    } else {
        format!("the stops cost its CPUs together {} % of one CPU's time", figure(time))
    };
    format!("{group}: the quota ran out in {} % of the periods {window}; {stopped}", figure(periods))
}

pub(super) fn check_quota(schedinfo: &str) -> String {
    format!("look at: {schedinfo} and cpu.stat (nr_throttled) in the guest's cgroup")
}

pub(super) fn ratio(ratio: f64, cpus: &CpuSet, wait: f64) -> String {
    let (ratio, wait) = (figure(ratio), figure(wait));
    format!("{ratio} vCPUs per CPU on CPUs {cpus}; they wait {wait} % of the time they want a CPU")
}

pub(super) fn crowded(vcpus: usize, cpus: &CpuSet, ratio: f64) -> String {
    format!(
        "{vcpus} vCPUs may use CPUs {cpus} only: {} vCPUs per CPU; how long they wait is not measured",
        figure(ratio)
    )
}

pub(super) fn device_interrupts(rate: f64, cpu: u32, vcpu: &str) -> String {
    format!("{} device interrupts/s on isolated CPU {cpu}, to which {vcpu} is pinned", figure(rate))
}

pub(super) fn kernel_work(percent: f64, cpu: u32, interrupts: f64, threads: &[&HostTaskModel]) -> String {
    let threads = if threads.is_empty() { String::new() } else { format!(", kernel threads {}", tasks(threads)) };
    let (percent, interrupts) = (figure(percent), figure(interrupts));
    format!("kernel work takes {percent} % of isolated CPU {cpu} (interrupts {interrupts} %{threads})")
}

pub(super) fn timer_interrupts(rate: f64, cpu: u32) -> String {
    let rate = figure(rate);
    format!("{rate} timer interrupts/s on nohz_full CPU {cpu}: several tasks want it, or something keeps its tick on")
}

/// The first few tasks, each with its use of a CPU.
pub(super) fn tasks(tasks: &[&HostTaskModel]) -> String {
    let task = |t: &&HostTaskModel| format!("{} ({} %)", t.comm, figure(t.cpu_percent));
    tasks.iter().take(4).map(task).collect::<Vec<_>>().join(", ")
}

pub(super) fn realtime_shares(vcpu: u32, cpu: Option<u32>, count: usize) -> String {
    let place =
        cpu.map_or_else(|| "is not pinned to one CPU".into(), |c| format!("is on CPU {c}, which is not isolated"));
    format!("vCPU {vcpu} has a real-time policy and {place}; vCPUs like this: {count}")
}

pub(super) fn host_tasks(used: f64, cpu: u32, vcpu: &str, names: &str, wait: Option<f64>) -> String {
    let waits =
        wait.map_or_else(String::new, |w| format!("; the vCPU waits {} % of the time it wants the CPU", figure(w)));
    let used = figure(used);
    format!("{used} % of CPU {cpu}, to which {vcpu} is pinned, goes to tasks outside of guests: {names}{waits}")
}

pub(super) fn check_host_tasks(cpu: u32) -> String {
    format!("look at: ps -eLo psr,pcpu,comm --sort=-pcpu | awk '$1 == {cpu}' | head")
}

pub(super) fn full(cpus: &CpuSet, isolated: &CpuSet) -> String {
    let others =
        if isolated.is_empty() { String::new() } else { format!("; the isolated CPUs {isolated} are no help") };
    format!("every CPU of {cpus} has a vCPU pinned to it alone{others}")
}

pub(super) fn emulator_waits(percent: f64) -> String {
    format!("an emulator thread waits {} % of the time for a CPU", figure(percent))
}

// What cannot be judged.
pub(super) const CPU_TIMES_UNKNOWN: &str = "what else runs on the isolated CPUs is unknown";
pub(super) const HOST_CPUS_UNKNOWN: &str = "the CPUs of this host are unknown (add lscpu -p or virsh capabilities)";
