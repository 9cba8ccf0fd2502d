//! CPUs that hung in the kernel, by the log of a host or of a guest.

use super::incident::{self, ByGuest, Incident};
use super::incident_texts as words_of;
use crate::lint::context::Context;
use crate::lint::engine::finding::Severity;
use crate::lint::verdicts::Verdicts;
use kvm::kernel_log::LogKind;

pub(super) fn lockups(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let mut all = ByGuest::new();
    incident::add_log_lines(ctx, |line| incident::is_recent(ctx, line), words, &mut all);
    incident::report(ctx, all, verdicts);
}

fn words(kind: LogKind, _: Option<u64>) -> Option<(Severity, &'static Incident)> {
    match kind {
        LogKind::Lockup => Some((Severity::Critical, &words_of::LOCKUP)),
        LogKind::HungTask => Some((Severity::Warning, &words_of::HUNG_TASK)),
        LogKind::OtherLockup => Some((Severity::Warning, &words_of::OTHER_LOCKUP)),
        LogKind::GuestLockup => Some((Severity::Warning, &words_of::GUEST_LOCKUP)),
        LogKind::GuestHungTask => Some((Severity::Warning, &words_of::GUEST_HUNG_TASK)),
        LogKind::GuestClock => Some((Severity::Info, &words_of::GUEST_CLOCK)),
        _ => None,
    }
}
