//! What the host itself does on the CPUs of pinned vCPUs, and the CPUs that are left for that.

use crate::cost::Holder;
use crate::figures::figure;
use crate::lint::facts::{
    Confidence, Context, Finding, Fix, GuestContext, Mark, Severity, Target, Verdicts,
};
use crate::lint::fixes;
use crate::lint::fixes::placement::{Isolation, KEEP_FIRST_CORES, guest_placement, placement};
use crate::model::{CpuModel, HostTaskModel, ThreadModel};
use crate::placement::{MoveReason, faults, singles};
use kvm::CpuSet;

/// A vCPU that uses less is idle, and nothing on its CPU hurts it, percent.
const MIN_BUSY_PERCENT: f64 = 10.0;

/// From this wait on, a vCPU competes for its CPU, percent.
const COMPETING_WAIT_PERCENT: f64 = 2.0;

/// `managed_irq` is of Linux 5.6 (kernel/irq/manage.c, `irq_do_set_affinity`).
const NOISE_OPTIONS_NEED: &str = "update the boot loader's configuration and reboot the host; it \
    leaves the queues of multiqueue devices: for them write managed_irq,domain, before the list of \
    isolcpus=";

pub(super) fn starved(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let map = ctx.map();
    let pinned = singles(map, &ctx.layouts, false);
    if pinned.is_empty() {
        return;
    }
    if map.all.is_empty() {
        return verdicts
            .cannot_tell("the CPUs of this host are unknown (add lscpu -p or virsh capabilities)");
    }
    if !faults::starved(map, &ctx.layouts) {
        return;
    }
    let evidence = vec![format!(
        "every CPU of {} has a vCPU pinned to it alone",
        map.general()
    )];
    let mut guests = Vec::new();
    for (guest, plan) in ctx.plan().changed() {
        if plan.shares || plan.reasons.contains_key(&MoveReason::HostStarved) {
            guests.push(guest);
        }
    }
    let fix = fixes::or_advice(placement(ctx, &guests), fixes::advice(KEEP_FIRST_CORES));
    verdicts.find(Finding {
        marks: map.general().iter().map(Mark::Pcpu).collect(),
        ..Finding::new(Severity::Warning, Confidence::High, evidence, fix)
    });
}

/// What runs on the CPUs of pinned vCPUs: unpinned vCPUs of the guest may, tasks of the host do.
pub(super) fn not_isolated(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    partly_pinned(ctx, guest, verdicts);
    host_tasks(ctx, guest, verdicts);
}

/// A pinned vCPU and what tasks of the host do on its CPU.
struct Disturbed<'a> {
    vcpu: &'a ThreadModel,
    cpu: u32,
    /// What the tasks use of the CPU, percent.
    used: f64,
    /// What the vCPU waits for them, percent of one CPU; `None` where that is not known.
    lost: Option<f64>,
    severity: Severity,
}

fn host_tasks(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let disturbed: Vec<Disturbed<'_>> = guest
        .domain
        .vcpus()
        .filter_map(|vcpu| judge_vcpu(ctx, guest, vcpu))
        .collect();
    let worst = disturbed.iter().max_by(|a, b| {
        let by_severity = a.severity.cmp(&b.severity);
        by_severity.then(a.used.total_cmp(&b.used))
    });
    let Some(worst) = worst else { return };
    let waits = worst.vcpu.wait_percent().map(|w| {
        format!(
            "; the vCPU waits {} % of the time it wants the CPU",
            figure(w)
        )
    });
    let cpu = worst.cpu;
    let evidence = vec![format!(
        "{} % of CPU {cpu}, to which {} is pinned, goes to tasks outside of guests: {}{}",
        figure(worst.used),
        worst.vcpu.label(),
        list_tasks(tasks_on(ctx, cpu)),
        waits.unwrap_or_default()
    )];
    let marks = disturbed
        .iter()
        .map(|d| Mark::Pcpu(d.cpu))
        .chain(worst.vcpu.index.map(Mark::Vcpu))
        .collect();
    let cost = disturbed.iter().filter_map(|d| d.lost).reduce(|a, b| a + b);
    let fix = keep_away(ctx, guest);
    verdicts.find(Finding {
        target: Target::Pcpu(cpu),
        cost,
        marks,
        ..Finding::new(worst.severity, Confidence::High, evidence, fix)
    });
}

fn tasks_on<'a>(ctx: &Context<'a>, cpu: u32) -> impl Iterator<Item = &'a HostTaskModel> {
    let tasks = ctx.model.host.tasks.iter();
    tasks.filter(move |task| task.last_cpu == cpu)
}

/// What tasks of the host use of a CPU, percent. Tasks and unpinned threads count for the CPU on
/// which they ran last, even if that was some seconds ago. So together they get no more of it than
/// pinned threads left.
fn used_by_tasks(ctx: &Context<'_>, cpu: u32) -> f64 {
    let tasks: f64 = tasks_on(ctx, cpu).map(|task| task.cpu_percent).sum();
    let Some(cpu) = ctx.model.host.cpu(cpu) else {
        return tasks;
    };
    let Some(time) = cpu.time else {
        return tasks;
    };
    let mut used_by_pinned = 0.0;
    let mut used_by_roaming = 0.0;
    for thread in cpu.guest_threads.iter().filter(|thread| thread.here) {
        if thread.pinned {
            used_by_pinned += thread.cpu;
        } else {
            used_by_roaming += thread.cpu;
        }
    }
    let left = time.busy() - time.steal - time.irq - time.softirq - used_by_pinned;
    tasks * (left / (tasks + used_by_roaming).max(1.0)).clamp(0.0, 1.0)
}

/// What tasks of the host do to a vCPU that is pinned to one CPU, if that is much.
fn judge_vcpu<'a>(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    vcpu: &'a ThreadModel,
) -> Option<Disturbed<'a>> {
    let t = &ctx.thresholds().pinning;
    let cpu = vcpu
        .pinned_cpu()
        .filter(|cpu| !ctx.topology().is_isolated(*cpu))?;
    let shares = ctx.waits().shares(guest.index, vcpu);
    let lost = shares.as_ref().map(|shares| shares.sum(Holder::is_task));
    let stopped = shares.map_or(0.0, |shares| shares.sum(|holder| *holder == Holder::Quota));
    // The time in which a quota stops the guest is free for tasks of the host: they take nothing.
    if stopped > COMPETING_WAIT_PERCENT && Some(stopped) > lost {
        return None;
    }
    let used = used_by_tasks(ctx, cpu);
    let severity = t.host_tasks.severity(used)?;
    let is_busy = vcpu.cpu.is_none_or(|c| c.busy() >= MIN_BUSY_PERCENT);
    // The vCPU may wait for another guest instead.
    let threads = ctx
        .model
        .host
        .cpu(cpu)
        .into_iter()
        .flat_map(|c| &c.guest_threads);
    let others: f64 = threads
        .filter(|t| t.here && t.domain != guest.index)
        .map(|t| t.cpu)
        .sum();
    let severity = if !is_busy {
        Severity::Info
    } else if used >= others && vcpu.wait_percent() >= Some(t.wait.warning) {
        severity.max(Severity::Warning)
    } else {
        severity
    };
    Some(Disturbed {
        vcpu,
        cpu,
        used,
        lost,
        severity,
    })
}

/// Keeps the host's tasks off the CPUs of all pinned vCPUs.
pub(super) fn keep_away(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Fix> {
    let isolation = Isolation::new(ctx);
    let mut fix = Vec::new();
    if !ctx.plan().guests[guest.index].optional {
        fix = guest_placement(ctx, guest);
    }
    if isolation.gives {
        let limits = ["user.slice", "system.slice"].map(|slice| {
            format!(
                "systemctl set-property --runtime {slice} AllowedCPUs={}",
                isolation.host
            )
        });
        fix.push(fixes::command(limits.join("\n")).needing(
            "takes effect at once, until the next boot; \
            needs cgroup v2; a guest that runs in one of these slices itself (systemd-cgls shows \
            which) loses its pins",
        ));
    }
    fix.extend(isolation.options(&["isolcpus"]));
    fix
}

/// What disturbs an isolated CPU.
struct Noise {
    cpu: u32,
    severity: Severity,
    evidence: Vec<String>,
    /// Whether the kernel's own work is part of it, not interrupts of devices alone.
    is_kernels: bool,
}

fn noise_on(ctx: &Context<'_>, thread: &ThreadModel, cpu: &CpuModel) -> Option<Noise> {
    let t = &ctx.thresholds().pinning;
    let number = cpu.cpu;
    let mut evidence = Vec::new();
    let rate = cpu.device_irq_rate.unwrap_or(0.0);
    let devices = t.isolated_irqs.severity(rate);
    if devices.is_some() {
        evidence.push(format!(
            "{} device interrupts/s on isolated CPU {number}, to which {} is pinned",
            figure(rate),
            thread.label()
        ));
    }
    let interrupts = cpu.time.map_or(0.0, |t| t.softirq + t.irq);
    let kernel_tasks: Vec<&HostTaskModel> =
        tasks_on(ctx, number).filter(|task| task.kernel).collect();
    let tasks_percent: f64 = kernel_tasks.iter().map(|task| task.cpu_percent).sum();
    let share = interrupts + tasks_percent;
    let work = t.isolated_cpu.severity(share);
    if work.is_some() {
        evidence.push(format!(
            "kernel work takes {} % of isolated CPU {number}: interrupts {} %, {}",
            figure(share),
            figure(interrupts),
            list_tasks(kernel_tasks)
        ));
    }
    Some(Noise {
        cpu: number,
        severity: devices.max(work)?,
        evidence,
        is_kernels: work.is_some(),
    })
}

pub(super) fn noise(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let mut noises = Vec::new();
    for thread in guest.domain.vcpus() {
        let Some(number) = thread
            .pinned_cpu()
            .filter(|c| ctx.topology().is_isolated(*c))
        else {
            continue;
        };
        let Some(cpu) = ctx.model.host.cpu(number).filter(|cpu| cpu.time.is_some()) else {
            return verdicts.cannot_tell("what else runs on the isolated CPUs is unknown");
        };
        noises.extend(noise_on(ctx, thread, cpu));
    }
    // The first of those that are worst.
    noises.reverse();
    let Some(noise) = noises.into_iter().max_by_key(|noise| noise.severity) else {
        return;
    };
    let fix = quieten(ctx, noise.is_kernels);
    verdicts.find(Finding {
        target: Target::Pcpu(noise.cpu),
        marks: vec![Mark::Pcpu(noise.cpu)],
        ..Finding::new(noise.severity, Confidence::High, noise.evidence, fix)
    });
}

/// Keeps interrupts, and the kernel's own work, off the isolated CPUs: first the options that keep
/// them away for good, then what can be moved at once.
fn quieten(ctx: &Context<'_>, is_kernels: bool) -> Vec<Fix> {
    let isolated = &ctx.map().isolated;
    let general = ctx.map().general();
    // The set is also empty where all CPUs are isolated.
    if isolated.is_empty() {
        return vec![fixes::advice(
            "Leave the host a CPU that is not isolated, for interrupts \
            and kernel threads",
        )];
    }
    let mut options = format!("irqaffinity={general}");
    // The kernel needs the boot CPU for its own work: these options do not apply to CPU 0.
    if is_kernels && !isolated.contains(0) {
        options += &format!(" rcu_nocbs={isolated} nohz_full={isolated}");
    }
    let move_irqs = format!(
        "for i in /proc/irq/[0-9]*/smp_affinity_list; do echo {general} > $i 2>/dev/null; done"
    );
    let mut fix = vec![
        fixes::kernel(options).needing(NOISE_OPTIONS_NEED),
        fixes::command(move_irqs).needing(
            "takes effect at once, until the next boot; some \
            interrupts refuse it",
        ),
    ];
    if is_kernels {
        // Work that no CPU is bound to (Documentation/core-api/workqueue.rst, "Affinity Scopes").
        // The mask is hexadecimal, in groups of 32 CPUs.
        let move_work = format!(
            "echo {} > /sys/devices/virtual/workqueue/cpumask",
            general.mask()
        );
        fix.push(fixes::command(move_work).needing(
            "takes effect at once, until the next \
            boot; work bound to its CPU stays",
        ));
    }
    fix
}

/// The first few tasks, each with its use of a CPU.
fn list_tasks<'a>(tasks: impl IntoIterator<Item = &'a HostTaskModel>) -> String {
    let mut texts = Vec::new();
    for task in tasks.into_iter().take(4) {
        texts.push(format!("{} ({} %)", task.name(), figure(task.cpu_percent)));
    }
    texts.join(", ")
}

/// Some vCPUs are pinned, and the others may run on their CPUs.
fn partly_pinned(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let map = ctx.map();
    let layout = ctx.layout(guest);
    let free: CpuSet = layout.partly_pinned(map).into_iter().collect();
    let single = layout.single(map);
    let pinned = layout.pins(map).count();
    // Where no more vCPUs are plugged in than are pinned, the others are off and disturb nobody.
    if free.is_empty()
        || !guest.running()
        || guest
            .config
            .vcpus
            .is_some_and(|plugged| plugged as usize <= pinned)
    {
        return;
    }
    let evidence = vec![format!(
        "{pinned} of {} vCPUs have their own CPU ({single}); vCPU {free} may run anywhere, also \
            on those CPUs",
        layout.vcpus.len()
    )];
    let fix = fixes::or_advice(
        guest_placement(ctx, guest),
        fixes::advice("Pin all vCPUs or none"),
    );
    verdicts.find(Finding {
        title: "Some vCPUs are pinned and the others may run on their CPUs".into(),
        problem: "only some vCPUs pinned".into(),
        marks: single.iter().map(Mark::Pcpu).collect(),
        ..Finding::new(Severity::Info, Confidence::High, evidence, fix)
    });
}
