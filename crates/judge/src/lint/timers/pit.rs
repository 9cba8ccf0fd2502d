//! The PIT.

use super::{pc_timer, texts};
use crate::lint::prelude::*;

pub(super) fn pit(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let accesses = guest.devices(Space::Pio, |n| matches!(n, "kvm-pit" | "pit"));
    let Some(rate) = accesses.rate_or_tell(guest, verdicts) else { return };
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
