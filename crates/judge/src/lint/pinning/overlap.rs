//! Pins that conflict: vCPUs of several guests or of one on a CPU, and free vCPUs among pinned ones.

use super::texts;
use crate::lint::context::Context;
use crate::lint::context::cpu_wait;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Mark, Severity, Target};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;
use crate::placement::faults::{CpuOverlap, overlaps};
use kvm::CpuSet;

/// The most CPUs that evidence lists one by one.
const MAX_CPUS: usize = 8;

pub(super) fn overlap(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    for overlap in overlaps(ctx.map(), &ctx.placement.layouts) {
        report(ctx, &overlap, verdicts);
    }
    for guest in &ctx.guests {
        partly_pinned(ctx, guest, verdicts);
    }
}

/// A CPU and the vCPUs that want it.
struct SharedCpu<'a> {
    cpu: u32,
    users: &'a [(usize, u32)],
    count: usize,
    /// What each wants of the CPU, percent, where all of that is known.
    wanted: Option<Vec<f64>>,
}

impl SharedCpu<'_> {
    fn severity(&self, busy: f64) -> Severity {
        let Some(wanted) = &self.wanted else { return Severity::Warning };
        let competing = wanted.iter().filter(|w| **w >= busy).count() > 1;
        match competing {
            true if wanted.iter().sum::<f64>() > 100.0 => Severity::Critical,
            true => Severity::Warning,
            false => Severity::Info,
        }
    }

    fn excess(&self) -> Option<f64> {
        self.wanted.as_ref().map(|w| (w.iter().sum::<f64>() - 100.0).max(0.0))
    }
}

/// What a vCPU wants of a CPU, percent.
fn demand(guest: &GuestContext<'_>, vcpu: u32) -> Option<f64> {
    guest.domain.vcpu(vcpu)?.cpu.as_ref().map(cpu_wait::demand)
}

fn report(ctx: &Context<'_>, overlap: &CpuOverlap, verdicts: &mut Verdicts) {
    let busy = ctx.thresholds().pinning.overlap_busy;
    let shared: Vec<SharedCpu<'_>> = overlap
        .cpus
        .iter()
        .map(|(cpu, (users, count))| {
            let wanted = users.iter().map(|(g, v)| demand(ctx.guests.get(*g)?, *v)).collect();
            SharedCpu { cpu: *cpu, users, count: *count, wanted }
        })
        .collect();
    let worst = shared.iter().max_by_key(|s| s.severity(busy));
    let (Some(worst), Some(first)) = (worst, overlap.guests.first().and_then(|g| ctx.guests.get(*g))) else { return };
    let cpus: CpuSet = overlap.cpus.keys().copied().collect();
    let names: Vec<&str> = overlap.guests.iter().filter_map(|g| ctx.guests.get(*g)).map(GuestContext::name).collect();
    let others = overlap.guest_count - 1;
    let named = |(g, v): &(usize, u32)| {
        let cpus = ctx.placement.layouts.get(*g).and_then(|l| l.vcpus.get(*v as usize)).filter(|set| set.len() > 1);
        texts::user(*v, (others > 0).then(|| ctx.guests[*g].name()), cpus)
    };
    let line = |s: &SharedCpu<'_>| {
        let users: Vec<String> = s.users.iter().map(named).collect();
        texts::shared_cpu(s.cpu, &users, s.count, s.wanted.as_deref(), &first.window())
    };
    let mut evidence: Vec<String> = vec![line(worst)];
    evidence.extend(shared.iter().filter(|s| s.cpu != worst.cpu).take(MAX_CPUS).map(line));
    if shared.len() > MAX_CPUS + 1 {
        evidence.push(texts::conflict_cpus(&cpus));
    }
    evidence.push(fixes::check_pins(first));
    let mut fix = fixes::placement::placement(ctx, &overlap.guests);
    if fix.is_empty() {
        fix.push(fixes::advice(texts::SEPARATE_SETS));
    }
    if overlap.guest_count > overlap.guests.len() {
        fix.push(fixes::advice(fixes::placement::MORE_IN_PLAN));
    }
    let mut marks: Vec<Mark> = cpus.iter().map(Mark::Pcpu).collect();
    for (g, v) in shared.iter().flat_map(|s| s.users) {
        marks.push(if *g == first.index {
            Mark::Vcpu(*v)
        } else {
            match ctx.guests[*g].domain.vcpu(*v) {
                Some(t) => Mark::Thread(t.tid),
                None => continue,
            }
        });
    }
    verdicts.find_for(
        first.index,
        first,
        Finding {
            also: names.iter().skip(1).map(|n| (*n).to_owned()).collect(),
            severity: worst.severity(busy),
            confidence: if worst.wanted.is_some() { Confidence::High } else { Confidence::Medium },
            target: Target::Pcpu(worst.cpu),
            title: texts::overlap_title(&names, overlap.guest_count, worst.count),
            why: texts::OVERLAP_WHY.into(),
            evidence,
            fix,
            cost: shared.iter().filter_map(SharedCpu::excess).reduce(|a, b| a + b).filter(|c| *c > 0.0),
            marks,
            ..Finding::default()
        },
    );
}

/// Some vCPUs are pinned, and the others may run on their CPUs.
fn partly_pinned(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let (map, layout) = (ctx.map(), ctx.layout(guest));
    let free = if guest.running() { layout.partly_pinned(map) } else { Vec::new() };
    if free.is_empty() {
        return;
    }
    let single = layout.single(map);
    let mut fix = fixes::placement::guest_placement(ctx, guest);
    if fix.is_empty() {
        fix.push(fixes::advice(texts::ALL_OR_NONE));
    }
    let pinned = layout.pins(map).count();
    verdicts.find_for(
        guest.index,
        guest,
        Finding {
            severity: Severity::Info,
            confidence: Confidence::High,
            evidence: vec![
                texts::partly_pinned(pinned, layout.vcpus.len(), &single, &free.into_iter().collect()),
                fixes::check_pins(guest),
            ],
            fix,
            marks: single.iter().map(Mark::Pcpu).collect(),
            ..texts::PARTLY_PINNED.finding()
        },
    );
}
