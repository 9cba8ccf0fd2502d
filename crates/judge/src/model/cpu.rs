//! CPU time of threads as percent of one host CPU, and what the scheduler did with them.

use super::SampleInterval;
use super::earlier::by_key;
use kvm::thread_name::{self, Role};
use sample::{
    Growing as _, Joining, Migrations, OtherTask, Placement, Sum, ThreadEvents, ThreadSample,
    ThreadTimes, Timing,
};
use std::collections::BTreeMap;

/// CPU time by kind, percent of one host CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuShare {
    /// User time outside the guest.
    pub usr: f64,
    /// Kernel time.
    pub sys: f64,
    /// Time in the guest.
    pub guest: f64,
    /// Runnable but not running; `None` if no source reports it.
    pub wait: Option<f64>,
    /// On a CPU by the scheduler's clock; `None` if no source reports it. The three kinds above
    /// count in clock ticks of 10 ms.
    pub ran: Option<f64>,
    /// Whether the source has no kinds: the three are 0 then, and only `ran` tells.
    pub kinds_unknown: bool,
}

impl CpuShare {
    /// Time on a CPU.
    pub fn busy(&self) -> f64 {
        self.ran.unwrap_or(self.usr + self.sys + self.guest)
    }

    /// Time on a CPU and time that it was runnable.
    pub fn wanted(&self) -> f64 {
        self.busy() + self.wait.unwrap_or(0.0)
    }

    /// Wait as percent of the time that it ran or was runnable; `None` if no source reports the
    /// wait.
    pub fn wait_percent(&self) -> Option<f64> {
        let wait = self.wait?;
        Some(if wait > 0.0 {
            100.0 * wait / self.wanted()
        } else {
            0.0
        })
    }

    /// Wait of threads as percent of the time that they ran or were runnable.
    pub fn wait_of<'a>(threads: impl Iterator<Item = &'a ThreadModel>) -> Option<f64> {
        threads
            .filter_map(|t| t.cpu.filter(|c| c.wait.is_some()))
            .reduce(Self::plus)?
            .wait_percent()
    }

    /// A kind of time, where the source has kinds.
    pub fn kind(&self, of: fn(&Self) -> f64) -> Option<f64> {
        (!self.kinds_unknown).then(|| of(self))
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            usr: self.usr + other.usr,
            sys: self.sys + other.sys,
            guest: self.guest + other.guest,
            wait: [self.wait, other.wait]
                .into_iter()
                .flatten()
                .reduce(|a, b| a + b),
            ran: self.ran.or(other.ran).map(|_| self.busy() + other.busy()),
            kinds_unknown: self.kinds_unknown || other.kinds_unknown,
        }
    }

    /// The share of a thread with these times, which grew by `growth`.
    fn new(now: &ThreadTimes, growth: &ThreadTimes, interval: &SampleInterval) -> Option<Self> {
        let guest = interval.percent(growth.guest_ns)?;
        let usr = interval.percent(growth.user_ns)?;
        let ran = growth.run_ns.and_then(|ns| interval.percent(ns));
        let wait = growth.wait_ns.and_then(|ns| interval.percent(ns));
        // The kernel accounts a wait when it ends (kernel/sched/stats.h, sched_info_arrive). The
        // part of a wait in earlier intervals is not part of this one.
        let room = (100.0 - ran.unwrap_or(0.0)).max(0.0);
        Some(Self {
            // The kernel rounds both down independently: guest time can grow a tick before user
            // time.
            usr: (usr - guest).max(0.0),
            sys: interval.percent(growth.system_ns)?,
            guest,
            wait: wait.map(|wait| wait.min(room)),
            ran,
            kinds_unknown: now.user_ns | now.system_ns | now.guest_ns == 0
                && now.run_ns >= Some(KINDLESS_NS),
        })
    }
}

impl Sum for CpuShare {
    fn join(&mut self, more: Self, _: &mut Joining) {
        *self = self.plus(more);
    }

    fn change(&mut self, by: &dyn Fn(f64) -> f64) {
        [&mut self.usr, &mut self.sys, &mut self.guest]
            .into_iter()
            .for_each(|time| time.change(by));
        self.wait.change(by);
        self.ran.change(by);
    }
}

/// The kernel divides all CPU time into kinds: a source that reports this much of it and no kind
/// has none (kernel/sched/cputime.c, `cputime_adjust`).
const KINDLESS_NS: u64 = 20_000_000;

/// A thread of a guest within an interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ThreadModel {
    /// Thread id.
    pub tid: i32,
    /// Name.
    pub comm: String,
    /// What it does.
    pub role: Role,
    /// vCPU number, or the IOThread's.
    pub index: Option<u32>,
    /// CPU time; `None` before a second reading.
    pub cpu: Option<CpuShare>,
    /// Where it runs.
    pub place: Placement,
    /// Migrations within the interval.
    pub migrations: Migrations,
    /// Growth of its times and counts within the interval; `None` before a second reading.
    pub growth: Option<ThreadTimes>,
    /// From woken to running.
    pub wakeups: Option<Box<Timing>>,
    /// From woken or pre-empted to running.
    pub run_delays: Option<Box<Timing>>,
    /// Tasks that woke it within the interval, those with most time first, then by count.
    pub woken_by: Vec<OtherTask>,
    /// Tasks that had its pCPU while it was runnable, those with most time first.
    pub preempted_by: Vec<OtherTask>,
    /// Exits per second.
    pub exit_rate: Option<f64>,
    /// KVM's statistics of the vCPU, per second.
    pub counters: BTreeMap<String, f64>,
}

impl ThreadModel {
    /// The name an admin uses, see [`thread_name::label`].
    pub fn label(&self) -> String {
        thread_name::label(self.role, self.index, self.tid, &self.comm)
    }

    /// Whether it is known where it ran or how much: virsh prints where threads may run, and not
    /// where they are.
    pub fn was_seen(&self) -> bool {
        self.cpu.is_some() || self.place.cpu.is_some()
    }

    /// The CPU it is pinned to; `None` if it may run on several.
    pub fn pinned_cpu(&self) -> Option<u32> {
        self.place.affinity.as_ref()?.single()
    }

    /// Whether it has a real-time priority: `SCHED_FIFO` or `SCHED_RR` (`uapi/linux/sched.h`).
    pub fn is_realtime(&self) -> bool {
        matches!(self.place.policy, Some(1 | 2))
    }

    /// Wait as percent of the time that it ran or was runnable; see [`CpuShare::wait_percent`].
    pub fn wait_percent(&self) -> Option<f64> {
        self.cpu?.wait_percent()
    }

    /// The tasks that had its CPU while it was runnable, longest first, and their parts of its
    /// wait, percent of one CPU. The two are measured by different clocks: the parts together are
    /// never more than `wait`.
    pub(crate) fn delays(
        &self,
        interval_s: f64,
        wait: f64,
    ) -> impl Iterator<Item = (&OtherTask, f64)> {
        let percent_ns = interval_s * 1e7;
        let all = super::total(self.preempted_by.iter().map(|task| task.ns));
        let factor = if wait > 0.0 {
            (wait / (all as f64 / percent_ns)).min(1.0)
        } else {
            0.0
        };
        self.preempted_by
            .iter()
            .map(move |task| (task, task.ns as f64 / percent_ns * factor))
    }

    pub(crate) fn new(
        now: &ThreadSample,
        before: Option<&ThreadSample>,
        interval: &SampleInterval,
    ) -> Self {
        let older = match before {
            Some(before) => before.cpu,
            None if interval.whole || interval.born_within(now.start_ticks) => {
                Some(ThreadTimes::AT_BIRTH)
            }
            None => None,
        };
        let times = now.cpu.zip(older);
        let times = times.map(|(now, older)| (now, now.since(&older)));
        let no_events = ThreadEvents::default();
        let old = match before {
            Some(before) if interval.engine_continues => &before.events,
            _ => &no_events,
        };
        let mut migrations = Migrations::default();
        let mut wakeups = None;
        let mut run_delays = None;
        if interval.started {
            migrations = now.events.migrations.since(Some(&old.migrations));
            wakeups = grown(now.events.wakeups.as_deref(), old.wakeups.as_deref());
            run_delays = grown(now.events.run_delays.as_deref(), old.run_delays.as_deref());
        }
        Self {
            tid: now.tid,
            comm: now.comm.clone(),
            role: now.role,
            index: now.index,
            cpu: times.and_then(|(now, growth)| CpuShare::new(&now, &growth, interval)),
            place: now.place.clone(),
            migrations,
            growth: times.map(|(_, growth)| growth),
            wakeups,
            run_delays,
            woken_by: others(&now.events.woken_by, &old.woken_by, interval),
            preempted_by: others(&now.events.preempted_by, &old.preempted_by, interval),
            exit_rate: None,
            counters: super::counter_rates(&now.counters, before.map(|b| &b.counters), interval),
        }
    }
}

fn grown(now: Option<&Timing>, old: Option<&Timing>) -> Option<Box<Timing>> {
    Some(Box::new(now?.since(old)))
}

fn others(now: &[OtherTask], before: &[OtherTask], interval: &SampleInterval) -> Vec<OtherTask> {
    if !interval.started {
        return Vec::new();
    }
    // Engines keep a place for each thread id; its name may change. What has no place is in the
    // rest, which also takes over what was reported of a task that loses its place: it tells
    // nothing of an interval.
    let earlier = by_key(before, |task| task.tid);
    let mut grown = Vec::new();
    for task in now.iter().filter(|task| task.tid != OtherTask::REST) {
        let old = earlier
            .get(&task.tid)
            .filter(|old| old.count <= task.count && old.ns <= task.ns);
        let (count, ns) = old.map_or((0, 0), |old| (old.count, old.ns));
        if task.count > count {
            grown.push(OtherTask {
                count: task.count - count,
                ns: task.ns - ns,
                ..task.clone()
            });
        }
    }
    order_tasks(&mut grown);
    grown
}

/// Most time first, then by count.
pub(super) fn order_tasks(tasks: &mut [OtherTask]) {
    tasks.sort_by(|a, b| (b.ns, b.count, &a.comm, a.tid).cmp(&(a.ns, a.count, &b.comm, b.tid)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FixtureModel as _;
    use testkit::{Fixture, Guest, Host};

    const SECOND: SampleInterval = SampleInterval {
        seconds: Some(1.0),
        started: true,
        engine_continues: true,
        whole: false,
        previous_boot_ns: Some(900_000_000_000),
    };

    #[test]
    fn a_task_counts_what_it_grew_by_and_the_rest_nothing() {
        let task = |tid, count, ns| OtherTask {
            tid,
            comm: "t".into(),
            count,
            ns,
        };
        let renamed = OtherTask {
            comm: "before".into(),
            ..task(1, 5, 50)
        };
        let before = [
            renamed,
            task(2, 3, 30),
            task(3, 4, 40),
            OtherTask::rest(10, 100).unwrap(),
        ];
        // The second lost its place; the third did and came back.
        let now = [
            task(1, 6, 70),
            task(3, 1, 5),
            task(4, 2, 8),
            OtherTask::rest(19, 190).unwrap(),
        ];
        assert_eq!(
            others(&now, &before, &SECOND),
            [task(1, 1, 20), task(4, 2, 8), task(3, 1, 5)]
        );
    }

    #[test]
    fn a_wait_is_percent_of_the_time_that_the_thread_wanted_to_run() {
        let share = |ran, wait| CpuShare {
            ran: Some(ran),
            wait,
            ..CpuShare::default()
        };
        assert_eq!(share(60.0, Some(20.0)).wait_percent(), Some(25.0));
        assert_eq!(
            (
                share(0.0, Some(0.0)).wait_percent(),
                share(60.0, None).wait_percent()
            ),
            (Some(0.0), None)
        );
    }

    #[test]
    fn delays_are_parts_of_the_wait() {
        let task = |ns| OtherTask {
            tid: 7,
            comm: "t".into(),
            count: 1,
            ns,
        };
        let cpu = CpuShare {
            ran: Some(60.0),
            wait: Some(20.0),
            ..CpuShare::default()
        };
        let delays = |tasks: &[u64]| {
            let preempted_by = tasks.iter().map(|ns| task(*ns)).collect();
            let thread = ThreadModel {
                cpu: Some(cpu),
                preempted_by,
                ..ThreadModel::default()
            };
            thread
                .delays(2.0, 20.0)
                .map(|(_, percent)| percent.round())
                .collect::<Vec<_>>()
        };
        assert_eq!(delays(&[320_000_000, 32_000_000]), [16.0, 2.0]);
        assert_eq!(
            delays(&[900_000_000, 300_000_000]),
            [15.0, 5.0],
            "another clock: no more than the wait"
        );
    }

    #[test]
    fn the_schedulers_clock_goes_before_hundredths() {
        let coarse = CpuShare {
            sys: 1.0,
            ..CpuShare::default()
        };
        let fine = CpuShare {
            sys: 1.0,
            ran: Some(0.4),
            ..CpuShare::default()
        };
        let sum = |parts: &[CpuShare]| {
            parts
                .iter()
                .copied()
                .fold(CpuShare::default(), CpuShare::plus)
        };
        assert_eq!((coarse.busy(), fine.busy()), (1.0, 0.4));
        // A wait of several intervals, charged when it ended.
        let guest = Guest::new("g", 1).vcpus(1, |_, t| t.on(0).cpu(40.0, 0.0, 0.0, 390.0));
        let model = Fixture::new(Host::numa(1, 1, 1)).guest(guest).model();
        assert_eq!(model.domains[0].longest_wait().map(f64::round), Some(60.0));
        assert_eq!(sum(&[coarse, coarse]).ran, None);
        for both in [[fine, coarse], [coarse, fine]] {
            assert_eq!((sum(&both).busy(), sum(&both).sys), (1.4, 2.0));
        }
    }
}
