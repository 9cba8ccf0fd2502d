//! The guest's hardware threads against the host's siblings.

use super::texts;
use crate::lint::context::Context;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Mark, Severity};
use crate::lint::fixes::{self, placement};
use crate::lint::verdicts::Verdicts;
use crate::placement::faults::PinnedPair;

pub(super) fn smt(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    if !ctx.layout(guest).running {
        return;
    }
    slow_cores(ctx, guest, verdicts);
    if guest.config.threads_per_core() > 1 {
        threads_apart(ctx, guest, verdicts);
    } else {
        shared_core(ctx, guest, verdicts);
    }
}

/// Threads of a guest core, as the guest sees them, on different cores of the host.
fn threads_apart(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let apart = ctx.layout(guest).threads_apart(ctx.map());
    if apart.is_empty() {
        return;
    }
    let threads = guest.config.threads_per_core();
    let mut fix = placement::guest_placement(ctx, guest);
    if fix.is_empty() {
        fix.push(fixes::advice(texts::PIN_CORES_OR_ONE_THREAD));
    }
    verdicts.find(Finding {
        severity: Severity::Warning,
        confidence: Confidence::High,
        evidence: vec![texts::threads_apart(threads, &apart), texts::CHECK_SIBLINGS.into()],
        fix,
        marks: marks(&apart),
        ..texts::THREADS_APART.finding()
    });
}

/// vCPUs on siblings of one core, in a guest that sees one thread per core.
fn shared_core(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let shared = ctx.layout(guest).shared_cores(ctx.map());
    if shared.is_empty() {
        return;
    }
    let mut fix = placement::guest_placement(ctx, guest);
    if fix.is_empty() {
        fix.push(fixes::libvirt_advice(texts::SHOW_THREADS_OR_PIN_CORES));
    }
    verdicts.find(Finding {
        severity: Severity::Info,
        confidence: Confidence::High,
        evidence: vec![texts::shared_core(&shared), texts::CHECK_SIBLINGS.into()],
        fix,
        marks: marks(&shared),
        ..texts::SHARED_CORE.finding()
    });
}

/// Reports vCPUs on slow cores of a hybrid host beside others on fast ones, if the plan can move them.
fn slow_cores(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let slow = ctx.layout(guest).on_slow_cores(ctx.map());
    if slow.is_empty() || !ctx.planned(guest).is_some_and(|after| after.on_slow_cores(ctx.map()).is_empty()) {
        return;
    }
    let (on_slow, on_fast): (Vec<_>, Vec<_>) = ctx.layout(guest).pins(ctx.map()).partition(|(v, _)| slow.contains(*v));
    verdicts.find(Finding {
        severity: Severity::Warning,
        confidence: Confidence::High,
        evidence: vec![texts::slow_cores(&on_slow, &on_fast), texts::CHECK_KINDS.into()],
        fix: placement::guest_placement(ctx, guest),
        marks: slow.iter().map(Mark::Vcpu).collect(),
        ..texts::SLOW_CORES.finding()
    });
}

fn marks(pairs: &[PinnedPair]) -> Vec<Mark> {
    pairs.iter().flat_map(|p| [Mark::Vcpu(p.0), Mark::Vcpu(p.1)]).collect()
}
