//! Nested virtualisation: a guest that runs guests.

use super::texts;
use crate::lint::prelude::*;

/// Tracepoints of nested exits and entries.
const EVENTS: [&str; 4] = ["kvm_nested_vmexit", "kvm_nested_vmexit_inject", "kvm_nested_vmenter", "kvm_nested_vmrun"];
/// A warning from this time in exits on, percent of the vCPUs' time.
const COST_WARNING: f64 = 10.0;
/// The `VMware` backdoor.
const VMPORT: u64 = 0x5658;

pub(super) fn nested(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let exits = guest.exits(&[ExitKind::Nested]);
    let events = total(EVENTS.iter().filter_map(|e| guest.domain.kvm_events.get(*e)).copied());
    let runs = guest.domain.counters.get("nested_run").copied().unwrap_or(0.0);
    let all = guest.domain.exits.count;
    let limit = ctx.thresholds().machine.nested_share;
    let by_exits = exits.exit_share.is_some_and(|s| s >= limit);
    let by_events = events > 0 && (all == 0 || 100.0 * events as f64 / all as f64 >= limit);
    let by_counter = guest.domain.exit_rate.0.is_some_and(|r| r > 0.0 && 100.0 * runs / r >= limit);
    if !by_exits && !by_events && !by_counter {
        return;
    }
    let work = guest.domain.exits.work_ns.zip(guest.seconds).zip(guest.vcpus());
    let costly = work.is_some_and(|((ns, s), n)| ns as f64 / (s * 1e7) / n >= COST_WARNING);
    let mut evidence = Vec::new();
    if exits.count > 0 {
        evidence.push(exits.describe(guest, "exits", "for a hypervisor's own instructions"));
    }
    if events > 0 {
        evidence.push(format!("{events} nested exits (kvm_nested_vmexit and related events), {all} exits in total"));
    }
    if runs > 0.0 {
        evidence.push(format!("{} entries/s into the guest's guests (nested_run)", figure(runs)));
    }
    let port = guest.domain.hot_access().filter(|a| a.space == Space::Pio);
    evidence.extend(port.map(|p| {
        let device = p.device_name().unwrap_or("unknown device");
        format!("its most frequent port is {} ({device})", p.address_text())
    }));
    evidence.push(texts::CHECK_NESTED.into());
    let severity = if costly { Severity::Warning } else { Severity::Info };
    let sure = exits.count > 0 || events > 0;
    let confidence = if sure { Confidence::High } else { Confidence::Medium };
    verdicts.find(Finding::new(severity, confidence, evidence, fewer_exits(guest, port)).caused_by(exits));
}

/// What makes nested exits fewer or cheaper.
fn fewer_exits(guest: &GuestContext<'_>, port: Option<&AccessRow>) -> Vec<Fix> {
    let mut fix = Vec::new();
    if port.is_some_and(|p| p.address == Some(VMPORT)) {
        fix.extend(fixes::vmport_off(guest));
    }
    if !guest.kind.windows(Confidence::Low) {
        fix.push(fixes::advice(texts::INNER_GUESTS_HERE));
        return fix;
    }
    let mut wanted = vec!["hypervclock", "vpindex", "synic", "stimer", "vapic", "tlbflush"];
    if guest.domain.exits.rows.iter().any(|r| r.id.is_some_and(|id| id.0 == Isa::Vmx)) {
        wanted.push("evmcs");
    }
    fix.extend(fixes::hyperv::enable(guest, &wanted));
    fix.push(fixes::advice(texts::WINDOWS_HYPERVISOR));
    fix
}
