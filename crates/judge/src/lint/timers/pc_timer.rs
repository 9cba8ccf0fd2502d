//! What the clocks and timers that QEMU emulates have in common: the fix, and the finding without a rate.

use super::texts;
use crate::lint::engine::prose::Prose;
use crate::lint::prelude::*;

/// Without a known interval a share of the exits is reported from this count on: no boot makes as many accesses.
const DECISIVE_COUNT: u64 = 10_000;

/// Gives the guest's system a clock that needs no QEMU.
fn better_clock(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Fix> {
    if guest.kind.windows(Sureness::Low) {
        return fixes::hyperv::windows_timers(ctx, guest);
    }
    let mut found = Vec::new();
    if guest.config.timers.kvmclock == Some(false) && guest.config.is_x86() {
        let on = fixes::timer(guest, "<timer name='kvmclock' present='yes'/>");
        found.extend(fixes::either(guest, fixes::xml(on), fixes::cpu::argument(guest, &["kvmclock=on".into()])));
    }
    if guest.kind.linux() {
        found.push(fixes::command(texts::SET_CLOCKSOURCE).needing(fixes::IN_GUEST));
        found.push(fixes::advice(texts::KEEP_CLOCKSOURCE));
    } else {
        found.push(fixes::advice(texts::EITHER_SYSTEM));
    }
    found
}

/// A finding about a timer that QEMU emulates.
pub(super) fn finding(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    prose: Prose,
    severity: Severity,
    totals: EventTotals,
    evidence: Vec<String>,
) -> Finding {
    let system = if guest.kind.linux() { links::KVM_TIMEKEEPING } else { links::HYPERV };
    Finding {
        severity,
        confidence: Confidence::High,
        evidence,
        fix: better_clock(ctx, guest),
        see: vec![system.into(), links::CLOCK.into()],
        ..prose.caused_by(totals)
    }
}

/// What can be reported of a timer when the interval is unknown: that it causes a large share of the exits.
///
/// `what` are the accesses, `event` is perf's name of their table.
pub(super) fn without_rate(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    prose: Prose,
    totals: EventTotals,
    (what, event): (&str, &str),
    verdicts: &mut Verdicts,
) {
    let share = totals.exit_share.filter(|s| *s >= ctx.thresholds().timers.acpi_pm_exit_share);
    let Some(share) = share.filter(|_| totals.count >= DECISIVE_COUNT && !guest.interval_known) else {
        return verdicts.cannot_tell(guest.why_no_rate());
    };
    let evidence =
        vec![texts::count_and_share(totals.count, what, share), texts::RATE_UNKNOWN.into(), guest.perf_check(event)];
    let found = finding(ctx, guest, prose, Severity::Info, totals, evidence);
    verdicts.find(Finding { confidence: Confidence::Low, ..found });
}
