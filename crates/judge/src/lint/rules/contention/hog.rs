//! Tasks of the host that take the CPUs which guests want.

use crate::cost::{Holder, WaitShares};
use crate::figures::figure;
use crate::lint::facts::{
    Confidence, Context, Finding, Fix, GuestContext, Mark, Severity, Verdicts,
};
use crate::lint::fixes;
use crate::model::{HostTaskModel, ThreadModel};
use crate::placement::singles;
use kvm::CpuSet;
use std::collections::{BTreeMap, BTreeSet};

/// The most tasks and guests that evidence lists.
const MAX_NAMES: usize = 8;
/// A busier CPU has no room for another task, percent.
const MAX_BUSY: f64 = 50.0;

const IN_SLICE: &str = "or by `systemd-run --scope --slice=background.slice -p CPUWeight=1 \
    COMMAND`";
/// Processes that have run for so long are named in commands, seconds.
const MIN_AGE_S: f64 = 60.0;

/// How the names of the kernel's threads begin: a trace has nothing of a task but its name.
const KERNEL_THREADS: [&str; 8] = [
    "kworker",
    "ksoftirqd",
    "kswapd",
    "kcompactd",
    "ksmd",
    "khugepaged",
    "rcu_",
    "irq/",
];

/// A guest whose vCPUs wait for tasks of the host.
struct DelayedGuest<'a> {
    guest: &'a GuestContext<'a>,
    severity: Severity,
    /// How long they wait for these tasks, percent of one CPU.
    percent: f64,
}

pub(super) fn hog(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    // What vCPUs wait for each task, percent of one CPU.
    let mut lost: BTreeMap<&str, f64> = BTreeMap::new();
    let mut delayed: Vec<DelayedGuest<'_>> = Vec::new();
    let mut marks = Vec::new();
    let mut confidence = Confidence::High;
    for guest in ctx.running() {
        let mut judged = Vec::new();
        let mut percent = 0.0;
        for vcpu in guest.domain.vcpus() {
            if let Some(one) = judge_vcpu(ctx, guest, vcpu) {
                percent += one.shares.sum(Holder::is_task);
                judged.push(one);
            }
        }
        // A guest whose vCPUs wait mostly for something else has another problem.
        if percent * 2.0 < guest.domain.vcpus().filter_map(|vcpu| vcpu.cpu?.wait).sum() {
            continue;
        }
        if let Some(severity) = judged.iter().map(|one| one.severity).max() {
            delayed.push(DelayedGuest {
                guest,
                severity,
                percent,
            });
        }
        for one in judged {
            if !one.shares.is_traced {
                confidence = Confidence::Medium;
            }
            for (holder, percent) in one.shares.by {
                if let Holder::Task(name) = holder {
                    *lost.entry(name).or_default() += percent;
                }
            }
            marks.push(Mark::Thread(one.tid));
        }
    }
    delayed.sort_by(|a, b| b.percent.total_cmp(&a.percent));
    if let Some(found) = hog_finding(ctx, &lost, &delayed) {
        verdicts.find(Finding {
            confidence,
            marks,
            ..found
        });
    }
}

fn hog_finding(
    ctx: &Context<'_>,
    lost: &BTreeMap<&str, f64>,
    delayed: &[DelayedGuest<'_>],
) -> Option<Finding> {
    let severity = delayed.iter().map(|d| d.severity).max()?;
    let total: f64 = lost.values().sum();
    let mut tasks: Vec<(&str, f64)> = lost.iter().map(|(name, size)| (*name, *size)).collect();
    tasks.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let (name, most) = *tasks.first()?;
    let guests: Vec<(&str, f64)> = delayed
        .iter()
        .map(|d| (d.guest.name(), d.percent))
        .collect();
    let task = NamedTask::new(ctx, name);
    let mut evidence = vec![
        format!(
            "guests wait {} % of a CPU for tasks of the host: {}",
            figure(total),
            names_with_sizes(&tasks)
        ),
        format!(
            "who waits, and how long: {} % of a CPU",
            names_with_sizes(&guests)
        ),
    ];
    if !ctx.is_file() || !task.pids.is_empty() {
        evidence.push(task.describe());
    }
    let fix = task.remedy(ctx, delayed);
    let mut found = Finding {
        title: "Tasks of the host take the CPUs that guests want".into(),
        cost: Some(total),
        also: guests.iter().map(|(name, _)| (*name).to_owned()).collect(),
        ..Finding::new(severity, Confidence::High, evidence, fix)
    };
    if most * 2.0 >= total {
        found.title = format!("{name} takes the CPUs that guests want");
        if name.is_ascii() {
            found.problem = format!("{name} takes its CPU");
        }
    }
    Some(found)
}

/// The first few names, each with its size.
fn names_with_sizes(all: &[(&str, f64)]) -> String {
    let mut texts = Vec::new();
    for (name, size) in all.iter().take(MAX_NAMES) {
        texts.push(format!("{name} {}", figure(*size)));
    }
    texts.join(", ")
}

/// A vCPU that waits for tasks of the host.
struct DelayedVcpu<'a> {
    tid: i32,
    severity: Severity,
    shares: WaitShares<'a>,
}

/// What a busy vCPU waits for, and how bad that is, if it waits mostly for tasks of the host.
fn judge_vcpu<'a>(
    ctx: &Context<'a>,
    guest: &GuestContext<'_>,
    vcpu: &'a ThreadModel,
) -> Option<DelayedVcpu<'a>> {
    let cpu = vcpu.cpu?;
    let most = ctx.severity_of_wait(&cpu)?;
    let shares = ctx.waits().shares(guest.index, vcpu)?;
    let by_tasks = shares.sum(Holder::is_task);
    // A shorter wait for tasks is usual: the rule about waits is enough for it.
    let steps = &ctx.thresholds().pinning.wait;
    let severity = steps
        .severity(100.0 * by_tasks / cpu.wanted())
        .filter(|severity| *severity > Severity::Info)?;
    if by_tasks * 2.0 < cpu.wait? {
        return None;
    }
    Some(DelayedVcpu {
        tid: vcpu.tid,
        severity: severity.min(most),
        shares,
    })
}

/// The processes of the host that have one name.
struct NamedTask<'a> {
    name: &'a str,
    pids: BTreeSet<i32>,
    is_kernel: bool,
    /// Percent of one CPU.
    used: f64,
}

impl<'a> NamedTask<'a> {
    fn new(ctx: &Context<'_>, name: &'a str) -> Self {
        let host = &ctx.model.host;
        let mut task = Self {
            name,
            pids: BTreeSet::new(),
            is_kernel: KERNEL_THREADS.iter().any(|begin| name.starts_with(begin)),
            used: 0.0,
        };
        for one in host.tasks.iter().filter(|task| task.name() == name) {
            task.used += one.cpu_percent;
            task.is_kernel |= one.kernel;
            // A younger process may be gone before anyone types its number.
            if age_s(ctx, one).is_none_or(|age| age >= MIN_AGE_S) {
                task.pids.insert(one.pid);
            }
        }
        // The use of processes that have ended counts in the group alone.
        for group in host.task_groups.iter().flatten() {
            if group.comm == name {
                task.used = task.used.max(group.cpu_percent);
            }
        }
        task
    }

    fn pids(&self, between: &str) -> String {
        let pids = self.pids.iter().take(MAX_NAMES);
        let pids: Vec<String> = pids.map(ToString::to_string).collect();
        pids.join(between)
    }

    fn describe(&self) -> String {
        let Self { name, used, .. } = self;
        let used = figure(*used);
        if self.pids.is_empty() {
            return format!(
                "{name} uses {used} % of a CPU; it comes and goes: none of its processes is a \
                    minute old"
            );
        }
        format!("{name} uses {used} % of a CPU; PID {}", self.pids(", "))
    }

    /// What moves it away from the CPUs of these guests.
    fn remedy(&self, ctx: &Context<'_>, guests: &[DelayedGuest<'_>]) -> Vec<Fix> {
        if self.name == "kvmtop" {
            return vec![fixes::advice(
                "Give kvmtop a longer interval (-d 5): it is this \
                program that uses the CPU",
            )];
        }
        if self.is_kernel {
            return vec![fixes::advice(
                "It is a kernel thread, so its cause has to go: KSM for \
                ksmd, too little free memory for kswapd and kcompactd, interrupts for ksoftirqd \
                (irqaffinity=). perf record -g -a shows it; to other CPUs \
                /sys/devices/virtual/workqueue/cpumask moves work of kworker that is bound to \
                none",
            )];
        }
        let mut fix = Vec::new();
        let free = free_cpus(ctx, guests);
        if !self.pids.is_empty() {
            if !free.is_empty() {
                let before = format!("taskset -apc {free} ");
                let lines = before.clone() + &self.pids(&format!("\n{before}"));
                fix.push(fixes::command(lines).needing(
                    "takes effect at once, as long as the \
                    process lives; what it starts later inherits it",
                ));
            }
            let nice = format!("renice -n 19 -p {}", self.pids(" "));
            fix.push(fixes::command(nice).needing(
                "takes effect at once; a guest in another \
                cgroup wins nothing by it, since a task gives way only to tasks of its own cgroup",
            ));
        }
        fix.push(fixes::advice(format!(
            "Run {} on another host or at another time, {IN_SLICE}",
            self.name
        )));
        fix
    }
}

/// For how long a task's process has run, seconds.
fn age_s(ctx: &Context<'_>, task: &HostTaskModel) -> Option<f64> {
    let up_ms = ctx.model.time_ms - ctx.model.booted_ms?;
    Some(up_ms as f64 / 1e3 - task.started_ns? as f64 / 1e9)
}

/// The CPUs on which a task hurts no guest: none of these guests may use them, no vCPU is pinned
/// there, and they are mostly idle.
fn free_cpus(ctx: &Context<'_>, guests: &[DelayedGuest<'_>]) -> CpuSet {
    let online = ctx.online();
    let map = ctx.map();
    let mut wanted = map.isolated.union(&singles(map, &ctx.layouts, false));
    for vcpu in guests.iter().flat_map(|one| one.guest.domain.vcpus()) {
        wanted = wanted.union(vcpu.place.affinity.as_deref().unwrap_or(&online));
    }
    online
        .difference(&wanted)
        .iter()
        .filter(|cpu| ctx.busy_of(*cpu).is_some_and(|busy| busy <= MAX_BUSY))
        .collect()
}
