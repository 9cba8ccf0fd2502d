//! The guest's hardware threads against the host's siblings.

use super::texts::{self, PinnedPair};
use crate::kvm::CpuSet;
use crate::lint::context::Context;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Fix, Mark, Severity};
use crate::lint::fixes::{self, placement};
use crate::lint::verdicts::Verdicts;

pub(super) fn smt(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let host = ctx.topology();
    let pins = &guest.vcpu_cpus.masks;
    if host.cpus.is_empty() || !host.has_smt() || pins.is_empty() {
        return;
    }
    if !guest.config.known && guest.config.topology.is_none() {
        return;
    }
    if guest.config.threads_per_core() > 1 {
        threads_apart(ctx, guest, verdicts);
    } else {
        shared_core(ctx, guest, verdicts);
    }
}

/// Threads of a guest core, as the guest sees them, on different cores of the host.
fn threads_apart(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let host = ctx.topology();
    let threads = guest.config.threads_per_core();
    let pairs = pairs_of_guest_cores(&guest.vcpu_cpus.masks, threads);
    let apart: Vec<PinnedPair> = pairs.into_iter().filter(|(_, _, a, b)| !host.same_core(*a, *b)).collect();
    let Some(first) = apart.first() else { return };
    let mut fix = placement::pin_all(ctx, guest);
    if fix.is_empty() {
        fix.push(fixes::advice(texts::PIN_CORES_OR_ONE_THREAD));
    }
    verdicts.find(Finding {
        severity: Severity::Warning,
        confidence: Confidence::High,
        evidence: vec![texts::threads_apart(threads, *first, apart.len()), texts::CHECK_SIBLINGS.into()],
        fix,
        marks: marks(&apart),
        ..texts::THREADS_APART.finding()
    });
}

/// vCPUs on siblings of one core, in a guest that sees one thread per core.
fn shared_core(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let host = ctx.topology();
    let pins = &guest.vcpu_cpus.masks;
    let mut shared: Vec<PinnedPair> = Vec::new();
    for (i, (v, set)) in pins.iter().enumerate() {
        let Some(a) = set.single() else { continue };
        for (w, other) in &pins[i + 1..] {
            if let Some(b) = other.single()
                && a != b
                && host.same_core(a, b)
            {
                shared.push((*v, *w, a, b));
            }
        }
    }
    let Some(first) = shared.first() else { return };
    verdicts.find(Finding {
        severity: Severity::Info,
        confidence: Confidence::High,
        evidence: vec![texts::shared_core(*first, shared.len()), texts::CHECK_SIBLINGS.into()],
        fix: show_threads_or_pin(ctx, guest, &shared),
        marks: marks(&shared),
        ..texts::SHARED_CORE.finding()
    });
}

/// Shows the guest its threads where all vCPUs are pinned in pairs of siblings; otherwise pins them to whole cores.
fn show_threads_or_pin(ctx: &Context<'_>, guest: &GuestContext<'_>, shared: &[PinnedPair]) -> Vec<Fix> {
    let count = guest.vcpu_cpus.masks.len() as u32;
    let in_order = shared.iter().all(|(v, w, ..)| v + 1 == *w && v.is_multiple_of(2));
    if count.is_multiple_of(2) && shared.len() as u32 * 2 == count && in_order {
        let cores = count / 2;
        let topology = format!("<cpu>\n  <topology sockets='1' dies='1' cores='{cores}' threads='2'/>\n</cpu>");
        let smp = format!("-smp {count},sockets=1,cores={cores},threads=2");
        return fixes::either(guest, fixes::xml(topology), fixes::qemu(smp));
    }
    let mut fix = placement::pin_all(ctx, guest);
    if fix.is_empty() {
        fix.push(fixes::advice(texts::SHOW_THREADS_OR_PIN_CORES));
    }
    fix
}

/// The pairs of vCPUs within each guest core that are pinned to single CPUs.
fn pairs_of_guest_cores(pins: &[(u32, CpuSet)], threads: u32) -> Vec<PinnedPair> {
    let cpu = |v: u32| pins.iter().find(|p| p.0 == v).and_then(|p| p.1.single());
    let mut pairs = Vec::new();
    for (v, _) in pins.iter().filter(|p| p.0.is_multiple_of(threads.max(1))) {
        for other in v + 1..v + threads {
            if let (Some(a), Some(b)) = (cpu(*v), cpu(other)) {
                pairs.push((*v, other, a, b));
            }
        }
    }
    pairs
}

fn marks(pairs: &[PinnedPair]) -> Vec<Mark> {
    pairs.iter().flat_map(|p| [Mark::Vcpu(p.0), Mark::Vcpu(p.1)]).collect()
}
