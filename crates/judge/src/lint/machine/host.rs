//! What the host lacks: swapping of guest memory, KSM, and a host that is itself a guest and waits for its CPUs.

use super::texts;
use crate::lint::prelude::*;

pub(super) fn memory(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    swapping(ctx, verdicts);
    ksm(ctx, verdicts);
}

fn swapping(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    for (i, g) in ctx.guests.iter().enumerate() {
        let Some((swap, grown)) = g.domain.swap.filter(|s| s.1 > 0) else { continue };
        let (of_libvirt, by_hand) = (fixes::xml(texts::LOCK_MEMORY), fixes::qemu(texts::LOCK_MEMORY_OPTION));
        let locked = fixes::either(g, of_libvirt, by_hand).into_iter().map(|fix| fix.needing(texts::LOCK_MEMORY_NEED));
        let mut evidence = vec![texts::in_swap(swap, grown.unsigned_abs(), &g.window())];
        evidence.extend(ctx.model.host.memory.map(texts::host_memory));
        evidence.push(texts::check_swap(g.domain.facts.pid.unwrap_or_default()));
        verdicts.find_for(
            i,
            g,
            Finding {
                severity: Severity::Warning,
                confidence: Confidence::High,
                evidence,
                fix: [fixes::advice(texts::LESS_GUEST_MEMORY)].into_iter().chain(locked).collect(),
                ..texts::SWAPPED.finding()
            },
        );
    }
}

fn ksm(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let ksmd = ctx.model.host.tasks.iter().filter(|t| t.kernel && t.comm == "ksmd");
    let percent = ksmd.map(|t| t.cpu_percent).fold(0.0, f64::max);
    if percent < ctx.thresholds().machine.ksmd {
        return;
    }
    verdicts.find(Finding {
        severity: Severity::Info,
        confidence: Confidence::High,
        target: Target::Host,
        evidence: vec![texts::ksmd(percent), texts::CHECK_KSM.into()],
        fix: vec![
            fixes::command("echo 0 > /sys/kernel/mm/ksm/run").needing(texts::STOP_KSM_NEED),
            fixes::advice(texts::KEEP_KSM),
        ],
        see: vec![links::KSM.into()],
        cost: Some(percent),
        ..texts::KSM.finding()
    });
}

pub(super) fn steal(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let cpus = &ctx.model.host.cpus;
    let Some(mean) = ctx.model.host.total() else { return };
    let total = mean.steal * cpus.len() as f64;
    let shares = cpus.iter().filter_map(|c| Some((c.cpu, c.time?.steal)));
    let worst = shares.max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((cpu, share)) = worst.filter(|w| w.1 >= ctx.thresholds().machine.steal) else { return };
    verdicts.find(Finding {
        severity: Severity::Warning,
        confidence: Confidence::High,
        target: Target::Host,
        evidence: vec![texts::stolen(share, cpu, total), texts::CHECK_STEAL.into()],
        fix: vec![fixes::advice(texts::OTHER_INSTANCE)],
        cost: Some(total),
        marks: vec![Mark::Pcpu(cpu)],
        ..Finding::default()
    });
}
