//! The PIT.

use super::{pc_timer, texts};
use crate::lint::context::Context;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::Severity;
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;
use crate::model::Sureness;
use kvm::Space;

pub(super) fn pit(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let accesses = guest.devices(Space::Pio, |n| matches!(n, "kvm-pit" | "pit"));
    if accesses.count == 0 {
        return;
    }
    let Some(rate) = accesses.rate else { return verdicts.cannot_tell(guest.why_no_rate()) };
    if rate < ctx.thresholds().timers.pit {
        return;
    }
    let evidence = vec![accesses.describe(guest, "accesses", "to ports 0x40-0x43 (PIT)"), guest.perf_check("ioport")];
    let mut finding = pc_timer::finding(ctx, guest, texts::PIT, Severity::Info, accesses, evidence);
    if !guest.kind.linux() && !guest.kind.windows(Sureness::Medium) {
        // No Windows with Hyper-V clock support ticks by the PIT, so a weak sign of Windows does not count here.
        finding.fix = vec![fixes::advice(texts::PIT_FORCED)];
    }
    verdicts.find(finding);
}
