//! An idle Windows guest that sleeps for less than a millisecond at a time.

use super::texts;
use crate::lint::prelude::*;

pub(super) fn idle_wakeups(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().timers;
    if !guest.kind.windows(Sureness::Low) || guest.guest_cpu().is_none() {
        return unexplained(ctx, guest, verdicts);
    }
    let (Some((rate, sleep_ms)), Some(cpu)) = (guest.halts(), guest.guest_cpu()) else { return };
    if cpu >= t.idle_guest_cpu || sleep_ms >= t.short_sleep_ms {
        return;
    }
    let Some(mut severity) = t.idle_halts_per_vcpu.of(rate) else { return };
    let timers = guest.devices(Space::Pio, |n| n == "rtc").rate_or_zero()
        + guest.devices(Space::Mmio, |n| n == "hpet").rate_or_zero();
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

/// Tables of exits alone do not show what wakes an idle guest, nor which system it has: that is said, whatever the VMM.
fn unexplained(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().timers;
    if !ctx.is_file() || !guest.domain.accesses.is_empty() {
        return;
    }
    let Some(sleep_ms) = guest.mean_halt_ms().filter(|ms| *ms < t.short_sleep_ms) else { return };
    let Some((rate, _)) = guest.halts() else { return verdicts.cannot_tell(texts::SHORT_HALTS_UNTIMED) };
    let idle = rate * sleep_ms / 10.0 >= 100.0 - t.idle_guest_cpu;
    if idle && t.idle_halts_per_vcpu.of(rate).is_some() {
        verdicts.cannot_tell(texts::short_halts(rate, sleep_ms));
    }
}
