//! PIT reinjection inhibits AVIC (`arch/x86/kvm/i8254.c`, `kvm_pit_set_reinject`).

use super::texts;
use crate::lint::prelude::*;
use kvm::Isa;

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
    let discard = fixes::timer(guest, "<timer name='pit' tickpolicy='discard'/>");
    let by_hand = fixes::qemu("-global kvm-pit.lost_tick_policy=discard");
    verdicts.find(Finding {
        severity: Severity::Info,
        evidence: vec![
            texts::vintr_exits(window.count, &guest.window()),
            texts::pit_policy(policy),
            texts::CHECK_INHIBIT_REASON.into(),
        ],
        fix: fixes::either(guest, fixes::xml(discard), by_hand),
        ..texts::AVIC_PIT.caused_by(window)
    });
}
