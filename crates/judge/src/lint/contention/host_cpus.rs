//! No CPU left for the host.

use super::MAX_MARKS;
use crate::lint::prelude::*;
use crate::placement::GuestPlan;

pub(super) fn starved(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let map = ctx.map();
    let layouts = ctx.placement.layouts.iter().filter(|l| l.running);
    let pinned = layouts.fold(CpuSet::new(), |a, l| a.union(&l.single(map)));
    if pinned.is_empty() {
        return;
    }
    if map.all.is_empty() {
        return verdicts.cannot_tell("the CPUs of this host are unknown (add lscpu -p or virsh capabilities)");
    }
    let full = faults::starved(map, &ctx.placement.layouts);
    let emulators = ctx.guests.iter().flat_map(|g| g.domain.threads.iter().filter(|t| t.role == Role::Emulator));
    let wait = emulators.filter_map(|t| t.cpu?.wait).fold(0.0, f64::max);
    let mut evidence = Vec::new();
    if full {
        let isolated = Some(&map.isolated).filter(|cpus| !cpus.is_empty());
        let isolated = isolated.map(|cpus| format!("; the isolated CPUs {cpus} are no help")).unwrap_or_default();
        evidence.push(format!("every CPU of {} has a vCPU pinned to it alone{isolated}", map.general()));
    }
    if wait >= ctx.thresholds().pinning.starved_wait && pinned.len() * 2 > map.all.len() {
        evidence.push(format!("an emulator thread waits {} % of the time for a CPU", figure(wait)));
    }
    if evidence.is_empty() {
        return;
    }
    evidence.push("check: lscpu -e; virsh vcpupin of each guest".into());
    let makes_room = |p: &GuestPlan| p.reasons.contains_key(&MoveReason::HostStarved) || p.shares;
    let plan = ctx.placement.plan();
    let guests: Vec<usize> = plan.changed().filter(|(_, p)| full && makes_room(p)).map(|(g, _)| g).collect();
    let fix = fixes::or_advice(placement(ctx, &guests), fixes::advice(fixes::isolation::KEEP_FIRST_CORES));
    let marked = if full { map.general() } else { CpuSet::new() };
    let marks = marked.iter().take(MAX_MARKS).map(Mark::Pcpu).collect();
    let found = Finding::new(Severity::Warning, Confidence::High, evidence, fix);
    verdicts.find(Finding { target: Target::Host, marks, ..found });
}
