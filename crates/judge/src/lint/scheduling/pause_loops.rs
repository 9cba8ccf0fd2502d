//! Pause-loop exits.

use super::texts;
use crate::lint::context::Context;
use crate::lint::context::exit_kind::ExitKind;
use crate::lint::context::guest::{GuestContext, NO_VCPUS};
use crate::lint::engine::finding::{Confidence, Finding, Severity};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;

pub(super) fn pauses(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let exits = guest.exits(&[ExitKind::Pause]);
    if exits.count == 0 {
        return;
    }
    if exits.rate.is_none() {
        return verdicts.cannot_tell(guest.why_no_rate());
    }
    let Some(per_vcpu) = exits.per_vcpu else { return verdicts.cannot_tell(NO_VCPUS) };
    let t = &ctx.thresholds().scheduling;
    let Some(mut severity) = t.pause.of(per_vcpu) else { return };
    let wait = guest.domain.vcpu_wait_percent();
    if wait.is_none_or(|w| w < t.pause_wait) {
        severity = Severity::Info;
    }
    let waiting = severity > Severity::Info;
    let fix = if waiting {
        let mut pins = super::wait::own_cpus(ctx, guest, guest.domain.vcpus().filter_map(|t| t.cpu?.wait).sum());
        pins.push(fixes::advice(texts::FEWER_VCPUS));
        pins
    } else {
        vec![fixes::advice(if wait.is_some() { texts::SPINS_INSIDE } else { texts::SPINS_WAIT_UNKNOWN })]
    };
    let mut finding = Finding {
        severity,
        confidence: if waiting { Confidence::High } else { Confidence::Medium },
        evidence: vec![
            exits.describe(guest, "pause-loop exits", ""),
            wait.map_or_else(|| texts::WAIT_UNKNOWN.into(), texts::wait_share),
            guest.perf_check("vmexit"),
        ],
        fix,
        cost: exits.cost,
        marks: exits.marks,
        ..texts::PAUSES.finding()
    };
    if waiting {
        finding.title = texts::PAUSES_AND_WAIT_TITLE.into();
    }
    verdicts.find(finding);
}
