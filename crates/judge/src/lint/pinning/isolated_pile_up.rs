//! Sets of isolated CPUs, where nothing spreads the load.

use super::texts;
use crate::lint::prelude::*;
use std::collections::BTreeMap;

/// The most vCPUs that a sentence names.
const MAX_NAMES: usize = 64;

/// A guest's vCPUs that may use several isolated CPUs.
fn on_several<'a>(ctx: &'a Context<'_>, guest: &GuestContext<'_>) -> impl Iterator<Item = (u32, &'a CpuSet)> {
    let map = ctx.map();
    ctx.layout(guest).pooled(map).filter(|(_, set)| set.is_subset(&map.isolated))
}

pub(super) fn pile_up(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    if ctx.map().isolated.is_empty() {
        return;
    }
    let busy = ctx.thresholds().pinning.busy;
    // The busy vCPUs of all guests on sets of isolated CPUs, by the CPU that they are on.
    let mut by_cpu: BTreeMap<u32, Vec<(usize, u32)>> = BTreeMap::new();
    for guest in ctx.guests.iter().filter(|g| g.running()) {
        for (v, _) in on_several(ctx, guest) {
            let thread = guest.domain.vcpu(v).filter(|t| t.cpu.is_some_and(|c| demand(&c) >= busy));
            if let Some(cpu) = thread.and_then(|t| t.place.cpu) {
                by_cpu.entry(cpu).or_default().push((guest.index, v));
            }
        }
    }
    for guest in ctx.guests.iter().filter(|g| g.running()) {
        if let Some(finding) = of_guest(ctx, guest, &by_cpu) {
            verdicts.find_for(guest, finding);
        }
    }
}

fn of_guest(ctx: &Context<'_>, guest: &GuestContext<'_>, by_cpu: &BTreeMap<u32, Vec<(usize, u32)>>) -> Option<Finding> {
    let vcpus: Vec<(u32, &CpuSet)> = on_several(ctx, guest).collect();
    let all = vcpus.iter().fold(CpuSet::new(), |a, p| a.union(p.1));
    let own = |on: &&Vec<(usize, u32)>| on.len() > 1 && on.iter().any(|(g, _)| *g == guest.index);
    let piles = all.iter().filter_map(|cpu| Some((cpu, by_cpu.get(&cpu).filter(own)?)));
    let pile = piles.max_by_key(|(_, on)| on.len());
    let measured = guest.vcpu_threads().any(|t| t.cpu.is_some());
    if pile.is_none() && (measured || vcpus.len() < 2) {
        return None;
    }
    let mut evidence = Vec::new();
    let mut marks: Vec<Mark> = vcpus.iter().map(|p| Mark::Vcpu(p.0)).collect();
    let (mut severity, mut confidence) = (Severity::Warning, Confidence::Medium);
    if let Some((cpu, on)) = pile {
        (severity, confidence) = (Severity::Critical, Confidence::High);
        let (mine, theirs): (Vec<_>, Vec<_>) = on.iter().partition(|(g, _)| *g == guest.index);
        let mine = mine.iter().map(|(_, v)| v.to_string());
        let names = mine.chain(theirs.iter().map(|(g, v)| format!("{v} of {}", ctx.guests[*g].name())));
        let names = names.take(MAX_NAMES).collect::<Vec<_>>().join(", ");
        let more = if on.len() > MAX_NAMES { format!(" and {} more", on.len() - MAX_NAMES) } else { String::new() };
        evidence.push(format!("vCPUs {names}{more} are all on CPU {cpu} and want it {}", guest.window()));
        marks.push(Mark::Pcpu(cpu));
    }
    evidence.push(format!("{} vCPUs may each use several of the isolated CPUs {all}", vcpus.len()));
    evidence.push("look at: cat /sys/devices/system/cpu/isolated".into());
    let fix = fixes::or_advice(guest_placement(ctx, guest), fixes::advice(texts::PIN_TO_ISOLATED));
    Some(Finding {
        target: pile.map_or(Target::Domain, |p| Target::Pcpu(p.0)),
        title: "vCPUs pile up on an isolated CPU: nothing balances load there".into(),
        marks,
        ..Finding::new(severity, confidence, evidence, fix)
    })
}
