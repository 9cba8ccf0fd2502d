//! A host that is itself a guest and waits for its CPUs.

use super::texts;
use crate::lint::context::Context;
use crate::lint::engine::finding::{Confidence, Finding, Mark, Severity, Target};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;

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
        ..texts::STEAL.finding()
    });
}
