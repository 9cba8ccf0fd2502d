//! From woken to running, on a CPU that is free.

use super::texts;
use crate::lint::prelude::*;
use crate::model::InjectionModel;

/// A 99th percentile needs this many wake-ups.
const MIN_WAKEUPS: u64 = 20;
/// From this wait on, the vCPU competes for its CPU, percent.
const COMPETES: f64 = 2.0;
/// From this use by others on, the CPU is not free, percent.
const OTHERS_BUSY: f64 = 10.0;

pub(super) fn wakeups(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let (info_us, warning_us) = ctx.thresholds().pinning.wakeup_us;
    for thread in guest.vcpu_threads() {
        let (Some(cpu), Some(w)) = (thread.pinned_cpu(), &thread.wakeups) else { continue };
        if w.count < MIN_WAKEUPS || thread.cpu.is_none_or(|c| c.wait.is_some_and(|x| x >= COMPETES)) {
            continue;
        }
        // Other tasks on the CPU are the subject of other rules.
        let own = thread.cpu.map_or(0.0, |c| c.busy());
        let time = ctx.model.host.cpu(cpu).and_then(|c| c.time);
        if time.is_none_or(|t| t.busy() - own > OTHERS_BUSY) {
            continue;
        }
        let (Some(median), Some(p99)) = (w.quantile_us(0.5), w.quantile_us(0.99)) else { continue };
        let severity = if p99 >= warning_us {
            Severity::Warning
        } else if median >= info_us {
            Severity::Info
        } else {
            continue;
        };
        let mut evidence = vec![texts::wakeups(&thread.label(), w.count, median, p99, &guest.window())];
        let traced = InjectionModel::sum_of(guest.domain.interrupts.as_deref(), |i| i.wake.count > 0);
        evidence.extend(traced.and_then(|i| texts::interrupts(&i)));
        evidence.push(texts::check_wakeups(cpu));
        return verdicts.find(Finding {
            severity,
            confidence: Confidence::Medium,
            target: Target::Vcpu(thread.index.unwrap_or_default()),
            evidence,
            fix: vec![
                fixes::command(texts::SHALLOW_SLEEP).needing(texts::SHALLOW_SLEEP_NEED),
                fixes::advice(texts::GUEST_IDLES_CPU).only(Audience::Qemu),
            ],
            marks: thread.index.map(Mark::Vcpu).into_iter().chain([Mark::Pcpu(cpu)]).collect(),
            ..texts::WAKEUPS.finding()
        });
    }
}
