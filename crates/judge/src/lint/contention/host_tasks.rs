//! Host tasks on a pinned vCPU's CPU.

use super::texts;
use crate::lint::context::Context;
use crate::lint::context::cpu_wait::{demand, wait_of_demand};
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Fix, Mark, Severity, Target};
use crate::lint::fixes::{self, isolation::Isolation, placement};
use crate::lint::verdicts::Verdicts;
use crate::model::{HostTaskModel, ThreadModel};
use kvm::CpuSet;

/// A vCPU that uses less is idle, and nothing on its CPU hurts it, percent.
const IDLE: f64 = 10.0;

/// Host tasks on one vCPU's CPU.
struct Intrusion<'a> {
    severity: Severity,
    cpu: u32,
    /// CPU time of the tasks, percent.
    used: f64,
    vcpu: &'a ThreadModel,
    tasks: Vec<&'a HostTaskModel>,
    /// Wait of the vCPU, percent of the time that it wants the CPU.
    wait: Option<f64>,
}

/// CPU time that other guests' threads had on a CPU, percent.
fn used_by_other_guests(ctx: &Context<'_>, guest: &GuestContext<'_>, cpu: u32) -> f64 {
    let guest_threads = ctx.model.host.cpu(cpu).map(|c| c.guest_threads.iter()).into_iter().flatten();
    let is_other = |d: usize| ctx.model.domains.get(d).is_some_and(|d| !std::ptr::eq(d, guest.domain));
    guest_threads.filter(|t| t.here && is_other(t.domain)).map(|t| t.cpu).sum()
}

fn intrusion<'a>(
    ctx: &Context<'a>,
    guest: &GuestContext<'a>,
    vcpu: &'a ThreadModel,
    cpu: u32,
) -> Option<Intrusion<'a>> {
    let t = &ctx.thresholds().pinning;
    let tasks: Vec<&HostTaskModel> = ctx.model.host.tasks.iter().filter(|k| k.last_cpu == cpu).collect();
    let used: f64 = tasks.iter().map(|k| k.cpu_percent).sum();
    let mut severity = t.host_tasks.of(used)?;
    let wait = vcpu.cpu.filter(|c| demand(c) >= t.busy).as_ref().and_then(wait_of_demand);
    // Host tasks are not the cause of waiting for another guest.
    let theirs = used >= used_by_other_guests(ctx, guest, cpu);
    if theirs && wait.is_some_and(|w| w >= t.wait.warning) {
        severity = severity.max(Severity::Warning);
    } else if vcpu.cpu.is_some_and(|c| c.busy() < IDLE) {
        severity = Severity::Info;
    }
    Some(Intrusion { severity, cpu, used, vcpu, tasks, wait })
}

pub(super) fn host_tasks(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let host = ctx.topology();
    let mut worst: Option<Intrusion<'_>> = None;
    let mut cpus = CpuSet::new();
    let pinned = guest.vcpu_threads().filter_map(|t| Some((t, t.pinned_cpu()?)));
    for (vcpu, cpu) in pinned.filter(|(_, c)| !host.is_isolated(*c)) {
        let Some(found) = intrusion(ctx, guest, vcpu, cpu) else { continue };
        cpus.insert(cpu);
        if worst.as_ref().is_none_or(|w| (found.severity, found.used) > (w.severity, w.used)) {
            worst = Some(found);
        }
    }
    let Some(worst) = worst else { return };
    let mut marks: Vec<Mark> = cpus.iter().map(Mark::Pcpu).collect();
    marks.extend(worst.vcpu.index.map(Mark::Vcpu));
    let names = texts::tasks(&worst.tasks);
    verdicts.find(Finding {
        severity: worst.severity,
        confidence: Confidence::High,
        target: Target::Pcpu(worst.cpu),
        evidence: vec![
            texts::host_tasks(worst.used, worst.cpu, &worst.vcpu.label(), &names, worst.wait),
            texts::check_host_tasks(worst.cpu),
        ],
        fix: keep_away(ctx, guest),
        cost: Some(worst.used),
        marks,
        ..texts::HOST_TASKS.finding()
    });
}

/// Keeps the host's tasks off the CPUs of all pinned vCPUs.
fn keep_away(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Fix> {
    let isolation = Isolation::new(ctx);
    let moves = ctx.placement.plan().guests.get(guest.index).is_some_and(|part| !part.optional);
    let mut fix = if moves { placement::guest_placement(ctx, guest) } else { Vec::new() };
    if isolation.gives() && !isolation.host.is_empty() {
        // systemd's slices hold guests that are started by hand, and AllowedCPUs= outranks their pins.
        let by_hand = ctx.guests.iter().any(|g| g.config.libvirt == Some(false));
        let need = if by_hand { texts::SLICES_NEED_BY_HAND } else { texts::SLICES_NEED };
        fix.push(fixes::command(texts::limit_slices(&isolation.host)).needing(need));
    }
    fix.extend(isolation.options(&["isolcpus"]));
    fix
}
