//! More vCPUs than CPUs, and they wait.

use super::{MAX_MARKS, texts};
use crate::lint::prelude::*;
use std::collections::BTreeMap;

/// The most distinct sets that are compared.
const MAX_SETS: usize = 512;
/// The most guests that a finding names.
const MAX_GUESTS: usize = 64;
/// CPUs that are idle for more of the time are not short, percent.
const MOSTLY_IDLE: f64 = 50.0;

/// vCPUs on a set of CPUs.
#[derive(Default, Clone, Copy)]
struct Load {
    vcpus: usize,
    /// Time that they wait and run, percent of one CPU.
    wait: f64,
    busy: f64,
}

impl Load {
    fn add(&mut self, other: Self) {
        self.vcpus += other.vcpus;
        self.wait += other.wait;
        self.busy += other.busy;
    }
}

/// An overcommitted set of CPUs: how badly, vCPUs per CPU, and their wait, percent of the time that they want a CPU.
type Overcommit<'a> = (Severity, f64, &'a CpuSet, Load, f64);

pub(super) fn overcommit(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let online = ctx.online();
    if online.is_empty() {
        return;
    }
    crowded_sets(ctx, verdicts);
    // vCPUs by the CPUs that they may use.
    let mut sets: BTreeMap<CpuSet, Load> = BTreeMap::new();
    for thread in ctx.guests.iter().filter(|g| g.running()).flat_map(GuestContext::vcpu_threads) {
        let cpu = thread.cpu.unwrap_or_default();
        let load = Load { vcpus: 1, wait: cpu.wait.unwrap_or(0.0), busy: cpu.busy() };
        sets.entry(may_use(thread, &online)).or_default().add(load);
    }
    let Some((severity, ratio, cpus, load, share)) = worst_set(ctx, &sets) else { return };
    let (vcpus, ratio, share) = (load.vcpus, figure(ratio), figure(share));
    let evidence = format!("{ratio} vCPUs per CPU on CPUs {cpus}; they wait {share} % of the time they want a CPU");
    let fix = vec![fixes::advice(texts::SPREAD_GUESTS)];
    let finding = crowded(cpus, severity, Confidence::High, evidence, fix);
    verdicts.find(Finding {
        title: format!("{vcpus} vCPUs share {} CPUs, and they wait", cpus.len()),
        // The wait of all guests together: the cause comes before what each guest loses.
        cost: Some(load.wait),
        also: guests_in(ctx, &online, cpus),
        ..finding
    });
}

/// A finding about a set of CPUs.
fn crowded(cpus: &CpuSet, severity: Severity, confidence: Confidence, evidence: String, fix: Vec<Fix>) -> Finding {
    let evidence = vec![evidence, "check: virsh vcpuinfo of each guest".into()];
    let marks = cpus.iter().take(MAX_MARKS).map(Mark::Pcpu).collect();
    Finding { target: Target::Host, marks, ..Finding::new(severity, confidence, evidence, fix) }
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
        let (vcpus, cpus) = (set.vcpus, &set.cpus);
        let ratio = vcpus as f64 / cpus.len().max(1) as f64;
        let severity = ctx.thresholds().pinning.overcommit.of(ratio).unwrap_or_default().min(Severity::Warning);
        let evidence = format!(
            "{vcpus} vCPUs may use CPUs {cpus} only: {} vCPUs per CPU; how long they wait is not measured",
            figure(ratio)
        );
        let fix = placement(ctx, &guests);
        let names = set.guests.iter().take(MAX_GUESTS).filter_map(|g| ctx.guests.get(*g)).map(|g| g.name().to_owned());
        verdicts.find(Finding {
            also: names.collect(),
            title: format!("{vcpus} vCPUs are pinned to {} CPUs while others are free", cpus.len()),
            why: texts::CROWDED_WHY.into(),
            ..crowded(cpus, severity, Confidence::Medium, evidence, fix)
        });
    }
}

/// The CPUs that are online and that a thread may use.
fn may_use(thread: &ThreadModel, online: &CpuSet) -> CpuSet {
    thread.place.affinity.as_ref().map_or_else(|| online.clone(), |a| a.intersection(online))
}

/// The guests with a vCPU that cannot leave these CPUs. Where all are idle but a few, these few are the guests to move.
fn guests_in(ctx: &Context<'_>, online: &CpuSet, cpus: &CpuSet) -> Vec<String> {
    let least = ctx.thresholds().pinning.wait.info;
    let wants = |t: &ThreadModel| t.cpu.is_some_and(|c| demand(&c) >= least) && may_use(t, online).is_subset(cpus);
    let guests = ctx.guests.iter().filter(|g| g.running() && g.vcpu_threads().any(wants));
    guests.take(MAX_GUESTS).map(|g| g.name().to_owned()).collect()
}

/// How idle CPUs are on average, percent; `None` where it is not measured.
fn idle(ctx: &Context<'_>, cpus: &CpuSet) -> Option<f64> {
    let times = ctx.model.host.cpus.iter().filter(|c| cpus.contains(c.cpu)).filter_map(|c| c.time.as_ref());
    let (sum, count) = times.fold((0.0, 0.0), |(sum, n), t| (sum + 100.0 - t.busy(), n + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// The worst set. A set is overcommitted by all vCPUs that cannot leave it.
fn worst_set<'a>(ctx: &Context<'_>, sets: &'a BTreeMap<CpuSet, Load>) -> Option<Overcommit<'a>> {
    let t = &ctx.thresholds().pinning;
    let mut worst: Option<Overcommit<'_>> = None;
    for cpus in sets.keys().filter(|s| !s.is_empty()).take(MAX_SETS) {
        let mut load = Load::default();
        sets.iter().filter(|(s, _)| s.is_subset(cpus)).for_each(|(_, of)| load.add(*of));
        let ratio = load.vcpus as f64 / cpus.len() as f64;
        let wanted = load.wait + load.busy;
        let share = if wanted > 0.0 { 100.0 * load.wait / wanted } else { 0.0 };
        let Some(mut severity) = t.overcommit.of(ratio) else { continue };
        // Idle guests wait for much of the little that they want: the wait has to be a part of the CPUs' time too.
        let waits = share >= t.wait.info && load.wait >= t.wait.info * cpus.len() as f64;
        // Where the CPUs are idle most of the time, their number is not the reason for the wait.
        if !waits || idle(ctx, cpus).is_some_and(|idle| idle > MOSTLY_IDLE) {
            continue;
        }
        if severity == Severity::Critical && share < t.wait.warning {
            severity = Severity::Warning;
        }
        if worst.is_none_or(|w| (severity, ratio) > (w.0, w.1)) {
            worst = Some((severity, ratio, cpus, load, share));
        }
    }
    worst
}
