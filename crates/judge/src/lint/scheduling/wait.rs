//! Time on the run queue, and locks whose holder is there.

use super::texts;
use crate::lint::prelude::*;
use sample::OtherTask;

/// The host has a CPU to spare from this idle time of all CPUs together on, percent of one CPU.
const IDLE_CPU: f64 = 50.0;
/// The most tasks that evidence names.
const MAX_TASKS: usize = 3;

pub(super) fn wait(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().pinning;
    let mut worst: Option<(f64, Severity, &ThreadModel)> = None;
    let mut lost = 0.0;
    let mut marks = Vec::new();
    for thread in guest.vcpu_threads() {
        let Some(cpu) = thread.cpu.filter(|c| demand(c) >= t.busy) else { continue };
        let Some(share) = wait_of_demand(&cpu) else { continue };
        let Some(severity) = t.wait.of(share) else { continue };
        lost += cpu.wait.unwrap_or(0.0);
        marks.push(Mark::Thread(thread.tid));
        marks.extend(thread.pinned_cpu().map(Mark::Pcpu));
        if worst.is_none_or(|(s, ..)| share > s) {
            worst = Some((share, severity, thread));
        }
    }
    let Some((share, severity, thread)) = worst else { return };
    let (name, window) = (thread.label(), guest.window());
    let mut evidence = vec![format!(
        "{name} waits {} % of the time it wants a CPU {window}; all vCPUs of the guest together lose {} % of one CPU",
        figure(share),
        figure(lost)
    )];
    let ran = thread.preempted_by.iter().take(MAX_TASKS);
    let ran = ran.map(|o| format!("{} ({} ms)", task_name(ctx, o), figure(o.ns as f64 / 1e6)));
    let ran = ran.collect::<Vec<_>>().join(", ");
    evidence.extend((!ran.is_empty()).then(|| format!("meanwhile its CPU ran {ran}")));
    let folder = texts::task(guest, thread);
    evidence.push(format!("look at: cat {folder}/schedstat, twice: the second figure is the wait in ns"));
    let mut fix = own_cpus(ctx, guest, lost);
    if !fix.iter().any(|f| f.text == texts::LESS_LOAD) {
        fix.push(fixes::advice(texts::LESS_LOAD));
    }
    let title = "vCPUs are ready to run and wait for a CPU".into();
    let found = Finding::new(severity, Confidence::High, evidence, fix);
    verdicts.find(Finding { title, cost: Some(lost), marks, ..found });
}

/// Pins that give a guest the `lost` time that its vCPUs wait, percent of one CPU. A full host gets advice instead:
/// load has to go first.
fn own_cpus(ctx: &Context<'_>, guest: &GuestContext<'_>, lost: f64) -> Vec<Fix> {
    let idle: Vec<f64> = ctx.model.host.cpus.iter().filter_map(|c| Some(100.0 - c.time?.busy())).collect();
    let no_room = !idle.is_empty() && idle.iter().sum::<f64>() < lost.max(IDLE_CPU);
    // The plan may only have CPUs that other tasks use.
    let is_busy = || {
        let plan = ctx.placement.plan().guests.get(guest.index);
        plan.iter().flat_map(|p| p.vcpus.values()).any(|cpus| cpus.intersects(&ctx.map().busy))
    };
    if no_room || is_busy() {
        return vec![fixes::advice(texts::LESS_LOAD)];
    }
    guest_placement(ctx, guest)
}

/// A task by its role in a guest, else by its name.
fn task_name(ctx: &Context<'_>, task: &OtherTask) -> String {
    let in_guest = |g: &GuestContext<'_>| {
        let thread = g.domain.threads.iter().find(|t| t.tid == task.tid)?;
        Some(format!("{} of {}", thread.label(), g.name()))
    };
    ctx.guests.iter().find_map(in_guest).unwrap_or_else(|| task.comm.clone())
}

/// Pause-loop exits.
pub(super) fn pauses(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let exits = guest.exits(&[ExitKind::Pause]);
    let Some(per_vcpu) = exits.per_vcpu_or_tell(guest, verdicts) else { return };
    let t = &ctx.thresholds().scheduling;
    let Some(mut severity) = t.pause.of(per_vcpu) else { return };
    let wait = guest.domain.vcpu_wait_percent();
    if wait.is_none_or(|w| w < t.pause_wait) {
        severity = Severity::Info;
    }
    let waiting = severity > Severity::Info;
    let fix = if waiting {
        let mut pins = own_cpus(ctx, guest, guest.domain.vcpus().filter_map(|t| t.cpu?.wait).sum());
        pins.push(fixes::advice(texts::FEWER_VCPUS));
        pins
    } else {
        vec![fixes::advice(if wait.is_some() { texts::SPINS_INSIDE } else { texts::SPINS_WAIT_UNKNOWN })]
    };
    let share = |w| format!("its vCPUs wait for a CPU {} % of the time they want one", figure(w));
    let evidence = vec![
        exits.describe(guest, "pause-loop exits", ""),
        wait.map_or_else(|| "whether its vCPUs wait for CPUs is unknown".into(), share),
        guest.perf_check("vmexit"),
    ];
    let (confidence, title) = if waiting {
        (Confidence::High, "vCPUs spin on locks whose holder has no CPU")
    } else {
        (Confidence::Medium, "vCPUs spin on locks")
    };
    let found = Finding::new(severity, confidence, evidence, fix).caused_by(exits);
    verdicts.find(Finding { title: title.into(), ..found });
}
