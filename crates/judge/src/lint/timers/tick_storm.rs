//! An idle guest that programs its timer at a tick rate on every vCPU.

use super::texts;
use crate::lint::prelude::*;
use crate::model::AccessRow;

/// Tick rates that Linux kernels are built with (`kernel/Kconfig.hz`).
const TICK_RATES: [f64; 4] = [100.0, 250.0, 300.0, 1000.0];
/// How far the mean of all vCPUs, and each vCPU, may be from a tick rate.
const MEAN_TOLERANCE: f64 = 0.06;
const VCPU_TOLERANCE: f64 = 0.1;

/// `IA32_TSC_DEADLINE`, x2APIC's and xAPIC's timer initial count.
fn programs_timer(r: &AccessRow) -> bool {
    r.direction == Direction::Write
        && match r.space {
            Space::Msr => matches!(r.address, Some(0x6e0 | 0x838)),
            Space::Mmio => r.address == Some(0xfee0_0380),
            Space::Pio => false,
        }
}

pub(super) fn tick_storm(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().timers;
    let all = guest.accesses(programs_timer);
    let Some(vcpus) = guest.vcpus() else { return };
    if guest.kind.windows(Sureness::Low) || all.rate.is_none_or(|r| r < t.tick_per_vcpu.info * vcpus) {
        return;
    }
    let Some(cpu) = guest.guest_cpu() else { return verdicts.cannot_tell(texts::IDLE_UNKNOWN) };
    if cpu >= t.idle_guest_cpu / 2.0 {
        return;
    }
    let Some(seconds) = guest.seconds else { return };
    let mean = all.rate_or_zero() / vcpus;
    let Some(hz) = TICK_RATES.iter().copied().find(|hz| (mean / hz - 1.0).abs() <= MEAN_TOLERANCE) else { return };
    let rows = &guest.domain.vcpu_accesses;
    let by_vcpu = !rows.is_empty();
    let mut slowest = if by_vcpu { f64::INFINITY } else { mean };
    for v in (0..vcpus as u32).filter(|_| by_vcpu) {
        let own = rows.iter().filter(|r| r.vcpu == Some(v) && programs_timer(r));
        let rate = own.map(|r| r.span.count).sum::<u64>() as f64 / seconds;
        if (rate / hz - 1.0).abs() > VCPU_TOLERANCE {
            return;
        }
        slowest = slowest.min(rate);
    }
    if slowest < t.tick_per_vcpu.info {
        return;
    }
    let storm = by_vcpu && slowest >= t.tick_per_vcpu.warning && all.rate_or_zero() >= t.tick_storm;
    verdicts.find(Finding {
        severity: if storm { Severity::Warning } else { Severity::Info },
        confidence: if by_vcpu { Confidence::Medium } else { Confidence::Low },
        evidence: vec![
            all.describe(guest, "timer settings", ""),
            texts::tick_rate(slowest, by_vcpu, vcpus, cpu),
            guest.perf_check("msr"),
        ],
        fix: vec![
            fixes::command(texts::TICK_STORM_LOOK).needing(fixes::IN_GUEST),
            fixes::advice(texts::TICK_STORM_FIX),
        ],
        ..texts::TICK_STORM.caused_by(all)
    });
}
