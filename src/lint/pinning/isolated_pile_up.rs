//! Sets of isolated CPUs, where nothing spreads the load.

use super::texts;
use crate::kvm::CpuSet;
use crate::lint::context::Context;
use crate::lint::context::cpu_wait::demand;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Mark, Severity, Target};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;
use std::collections::BTreeMap;

/// A guest's vCPUs that may use several isolated CPUs.
fn on_several(guest: &GuestContext<'_>, isolated: &CpuSet) -> Vec<(u32, CpuSet)> {
    guest.vcpu_cpus.masks.iter().filter(|(_, s)| s.len() > 1 && s.is_subset(isolated)).cloned().collect()
}

/// The busy vCPUs by the CPU that they are on: the guest's own, and those of other guests on the same CPUs.
fn busy_by_cpu(ctx: &Context<'_>, guest: &GuestContext<'_>, isolated: &CpuSet) -> BTreeMap<u32, Vec<String>> {
    let busy = ctx.thresholds().pinning.busy;
    let busy_on = |g: &GuestContext<'_>, vcpu: u32| {
        let thread = g.domain.vcpu(vcpu)?;
        thread.place.cpu.filter(|_| thread.cpu.is_some_and(|c| demand(&c) >= busy))
    };
    let mut by_cpu: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (v, _) in on_several(guest, isolated) {
        if let Some(cpu) = busy_on(guest, v) {
            by_cpu.entry(cpu).or_default().push(v.to_string());
        }
    }
    for other in ctx.others(guest).filter(|g| g.running()) {
        for (v, _) in on_several(other, isolated) {
            if let Some(vcpus) = busy_on(other, v).and_then(|cpu| by_cpu.get_mut(&cpu)) {
                vcpus.push(texts::vcpu_of(v, other.name()));
            }
        }
    }
    by_cpu
}

pub(super) fn pile_up(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let Some(isolated) = ctx.topology().isolated.as_ref().filter(|s| !s.is_empty()) else { return };
    let vcpus = on_several(guest, isolated);
    let by_cpu = busy_by_cpu(ctx, guest, isolated);
    let pile = by_cpu.iter().max_by_key(|p| p.1.len()).filter(|p| p.1.len() > 1);
    let measured = guest.vcpu_threads().any(|t| t.cpu.is_some());
    if pile.is_none() && (measured || vcpus.len() < 2) {
        return;
    }
    let all = vcpus.iter().fold(CpuSet::new(), |a, p| a.union(&p.1));
    let mut evidence = Vec::new();
    let mut marks: Vec<Mark> = vcpus.iter().map(|p| Mark::Vcpu(p.0)).collect();
    if let Some((cpu, names)) = pile {
        evidence.push(texts::pile(names, *cpu, &guest.window()));
        marks.push(Mark::Pcpu(*cpu));
    }
    evidence.push(texts::several_isolated(vcpus.len(), &all));
    evidence.push(texts::CHECK_ISOLATED.into());
    let mut fix = fixes::placement::pin_all(ctx, guest);
    if fix.is_empty() {
        fix.push(fixes::advice(texts::PIN_TO_ISOLATED));
    }
    verdicts.find(Finding {
        severity: if pile.is_some() { Severity::Critical } else { Severity::Warning },
        confidence: if pile.is_some() { Confidence::High } else { Confidence::Medium },
        target: pile.map_or(Target::Domain, |p| Target::Pcpu(*p.0)),
        evidence,
        fix,
        marks,
        ..texts::PILE_UP.finding()
    });
}
