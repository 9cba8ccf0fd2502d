//! Polling of old ports.

use super::texts::{self, POLLED, VMPORT};
use crate::lint::prelude::*;

pub(super) fn polling(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    for ports in POLLED {
        let polled = |name: &str| ports.regions.iter().any(|p| name.starts_with(p));
        let accesses = guest.accesses(|r| r.device_name().is_some_and(polled));
        if accesses.count == 0 {
            continue;
        }
        let Some(rate) = accesses.rate else { return verdicts.cannot_tell(guest.why_no_rate()) };
        if rate < ctx.thresholds().devices.polling {
            continue;
        }
        let mut fix = if ports.regions.contains(&VMPORT) { fixes::vmport_off(guest) } else { Vec::new() };
        if fix.is_empty() {
            fix.push(fixes::advice(ports.help));
        }
        return verdicts.find(Finding {
            severity: Severity::Info,
            confidence: Confidence::High,
            title: texts::polling_title(ports),
            why: texts::POLLING_WHY.into(),
            evidence: vec![accesses.describe(guest, "accesses", ""), guest.perf_check("ioport")],
            fix,
            cost: accesses.cost,
            marks: accesses.marks,
            ..Finding::default()
        });
    }
}
