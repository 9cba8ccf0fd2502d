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
        let (name, count, window) = (thread.label(), w.count, guest.window());
        let (median, p99) = (figure(median), figure(p99));
        let mut evidence = vec![format!(
            "{name}: of {count} wake-ups half took over {median} us and one in a hundred over {p99} us {window}"
        )];
        let traced = InjectionModel::sum_of(guest.domain.interrupts.as_deref(), |i| i.wake.count > 0);
        evidence.extend(traced.and_then(|i| interrupts(&i)));
        evidence.push(format!("look at: perf sched record -C {cpu} sleep 10; perf sched latency"));
        let shallow = fixes::command(texts::SHALLOW_SLEEP).needing("keeps CPUs out of deep sleep; costs power");
        let fix = vec![shallow, fixes::advice(texts::GUEST_IDLES_CPU).only(Audience::Qemu)];
        return verdicts.find(Finding {
            target: Target::Vcpu(thread.index.unwrap_or_default()),
            marks: thread.index.map(Mark::Vcpu).into_iter().chain([Mark::Pcpu(cpu)]).collect(),
            ..Finding::new(severity, Confidence::Medium, evidence, fix)
        });
    }
}

/// The way of the interrupts that woke it, where they were traced.
fn interrupts(traced: &InjectionModel) -> Option<String> {
    let (wake, delay) = (figure(traced.wake.mean_us()?), figure(traced.delay.mean_us()?));
    let guest = traced.slept.mean_us().map(|us| format!(", and ran the guest {} us after the injection", figure(us)));
    let (guest, count) = (guest.unwrap_or_default(), traced.wake.count);
    Some(format!(
        "{count} interrupts woke vCPUs of the guest: {wake} us after the injection; they had a CPU {delay} us \
         later{guest}"
    ))
}
