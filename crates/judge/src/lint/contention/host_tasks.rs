//! Host tasks on a pinned vCPU's CPU.

use super::texts;
use crate::lint::prelude::*;

/// A vCPU that uses less is idle, and nothing on its CPU hurts it, percent.
const IDLE: f64 = 10.0;

/// CPU time that other guests' threads had on a CPU, percent.
fn used_by_other_guests(ctx: &Context<'_>, guest: &GuestContext<'_>, cpu: u32) -> f64 {
    let guest_threads = ctx.model.host.cpu(cpu).map(|c| c.guest_threads.iter()).into_iter().flatten();
    let is_other = |d: usize| ctx.model.domains.get(d).is_some_and(|d| !std::ptr::eq(d, guest.domain));
    guest_threads.filter(|t| t.here && is_other(t.domain)).map(|t| t.cpu).sum()
}

pub(super) fn host_tasks(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let (t, host) = (&ctx.thresholds().pinning, ctx.topology());
    let on_cpu = |cpu: u32| ctx.model.host.tasks.iter().filter(move |k| k.last_cpu == cpu);
    // Wait of a vCPU, percent of the time that it wants the CPU.
    let wait = |vcpu: &ThreadModel| vcpu.cpu.filter(|c| demand(c) >= t.busy).as_ref().and_then(wait_of_demand);
    let mut worst: Option<(Severity, f64, &ThreadModel, u32)> = None;
    let mut cpus = CpuSet::new();
    let pinned = guest.vcpu_threads().filter_map(|t| Some((t, t.pinned_cpu()?)));
    for (vcpu, cpu) in pinned.filter(|(_, c)| !host.is_isolated(*c)) {
        let used: f64 = on_cpu(cpu).map(|k| k.cpu_percent).sum();
        let Some(mut severity) = t.host_tasks.of(used) else { continue };
        // Host tasks are not the cause of waiting for another guest.
        let theirs = used >= used_by_other_guests(ctx, guest, cpu);
        if theirs && wait(vcpu).is_some_and(|w| w >= t.wait.warning) {
            severity = severity.max(Severity::Warning);
        } else if vcpu.cpu.is_some_and(|c| c.busy() < IDLE) {
            severity = Severity::Info;
        }
        cpus.insert(cpu);
        if worst.is_none_or(|(s, u, ..)| (severity, used) > (s, u)) {
            worst = Some((severity, used, vcpu, cpu));
        }
    }
    let Some((severity, used, vcpu, cpu)) = worst else { return };
    let mut marks: Vec<Mark> = cpus.iter().map(Mark::Pcpu).collect();
    marks.extend(vcpu.index.map(Mark::Vcpu));
    let waits = wait(vcpu).map(|w| format!("; the vCPU waits {} % of the time it wants the CPU", figure(w)));
    let evidence = vec![
        format!(
            "{} % of CPU {cpu}, to which {} is pinned, goes to tasks outside of guests: {}{}",
            figure(used),
            vcpu.label(),
            texts::tasks(&on_cpu(cpu).collect::<Vec<_>>()),
            waits.unwrap_or_default()
        ),
        format!("look at: ps -eLo psr,pcpu,comm --sort=-pcpu | awk '$1 == {cpu}' | head"),
    ];
    let found = Finding::new(severity, Confidence::High, evidence, keep_away(ctx, guest));
    verdicts.find(Finding { target: Target::Pcpu(cpu), cost: Some(used), marks, ..found });
}

/// Keeps the host's tasks off the CPUs of all pinned vCPUs.
fn keep_away(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Fix> {
    let isolation = Isolation::new(ctx);
    let moves = ctx.placement.plan().guests.get(guest.index).is_some_and(|part| !part.optional);
    let mut fix = if moves { guest_placement(ctx, guest) } else { Vec::new() };
    if isolation.gives() && !isolation.host.is_empty() {
        // systemd's slices hold guests that are started by hand, and AllowedCPUs= outranks their pins.
        let by_hand = ctx.guests.iter().any(|g| g.config.libvirt == Some(false));
        let need = if by_hand { texts::SLICES_NEED_BY_HAND } else { texts::SLICES_NEED };
        let limit = |slice| format!("systemctl set-property --runtime {slice} AllowedCPUs={}", isolation.host);
        let limits = ["user.slice", "system.slice"].map(limit).join("\n");
        fix.push(fixes::command(limits).needing(need));
    }
    fix.extend(isolation.options(&["isolcpus"]));
    fix
}
