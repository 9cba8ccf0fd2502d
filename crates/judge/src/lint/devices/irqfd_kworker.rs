//! Interrupts that arrive by way of a workqueue.

use super::texts;
use crate::lint::prelude::*;
use crate::model::InjectionModel;
use sample::Injector;

/// Wake-ups per second that are reported when the kworker is on an isolated CPU.
const MIN_ISOLATED: f64 = 10.0;

/// The CPU of a bound kworker: `kworker/3:1`, `kworker/3:1H-kblockd`. Unbound ones are `kworker/u8:2`.
fn kworker_cpu(comm: &str) -> Option<u32> {
    comm.strip_prefix("kworker/")?.split(':').next()?.parse().ok()
}

pub(super) fn kworker(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let Some(seconds) = guest.seconds else { return };
    let host = ctx.topology();
    let mut vcpus = guest.vcpu_threads().peekable();
    if vcpus.peek().is_some() && vcpus.all(|t| t.wakeups.is_none() && t.woken_by.is_empty()) {
        if ctx.layout(guest).vcpus.iter().any(|set| ctx.map().restricts(set) && set.intersects(&ctx.map().isolated)) {
            verdicts.cannot_tell("who wakes the vCPUs on isolated CPUs is visible only with tracing");
        }
        return;
    }
    let wakes = |t: &ThreadModel| -> (u64, bool) {
        let kworkers = || t.woken_by.iter().filter(|w| w.comm.starts_with("kworker/"));
        let isolated = kworkers().any(|w| kworker_cpu(&w.comm).is_some_and(|c| host.is_isolated(c)));
        (total(kworkers().map(|w| w.count)), isolated)
    };
    let busiest = guest.vcpu_threads().map(|t| (wakes(t), t)).max_by_key(|((n, _), _)| *n);
    let Some(((count, isolated), thread)) = busiest else { return };
    let rate = count as f64 / seconds;
    let warning = ctx.thresholds().devices.kworker_wakes;
    if !(isolated && rate >= MIN_ISOLATED) && rate < warning {
        return;
    }
    let mut evidence = vec![format!("kworkers wake {} {} times/s {}", thread.label(), figure(rate), guest.window())];
    evidence.push(if isolated { texts::KWORKER_ISOLATED } else { "the kworkers are not on isolated CPUs" }.into());
    let traced = InjectionModel::sum_of(guest.domain.interrupts.as_deref(), |i| i.by == Injector::Kworker);
    evidence.extend(traced.and_then(|i| injections(&i)));
    evidence.push(texts::CHECK_KWORKER.into());
    let vhost = guest.domain.threads.iter().any(|t| t.role == Role::Vhost);
    let fix = vec![fixes::advice(if vhost { texts::KWORKER_AND_VHOST } else { texts::KWORKER_AND_POLLING })];
    let severity = if rate >= warning { Severity::Warning } else { Severity::Info };
    verdicts.find(Finding {
        title: "Interrupts reach the guest through a kworker".into(),
        target: Target::Vcpu(thread.index.unwrap_or_default()),
        marks: thread.index.map(Mark::Vcpu).into_iter().collect(),
        ..Finding::new(severity, Confidence::Medium, evidence, fix)
    });
}

/// What the way of these interrupts took, where they were traced.
fn injections(traced: &InjectionModel) -> Option<String> {
    Some(format!(
        "kworkers inject {} interrupts/s into the guest; a vCPU that sleeps is woken {} us later and has a CPU {} us \
         after that",
        figure(traced.rate()?),
        figure(traced.wake.mean_us()?),
        figure(traced.delay.mean_us()?)
    ))
}
