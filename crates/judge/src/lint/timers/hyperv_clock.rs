//! `HV_X64_MSR_TIME_REF_COUNT`, the slow way to read the Hyper-V clock.

use super::texts;
use crate::lint::context::Context;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;
use sample::Direction;

const TIME_REF_COUNT: u64 = 0x4000_0020;

pub(super) fn tsc_page(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let reads = guest.msrs(Direction::Read, |msr| msr == TIME_REF_COUNT);
    if reads.count == 0 {
        return;
    }
    let Some(rate) = reads.rate else { return verdicts.cannot_tell(guest.why_no_rate()) };
    let Some(severity) = ctx.thresholds().timers.time_ref_count.of(rate) else { return };
    let evidence = vec![
        reads.describe(guest, "reads", "of MSR 0x40000020 (HV_X64_MSR_TIME_REF_COUNT)"),
        guest.perf_check("msr"),
        texts::CHECK_CLOCKSOURCE.into(),
    ];
    let mut fix = Vec::new();
    if guest.config.known && !guest.config.hyperv.has("hypervclock") {
        fix.extend(fixes::hyperv::enable(guest, &["hypervclock"]));
    }
    fix.extend(fixes::cpu_feature(guest, "invtsc", texts::INVTSC_NEED, &["migratable=off", "invtsc=on", "hv-time=on"]));
    fix.push(fixes::advice(texts::TSC_PAGE_AFTER_MIGRATION));
    verdicts.find(Finding {
        severity,
        confidence: Confidence::High,
        evidence,
        fix,
        cost: reads.cost,
        marks: reads.marks,
        ..texts::TSC_PAGE.finding()
    });
}
