//! More vCPUs than CPUs, and they wait.

use super::texts;
use crate::lint::context::Context;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Mark, Severity, Target};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;
use crate::model::ThreadModel;
use crate::placement::{MoveReason, faults};
use kvm::CpuSet;
use std::collections::BTreeMap;

/// The most distinct sets that are compared.
const MAX_SETS: usize = 512;
/// The most guests that a finding names.
const MAX_GUESTS: usize = 64;
/// CPUs that are idle for more of the time are not short, percent.
const MOSTLY_IDLE: f64 = 50.0;
/// The most CPUs that a finding marks.
const MAX_MARKS: usize = 64;

/// vCPUs on a set of CPUs.
#[derive(Default, Clone, Copy)]
struct Load {
    vcpus: usize,
    /// Time that they wait and run, percent of one CPU.
    wait: f64,
    busy: f64,
}

/// An overcommitted set of CPUs.
struct Overcommit {
    severity: Severity,
    ratio: f64,
    cpus: CpuSet,
    load: Load,
    /// Wait, percent of the time that the vCPUs want a CPU.
    share: f64,
}

pub(super) fn overcommit(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let online = ctx.online();
    if online.is_empty() {
        return;
    }
    crowded_sets(ctx, verdicts);
    let sets = loads(ctx, &online);
    let Some(worst) = worst_set(ctx, &sets) else { return };
    verdicts.find(Finding {
        severity: worst.severity,
        confidence: Confidence::High,
        target: Target::Host,
        title: texts::overcommit_title(worst.load.vcpus, worst.cpus.len()),
        why: texts::OVERCOMMIT_WHY.into(),
        // The wait of all guests together: the cause comes before what each guest loses.
        cost: Some(worst.load.wait),
        also: guests_in(ctx, &online, &worst.cpus),
        evidence: vec![texts::ratio(worst.ratio, &worst.cpus, worst.share), texts::CHECK_OVERCOMMIT.into()],
        fix: vec![fixes::advice(texts::SPREAD_GUESTS)],
        marks: worst.cpus.iter().take(MAX_MARKS).map(Mark::Pcpu).collect(),
        ..Finding::default()
    });
}

/// Pinned sets with more vCPUs than CPUs while other CPUs are free, where nothing says how long the vCPUs wait.
fn crowded_sets(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let plan = ctx.placement.plan();
    let moves = |g: &usize| plan.guests.get(*g).is_some_and(|p| p.reasons.contains_key(&MoveReason::Crowded));
    for set in faults::crowded(ctx.map(), &ctx.placement.layouts) {
        // Without a better place this is as good as it gets: idle vCPUs may share CPUs in any number.
        let guests: Vec<usize> = set.guests.iter().copied().filter(moves).collect();
        if guests.is_empty() {
            continue;
        }
        let names = set.guests.iter().take(MAX_GUESTS).filter_map(|g| ctx.guests.get(*g)).map(|g| g.name().to_owned());
        let ratio = set.vcpus as f64 / set.cpus.len().max(1) as f64;
        let severity = ctx.thresholds().pinning.overcommit.of(ratio).unwrap_or_default();
        verdicts.find(Finding {
            also: names.collect(),
            severity: severity.min(Severity::Warning),
            confidence: Confidence::Medium,
            target: Target::Host,
            title: texts::crowded_title(set.vcpus, set.cpus.len()),
            why: texts::CROWDED_WHY.into(),
            evidence: vec![texts::crowded(set.vcpus, &set.cpus, ratio), texts::CHECK_OVERCOMMIT.into()],
            fix: fixes::placement::placement(ctx, &guests),
            marks: set.cpus.iter().take(MAX_MARKS).map(Mark::Pcpu).collect(),
            ..Finding::default()
        });
    }
}

/// The guests with a vCPU that cannot leave these CPUs. Where all are idle but a few, these few are the guests to move.
fn guests_in(ctx: &Context<'_>, online: &CpuSet, cpus: &CpuSet) -> Vec<String> {
    let inside = |t: &ThreadModel| t.place.affinity.as_ref().map_or(online, |a| a).intersection(online).is_subset(cpus);
    let least = ctx.thresholds().pinning.wait.info;
    let wants = |t: &ThreadModel| t.cpu.is_some_and(|c| c.busy() + c.wait.unwrap_or(0.0) >= least);
    let guests = ctx.guests.iter().filter(|g| g.running() && g.vcpu_threads().any(|t| inside(t) && wants(t)));
    guests.take(MAX_GUESTS).map(|g| g.name().to_owned()).collect()
}

/// How idle CPUs are on average, percent; `None` where it is not measured.
fn idle(ctx: &Context<'_>, cpus: &CpuSet) -> Option<f64> {
    let times = ctx.model.host.cpus.iter().filter(|c| cpus.contains(c.cpu)).filter_map(|c| c.time.as_ref());
    let (sum, count) = times.fold((0.0, 0.0), |(sum, n), t| (sum + 100.0 - t.busy(), n + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// vCPUs by the CPUs that they may use.
fn loads(ctx: &Context<'_>, online: &CpuSet) -> BTreeMap<CpuSet, Load> {
    let mut sets: BTreeMap<CpuSet, Load> = BTreeMap::new();
    for thread in ctx.guests.iter().filter(|g| g.running()).flat_map(GuestContext::vcpu_threads) {
        let mask = thread.place.affinity.as_ref().map_or_else(|| online.clone(), |a| a.intersection(online));
        let cpu = thread.cpu.unwrap_or_default();
        let load = sets.entry(mask).or_default();
        load.vcpus += 1;
        load.wait += cpu.wait.unwrap_or(0.0);
        load.busy += cpu.busy();
    }
    sets
}

/// The worst set. A set is overcommitted by all vCPUs that cannot leave it.
fn worst_set(ctx: &Context<'_>, sets: &BTreeMap<CpuSet, Load>) -> Option<Overcommit> {
    let t = &ctx.thresholds().pinning;
    let mut worst: Option<Overcommit> = None;
    for cpus in sets.keys().filter(|s| !s.is_empty()).take(MAX_SETS) {
        let inside = sets.iter().filter(|(s, _)| s.is_subset(cpus)).map(|(_, v)| v);
        let load = inside.fold(Load::default(), |a, b| Load {
            vcpus: a.vcpus + b.vcpus,
            wait: a.wait + b.wait,
            busy: a.busy + b.busy,
        });
        let ratio = load.vcpus as f64 / cpus.len() as f64;
        let wanted = load.wait + load.busy;
        let share = if wanted > 0.0 { 100.0 * load.wait / wanted } else { 0.0 };
        let Some(mut severity) = t.overcommit.of(ratio) else { continue };
        // Idle guests wait for much of the little that they want: the wait has to be a part of the CPUs' time too.
        if share < t.wait.info || load.wait < t.wait.info * cpus.len() as f64 {
            continue;
        }
        // Where the CPUs are idle most of the time, their number is not the reason for the wait.
        if idle(ctx, cpus).is_some_and(|idle| idle > MOSTLY_IDLE) {
            continue;
        }
        if severity == Severity::Critical && share < t.wait.warning {
            severity = Severity::Warning;
        }
        if worst.as_ref().is_none_or(|w| (severity, ratio) > (w.severity, w.ratio)) {
            worst = Some(Overcommit { severity, ratio, cpus: cpus.clone(), load, share });
        }
    }
    worst
}
