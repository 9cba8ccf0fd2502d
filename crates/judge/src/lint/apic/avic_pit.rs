//! PIT reinjection inhibits AVIC (`arch/x86/kvm/i8254.c`, `kvm_pit_set_reinject`).

use super::texts;
use crate::lint::prelude::*;

pub(super) fn avic_pit(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let policy = guest.config.timers.pit_policy.as_deref();
    if !guest.config.known || ctx.isa(guest) != Some(Isa::Svm) || ctx.param_on("kvm_amd.avic") != Some(true) {
        return;
    }
    let window = guest.exits(&[ExitKind::InterruptWindow]);
    let accelerated = guest.exits(&[ExitKind::Avic]);
    if policy.is_some_and(|p| p != "delay") || window.count == 0 || accelerated.count > 0 {
        return;
    }
    let (count, over) = (figure(window.count as f64), guest.window());
    let evidence = vec![
        format!("{count} vintr exits {over} and none of AVIC's, though kvm_amd.avic is on"),
        format!("the tick policy of timer pit is {}", policy.map_or("not set, which means delay", |_| "delay")),
        texts::CHECK_INHIBIT_REASON.into(),
    ];
    let discard = fixes::timer(guest, "<timer name='pit' tickpolicy='discard'/>");
    let fix = fixes::either(guest, fixes::xml(discard), fixes::qemu("-global kvm-pit.lost_tick_policy=discard"));
    let found = Finding::new(Severity::Info, Confidence::Medium, evidence, fix).caused_by(window);
    verdicts.find(Finding { title: "The PIT's tick policy keeps AVIC disabled".into(), ..found });
}
