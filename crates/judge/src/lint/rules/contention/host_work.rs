//! What the host itself does on the CPUs of pinned vCPUs, and the CPUs that are left for that.

use crate::cost::Holder;
use crate::figures::figure;
use crate::lint::facts::Context;
use crate::lint::facts::finding::{Confidence, Finding, Fix, Mark, Severity, Target, known, worst_of};
use crate::lint::facts::guest::GuestContext;
use crate::lint::facts::verdicts::Verdicts;
use crate::lint::fixes;
use crate::lint::fixes::isolation::Isolation;
use crate::lint::fixes::placement::{guest_placement, placement};
use crate::model::ThreadModel;
use crate::model::{CpuModel, GuestThread, HostTaskModel};
use crate::placement::{GuestPlan, singles};
use crate::placement::{MoveReason, faults};
use kvm::CpuSet;

/// A vCPU that uses less is idle, and nothing on its CPU hurts it, percent.
const IDLE: f64 = 10.0;

/// A busier vCPU should have its CPU's tick stopped, percent.
const BUSY: f64 = 50.0;

/// From this wait on, a vCPU competes for its CPU, percent.
const COMPETES: f64 = 2.0;

const IRQ_AFFINITY_NEED: &str = "takes effect at once, until the next boot; some interrupts refuse it";

/// `managed_irq` is of Linux 5.6 (kernel/irq/manage.c, `irq_do_set_affinity`).
const NOISE_OPTIONS_NEED: &str = "update the boot loader's configuration and reboot the host; it leaves the \
    queues of multiqueue devices: for them write managed_irq,domain, before the list of isolcpus=";

const WORKQUEUES_NEED: &str = "takes effect at once, until the next boot; work bound to its CPU stays";
const KEPT_TICK: &str = "Look for tasks beside the vCPU (ps -eLo psr,pcpu,comm) and move them: a nohz_full CPU with \
    two runnable tasks has its tick. A CPU clock that is not the TSC keeps it, too";
const SLICES_NEED: &str = "takes effect at once, until the next boot; needs cgroup v2";
const SLICES_NEED_BY_HAND: &str = "takes effect at once, until the next boot; needs cgroup v2; a guest that \
    runs in one of these slices itself loses its pins (systemd-cgls shows which): set its scope's AllowedCPUs instead";
const ALL_ISOLATED: &str = "Leave the host a CPU that is not isolated, for interrupts and kernel threads";

pub(super) fn starved(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let map = ctx.map();
    let pinned = singles(map, &ctx.layouts, false);
    if pinned.is_empty() {
        return;
    }
    if map.all.is_empty() {
        return verdicts.cannot_tell("the CPUs of this host are unknown (add lscpu -p or virsh capabilities)");
    }
    let full = faults::starved(map, &ctx.layouts);
    let emulators = ctx.guests.iter().filter_map(|g| Some((g, g.domain.emulator()?)));
    let for_guests = |(guest, thread): (&GuestContext<'_>, &ThreadModel)| {
        Some(thread.cpu?.wait? - ctx.waits().shares(guest.index, thread)?.sum(|holder| !holder.is_guest()))
    };
    let wait = emulators.filter_map(for_guests).fold(0.0, f64::max);
    let waits = wait >= ctx.thresholds().pinning.starved_wait && pinned.len() * 2 > map.all.len();
    if !full && !waits {
        return;
    }
    let isolated = Some(&map.isolated).filter(|cpus| !cpus.is_empty());
    let isolated = isolated.map(|cpus| format!("; the isolated CPUs {cpus} are no help")).unwrap_or_default();
    let evidence = known([
        full.then(|| format!("every CPU of {} has a vCPU pinned to it alone{isolated}", map.general())),
        waits.then(|| format!("an emulator thread waits {} % of the time for a CPU", figure(wait))),
    ]);
    let makes_room = |p: &GuestPlan| p.reasons.contains_key(&MoveReason::HostStarved) || p.shares;
    let plan = ctx.plan();
    let guests: Vec<usize> = plan.changed().filter(|(_, p)| full && makes_room(p)).map(|(g, _)| g).collect();
    let fix = fixes::or_advice(placement(ctx, &guests), fixes::advice(fixes::isolation::KEEP_FIRST_CORES));
    let marks = map.general().iter().filter(|_| full).map(Mark::Pcpu).collect();
    let found = Finding::new(Severity::Warning, Confidence::High, evidence, fix);
    verdicts.find(Finding { marks, ..found });
}

/// What runs on the CPUs of pinned vCPUs: unpinned vCPUs of the guest may, tasks of the host do.
pub(super) fn not_isolated(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    partly_pinned(ctx, guest, verdicts);
    host_tasks(ctx, guest, verdicts);
}

fn host_tasks(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let (t, host) = (&ctx.thresholds().pinning, ctx.topology());
    let on_cpu = |cpu: u32| ctx.model.host.tasks.iter().filter(move |k| k.last_cpu == cpu);
    // Tasks, read some seconds ago, and threads that are not pinned count for the CPU on which they ran last: together
    // they have at most what pinned threads left of it.
    let used_by_tasks = |cpu: u32| {
        let tasks: f64 = on_cpu(cpu).map(|k| k.cpu_percent).sum();
        let Some((cpu, time)) = ctx.model.host.cpu(cpu).and_then(|c| Some((c, c.time?))) else { return tasks };
        let (pinned, roaming): (Vec<_>, Vec<_>) = cpu.guest_threads.iter().filter(|t| t.here).partition(|t| t.pinned);
        let sum = |threads: Vec<&GuestThread>| threads.iter().map(|t| t.cpu).sum::<f64>();
        let left = time.busy() - time.steal - time.irq - time.softirq - sum(pinned);
        tasks * (left / (tasks + sum(roaming)).max(1.0)).clamp(0.0, 1.0)
    };
    // Wait of a vCPU, percent of the time that it wants the CPU.
    let wait = |vcpu: &ThreadModel| vcpu.cpu.filter(|c| c.wanted() >= t.busy)?.wait_percent();
    let used_by_others = |cpu: u32| {
        let threads = ctx.model.host.cpu(cpu).into_iter().flat_map(|c| &c.guest_threads);
        threads.filter(|t| t.here && t.domain != guest.index).map(|t| t.cpu).sum::<f64>()
    };
    let pinned = guest.domain.vcpus().filter_map(|t| Some((t, t.pinned_cpu().filter(|c| !host.is_isolated(*c))?)));
    let (mut cost, mut marks) = (None, Vec::new());
    let disturbed = pinned.filter_map(|(vcpu, cpu)| {
        let shares = ctx.waits().shares(guest.index, vcpu);
        let for_tasks = shares.as_ref().map(|shares| shares.sum(Holder::is_task));
        let stopped = shares.map_or(0.0, |shares| shares.sum(|holder| *holder == Holder::Quota));
        // What a quota takes from the guest, tasks of the host may have.
        if stopped > COMPETES && Some(stopped) > for_tasks {
            return None;
        }
        let used = used_by_tasks(cpu);
        let severity = match t.host_tasks.of(used)? {
            // Host tasks are not the cause of waiting for another guest.
            severity if wait(vcpu).is_some_and(|w| w >= t.wait.warning) && used >= used_by_others(cpu) => {
                severity.max(Severity::Warning)
            }
            _ if vcpu.cpu.is_some_and(|c| c.busy() < IDLE) => Severity::Info,
            severity => severity,
        };
        cost = for_tasks.map(|percent| cost.unwrap_or(0.0) + percent).or(cost);
        marks.push(Mark::Pcpu(cpu));
        Some((severity, used, (vcpu, cpu)))
    });
    let Some((severity, used, (vcpu, cpu))) = worst_of(disturbed) else { return };
    marks.extend(vcpu.index.map(Mark::Vcpu));
    let waits = wait(vcpu).map(|w| format!("; the vCPU waits {} % of the time it wants the CPU", figure(w)));
    let (used_there, name, waits) = (figure(used), vcpu.label(), waits.unwrap_or_default());
    let tasks = tasks(on_cpu(cpu));
    let evidence = vec![format!(
        "{used_there} % of CPU {cpu}, to which {name} is pinned, goes to tasks outside of guests: {tasks}{waits}"
    )];
    let found = Finding::new(severity, Confidence::High, evidence, keep_away(ctx, guest));
    verdicts.find(Finding { target: Target::Pcpu(cpu), cost, marks, ..found });
}

/// Keeps the host's tasks off the CPUs of all pinned vCPUs.
pub(super) fn keep_away(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Fix> {
    let isolation = Isolation::new(ctx);
    let moves = ctx.plan().guests.get(guest.index).is_some_and(|part| !part.optional);
    let mut fix = if moves { guest_placement(ctx, guest) } else { Vec::new() };
    if isolation.gives() && !isolation.host.is_empty() {
        // systemd's slices hold guests that are started by hand, and AllowedCPUs= outranks their pins.
        let by_hand = ctx.guests.iter().any(|g| g.config.libvirt == Some(false));
        let need = if by_hand { SLICES_NEED_BY_HAND } else { SLICES_NEED };
        let limit = |slice| format!("systemctl set-property --runtime {slice} AllowedCPUs={}", isolation.host);
        let limits = ["user.slice", "system.slice"].map(limit).join("\n");
        fix.push(fixes::command(limits).needing(need));
    }
    fix.extend(isolation.options(&["isolcpus"]));
    fix
}

/// What disturbs one CPU: interrupts of devices, the kernel's own work, the timer tick where it should be off.
type Noise = [Option<(Severity, String)>; 3];

fn noise_on(ctx: &Context<'_>, thread: &ThreadModel, cpu: &CpuModel) -> Noise {
    let (t, number, name) = (&ctx.thresholds().pinning, cpu.cpu, thread.label());
    let devices = cpu.device_irq_rate.and_then(|rate| {
        let (severity, rate) = (t.isolated_irqs.of(rate)?, figure(rate));
        Some((severity, format!("{rate} device interrupts/s on isolated CPU {number}, to which {name} is pinned")))
    });
    let interrupts = cpu.time.map_or(0.0, |t| t.softirq + t.irq);
    let kernel = || ctx.model.host.tasks.iter().filter(|k| k.kernel && k.last_cpu == number);
    let share = interrupts + kernel().map(|k| k.cpu_percent).sum::<f64>();
    let work = t.isolated_cpu.of(share).map(|severity| {
        let (percent, of_it, names) = (figure(share), figure(interrupts), tasks(kernel()));
        let threads = if names.is_empty() { names } else { format!(", kernel threads {names}") };
        let all = format!("kernel work takes {percent} % of isolated CPU {number} (interrupts {of_it} %{threads})");
        (severity, all)
    });
    let tickless = ctx.topology().nohz_full.as_ref().is_some_and(|s| s.contains(number));
    let busy = thread.cpu.is_some_and(|c| c.busy() > BUSY);
    let tick = cpu.timer_irq_rate.filter(|r| tickless && busy && *r >= t.nohz_ticks).map(|rate| {
        let rate = format!("{} timer interrupts/s on nohz_full CPU {number}", figure(rate));
        (Severity::Info, format!("{rate}: several tasks want it, or something keeps its tick on"))
    });
    [devices, work, tick]
}

pub(super) fn noise(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let pinned = guest.domain.vcpus().filter_map(|t| Some((t, t.pinned_cpu()?)));
    let isolated: Vec<_> = pinned.filter(|(_, c)| ctx.topology().is_isolated(*c)).collect();
    let cpus: Vec<_> = isolated.iter().filter_map(|(t, c)| Some((t, ctx.model.host.cpu(*c)?))).collect();
    if !isolated.is_empty() && cpus.iter().all(|(_, cpu)| cpu.time.is_none()) {
        return verdicts.cannot_tell("what else runs on the isolated CPUs is unknown");
    }
    let noises = cpus.into_iter().map(|(thread, cpu)| (cpu.cpu, noise_on(ctx, thread, cpu)));
    let worst = noises.filter_map(|(cpu, n)| Some((n.iter().flatten().map(|n| n.0).max()?, 0.0, (cpu, n))));
    let Some((severity, _, (cpu, noise))) = worst_of(worst) else { return };
    let fix = quieten(ctx, noise.each_ref().map(Option::is_some));
    let evidence = noise.into_iter().flatten().map(|(_, line)| line).collect();
    let found = Finding::new(severity, Confidence::High, evidence, fix);
    verdicts.find(Finding { target: Target::Pcpu(cpu), marks: vec![Mark::Pcpu(cpu)], ..found });
}

/// Keeps what was seen off the isolated CPUs: first the options that keep it away for good, then what can be moved at
/// once, each with what it leaves.
fn quieten(ctx: &Context<'_>, [devices, kernel, tick]: [bool; 3]) -> Vec<Fix> {
    let (isolated, rest) = (&ctx.map().isolated, ctx.map().general());
    // A host whose CPUs are all isolated counts as one without.
    if isolated.is_empty() {
        return vec![fixes::advice(ALL_ISOLATED)];
    }
    // The kernel drops nohz_full= where it differs from isolcpus= (kernel/sched/isolation.c, housekeeping_setup).
    let is_tickless = ctx.topology().nohz_full.as_ref().is_some_and(|full| isolated.is_subset(full));
    let mut fix = Vec::new();
    if devices || kernel {
        // The kernel keeps the boot CPU for its own work.
        let mut options = format!("irqaffinity={rest}");
        if kernel && !isolated.contains(0) {
            options += &format!(" rcu_nocbs={isolated}");
            options += &if is_tickless { String::new() } else { format!(" nohz_full={isolated}") };
        }
        let move_irqs = format!("for i in /proc/irq/[0-9]*/smp_affinity_list; do echo {rest} > $i 2>/dev/null; done");
        fix.push(fixes::kernel(options).needing(NOISE_OPTIONS_NEED));
        fix.push(fixes::command(move_irqs).needing(IRQ_AFFINITY_NEED));
    }
    if kernel {
        // Work that no CPU is bound to (Documentation/core-api/workqueue.rst, "Affinity Scopes"). The mask is
        // hexadecimal, in groups of 32 CPUs.
        let move_work = format!("echo {} > /sys/devices/virtual/workqueue/cpumask", rest.mask());
        fix.push(fixes::command(move_work).needing(WORKQUEUES_NEED));
    }
    if tick {
        fix.push(fixes::advice(KEPT_TICK));
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
    let (single, pinned, all) = (layout.single(map), layout.pins(map).count(), layout.vcpus.len());
    // As many are plugged in as are pinned: the others are off.
    if free.is_empty() || !guest.running() || guest.config.vcpus.is_some_and(|plugged| plugged as usize <= pinned) {
        return;
    }
    let own = format!(
        "{pinned} of {all} vCPUs have their own CPU ({single}); vCPU {free} may run anywhere, also on those CPUs"
    );
    let evidence = vec![own];
    let planned = || fixes::or_advice(guest_placement(ctx, guest), fixes::advice("Pin all vCPUs or none"));
    let fix = fixes::placement::keep_pins(ctx, guest).unwrap_or_else(planned);
    let title = "Some vCPUs are pinned and the others may run on their CPUs".into();
    let (problem, marks) = ("only some vCPUs pinned".into(), single.iter().map(Mark::Pcpu).collect());
    let found = Finding::new(Severity::Info, Confidence::High, evidence, fix);
    verdicts.find(Finding { title, problem, marks, ..found });
}
