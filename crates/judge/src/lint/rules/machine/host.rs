//! What the host lacks: swapping of guest memory, KSM, and a host that is itself a guest and waits
//! for its CPUs.

use crate::figures::bytes;
use crate::figures::figure;
use crate::lint::facts::{Confidence, Context, Finding, Mark, Severity, Verdicts};
use crate::lint::fixes;

/// The host has hardly any memory left, and its tasks wait for some.
fn judge_host_memory(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let host = &ctx.model.host;
    let limits = &ctx.thresholds().machine;
    let (Some(memory), Some(pressure)) = (host.memory, host.pressure) else {
        return;
    };
    let percent = 100.0 * memory.available as f64 / memory.total.max(1) as f64;
    if percent >= limits.host_available || pressure.memory < limits.host_stall {
        return;
    }
    let evidence = vec![format!(
        "{} of {} are available ({} %), and tasks waited for memory {} % of the last 10 s; the \
            guests have {}",
        bytes(memory.available),
        bytes(memory.total),
        figure(percent),
        figure(pressure.memory),
        bytes(host.guests_memory)
    )];
    let mut fix = vec![fixes::advice(
        "See which guest has the memory (key m), and move one away or give it less",
    )];
    if memory.arc.is_some_and(|arc| arc > memory.available) {
        fix.push(fixes::advice(
            "The ARC of ZFS gives memory back slowly: bound it by zfs_arc_max",
        ));
    }
    verdicts.find(Finding {
        title: "The host's memory runs out".into(),
        ..Finding::new(Severity::Warning, Confidence::High, evidence, fix)
    });
}

pub(super) fn memory(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    judge_host_memory(ctx, verdicts);
    for g in &ctx.guests {
        let Some(swap) = g.domain.swap.filter(|swap| swap.grown > 0) else {
            continue;
        };
        let element = "<memoryBacking>\n  <locked/>\n</memoryBacking>";
        let locked = fixes::setting(g, element, "-overcommit mem-lock=on");
        let mut fix = vec![fixes::advice(
            "Give the guests less memory in total than the host \
            has, or run fewer of them",
        )];
        fix.extend(locked.into_iter().map(|fix| {
            fix.needing(
                "takes effect at the guest's next start; only where the host has the memory",
            )
        }));
        let mut evidence = vec![format!(
            "{} of the guest are in swap, {} more than before {}",
            bytes(swap.bytes),
            bytes(swap.grown.unsigned_abs()),
            g.window()
        )];
        evidence.extend(ctx.model.host.memory.map(|m| {
            format!(
                "the host has {} of {} available and {} in swap",
                bytes(m.available),
                bytes(m.total),
                bytes(m.swap_used)
            )
        }));
        verdicts.find_for(
            g,
            Finding::new(Severity::Warning, Confidence::High, evidence, fix),
        );
    }
}

pub(super) fn steal(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let cpus = &ctx.model.host.cpus;
    let Some(mean) = ctx.model.host.total() else {
        return;
    };
    let total = mean.steal * cpus.len() as f64;
    let shares = cpus.iter().filter_map(|c| Some((c.cpu, c.time?.steal)));
    let worst = shares.max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((cpu, share)) = worst.filter(|w| w.1 >= ctx.thresholds().machine.steal) else {
        return;
    };
    let evidence = vec![format!(
        "{} % of CPU {cpu} is stolen; {} % of one CPU over the whole host",
        figure(share),
        figure(total)
    )];
    let fix = vec![fixes::advice(
        "Move to a larger or dedicated instance, or ask the outer hypervisor's operator",
    )];
    let found = Finding::new(Severity::Warning, Confidence::High, evidence, fix);
    verdicts.find(Finding {
        cost: Some(total),
        marks: vec![Mark::Pcpu(cpu)],
        ..found
    });
}
