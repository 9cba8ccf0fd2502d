//! Time on the run queue.

use super::texts;
use crate::lint::context::Context;
use crate::lint::context::cpu_wait::{demand, wait_of_demand};
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Mark, Severity};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;
use crate::model::ThreadModel;
use crate::sample::OtherTask;

/// The most tasks that evidence names.
const MOST_TASKS: usize = 3;

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
    let mut evidence = vec![texts::waits(&thread.label(), share, &guest.window(), lost)];
    if !thread.preempted_by.is_empty() {
        let first = thread.preempted_by.iter().take(MOST_TASKS);
        evidence.push(texts::ran_meanwhile(&first.map(|o| (task_name(ctx, o), o.ns)).collect::<Vec<_>>()));
    }
    evidence.push(texts::check_wait(guest.domain.facts.pid.unwrap_or_default(), thread.tid));
    let mut fix = Vec::new();
    if thread.pinned_cpu().is_none() {
        fix.extend(fixes::placement::pin_all(ctx, guest));
    }
    fix.push(fixes::advice(texts::LESS_LOAD));
    verdicts.find(Finding {
        severity,
        confidence: Confidence::High,
        evidence,
        fix,
        cost: Some(lost),
        marks,
        ..texts::WAIT.finding()
    });
}

/// A task by its role in a guest, else by its name.
fn task_name(ctx: &Context<'_>, task: &OtherTask) -> String {
    let in_guest = |g: &GuestContext<'_>| {
        let thread = g.domain.threads.iter().find(|t| t.tid == task.tid)?;
        Some(texts::vcpu_of_guest(&thread.label(), g.name()))
    };
    ctx.guests.iter().find_map(in_guest).unwrap_or_else(|| task.comm.clone())
}
