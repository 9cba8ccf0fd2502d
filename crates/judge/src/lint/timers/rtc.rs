//! The RTC's periodic interrupt as the guest's tick: the guest reads register C after each.

use super::{pc_timer, texts};
use crate::figures::{figure, or_unknown};
use crate::lint::prelude::*;

pub(super) fn rtc(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let accesses = guest.devices(Space::Pio, |name| name == "rtc");
    if accesses.count == 0 {
        return;
    }
    let reads = guest.ports(|r| r.device_name() == Some("rtc") && r.direction == Direction::Read).count;
    // A guest that sets its clock writes; one that ticks by the RTC reads once per interrupt.
    if reads * 4 < accesses.count {
        return;
    }
    let Some(rate) = accesses.rate else {
        let what = ("accesses to ports 0x70 and 0x71 (RTC)", "ioport");
        return pc_timer::without_rate(ctx, guest, texts::RTC, accesses, what, verdicts);
    };
    let Some(by_rate) = ctx.thresholds().timers.rtc.of(rate) else { return };
    let severity = worst([Some(by_rate), ctx.severity_by_cost(guest, &accesses)]).unwrap_or(by_rate);
    let mut evidence = vec![
        accesses.describe(guest, "accesses", "to ports 0x70 and 0x71 (RTC)"),
        texts::tick_acknowledgements(&or_unknown(guest.seconds.map(|s| reads as f64 / s), figure)),
    ];
    let eoi = guest.exits(&[ExitKind::EoiInduced]);
    if eoi.count > 0 {
        evidence.push(texts::eoi_exits(&or_unknown(eoi.rate, figure)));
    }
    evidence.push(guest.perf_check("ioport"));
    verdicts.find(pc_timer::finding(ctx, guest, texts::RTC, severity, accesses, evidence));
}
