//! An idle Windows guest that sleeps for less than a millisecond at a time.

use super::texts;
use crate::kvm::Space;
use crate::lint::context::Context;
use crate::lint::context::guest::GuestContext;
use crate::lint::context::region::is_rtc;
use crate::lint::engine::finding::{Finding, Mark, Severity};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;
use crate::model::Sureness;

pub(super) fn idle_wakeups(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().timers;
    if !guest.kind.windows(Sureness::Low) {
        return;
    }
    let (Some((rate, sleep_ms)), Some(cpu)) = (guest.halts(), guest.guest_cpu()) else { return };
    if cpu >= t.idle_guest_cpu || sleep_ms >= t.short_sleep_ms {
        return;
    }
    let Some(mut severity) = t.idle_halts_per_vcpu.of(rate) else { return };
    let timers =
        guest.devices(Space::Pio, is_rtc).rate_or_zero() + guest.devices(Space::Mmio, |n| n == "hpet").rate_or_zero();
    if timers < t.rtc.info {
        if !guest.config.known {
            return verdicts.cannot_tell(texts::WAKEUPS_UNEXPLAINED);
        }
        severity = Severity::Info;
    }
    let io: f64 = guest.domain.disks.iter().map(|d| d.read_ops + d.write_ops).sum::<f64>()
        + guest.domain.nics.iter().map(|n| n.rx_packets + n.tx_packets).sum::<f64>();
    if io > rate / 2.0 {
        return;
    }
    let mut fix = fixes::hyperv::windows_timers(ctx, guest);
    if fixes::hyperv::missing(guest, fixes::hyperv::clock_and_timers(guest)).is_empty() {
        fix.insert(0, fixes::command(texts::POWERCFG).needing(texts::POWERCFG_NEED));
    }
    verdicts.find(Finding {
        severity,
        evidence: vec![texts::halts(rate, &guest.window(), sleep_ms, cpu), guest.perf_check("vmexit")],
        fix,
        marks: vec![Mark::Exit("HLT".into())],
        ..texts::IDLE_WAKEUPS.finding()
    });
}
