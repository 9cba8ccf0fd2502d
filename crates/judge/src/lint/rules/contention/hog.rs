//! Tasks of the host that take the CPUs which guests want.

use crate::cost::{Holder, WaitShares};
use crate::figures::figure;
use crate::lint::facts::{
    Confidence, Context, Finding, Fix, GuestContext, Mark, Severity, Verdicts, known,
};
use crate::lint::fixes;
use crate::model::{HostTaskModel, ThreadModel};
use kvm::CpuSet;
use std::collections::{BTreeMap, BTreeSet};

/// The most tasks and guests that evidence lists.
const MAX_NAMES: usize = 8;
/// A busier CPU has no room for another task, percent.
const MAX_BUSY: f64 = 50.0;

const MOVE_NEED: &str = "takes effect at once, as long as the process lives; what it starts later \
    inherits it";
const NICE_NEED: &str = "takes effect at once; a guest in another cgroup wins nothing by it, since \
    a task gives way only to tasks of its own cgroup";
const IN_SLICE: &str = "or by `systemd-run --scope --slice=background.slice -p CPUWeight=1 \
    COMMAND`";
/// How threads of the kernel are named in a trace, which tells no more of them.
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
/// Processes that have run for so long are named in commands, seconds.
const MIN_AGE_S: f64 = 60.0;
const OWN_COST: &str = "Give kvmtop a longer interval (-d 5): it is this program that uses the CPU";
const KERNEL_WORK: &str = "It is a kernel thread, so its cause has to go: KSM for ksmd, too little \
    free memory for kswapd and kcompactd, interrupts for ksoftirqd (irqaffinity=). perf record -g \
    -a shows it; to other CPUs /sys/devices/virtual/workqueue/cpumask moves work of kworker that \
    is bound to none";

pub(super) fn hog(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let mut lost: BTreeMap<&str, f64> = BTreeMap::new();
    let (mut delayed, mut marks): (Vec<(Severity, f64, &GuestContext<'_>)>, Vec<Mark>) =
        (Vec::new(), Vec::new());
    let mut confidence = Confidence::High;
    for guest in ctx.guests.iter().filter(|g| g.running()) {
        let vcpus = guest.domain.vcpus();
        let judged: Vec<_> = vcpus
            .filter_map(|vcpu| Some((vcpu.tid, of_vcpu(ctx, guest, vcpu)?)))
            .collect();
        let of_guest: f64 = judged
            .iter()
            .map(|(_, (_, shares))| shares.sum(Holder::is_task))
            .sum();
        // A guest whose other vCPUs wait for something else has another problem.
        if of_guest * 2.0 < guest.domain.vcpus().filter_map(|vcpu| vcpu.cpu?.wait).sum() {
            continue;
        }
        let mut worst = None;
        for (tid, (severity, shares)) in judged {
            confidence = confidence.min(if shares.is_traced {
                Confidence::High
            } else {
                Confidence::Medium
            });
            for (holder, percent) in shares.by {
                if let Holder::Task(name) = holder {
                    *lost.entry(name).or_default() += percent;
                }
            }
            worst = worst.max(Some(severity));
            marks.push(Mark::Thread(tid));
        }
        delayed.extend(worst.map(|severity| (severity, of_guest, guest)));
    }
    let all: f64 = lost.values().sum();
    let mut tasks: Vec<(&str, f64)> = lost.into_iter().collect();
    tasks.sort_by(|a, b| b.1.total_cmp(&a.1));
    delayed.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (Some(severity), Some((name, most))) = (delayed.iter().map(|d| d.0).max(), tasks.first())
    else {
        return;
    };
    let sized = |name: &str, size: f64| format!("{name} {}", figure(size));
    let by_task: Vec<_> = tasks
        .iter()
        .take(MAX_NAMES)
        .map(|(name, size)| sized(name, *size))
        .collect();
    let by_guest: Vec<_> = delayed
        .iter()
        .take(MAX_NAMES)
        .map(|(_, size, g)| sized(g.name(), *size))
        .collect();
    let (by_task, by_guest) = (by_task.join(", "), by_guest.join(", "));
    let task = NamedTask::new(ctx, name);
    let evidence = known([
        Some(format!(
            "guests wait {} % of a CPU for tasks of the host: {by_task}",
            figure(all)
        )),
        Some(format!("who waits, and how long: {by_guest} % of a CPU")),
        (!ctx.is_file() || !task.pids.is_empty()).then(|| task.describe()),
    ]);
    let guests: Vec<&GuestContext<'_>> = delayed.iter().map(|d| d.2).collect();
    let is_one = most * 2.0 >= all;
    let takes = if is_one {
        format!("{name} takes")
    } else {
        "Tasks of the host take".into()
    };
    let problem = Some(format!("{takes} its CPU")).filter(|text| is_one && text.is_ascii());
    let found = Finding::new(severity, confidence, evidence, task.remedy(ctx, &guests));
    verdicts.find(Finding {
        title: format!("{takes} the CPUs that guests want"),
        problem: problem.unwrap_or_default(),
        cost: Some(all),
        also: guests.iter().map(|guest| guest.name().to_owned()).collect(),
        marks,
        ..found
    });
}

/// What a busy vCPU waits for, and how bad that is, if it waits mostly for tasks of the host.
fn of_vcpu<'a>(
    ctx: &Context<'a>,
    guest: &GuestContext<'_>,
    vcpu: &'a ThreadModel,
) -> Option<(Severity, WaitShares<'a>)> {
    let cpu = vcpu.cpu?;
    let most = ctx.severity_of_wait(&cpu)?;
    let shares = ctx.waits().shares(guest.index, vcpu)?;
    let by_tasks = shares.sum(Holder::is_task);
    // Less is usual, and evidence of the wait alone.
    let steps = &ctx.thresholds().pinning.wait;
    let severity = steps
        .of(100.0 * by_tasks / cpu.wanted())
        .filter(|severity| *severity > Severity::Info)?;
    (by_tasks * 2.0 >= cpu.wait?).then_some((severity.min(most), shares))
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
        let tasks: Vec<_> = host
            .tasks
            .iter()
            .filter(|task| task.name() == name)
            .collect();
        let group = host
            .task_groups
            .iter()
            .flatten()
            .find(|group| group.comm == name);
        // Processes that came and went are in the group alone.
        let used = tasks
            .iter()
            .map(|task| task.cpu_percent)
            .sum::<f64>()
            .max(group.map_or(0.0, |g| g.cpu_percent));
        // A younger process may be gone before anyone types its number.
        let is_old = |task: &&&HostTaskModel| age_s(ctx, task).is_none_or(|age| age >= MIN_AGE_S);
        let pids = tasks.iter().filter(is_old).map(|task| task.pid).collect();
        let is_named = KERNEL_THREADS.iter().any(|begin| name.starts_with(begin));
        let is_kernel = if tasks.is_empty() {
            is_named
        } else {
            tasks.iter().all(|task| task.kernel)
        };
        Self {
            name,
            pids,
            is_kernel,
            used,
        }
    }

    fn pids(&self, between: &str) -> String {
        self.pids
            .iter()
            .take(MAX_NAMES)
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(between)
    }

    fn describe(&self) -> String {
        let Self { name, used, .. } = self;
        if self.pids.is_empty() {
            return format!(
                "{name} uses {} % of a CPU; it comes and goes: none of its processes is a minute \
                    old",
                figure(*used)
            );
        }
        format!(
            "{name} uses {} % of a CPU; PID {}",
            figure(*used),
            self.pids(", ")
        )
    }

    /// What moves it away from the CPUs of these guests.
    fn remedy(&self, ctx: &Context<'_>, guests: &[&GuestContext<'_>]) -> Vec<Fix> {
        if self.name == "kvmtop" {
            return vec![fixes::advice(OWN_COST)];
        }
        if self.is_kernel {
            return vec![fixes::advice(KERNEL_WORK)];
        }
        let mut fix = Vec::new();
        let (free, pids) = (free_cpus(ctx, guests), self.pids(" "));
        if !pids.is_empty() {
            let lines = pids
                .split(' ')
                .map(|pid| format!("taskset -apc {free} {pid}"));
            let to_free = fixes::command(lines.collect::<Vec<_>>().join("\n")).needing(MOVE_NEED);
            fix.extend((!free.is_empty()).then_some(to_free));
            fix.push(fixes::command(format!("renice -n 19 -p {pids}")).needing(NICE_NEED));
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
fn free_cpus(ctx: &Context<'_>, guests: &[&GuestContext<'_>]) -> CpuSet {
    let (online, map) = (ctx.online(), ctx.map());
    let pinned = ctx
        .layouts
        .iter()
        .fold(map.isolated.clone(), |all, layout| {
            all.union(&layout.single(map))
        });
    let vcpus = guests.iter().flat_map(|guest| guest.domain.vcpus());
    let wanted = vcpus.fold(pinned, |all, vcpu| {
        all.union(vcpu.place.affinity.as_deref().unwrap_or(&online))
    });
    let is_idle = |cpu: u32| {
        ctx.model
            .host
            .cpu(cpu)
            .and_then(|c| c.time)
            .is_some_and(|t| t.busy() <= MAX_BUSY)
    };
    online
        .difference(&wanted)
        .iter()
        .filter(|cpu| is_idle(*cpu))
        .collect()
}
