//! `HV_X64_MSR_TIME_REF_COUNT`, the slow way to read the Hyper-V clock.

use super::texts;
use crate::lint::prelude::*;

const TIME_REF_COUNT: u64 = 0x4000_0020;

pub(super) fn tsc_page(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let reads = guest.msrs(Direction::Read, |msr| msr == TIME_REF_COUNT);
    let Some(rate) = reads.rate_or_tell(guest, verdicts) else { return };
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
    fix.push(fixes::advice("After a live migration or a restore from a file, restart the guest to get the page back"));
    let title = "The guest reads the Hyper-V clock through an MSR: the TSC page is not valid".into();
    verdicts.find(Finding { title, ..Finding::new(severity, Confidence::High, evidence, fix) }.caused_by(reads));
}
