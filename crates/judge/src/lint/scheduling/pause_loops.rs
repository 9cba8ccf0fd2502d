//! Pause-loop exits.

use super::texts;
use crate::lint::prelude::*;

pub(super) fn pauses(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let exits = guest.exits(&[ExitKind::Pause]);
    let Some(per_vcpu) = exits.per_vcpu_or_tell(guest, verdicts) else { return };
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
    let share = |w| format!("its vCPUs wait for a CPU {} % of the time they want one", figure(w));
    let evidence = vec![
        exits.describe(guest, "pause-loop exits", ""),
        wait.map_or_else(|| "whether its vCPUs wait for CPUs is unknown".into(), share),
        guest.perf_check("vmexit"),
    ];
    let (confidence, title) = if waiting {
        (Confidence::High, "vCPUs spin on locks whose holder has no CPU")
    } else {
        (Confidence::Medium, "vCPUs spin on locks")
    };
    let found = Finding::new(severity, confidence, evidence, fix).caused_by(exits);
    verdicts.find(Finding { title: title.into(), ..found });
}
