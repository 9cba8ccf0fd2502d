//! More vCPUs than CPUs, and they wait.

use super::texts;
use crate::kvm::CpuSet;
use crate::lint::context::Context;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Mark, Severity, Target};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;
use std::collections::BTreeMap;

/// The most CPUs that a finding marks.
const MOST_MARKS: usize = 64;

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
    let Some(worst) = worst_set(ctx, &loads(ctx, &online)) else { return };
    verdicts.find(Finding {
        severity: worst.severity,
        confidence: Confidence::High,
        target: Target::Host,
        title: texts::overcommit_title(worst.load.vcpus, worst.cpus.len()),
        why: texts::OVERCOMMIT_WHY.into(),
        // The wait of all guests together: the cause comes before what each guest loses.
        cost: Some(worst.load.wait),
        evidence: vec![texts::ratio(worst.ratio, &worst.cpus, worst.share), texts::CHECK_OVERCOMMIT.into()],
        fix: vec![fixes::advice(texts::SPREAD_GUESTS)],
        marks: worst.cpus.iter().take(MOST_MARKS).map(Mark::Pcpu).collect(),
        ..Finding::default()
    });
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
    for cpus in sets.keys().filter(|s| !s.is_empty()) {
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
        if severity == Severity::Critical && share < t.wait.warning {
            severity = Severity::Warning;
        }
        if worst.as_ref().is_none_or(|w| (severity, ratio) > (w.severity, w.ratio)) {
            worst = Some(Overcommit { severity, ratio, cpus: cpus.clone(), load, share });
        }
    }
    worst
}
