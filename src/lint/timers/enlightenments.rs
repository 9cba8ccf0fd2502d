//! A Windows guest without the Hyper-V clock or timers, which spare it QEMU's.

use super::texts;
use crate::kvm::Space;
use crate::lint::context::Context;
use crate::lint::context::exit_kind::ExitKind;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Severity, worst};
use crate::lint::fixes::{self, hyperv};
use crate::lint::verdicts::Verdicts;
use crate::model::Sureness;

pub(super) fn enlightenments(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let windows = guest.kind.windows(Sureness::Medium);
    if !windows || !guest.config.known || !guest.config.is_x86() || hyperv::too_old(guest) {
        return;
    }
    let missing = hyperv::missing(guest, hyperv::clock_and_timers(guest));
    if !missing.contains(&"hypervclock") && !missing.contains(&"stimer") {
        return;
    }
    let mut finding = Finding {
        severity: Severity::Info,
        confidence: if guest.kind.sure == Sureness::High { Confidence::High } else { Confidence::Medium },
        evidence: vec![texts::missing(&missing), texts::taken_for_windows(&guest.kind.reasons)],
        fix: hyperv::windows_timers(ctx, guest),
        ..texts::ENLIGHTENMENTS.finding()
    };
    // Ports that no table names are the timers' in this configuration.
    let io = guest.exits(&[ExitKind::Io]);
    if !guest.has_accesses(Space::Pio)
        && io.rate.is_some_and(|r| r >= ctx.thresholds().timers.rtc.warning)
        && guest.running()
    {
        let which = texts::unknown_ports(missing.contains(&"hypervclock"), guest.config.hpet());
        finding.evidence.insert(0, io.describe(guest, "port exits", ""));
        finding.evidence.insert(1, which);
        finding.evidence.push(guest.perf_check("ioport"));
        let by_cost = ctx.severity_by_cost(guest, &io);
        finding.severity = worst([Some(Severity::Warning), by_cost]).unwrap_or_default();
        finding.cost = io.cost;
        finding.marks = io.marks;
    }
    finding.evidence.push(fixes::check_setup(guest));
    verdicts.find(finding);
}
