//! Memory faults of the guest that the host serves.

use super::texts;
use crate::lint::prelude::*;

/// A warning from this cost on, percent of one CPU.
const COST_WARNING: f64 = 10.0;

pub(super) fn faults(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let mut faults = guest.exits(&[ExitKind::MemoryFault]);
    if faults.count == 0 || guest.migrating() {
        return;
    }
    let steps = &ctx.thresholds().machine.faults;
    let vmx = guest.domain.exits.rows.iter().any(|r| r.id.is_some_and(|id| id.0 == Isa::Vmx));
    if !vmx {
        // On AMD and arm64 one exit reason covers faults and emulated memory.
        if !guest.has_accesses(Space::Mmio) && ctx.is_file() {
            if faults.per_vcpu.is_some_and(|per| steps.of(per).is_none()) {
                return;
            }
            return verdicts.cannot_tell("this exit reason covers page faults and MMIO, and the addresses are missing");
        }
        let mmio = guest.accesses(|r| r.space == Space::Mmio);
        let left = 1.0 - (mmio.count as f64 / faults.count as f64).min(1.0);
        faults.count = faults.count.saturating_sub(mmio.count);
        faults.rate = faults.rate.map(|r| r * left);
        faults.per_vcpu = faults.per_vcpu.map(|r| r * left);
        faults.cost = faults.cost.map(|c| (c - mmio.cost.unwrap_or(0.0)).max(0.0));
    }
    if faults.rate.is_none() {
        return verdicts.cannot_tell(guest.why_no_rate());
    }
    let Some(per_vcpu) = faults.per_vcpu else { return verdicts.cannot_tell(NO_VCPUS) };
    let Some(mut severity) = steps.of(per_vcpu) else { return };
    if faults.cost.is_some_and(|c| c >= COST_WARNING) {
        severity = severity.max(Severity::Warning);
    }
    let show = fixes::command(texts::SHOW_MAPPING).needing("shows what may remove mappings");
    let fix = vec![show, fixes::advice("Back the guest with huge pages if its memory is meant for it alone")];
    let evidence = vec![faults.describe(guest, "memory faults", ""), texts::CHECK_FAULTS.into()];
    verdicts.find(Finding::new(severity, Confidence::Low, evidence, fix).caused_by(faults));
}
