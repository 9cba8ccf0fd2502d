//! Interrupts of the host while the guest runs.

use super::texts;
use crate::lint::prelude::*;
use crate::model::ThreadModel;

/// Without the host's tick rate: the highest that kernels are built with (`kernel/Kconfig.hz`).
const MAX_TICK: f64 = 1000.0;

pub(super) fn interrupts(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let exits = guest.exits(&[ExitKind::HostInterrupt]);
    if exits.count == 0 {
        return;
    }
    if exits.rate.is_none() {
        return verdicts.cannot_tell(guest.why_no_rate());
    }
    // Without rows per vCPU and CPU times the number of busy vCPUs is an estimate: too weak to blame the host.
    let measured = exits.vcpu.is_some() || guest.vcpu_threads().any(|t| t.cpu.is_some());
    let average = exits.rate.zip(guest.vcpus()).map(|(r, n)| r / n);
    let per_vcpu = if measured { exits.per_vcpu } else { average };
    let Some(per_vcpu) = per_vcpu else { return verdicts.cannot_tell(NO_VCPUS) };
    let t = &ctx.thresholds().scheduling;
    let tick_hz = ctx.model.host.facts.tick_hz;
    if per_vcpu < tick_hz.map_or(MAX_TICK, f64::from) * t.interrupts_ticks {
        return;
    }
    let host = ctx.topology();
    let isolated = guest.vcpu_threads().filter_map(ThreadModel::pinned_cpu).any(|c| host.is_isolated(c));
    let loud = isolated && per_vcpu >= t.interrupts_isolated;
    verdicts.find(Finding {
        severity: if loud { Severity::Warning } else { Severity::Info },
        confidence: Confidence::Medium,
        evidence: vec![
            exits.describe(guest, "host interrupts", "in the running guest"),
            tick_hz.map_or_else(|| texts::TICK_UNKNOWN.into(), texts::tick_share),
            texts::check_vectors(ctx.isa(guest)),
        ],
        fix: vec![
            fixes::command(texts::SHOW_INTERRUPTS).needing(texts::SHOW_INTERRUPTS_NEED),
            fixes::advice(texts::ROUTE_INTERRUPTS),
        ],
        ..texts::HOST_INTERRUPTS.caused_by(exits)
    });
}
