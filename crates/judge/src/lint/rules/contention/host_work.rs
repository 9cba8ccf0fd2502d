//! What the host itself does on the CPUs of pinned vCPUs, and the CPUs that are left for that.

use crate::cost::Holder;
use crate::figures::{figure, or_unknown};
use crate::lint::facts::{
    Confidence, Context, Finding, Fix, GuestContext, Mark, Severity, Target, Verdicts,
};
use crate::lint::fixes;
use crate::lint::fixes::isolation::Isolation;
use crate::lint::fixes::placement::{guest_placement, placement};
use crate::model::ThreadModel;
use crate::model::{CpuModel, HostTaskModel};
use crate::placement::{GuestPlan, MoveReason, faults, singles};
use kvm::CpuSet;
use std::cmp::Ordering;

/// A vCPU that uses less is idle, and nothing on its CPU hurts it, percent.
const IDLE: f64 = 10.0;

/// From this wait on, a vCPU competes for its CPU, percent.
const COMPETES: f64 = 2.0;

const IRQ_AFFINITY_NEED: &str = "takes effect at once, until the next boot; some interrupts refuse \
    it";

/// `managed_irq` is of Linux 5.6 (kernel/irq/manage.c, `irq_do_set_affinity`).
const NOISE_OPTIONS_NEED: &str = "update the boot loader's configuration and reboot the host; it \
    leaves the queues of multiqueue devices: for them write managed_irq,domain, before the list of \
    isolcpus=";

const WORKQUEUES_NEED: &str = "takes effect at once, until the next boot; work bound to its CPU \
    stays";
const SLICES_NEED: &str = "takes effect at once, until the next boot; needs cgroup v2";
const SLICES_NEED_BY_HAND: &str = "takes effect at once, until the next boot; needs cgroup v2; a \
    guest that runs in one of these slices itself loses its pins (systemd-cgls shows which): set \
    its scope's AllowedCPUs instead";
const ALL_ISOLATED: &str = "Leave the host a CPU that is not isolated, for interrupts and kernel \
    threads";

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
    let makes_room = |p: &GuestPlan| p.reasons.contains_key(&MoveReason::HostStarved) || p.shares;
    let guests: Vec<usize> = ctx
        .plan()
        .changed()
        .filter(|(_, p)| makes_room(p))
        .map(|(g, _)| g)
        .collect();
    let fix = fixes::or_advice(
        placement(ctx, &guests),
        fixes::advice(fixes::isolation::KEEP_FIRST_CORES),
    );
    let found = Finding::new(Severity::Warning, Confidence::High, evidence, fix);
    verdicts.find(Finding {
        marks: map.general().iter().map(Mark::Pcpu).collect(),
        ..found
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
        .filter_map(|vcpu| disturbed(ctx, guest, vcpu))
        .collect();
    let Some(worst) = disturbed.iter().max_by(|a, b| {
        (a.severity, a.used)
            .partial_cmp(&(b.severity, b.used))
            .unwrap_or(Ordering::Equal)
    }) else {
        return;
    };
    let waits = worst.vcpu.wait_percent().map(|w| {
        format!(
            "; the vCPU waits {} % of the time it wants the CPU",
            figure(w)
        )
    });
    let (cpu, used, name, waits) = (
        worst.cpu,
        figure(worst.used),
        worst.vcpu.label(),
        waits.unwrap_or_default(),
    );
    let tasks = tasks(tasks_on(ctx, cpu));
    let evidence = vec![format!(
        "{used} % of CPU {cpu}, to which {name} is pinned, goes to tasks outside of guests: \
            {tasks}{waits}"
    )];
    let marks = disturbed
        .iter()
        .map(|d| Mark::Pcpu(d.cpu))
        .chain(worst.vcpu.index.map(Mark::Vcpu))
        .collect();
    let cost = disturbed.iter().filter_map(|d| d.lost).reduce(|a, b| a + b);
    let found = Finding::new(
        worst.severity,
        Confidence::High,
        evidence,
        keep_away(ctx, guest),
    );
    verdicts.find(Finding {
        target: Target::Pcpu(cpu),
        cost,
        marks,
        ..found
    });
}

fn tasks_on<'a>(ctx: &Context<'a>, cpu: u32) -> impl Iterator<Item = &'a HostTaskModel> {
    ctx.model
        .host
        .tasks
        .iter()
        .filter(move |task| task.last_cpu == cpu)
}

/// What tasks of the host use of a CPU, percent. Tasks, read some seconds ago, and threads that are
/// not pinned count for the CPU on which they ran last: together they have at most what pinned
/// threads left of it.
fn used_by_tasks(ctx: &Context<'_>, cpu: u32) -> f64 {
    let tasks: f64 = tasks_on(ctx, cpu).map(|task| task.cpu_percent).sum();
    let Some((cpu, time)) = ctx.model.host.cpu(cpu).and_then(|c| Some((c, c.time?))) else {
        return tasks;
    };
    let used = |pinned: bool| -> f64 {
        cpu.guest_threads
            .iter()
            .filter(|t| t.here && t.pinned == pinned)
            .map(|t| t.cpu)
            .sum()
    };
    let left = time.busy() - time.steal - time.irq - time.softirq - used(true);
    tasks * (left / (tasks + used(false)).max(1.0)).clamp(0.0, 1.0)
}

fn disturbed<'a>(
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
    // What a quota takes from the guest, tasks of the host may have.
    if stopped > COMPETES && Some(stopped) > lost {
        return None;
    }
    let used = used_by_tasks(ctx, cpu);
    let severity = t.host_tasks.of(used)?;
    let is_busy = vcpu.cpu.is_none_or(|c| c.busy() >= IDLE);
    // It may wait for another guest.
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
    let is_cause = used >= others;
    let waits = is_cause
        && vcpu
            .wait_percent()
            .is_some_and(|wait| wait >= t.wait.warning);
    let severity = match severity {
        severity if is_busy && waits => severity.max(Severity::Warning),
        severity if is_busy => severity,
        _ => Severity::Info,
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
    let moves = ctx
        .plan()
        .guests
        .get(guest.index)
        .is_some_and(|part| !part.optional);
    let mut fix = if moves {
        guest_placement(ctx, guest)
    } else {
        Vec::new()
    };
    if isolation.gives() && !isolation.host.is_empty() {
        // systemd's slices hold guests that are started by hand, and AllowedCPUs= outranks their
        // pins.
        let by_hand = ctx.guests.iter().any(|g| g.config.libvirt == Some(false));
        let need = if by_hand {
            SLICES_NEED_BY_HAND
        } else {
            SLICES_NEED
        };
        let limit = |slice| {
            format!(
                "systemctl set-property --runtime {slice} AllowedCPUs={}",
                isolation.host
            )
        };
        let limits = ["user.slice", "system.slice"].map(limit).join("\n");
        fix.push(fixes::command(limits).needing(need));
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
    let (t, number, name) = (&ctx.thresholds().pinning, cpu.cpu, thread.label());
    let mut evidence = Vec::new();
    let devices = cpu
        .device_irq_rate
        .and_then(|rate| t.isolated_irqs.of(rate));
    if devices.is_some() {
        let rate = or_unknown(cpu.device_irq_rate, figure);
        evidence.push(format!(
            "{rate} device interrupts/s on isolated CPU {number}, to which {name} is pinned"
        ));
    }
    let interrupts = cpu.time.map_or(0.0, |t| t.softirq + t.irq);
    let kernel = || tasks_on(ctx, number).filter(|task| task.kernel);
    let share = interrupts + kernel().map(|task| task.cpu_percent).sum::<f64>();
    let work = t.isolated_cpu.of(share);
    if work.is_some() {
        let (percent, of_it, names) = (figure(share), figure(interrupts), tasks(kernel()));
        evidence.push(format!(
            "kernel work takes {percent} % of isolated CPU {number}: interrupts {of_it} %, {names}"
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
    let pinned = guest
        .domain
        .vcpus()
        .filter_map(|t| Some((t, t.pinned_cpu()?)));
    let isolated: Vec<_> = pinned
        .filter(|(_, c)| ctx.topology().is_isolated(*c))
        .collect();
    let cpus: Vec<_> = isolated
        .iter()
        .filter_map(|(t, c)| Some((t, ctx.model.host.cpu(*c)?)))
        .collect();
    if !isolated.is_empty() && cpus.iter().all(|(_, cpu)| cpu.time.is_none()) {
        return verdicts.cannot_tell("what else runs on the isolated CPUs is unknown");
    }
    let noises = cpus
        .into_iter()
        .filter_map(|(thread, cpu)| noise_on(ctx, thread, cpu));
    let Some(Noise {
        cpu,
        severity,
        evidence,
        is_kernels,
    }) = noises.max_by_key(|noise| noise.severity)
    else {
        return;
    };
    let found = Finding::new(
        severity,
        Confidence::High,
        evidence,
        quieten(ctx, is_kernels),
    );
    verdicts.find(Finding {
        target: Target::Pcpu(cpu),
        marks: vec![Mark::Pcpu(cpu)],
        ..found
    });
}

/// Keeps interrupts, and the kernel's own work, off the isolated CPUs: first the options that keep
/// them away for good, then what can be moved at once.
fn quieten(ctx: &Context<'_>, is_kernels: bool) -> Vec<Fix> {
    let (isolated, rest) = (&ctx.map().isolated, ctx.map().general());
    // A host whose CPUs are all isolated counts as one without.
    if isolated.is_empty() {
        return vec![fixes::advice(ALL_ISOLATED)];
    }
    let mut options = format!("irqaffinity={rest}");
    // The kernel keeps the boot CPU for its own work.
    if is_kernels && !isolated.contains(0) {
        options += &format!(" rcu_nocbs={isolated} nohz_full={isolated}");
    }
    let move_irqs = format!(
        "for i in /proc/irq/[0-9]*/smp_affinity_list; do echo {rest} > $i 2>/dev/null; done"
    );
    let mut fix = vec![
        fixes::kernel(options).needing(NOISE_OPTIONS_NEED),
        fixes::command(move_irqs).needing(IRQ_AFFINITY_NEED),
    ];
    if is_kernels {
        // Work that no CPU is bound to (Documentation/core-api/workqueue.rst, "Affinity Scopes").
        // The mask is hexadecimal, in groups of 32 CPUs.
        let move_work = format!(
            "echo {} > /sys/devices/virtual/workqueue/cpumask",
            rest.mask()
        );
        fix.push(fixes::command(move_work).needing(WORKQUEUES_NEED));
    }
    fix
}

/// The first few tasks, each with its use of a CPU.
fn tasks<'a>(tasks: impl Iterator<Item = &'a HostTaskModel>) -> String {
    let task = |t: &HostTaskModel| format!("{} ({} %)", t.name(), figure(t.cpu_percent));
    tasks.take(4).map(task).collect::<Vec<_>>().join(", ")
}

/// Some vCPUs are pinned, and the others may run on their CPUs.
fn partly_pinned(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let (map, layout) = (ctx.map(), ctx.layout(guest));
    let free: CpuSet = layout.partly_pinned(map).into_iter().collect();
    let (single, pinned, all) = (
        layout.single(map),
        layout.pins(map).count(),
        layout.vcpus.len(),
    );
    // As many are plugged in as are pinned: the others are off.
    if free.is_empty()
        || !guest.running()
        || guest
            .config
            .vcpus
            .is_some_and(|plugged| plugged as usize <= pinned)
    {
        return;
    }
    let own = format!(
        "{pinned} of {all} vCPUs have their own CPU ({single}); vCPU {free} may run anywhere, also \
            on those CPUs"
    );
    let evidence = vec![own];
    let fix = fixes::or_advice(
        guest_placement(ctx, guest),
        fixes::advice("Pin all vCPUs or none"),
    );
    let title = "Some vCPUs are pinned and the others may run on their CPUs".into();
    let (problem, marks) = (
        "only some vCPUs pinned".into(),
        single.iter().map(Mark::Pcpu).collect(),
    );
    let found = Finding::new(Severity::Info, Confidence::High, evidence, fix);
    verdicts.find(Finding {
        title,
        problem,
        marks,
        ..found
    });
}
