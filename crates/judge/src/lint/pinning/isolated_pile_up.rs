//! Sets of isolated CPUs, where nothing spreads the load.

use super::texts;
use crate::lint::context::Context;
use crate::lint::context::cpu_wait::demand;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Mark, Severity, Target};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;
use kvm::CpuSet;
use std::collections::BTreeMap;

/// A guest's vCPUs that may use several isolated CPUs.
fn on_several<'a>(ctx: &'a Context<'_>, guest: &GuestContext<'_>) -> impl Iterator<Item = (u32, &'a CpuSet)> {
    let map = ctx.map();
    ctx.layout(guest).pooled(map).filter(|(_, set)| set.is_subset(&map.isolated))
}

/// The busy vCPUs of all guests on sets of isolated CPUs, by the CPU that they are on.
fn busy_by_cpu(ctx: &Context<'_>) -> BTreeMap<u32, Vec<(usize, u32)>> {
    let busy = ctx.thresholds().pinning.busy;
    let mut by_cpu: BTreeMap<u32, Vec<(usize, u32)>> = BTreeMap::new();
    for guest in ctx.guests.iter().filter(|g| g.running()) {
        for (v, _) in on_several(ctx, guest) {
            let Some(thread) = guest.domain.vcpu(v) else { continue };
            if let Some(cpu) = thread.place.cpu.filter(|_| thread.cpu.is_some_and(|c| demand(&c) >= busy)) {
                by_cpu.entry(cpu).or_default().push((guest.index, v));
            }
        }
    }
    by_cpu
}

pub(super) fn pile_up(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    if ctx.map().isolated.is_empty() {
        return;
    }
    let by_cpu = busy_by_cpu(ctx);
    for guest in ctx.guests.iter().filter(|g| g.running()) {
        of_guest(ctx, guest, &by_cpu, verdicts);
    }
}

fn of_guest(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    by_cpu: &BTreeMap<u32, Vec<(usize, u32)>>,
    verdicts: &mut Verdicts,
) {
    let vcpus: Vec<(u32, &CpuSet)> = on_several(ctx, guest).collect();
    let all = vcpus.iter().fold(CpuSet::new(), |a, p| a.union(p.1));
    let own = |on: &&Vec<(usize, u32)>| on.len() > 1 && on.iter().any(|(g, _)| *g == guest.index);
    let piles = all.iter().filter_map(|cpu| Some((cpu, by_cpu.get(&cpu).filter(own)?)));
    let pile = piles.max_by_key(|(_, on)| on.len());
    let measured = guest.vcpu_threads().any(|t| t.cpu.is_some());
    if pile.is_none() && (measured || vcpus.len() < 2) {
        return;
    }
    let mut evidence = Vec::new();
    let mut marks: Vec<Mark> = vcpus.iter().map(|p| Mark::Vcpu(p.0)).collect();
    if let Some((cpu, on)) = pile {
        let is_own = |user: &&(usize, u32)| user.0 == guest.index;
        let mine = on.iter().filter(is_own).map(|(_, v)| v.to_string());
        let theirs = on.iter().filter(|user| !is_own(user));
        let names = mine.chain(theirs.map(|(g, v)| texts::vcpu_of(*v, ctx.guests[*g].name())));
        evidence.push(texts::pile(&names.take(texts::MAX_NAMES).collect::<Vec<_>>(), on.len(), cpu, &guest.window()));
        marks.push(Mark::Pcpu(cpu));
    }
    evidence.push(texts::several_isolated(vcpus.len(), &all));
    evidence.push(texts::CHECK_ISOLATED.into());
    let mut fix = fixes::placement::guest_placement(ctx, guest);
    if fix.is_empty() {
        fix.push(fixes::advice(texts::PIN_TO_ISOLATED));
    }
    verdicts.find_for(
        guest.index,
        guest,
        Finding {
            severity: if pile.is_some() { Severity::Critical } else { Severity::Warning },
            confidence: if pile.is_some() { Confidence::High } else { Confidence::Medium },
            target: pile.map_or(Target::Domain, |p| Target::Pcpu(p.0)),
            evidence,
            fix,
            marks,
            ..texts::PILE_UP.finding()
        },
    );
}
