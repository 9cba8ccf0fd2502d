//! Pins that conflict: vCPUs of two guests or of one, and free vCPUs among pinned ones.

use super::texts;
use crate::kvm::CpuSet;
use crate::lint::context::Context;
use crate::lint::context::cpu_wait;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Mark, Severity, Target};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;

/// Two vCPUs on one CPU.
struct PinConflict {
    cpu: u32,
    mine: u32,
    other: u32,
    /// What each wants of the CPU, percent, where CPU times are known.
    wanted: Option<(f64, f64)>,
}

impl PinConflict {
    fn severity(&self, busy: f64) -> Severity {
        match self.wanted {
            None => Severity::Warning,
            Some((a, b)) if a + b > 100.0 && a.min(b) >= busy => Severity::Critical,
            Some((a, b)) if a.min(b) >= busy => Severity::Warning,
            Some(_) => Severity::Info,
        }
    }
}

/// What a vCPU wants of a CPU, percent.
fn demand(guest: &GuestContext<'_>, vcpu: u32) -> Option<f64> {
    guest.domain.vcpu(vcpu)?.cpu.as_ref().map(cpu_wait::demand)
}

fn conflicts(a: &GuestContext<'_>, b: &GuestContext<'_>, same: bool) -> Vec<PinConflict> {
    let (mine, theirs) = (&a.vcpu_cpus, &b.vcpu_cpus);
    let mut found = Vec::new();
    if !mine.single.intersects(&theirs.reach) && !theirs.single.intersects(&mine.reach) {
        return found;
    }
    for (v, set) in &mine.masks {
        for (w, other) in &theirs.masks {
            if same && w <= v {
                continue;
            }
            // A pin to one CPU is meant to be exclusive; larger sets are pools, which may be shared.
            let cpu = match (set.single(), other.single()) {
                (Some(cpu), _) if other.contains(cpu) => cpu,
                (_, Some(cpu)) if set.contains(cpu) => cpu,
                _ => continue,
            };
            found.push(PinConflict { cpu, mine: *v, other: *w, wanted: demand(a, *v).zip(demand(b, *w)) });
        }
    }
    found
}

pub(super) fn overlap(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    if !guest.running() {
        return;
    }
    let own = ctx.guests.iter().position(|g| std::ptr::eq(g.domain, guest.domain)).unwrap_or(0);
    for other in ctx.guests.iter().skip(own + 1).filter(|g| g.running()) {
        report(ctx, guest, Some(other), &conflicts(guest, other, false), verdicts);
    }
    report(ctx, guest, None, &conflicts(guest, guest, true), verdicts);
    partly_pinned(ctx, guest, verdicts);
}

fn report(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    other: Option<&GuestContext<'_>>,
    conflicts: &[PinConflict],
    verdicts: &mut Verdicts,
) {
    let busy = ctx.thresholds().pinning.overlap_busy;
    let Some(worst) = conflicts.iter().max_by_key(|c| c.severity(busy)) else { return };
    let cpus: CpuSet = conflicts.iter().map(|c| c.cpu).collect();
    let name = other.map(GuestContext::name);
    let vcpus = (worst.mine, worst.other);
    let mut evidence = vec![texts::conflict(vcpus, name, worst.cpu, worst.wanted, &guest.window())];
    if cpus.len() > 1 {
        evidence.push(texts::conflict_cpus(&cpus));
    }
    evidence.push(fixes::check_pins(guest));
    let mut fix = fixes::placement::pin_fewest(ctx, other.unwrap_or(guest));
    if fix.is_empty() {
        fix.push(fixes::advice(texts::SEPARATE_SETS));
    }
    let mut marks: Vec<Mark> = cpus.iter().map(Mark::Pcpu).collect();
    marks.extend(conflicts.iter().map(|c| Mark::Vcpu(c.mine)));
    if let Some(o) = other {
        marks.extend(conflicts.iter().filter_map(|c| Some(Mark::Thread(o.domain.vcpu(c.other)?.tid))));
    }
    let excess = conflicts.iter().filter_map(|c| c.wanted).map(|(a, b)| (a + b - 100.0).max(0.0));
    verdicts.find(Finding {
        also: name.map(str::to_owned).into_iter().collect(),
        severity: worst.severity(busy),
        confidence: if worst.wanted.is_some() { Confidence::High } else { Confidence::Medium },
        target: Target::Pcpu(worst.cpu),
        title: texts::overlap_title(guest.name(), name),
        why: texts::OVERLAP_WHY.into(),
        evidence,
        fix,
        cost: excess.reduce(|a, b| a + b).filter(|c| *c > 0.0),
        marks,
        ..Finding::default()
    });
}

/// Some vCPUs are pinned, and the others may run on their CPUs.
fn partly_pinned(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let masks = &guest.vcpu_cpus.masks;
    let single = &guest.vcpu_cpus.single;
    let Some(n) = guest.vcpus() else { return };
    let free = n as usize - masks.len().min(n as usize);
    if single.is_empty() || free == 0 || masks.iter().any(|m| m.1.single().is_none()) {
        return;
    }
    let is_free = |v: &u32| !masks.iter().any(|m| m.0 == *v);
    let free: Vec<String> = (0..n as u32).filter(is_free).map(|v| v.to_string()).collect();
    let mut fix = fixes::placement::pin_all(ctx, guest);
    if fix.is_empty() {
        fix.push(fixes::advice(texts::ALL_OR_NONE));
    }
    verdicts.find(Finding {
        severity: Severity::Info,
        confidence: Confidence::High,
        evidence: vec![texts::partly_pinned(masks.len(), n, single, &free), fixes::check_pins(guest)],
        fix,
        marks: single.iter().map(Mark::Pcpu).collect(),
        ..texts::PARTLY_PINNED.finding()
    });
}
