//! Guests whose VMM was killed or crashed, by the host's log.

use super::incident::{self, ByGuest, Incident};
use super::incident_texts as words_of;
use crate::lint::context::Context;
use crate::lint::engine::finding::Severity;
use crate::lint::verdicts::Verdicts;
use kvm::kernel_log::LogKind;

pub(super) fn killed(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let mut all = ByGuest::new();
    incident::add_log_lines(ctx, |line| incident::is_recent(ctx, line), words, &mut all);
    incident::report(ctx, all, verdicts);
}

/// The words for a kind of log line, if it is one of this rule.
pub(super) fn words(kind: LogKind, _: Option<u64>) -> Option<(Severity, &'static Incident)> {
    Some(match kind {
        LogKind::KilledForMemory => (Severity::Critical, &words_of::KILLED_FOR_MEMORY),
        LogKind::OutOfMemory => (Severity::Warning, &words_of::OUT_OF_MEMORY),
        LogKind::Killed => (Severity::Critical, &words_of::KILLED),
        LogKind::MemoryFailure => (Severity::Critical, &words_of::MEMORY_FAILURE),
        LogKind::Terminated => (Severity::Info, &words_of::TERMINATED),
        _ => return None,
    })
}
