//! Requests that fail on the host.

use super::texts;
use crate::lint::prelude::*;

pub(super) fn errors(_: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let failing = guest.domain.disks.iter().filter_map(|disk| Some((disk, disk.failed_ops.filter(|n| *n > 0.0)?)));
    let Some((disk, rate)) = failing.max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
    verdicts.find(Finding {
        severity: Severity::Warning,
        confidence: Confidence::High,
        evidence: vec![
            texts::failing(&disk.name, rate),
            format!("look at: {}; dmesg --level err,warn", fixes::virsh(guest, "domblkerror", "")),
        ],
        fix: vec![fixes::advice(texts::MEND_STORAGE)],
        ..texts::ERRORS.finding()
    });
}
