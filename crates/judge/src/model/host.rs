//! The host within an interval: its CPUs, the guests' threads on them, and other tasks.

use super::host_devices::{self, ByteRates, HostLinkModel, HostNodeModel, WholeDiskModel, grown};
use super::{DomainModel, SampleInterval, share, total};
use kvm::kernel_log::LogLine;
use sample::{
    CpuPower, CpuTimes, HostFacts, HostMemory, HostSample, HostTask, HostTaskGroup, Joining,
    MAX_TASK_GROUPS, MissingExtreme, Pressure, Sum as _, sums,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

/// The host.
#[derive(Debug, Clone, Default)]
pub struct HostModel {
    /// Facts that do not change.
    pub facts: Arc<HostFacts>,
    /// Per CPU, in order of number.
    pub cpus: Vec<CpuModel>,
    /// Tasks that belong to no guest, busiest first.
    pub tasks: Vec<HostTaskModel>,
    /// The names of tasks outside guests that used the most CPU time, as last read, busiest first
    /// and at most [`MAX_TASK_GROUPS`]. kvmtop counts as any other task, unlike in `tasks`. They
    /// were read up to two seconds ago. `None`: not measured.
    pub task_groups: Option<Vec<TaskGroup>>,
    /// CPU time of all threads of all guests, also of those that are not shown, percent of one CPU.
    pub guests_cpu: f64,
    /// Memory.
    pub memory: Option<HostMemory>,
    /// Memory of all guests, also of those that are not shown, bytes.
    pub guests_memory: u64,
    /// How long tasks waited for CPUs, disks and memory.
    pub pressure: Option<PressureModel>,
    /// Tasks that ran or waited for a CPU or a disk, the kernel's mean of about a minute.
    pub load: Option<f64>,
    /// Its disks; `None`: not measured.
    pub disks: Option<Vec<WholeDiskModel>>,
    /// Its network links; `None`: not measured.
    pub links: Option<Vec<HostLinkModel>>,
    /// Memory of its NUMA nodes; `None`: it has only one, or it is not measured.
    pub nodes: Option<Vec<HostNodeModel>>,
    /// What the disks of all guests read and write, also of those that are not shown; `None`: that
    /// of one is not known.
    pub guests_disk: Option<ByteRates>,
    /// What the interfaces of all guests receive and send; `None`: none is known.
    pub guests_net: Option<ByteRates>,
    /// Lines of the kernel log that concern KVM.
    pub kernel_log: Vec<LogLine>,
}

impl HostModel {
    /// A CPU by number.
    pub fn cpu(&self, number: u32) -> Option<&CpuModel> {
        let at = self.cpus.binary_search_by_key(&number, |c| c.cpu).ok()?;
        self.cpus.get(at)
    }

    /// The other thread of a CPU's core, the busiest if there are several.
    pub fn sibling(&self, cpu: u32) -> Option<&CpuModel> {
        let others = self
            .facts
            .topology
            .cpu(cpu)?
            .siblings
            .iter()
            .filter(|other| *other != cpu);
        let cpus = others.filter_map(|other| self.cpu(other));
        cpus.max_by(|a, b| {
            let [a, b] = [a, b].map(|cpu| cpu.time.map_or(0.0, |time| time.busy()));
            a.total_cmp(&b)
        })
    }

    /// Memory that neither the guests nor caches have, bytes. What KSM saves counts in each guest
    /// that shares it.
    pub fn other_memory(&self) -> Option<u64> {
        let memory = self.memory?;
        let saved = memory.ksm_saved.unwrap_or(0);
        let guests = self.guests_memory.saturating_sub(saved);
        Some(
            memory
                .total
                .saturating_sub(memory.unused())
                .saturating_sub(guests),
        )
    }

    /// Where the CPU time of the whole host went; `None` before a second reading.
    pub fn usage(&self) -> Option<HostUsage> {
        let time = self.total()?;
        let cpus = self.cpus.iter().filter(|c| c.time.is_some()).count() as f64;
        let (irq, idle) = (time.irq + time.softirq, time.idle + time.iowait);
        let rest = (100.0 - irq - time.steal - idle).max(0.0);
        // The CPUs have guest time also where a guest's threads cannot be read, as those of another
        // user.
        let guests = (self.guests_cpu / cpus).max(time.guest).min(rest);
        let other = rest - guests;
        Some(HostUsage {
            cpus,
            guests,
            other,
            irq,
            steal: time.steal,
            idle,
        })
    }

    /// All CPUs together, percent of the whole host; `None` before a second reading. The time of
    /// CPUs that no tick found busy is split as the others' is.
    pub fn total(&self) -> Option<CpuTimesPercent> {
        let mut sum = CpuTimesPercent::default();
        let mut n = 0;
        for t in self.cpus.iter().filter_map(|c| c.time.as_ref()) {
            sum.join(*t, &mut Joining::with(MissingExtreme::Unknown));
            n += 1;
        }
        (n > 0).then(|| sum.scale(1.0 / f64::from(n)).split_unsampled())
    }
}

/// Where the CPU time of the host went, percent of all its CPUs. `guests`, `other`, `irq`, `steal`
/// and `idle` add up to 100.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HostUsage {
    /// Number of CPUs that were read; these figures are percent of all of them.
    pub cpus: f64,
    /// All threads of all guests: in the guest, in the VMM, in the kernel, and vhost.
    pub guests: f64,
    /// Tasks and the kernel outside guests, kvmtop included.
    pub other: f64,
    /// Hard and soft interrupts.
    pub irq: f64,
    /// Taken by the hypervisor below this host.
    pub steal: f64,
    /// Idle, also while I/O was outstanding.
    pub idle: f64,
}

/// Where a CPU's time went, percent of the interval; the parts add up to 100.
///
/// How long a CPU was idle is exact to 10 ms: a tickless kernel takes the time when it enters and
/// leaves idle (`get_idle_time` in fs/proc/stat.c, `get_cpu_idle_time_us` in
/// kernel/time/tick-sched.c). What it did otherwise is sampled at the timer tick, which misses work
/// between two ticks: a guest that wakes at a timer and sleeps again before the next tick is never
/// seen. So the busy time is the interval less the idle time, as the scheduler's clock has it for
/// threads, and the ticks only split it. A kernel that ticks always samples both alike, and the two
/// agree.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuTimesPercent {
    /// User time outside guests, including niced.
    pub usr: f64,
    /// Kernel.
    pub sys: f64,
    /// Guests, including niced.
    pub guest: f64,
    /// Hard interrupts.
    pub irq: f64,
    /// Soft interrupts.
    pub softirq: f64,
    /// Taken by the outer hypervisor.
    pub steal: f64,
    /// Idle while I/O was outstanding.
    pub iowait: f64,
    /// Idle.
    pub idle: f64,
    /// Busy in an interval in which no clock tick found the CPU busy, so that the kind is unknown.
    pub unsampled: f64,
}

impl CpuTimesPercent {
    #[must_use]
    pub(super) fn scale(mut self, by: f64) -> Self {
        self.change(&|percent| percent * by);
        self
    }

    /// All parts together.
    pub(super) fn total(&self) -> f64 {
        self.busy() + self.iowait + self.idle
    }

    /// Everything except idle and iowait.
    pub fn busy(&self) -> f64 {
        self.sampled() + self.steal + self.unsampled
    }

    /// What the ticks split the busy time into. Stolen time has a clock of its own
    /// (kernel/sched/cputime.c, `steal_account_process_time`).
    fn sampled(&self) -> f64 {
        self.usr + self.sys + self.guest + self.irq + self.softirq
    }

    fn scale_sampled(&mut self, by: f64) {
        for part in [
            &mut self.usr,
            &mut self.sys,
            &mut self.guest,
            &mut self.irq,
            &mut self.softirq,
        ] {
            *part *= by;
        }
    }

    pub(super) fn split_unsampled(mut self) -> Self {
        let sampled = self.sampled();
        if sampled > 0.0 {
            self.scale_sampled((sampled + self.unsampled) / sampled);
            self.unsampled = 0.0;
        }
        self
    }

    /// `wall_ns`: the length of the interval, where it is known.
    fn between(now: &CpuTimes, before: &CpuTimes, wall_ns: Option<f64>) -> Option<Self> {
        let [
            user,
            nice,
            sys,
            guest,
            guest_nice,
            irq,
            softirq,
            steal,
            iowait,
            idle,
        ] = [
            (now.user_ns, before.user_ns),
            (now.nice_ns, before.nice_ns),
            (now.system_ns, before.system_ns),
            (now.guest_ns, before.guest_ns),
            (now.guest_nice_ns, before.guest_nice_ns),
            (now.irq_ns, before.irq_ns),
            (now.softirq_ns, before.softirq_ns),
            (now.steal_ns, before.steal_ns),
            (now.iowait_ns, before.iowait_ns),
            (now.idle_ns, before.idle_ns),
        ]
        .map(|(now, before)| now.saturating_sub(before) as f64);
        let guest = guest + guest_nice;
        let mut parts = Self {
            usr: (user + nice - guest).max(0.0),
            sys,
            guest,
            irq,
            softirq,
            steal,
            iowait,
            idle,
            unsampled: 0.0,
        };
        if let Some(wall_ns) = wall_ns {
            let busy = (wall_ns - parts.idle - parts.iowait - parts.steal).max(0.0);
            match parts.sampled() {
                sampled if sampled > 0.0 => parts.scale_sampled(busy / sampled),
                _ => parts.unsampled = busy,
            }
        }
        let all = parts.total();
        (all > 0.0).then(|| parts.scale(100.0 / all))
    }
}

sums!(CpuTimesPercent {
    usr,
    sys,
    guest,
    irq,
    softirq,
    steal,
    iowait,
    idle,
    unsampled
});

/// The part of the time in which at least one task of the host or of a guest waited, or (`full`)
/// all that had work to do; percent, as the kernel's mean of the last 10 s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct PressureModel {
    /// For a CPU.
    pub cpu: f64,
    /// For a disk.
    pub io: f64,
    /// All of them for a disk.
    pub io_full: f64,
    /// For memory: pages from swap or from a file, or pages that others have to give up first.
    pub memory: f64,
    /// All of them for memory.
    pub memory_full: f64,
}

sums!(PressureModel {
    cpu,
    io,
    io_full,
    memory,
    memory_full
});

impl PressureModel {
    pub(super) fn new(of: &Pressure) -> Self {
        Self {
            cpu: of.cpu as f64 / 100.0,
            io: of.io as f64 / 100.0,
            io_full: of.io_full as f64 / 100.0,
            memory: of.memory as f64 / 100.0,
            memory_full: of.memory_full as f64 / 100.0,
        }
    }
}

/// A CPU of the host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CpuModel {
    /// Number.
    pub cpu: u32,
    /// Its time by kind; `None` before a second reading.
    pub time: Option<CpuTimesPercent>,
    /// Device interrupts per second.
    pub device_irq_rate: Option<f64>,
    /// Frequency as last read, kHz.
    pub frequency_khz: Option<u64>,
    /// What sleep states and heat cost it, as last read.
    pub power: Option<CpuPower>,
    /// Threads of guests that ran here last or are pinned here, busiest first.
    pub guest_threads: Vec<GuestThread>,
}

/// A guest's thread on a CPU.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestThread {
    /// Index into [`super::Model::domains`].
    pub domain: usize,
    /// Index into that domain's threads.
    pub thread: usize,
    /// Whether it may run here only.
    pub pinned: bool,
    /// Whether it ran here last (else it is only pinned here).
    pub here: bool,
    /// The thread's CPU time, percent of one CPU.
    pub cpu: f64,
}

/// A task that belongs to no guest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostTaskModel {
    /// As last read.
    pub task: HostTask,
    /// Percent of one CPU.
    pub cpu_percent: f64,
}

impl Deref for HostTaskModel {
    type Target = HostTask;

    fn deref(&self) -> &HostTask {
        &self.task
    }
}

impl HostTaskModel {
    /// The name of its process, without the CPU and the job of kernel threads.
    pub fn name(&self) -> &str {
        Self::short_name(if self.process.is_empty() {
            &self.comm
        } else {
            &self.process
        })
    }

    /// A task's name without the CPU and the job of kernel threads: `kworker/3:1` is `kworker`.
    pub(crate) fn short_name(comm: &str) -> &str {
        comm.split('/')
            .next()
            .filter(|name| !name.is_empty())
            .unwrap_or(comm)
    }
}

/// The tasks outside guests that have one name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "JsonHostTasks")]
pub struct TaskGroup {
    /// Name of the process; of kernel threads the part before a slash, such as `kworker`.
    pub comm: String,
    /// CPU time of all of them, percent of one host CPU.
    #[serde(rename = "cpu")]
    pub cpu_percent: f64,
    /// How many of them used CPU time.
    #[schemars(range(min = 1))]
    pub count: u64,
}

impl HostModel {
    pub(crate) fn new(
        now: &HostSample,
        before: Option<&HostSample>,
        domains: &[DomainModel],
        interval: &SampleInterval,
    ) -> Self {
        let old: HashMap<u32, &CpuTimes> = before
            .map(|b| b.cpus.iter().map(|c| (c.cpu, c)).collect())
            .unwrap_or_default();
        let mut cpus: Vec<_> = now
            .cpus
            .iter()
            .map(|c| {
                let old = old.get(&c.cpu).copied();
                let irqs = c.device_irqs.zip(old.and_then(|o| o.device_irqs));
                CpuModel {
                    cpu: c.cpu,
                    time: old.and_then(|o| {
                        CpuTimesPercent::between(c, o, interval.seconds.map(|s| s * 1e9))
                    }),
                    device_irq_rate: irqs
                        .and_then(|(now, before)| interval.rate(now.saturating_sub(before))),
                    frequency_khz: c.frequency_khz,
                    power: c.power,
                    guest_threads: Vec::new(),
                }
            })
            .collect();
        list_tenants(&mut cpus, domains);
        Self {
            facts: now.facts.clone(),
            cpus,
            tasks: tasks(&now.tasks),
            task_groups: now.task_groups.as_deref().map(task_groups),
            guests_cpu: domains.iter().filter_map(|d| d.cpu).map(|c| c.busy()).sum(),
            memory: now.memory,
            guests_memory: total(domains.iter().filter_map(|d| d.memory.on_host())),
            pressure: now.pressure.as_ref().map(PressureModel::new),
            load: now.load.map(|hundredths| hundredths as f64 / 100.0),
            disks: grown(
                now.disks.as_deref(),
                before.and_then(|b| b.disks.as_deref()),
                interval,
            ),
            guests_disk: host_devices::guests_disk(domains),
            guests_net: host_devices::guests_net(domains),
            links: grown(
                now.links.as_deref(),
                before.and_then(|b| b.links.as_deref()),
                interval,
            ),
            nodes: grown(
                now.nodes.as_deref(),
                before.and_then(|b| b.nodes.as_deref()),
                interval,
            ),
            kernel_log: now.kernel_log.clone(),
        }
    }
}

/// Lists on each CPU the guests' threads that ran there last or are pinned there, busiest first.
pub(super) fn list_tenants(cpus: &mut [CpuModel], domains: &[DomainModel]) {
    cpus.iter_mut().for_each(|c| c.guest_threads.clear());
    let index: HashMap<u32, usize> = cpus.iter().enumerate().map(|(i, c)| (c.cpu, i)).collect();
    for (d, domain) in domains.iter().enumerate() {
        for (t, thread) in domain.threads.iter().enumerate() {
            let (pinned, last) = (thread.pinned_cpu(), thread.place.cpu);
            for number in last.into_iter().chain(pinned.filter(|p| last != Some(*p))) {
                if let Some(&i) = index.get(&number) {
                    let cpu = thread.cpu.map_or(0.0, |c| c.busy());
                    cpus[i].guest_threads.push(GuestThread {
                        domain: d,
                        thread: t,
                        pinned: pinned == Some(number),
                        here: last == Some(number),
                        cpu,
                    });
                }
            }
        }
    }
    for c in cpus {
        c.guest_threads.sort_by(|a, b| {
            b.cpu
                .total_cmp(&a.cpu)
                .then((a.domain, a.thread).cmp(&(b.domain, b.thread)))
        });
    }
}

fn tasks(now: &[HostTask]) -> Vec<HostTaskModel> {
    let mut tasks = Vec::new();
    for task in now {
        if let Some(cpu_percent) = share(task.used_ns, task.over_ns).filter(|used| *used > 0.0) {
            tasks.push(HostTaskModel {
                task: task.clone(),
                cpu_percent,
            });
        }
    }
    order_busy(&mut tasks);
    tasks
}

fn task_groups(now: &[HostTaskGroup]) -> Vec<TaskGroup> {
    let mut groups = Vec::new();
    for group in now {
        if let Some(cpu_percent) = share(group.used_ns, group.over_ns).filter(|used| *used > 0.0) {
            groups.push(TaskGroup {
                comm: group.comm.clone(),
                cpu_percent,
                count: group.count,
            });
        }
    }
    order_groups(&mut groups);
    groups
}

/// Busiest first.
pub(super) fn order_busy(tasks: &mut [HostTaskModel]) {
    tasks.sort_by(|a, b| {
        b.cpu_percent
            .total_cmp(&a.cpu_percent)
            .then(a.tid.cmp(&b.tid))
    });
}

/// The busiest groups, busiest first.
pub(super) fn order_groups(groups: &mut Vec<TaskGroup>) {
    groups.sort_by(|a, b| {
        b.cpu_percent
            .total_cmp(&a.cpu_percent)
            .then_with(|| a.comm.cmp(&b.comm))
    });
    groups.truncate(MAX_TASK_GROUPS);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A second in which a guest ran for 135 ms between ticks: one tick of 250 found it.
    fn guest_between_ticks(user_ms: u64) -> CpuTimes {
        CpuTimes {
            user_ns: user_ms * MS,
            guest_ns: user_ms * MS,
            idle_ns: 860 * MS,
            iowait_ns: 5 * MS,
            ..CpuTimes::default()
        }
    }

    #[test]
    fn the_host_is_busy_for_as_long_as_it_is_not_idle() {
        let time =
            CpuTimesPercent::between(&guest_between_ticks(4), &CpuTimes::default(), Some(1e9))
                .unwrap();
        assert_eq!(
            (time.busy().round(), time.guest.round(), time.idle.round()),
            (14.0, 14.0, 86.0)
        );
        let by_ticks =
            CpuTimesPercent::between(&guest_between_ticks(4), &CpuTimes::default(), None).unwrap();
        assert!(
            by_ticks.busy() < 0.5,
            "a file without times has the ticks only"
        );
    }

    #[test]
    fn busy_time_that_no_tick_saw_is_split_as_the_rest_of_the_host() {
        let unseen =
            CpuTimesPercent::between(&guest_between_ticks(0), &CpuTimes::default(), Some(1e9))
                .unwrap();
        assert_eq!(unseen.unsampled.round() as u32, 14);
        let seen = CpuTimes {
            user_ns: 500 * MS,
            system_ns: 500 * MS,
            ..CpuTimes::default()
        };
        let seen = CpuTimesPercent::between(&seen, &CpuTimes::default(), Some(1e9)).unwrap();
        let cpu = |time| CpuModel {
            time: Some(time),
            ..CpuModel::default()
        };
        let total = HostModel {
            cpus: vec![cpu(unseen), cpu(seen)],
            ..HostModel::default()
        }
        .total()
        .unwrap();
        assert_eq!(
            (
                total.busy().round(),
                total.unsampled,
                total.usr.round(),
                total.sys.round()
            ),
            (57.0, 0.0, 28.0, 28.0)
        );
    }

    /// Four CPUs: 10 % in guests as the ticks say, 50 % usr and sys, 5 % interrupts, 3 % steal, 32
    /// % idle.
    fn four_cpus(guests_cpu: f64, groups: Option<&[(&str, f64)]>) -> HostModel {
        let time = CpuTimesPercent {
            usr: 30.0,
            sys: 20.0,
            guest: 10.0,
            irq: 1.0,
            softirq: 4.0,
            steal: 3.0,
            iowait: 2.0,
            idle: 30.0,
            unsampled: 0.0,
        };
        let cpus = (0..4)
            .map(|cpu| CpuModel {
                cpu,
                time: Some(time),
                ..CpuModel::default()
            })
            .collect();
        let group = |(comm, cpu_percent): &(&str, f64)| TaskGroup {
            comm: (*comm).into(),
            cpu_percent: *cpu_percent,
            count: 1,
        };
        let task_groups = groups.map(|all| all.iter().map(group).collect());
        HostModel {
            cpus,
            task_groups,
            guests_cpu,
            ..HostModel::default()
        }
    }

    #[test]
    fn the_parts_of_the_host_add_up() {
        let usage = four_cpus(80.0, Some(&[("rustc", 140.0), ("ksmd", 4.0)]))
            .usage()
            .unwrap();
        let parts = HostUsage {
            cpus: 4.0,
            guests: 20.0,
            other: 40.0,
            irq: 5.0,
            steal: 3.0,
            idle: 32.0,
        };
        assert_eq!(usage, parts);
        for (guests_cpu, [guests, other]) in [
            (80.0, [20.0, 40.0]),
            // A guest whose threads are not seen, and threads with more time than the CPUs were
            // busy.
            (0.0, [10.0, 50.0]),
            (300.0, [60.0, 0.0]),
        ] {
            let usage = four_cpus(guests_cpu, None).usage().unwrap();
            assert_eq!((usage.guests, usage.other), (guests, other));
            let sum = usage.guests + usage.other + usage.irq + usage.steal + usage.idle;
            assert!((sum - 100.0).abs() < 1e-9, "{sum}");
        }
        assert_eq!(
            HostModel {
                guests_cpu: 80.0,
                ..HostModel::default()
            }
            .usage(),
            None
        );
    }

    #[test]
    fn other_memory_is_what_neither_guests_nor_caches_have() {
        let memory = HostMemory {
            total: 100,
            available: 55,
            free: Some(10),
            cache: Some(20),
            arc: Some(5),
            huge_total: Some(16),
            huge_free: Some(8),
            ksm_saved: Some(6),
            ..HostMemory::default()
        };
        let with = |memory, guests_memory| HostModel {
            memory: Some(memory),
            guests_memory,
            ..HostModel::default()
        };
        // 57 are in use, and the guests have 36 of them: 6 of their 42 are one page for several.
        assert_eq!(with(memory, 42).other_memory(), Some(21));
        assert_eq!(with(memory, 500).other_memory(), Some(0));
        let older = HostMemory {
            free: None,
            ..memory
        };
        assert_eq!(with(older, 42).other_memory(), Some(9));
        assert_eq!(HostModel::default().other_memory(), None);
    }

    #[test]
    fn groups_without_time_are_none_and_the_busiest_are_first() {
        let group = |n: u64| HostTaskGroup {
            comm: format!("task{n}"),
            used_ns: n * MS,
            over_ns: 2000 * MS,
            count: n,
        };
        let groups = task_groups(&(0..40).map(group).collect::<Vec<_>>());
        assert_eq!(groups.len(), MAX_TASK_GROUPS);
        assert_eq!(
            groups[0],
            TaskGroup {
                comm: "task39".into(),
                cpu_percent: 1.95,
                count: 39
            }
        );
        assert_eq!(
            task_groups(&[
                group(0),
                HostTaskGroup {
                    over_ns: 0,
                    ..group(3)
                }
            ]),
            []
        );
    }

    #[test]
    fn stolen_time_is_not_scaled() {
        let now = CpuTimes {
            steal_ns: 300 * MS,
            user_ns: 100 * MS,
            idle_ns: 500 * MS,
            ..CpuTimes::default()
        };
        let time = CpuTimesPercent::between(&now, &CpuTimes::default(), Some(1e9)).unwrap();
        assert_eq!(
            (time.steal.round(), time.usr.round(), time.idle.round()),
            (30.0, 20.0, 50.0)
        );
    }
}
