//! Interrupts of the host while the guest runs.

use super::texts;
use crate::lint::prelude::*;

/// Without the host's tick rate: the highest that kernels are built with (`kernel/Kconfig.hz`).
const MAX_TICK: f64 = 1000.0;

pub(super) fn interrupts(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let exits = guest.exits(&[ExitKind::HostInterrupt]);
    let Some(rate) = exits.rate_or_tell(guest, verdicts) else { return };
    // Without rows per vCPU and CPU times the number of busy vCPUs is an estimate: too weak to blame the host.
    let measured = exits.vcpu.is_some() || guest.vcpu_threads().any(|t| t.cpu.is_some());
    let average = guest.vcpus().map(|n| rate / n);
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
    let severity = if loud { Severity::Warning } else { Severity::Info };
    // Intel's `intr_info` holds the vector; AMD does not acknowledge the interrupt on its exit.
    let vector = if ctx.isa(guest) == Some(Isa::Vmx) { texts::VECTORS } else { "" };
    let tick = tick_hz.map(|hz| format!("the host's own tick causes at most {hz}/s on a busy vCPU"));
    let evidence = vec![
        exits.describe(guest, "host interrupts", "in the running guest"),
        tick.unwrap_or_else(|| "the host's tick (at most 1000/s on a busy vCPU) does not explain that".into()),
        format!(
            "check: trace-cmd record -e kvm:kvm_exit, then trace-cmd report{vector}; look at: watch -d cat \
             /proc/interrupts"
        ),
    ];
    let show = fixes::command(texts::SHOW_INTERRUPTS).needing("shows which interrupts arrive on the guest's CPUs");
    let fix = vec![show, fixes::advice(texts::ROUTE_INTERRUPTS)];
    let title = "Interrupts of the host stop the guest far more often than the host's tick".into();
    verdicts.find(Finding { title, ..Finding::new(severity, Confidence::Medium, evidence, fix) }.caused_by(exits));
}
