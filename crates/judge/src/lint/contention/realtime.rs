//! Real-time vCPUs that share their CPU or are throttled.

use super::texts;
use crate::lint::context::Context;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Fix, Mark, Severity};
use crate::lint::fixes::{self, isolation::Isolation, placement};
use crate::lint::verdicts::Verdicts;
use crate::model::ThreadModel;
use kvm::CpuSet;

/// A real-time vCPU that uses more is close to the limit of 95 %, percent.
const NEAR_THE_LIMIT: f64 = 94.0;

/// `SCHED_FIFO` or `SCHED_RR` (`uapi/linux/sched.h`).
fn is_realtime(thread: &ThreadModel) -> bool {
    matches!(thread.place.policy, Some(1 | 2))
}

/// Real-time vCPUs that are not pinned to an isolated CPU, each with the single CPU to which it is pinned, if any.
fn sharing(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<(u32, Option<u32>)> {
    let host = ctx.topology();
    // Not every description of a host says which CPUs are isolated.
    let shares = |cpu: Option<u32>| cpu.is_none_or(|c| host.isolated.is_some() && !host.is_isolated(c));
    if guest.vcpu_threads().next().is_some() {
        let realtime = guest.vcpu_threads().filter(|t| is_realtime(t) && shares(t.pinned_cpu()));
        return realtime.filter_map(|t| Some((t.index?, t.pinned_cpu()))).collect();
    }
    if host.cpus.is_empty() {
        return Vec::new();
    }
    let pins = &guest.config.pins;
    let realtime = pins.realtime.iter().map(|v| (*v, pins.vcpu(*v).and_then(CpuSet::single)));
    realtime.filter(|(_, c)| shares(*c)).collect()
}

pub(super) fn realtime(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let sharing = sharing(ctx, guest);
    let limit = ctx.param("kernel.sched_rt_runtime_us").and_then(|v| v.parse::<i64>().ok());
    let throttled = limit.is_some_and(|us| us >= 0)
        && guest.vcpu_threads().any(|t| is_realtime(t) && t.cpu.is_some_and(|c| c.busy() > NEAR_THE_LIMIT));
    let mut evidence = Vec::new();
    if let Some((v, cpu)) = sharing.first() {
        evidence.push(texts::realtime_shares(*v, *cpu, sharing.len()));
    }
    if throttled {
        evidence.push(texts::RT_LIMIT.into());
    }
    if evidence.is_empty() {
        return;
    }
    evidence.push(texts::CHECK_REALTIME.into());
    let mut finding = Finding {
        severity: Severity::Warning,
        confidence: Confidence::High,
        evidence,
        marks: sharing.iter().map(|b| Mark::Vcpu(b.0)).collect(),
        ..texts::REALTIME_SHARES.finding()
    };
    if sharing.is_empty() {
        finding.title = texts::REALTIME_THROTTLED_TITLE.into();
        finding.fix = vec![fixes::command("sysctl kernel.sched_rt_runtime_us=-1").needing(texts::NO_RT_LIMIT_NEED)];
    } else {
        finding.fix = isolate(ctx, guest);
    }
    verdicts.find(finding);
}

/// Gives the vCPUs isolated CPUs.
fn isolate(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Fix> {
    let mut fix = placement::guest_placement(ctx, guest);
    fix.extend(Isolation::new(ctx).options(&["isolcpus", "nohz_full", "rcu_nocbs"]));
    fix.push(fixes::libvirt_advice(texts::NO_REALTIME));
    fix
}
