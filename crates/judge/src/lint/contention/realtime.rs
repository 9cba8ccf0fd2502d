//! Real-time vCPUs that share their CPU or are throttled.

use super::texts;
use crate::lint::prelude::*;

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
        let place = match cpu {
            Some(cpu) => format!("is on CPU {cpu}, which is not isolated"),
            None => "is not pinned to one CPU".into(),
        };
        evidence.push(format!("vCPU {v} has a real-time policy and {place}; vCPUs like this: {}", sharing.len()));
    }
    if throttled {
        evidence.push(texts::RT_LIMIT.into());
    }
    if evidence.is_empty() {
        return;
    }
    evidence.push("look at: chrt -ap PID; cat /proc/sys/kernel/sched_rt_runtime_us".into());
    let (title, fix) = if sharing.is_empty() {
        let no_limit = fixes::command("sysctl kernel.sched_rt_runtime_us=-1").needing(texts::NO_RT_LIMIT_NEED);
        ("The kernel stops a real-time vCPU that uses its whole CPU", vec![no_limit])
    } else {
        let mut fix = guest_placement(ctx, guest);
        fix.extend(Isolation::new(ctx).options(&["isolcpus", "nohz_full", "rcu_nocbs"]));
        fix.push(fixes::libvirt_advice(texts::NO_REALTIME));
        ("A real-time vCPU shares its CPU", fix)
    };
    let marks = sharing.iter().map(|b| Mark::Vcpu(b.0)).collect();
    let found = Finding::new(Severity::Warning, Confidence::High, evidence, fix);
    verdicts.find(Finding { title: title.into(), marks, ..found });
}
