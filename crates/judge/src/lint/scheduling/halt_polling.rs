//! Halt polling that mostly fails.

use super::texts;
use crate::lint::prelude::*;
use crate::model::CpuShare;

/// On a host that is idle for more than this, polling hurts nobody, percent.
const IDLE_HOST: f64 = 20.0;
/// `halt_poll_ns` of x86 (`arch/x86/include/asm/kvm_host.h`, `KVM_HALT_POLL_NS_DEFAULT`).
const DEFAULT_POLL_NS: &str = "200000";

/// A vCPU that polls.
struct Poller<'a> {
    /// Time that it polls, percent of a CPU.
    percent: f64,
    /// The part of it after which the vCPU slept anyway.
    failed: f64,
    thread: &'a ThreadModel,
}

pub(super) fn halt_poll(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().scheduling;
    let Some(Poller { percent, failed, thread }) =
        busiest(guest, t.halt_poll_guest).or_else(|| average(guest, t.halt_poll_guest))
    else {
        return;
    };
    let Some(mut severity) = t.halt_poll.of(percent) else { return };
    let idle = ctx.model.host.total().map(|h| h.idle + h.iowait);
    if idle.is_none_or(|i| i > IDLE_HOST) {
        severity = Severity::Info;
    }
    let (name, window, ns) = (thread.label(), guest.window(), ctx.param("kvm.halt_poll_ns").unwrap_or(DEFAULT_POLL_NS));
    let (polls, failed, runs) = (figure(percent), figure(failed), figure(thread.cpu.map_or(0.0, |c| c.guest)));
    let evidence = vec![
        format!("{name} polls {polls} % of the time ({failed} % in vain) {window}, while its guest runs {runs} %"),
        format!("kvm.halt_poll_ns is {ns}"),
        "check: kvm_stat -1, the halt_poll rows; look at: /sys/module/kvm/parameters/halt_poll_ns".into(),
    ];
    let less = fixes::command(texts::LESS_POLLING).needing(texts::LESS_POLLING_NEED);
    let found = Finding::new(severity, Confidence::High, evidence, vec![less, fixes::advice(texts::KEEP_POLLING)]);
    let marks = thread.index.map(Mark::Vcpu).into_iter().collect();
    verdicts.find(Finding {
        target: Target::Vcpu(thread.index.unwrap_or_default()),
        cost: Some(percent),
        marks,
        ..found
    });
}

/// The mostly idle vCPU that polls most.
fn busiest<'a>(guest: &GuestContext<'a>, idle: f64) -> Option<Poller<'a>> {
    let poller = |thread: &'a ThreadModel| {
        let fail = thread.counters.get("halt_poll_fail_ns")?;
        let hit = thread.counters.get("halt_poll_success_ns")?;
        (thread.cpu?.kind(|c| c.guest)? < idle).then(|| Poller {
            percent: (fail + hit) / 1e7,
            failed: fail / 1e7,
            thread,
        })
    };
    // Of equal ones the first.
    guest.vcpu_threads().filter_map(poller).reduce(|a, b| if b.percent > a.percent { b } else { a })
}

/// The same where KVM's counters are sums over the vCPUs, as in debugfs: the average, on the vCPU with most system
/// time.
fn average<'a>(guest: &GuestContext<'a>, idle: f64) -> Option<Poller<'a>> {
    let ns = |name: &str| guest.domain.counters.get(name).copied();
    let (fail, hit) = (ns("halt_poll_fail_ns")?, ns("halt_poll_success_ns")?);
    let vcpus: Vec<(&ThreadModel, CpuShare)> =
        guest.vcpu_threads().filter_map(|t| Some((t, t.cpu.filter(|c| !c.kinds_unknown)?))).collect();
    let count = vcpus.len() as f64;
    if vcpus.is_empty() || vcpus.iter().map(|v| v.1.guest).sum::<f64>() / count >= idle {
        return None;
    }
    let (thread, _) = vcpus.into_iter().max_by(|a, b| a.1.sys.total_cmp(&b.1.sys))?;
    Some(Poller { percent: (fail + hit) / 1e7 / count, failed: fail / 1e7 / count, thread })
}
