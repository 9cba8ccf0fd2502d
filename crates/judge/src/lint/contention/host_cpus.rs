//! No CPU left for the host.

use super::texts;
use crate::lint::context::Context;
use crate::lint::engine::finding::{Confidence, Finding, Mark, Severity, Target};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;
use crate::placement::{GuestPlan, MoveReason, faults};
use kvm::CpuSet;
use kvm::thread_name::Role;

/// The most CPUs that a finding marks.
const MAX_MARKS: usize = 64;

pub(super) fn starved(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let map = ctx.map();
    let layouts = ctx.placement.layouts.iter().filter(|l| l.running);
    let pinned = layouts.fold(CpuSet::new(), |a, l| a.union(&l.single(map)));
    if pinned.is_empty() {
        return;
    }
    let online = &map.all;
    if online.is_empty() {
        return verdicts.cannot_tell(texts::HOST_CPUS_UNKNOWN);
    }
    let full = faults::starved(map, &ctx.placement.layouts);
    let emulators = ctx.guests.iter().flat_map(|g| g.domain.threads.iter().filter(|t| t.role == Role::Emulator));
    let wait = emulators.filter_map(|t| t.cpu?.wait).fold(0.0, f64::max);
    let starving = wait >= ctx.thresholds().pinning.starved_wait && pinned.len() * 2 > online.len();
    if !full && !starving {
        return;
    }
    let mut evidence = Vec::new();
    if full {
        evidence.push(texts::full(&map.general(), &map.isolated));
    }
    if starving {
        evidence.push(texts::emulator_waits(wait));
    }
    evidence.push(texts::CHECK_STARVED.into());
    let plan = ctx.placement.plan();
    let makes_room = |p: &GuestPlan| p.reasons.contains_key(&MoveReason::HostStarved) || p.shares;
    let guests: Vec<usize> = plan.changed().filter(|(_, p)| full && makes_room(p)).map(|(g, _)| g).collect();
    let mut fix = fixes::placement::placement(ctx, &guests);
    if fix.is_empty() {
        fix.push(fixes::advice(fixes::isolation::KEEP_FIRST_CORES));
    }
    let marked = if full { map.general() } else { CpuSet::new() };
    verdicts.find(Finding {
        severity: Severity::Warning,
        confidence: Confidence::High,
        target: Target::Host,
        evidence,
        fix,
        marks: marked.iter().take(MAX_MARKS).map(Mark::Pcpu).collect(),
        ..texts::STARVED.finding()
    });
}
