//! Busy vCPUs that move.

use super::texts;
use crate::lint::prelude::*;

/// With less wait, moves within a cache hurt little, percent.
const LITTLE_WAIT: f64 = 5.0;

/// How bad the moves of a busy vCPU are.
fn severity(ctx: &Context<'_>, seconds: f64, thread: &ThreadModel) -> Option<Severity> {
    let t = &ctx.thresholds().pinning;
    let (Some(total), Some(cpu)) = (thread.migrations.total, thread.cpu) else { return None };
    let rate = |n: u64| n as f64 / seconds;
    // A move to a sibling keeps the caches: it counts half.
    let near = rate(total.saturating_sub(thread.migrations.cross_core));
    let weighted = if ctx.topology().has_smt() { rate(total) - near / 2.0 } else { rate(total) };
    let to_cache = rate(thread.migrations.cross_llc);
    let mut severity = t.migrations.of(weighted);
    if to_cache >= t.far_migrations {
        severity = severity.max(Some(Severity::Warning));
    }
    if rate(thread.migrations.cross_node) >= t.far_migrations {
        severity = Some(Severity::Critical);
    } else if wait_of_demand(&cpu).is_some_and(|w| w < LITTLE_WAIT) && to_cache < t.far_migrations {
        // The scheduler spreads unpinned guests by design; without wait it hurts little.
        severity = severity.map(|_| Severity::Info);
    }
    severity
}

pub(super) fn migrating(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let Some(seconds) = guest.seconds else { return };
    let busy = ctx.thresholds().pinning.busy;
    let mut all = 0.0;
    let mut found: Option<(f64, Severity, &ThreadModel)> = None;
    for thread in guest.vcpu_threads() {
        let (Some(total), Some(cpu)) = (thread.migrations.total, thread.cpu) else { continue };
        if demand(&cpu) < busy || thread.pinned_cpu().is_some() {
            continue;
        }
        let rate = total as f64 / seconds;
        all += rate;
        if let Some(severity) = severity(ctx, seconds, thread)
            && found.is_none_or(|(r, s, _)| (severity, rate) > (s, r))
        {
            found = Some((rate, severity, thread));
        }
    }
    let Some((rate, severity, thread)) = found else { return };
    let fix = fixes::or_advice(guest_placement(ctx, guest), fixes::advice(texts::PIN_NO_ROOM));
    let m = &thread.migrations;
    let far = [(m.cross_core, "core"), (m.cross_llc, "last-level cache"), (m.cross_node, "node")];
    let far = far.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} to another {what}"));
    let far = far.collect::<Vec<_>>().join(", ");
    let far = if far.is_empty() { far } else { format!(" ({far})") };
    let (name, window, rate, all) = (thread.label(), guest.window(), figure(rate), figure(all));
    let wanted = figure(thread.cpu.as_ref().map_or(0.0, demand));
    let waits = thread.cpu.as_ref().and_then(wait_of_demand).map(|w| format!(" and waits {} % of that", figure(w)));
    let evidence = vec![
        format!("{rate} moves/s of {name} {window}{far}; all busy vCPUs together {all}/s"),
        format!("it wants a CPU {wanted} % of the time{}", waits.unwrap_or_default()),
        format!("look at: grep nr_migrations {}/sched, twice", texts::task(guest, thread)),
    ];
    let moved = guest.vcpu_threads().filter(|t| t.migrations.total.unwrap_or(0) > 0);
    let marks = moved.filter_map(|t| t.index).map(Mark::Vcpu).collect();
    let title = "Busy vCPUs are moved from CPU to CPU".into();
    verdicts.find(Finding { title, marks, ..Finding::new(severity, Confidence::High, evidence, fix) });
}
