//! Interrupts that arrive by way of a workqueue.

use super::texts;
use crate::lint::prelude::*;
use crate::model::{InjectionModel, ThreadModel, total};
use kvm::thread_name::Role;
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
            verdicts.cannot_tell(texts::WAKERS_NOT_TRACED);
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
    let vhost = guest.domain.threads.iter().any(|t| t.role == Role::Vhost);
    let where_ = if isolated { texts::KWORKER_ISOLATED } else { texts::KWORKER_NOT_ISOLATED };
    let traced = InjectionModel::sum_of(guest.domain.interrupts.as_deref(), |i| i.by == Injector::Kworker);
    let mut evidence = vec![texts::kworker_wakeups(&thread.label(), rate, &guest.window()), where_.into()];
    evidence.extend(traced.and_then(|i| texts::kworker_injections(&i)));
    evidence.push(texts::CHECK_KWORKER.into());
    verdicts.find(Finding {
        severity: if rate >= warning { Severity::Warning } else { Severity::Info },
        confidence: Confidence::Medium,
        target: Target::Vcpu(thread.index.unwrap_or_default()),
        evidence,
        fix: vec![fixes::advice(if vhost { texts::KWORKER_AND_VHOST } else { texts::KWORKER_AND_POLLING })],
        marks: thread.index.map(Mark::Vcpu).into_iter().collect(),
        ..texts::KWORKER.finding()
    });
}
