//! No CPU left for the host.

use super::texts;
use crate::kvm::CpuSet;
use crate::kvm::thread_name::Role;
use crate::lint::context::Context;
use crate::lint::engine::finding::{Confidence, Finding, Mark, Severity, Target};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;

/// The most CPUs that a finding marks.
const MOST_MARKS: usize = 64;

pub(super) fn starved(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let host = ctx.topology();
    let running = ctx.guests.iter().filter(|g| g.running());
    let pinned = running.fold(CpuSet::new(), |a, g| a.union(&g.vcpu_cpus.single));
    if pinned.is_empty() {
        return;
    }
    let online = ctx.online();
    if online.is_empty() {
        return verdicts.cannot_tell(texts::HOST_CPUS_UNKNOWN);
    }
    let nodes: Vec<CpuSet> = match host.nodes() {
        n if n.is_empty() => vec![online.clone()],
        n => n.iter().map(|n| host.cpus_of_node(n).intersection(&online)).filter(|s| !s.is_empty()).collect(),
    };
    let full: Vec<&CpuSet> = nodes.iter().filter(|n| n.is_subset(&pinned)).collect();
    let emulators = ctx.guests.iter().flat_map(|g| g.domain.threads.iter().filter(|t| t.role == Role::Emulator));
    let wait = emulators.filter_map(|t| t.cpu?.wait).fold(0.0, f64::max);
    let starving = wait >= ctx.thresholds().pinning.starved_wait && pinned.len() * 2 > online.len();
    if full.is_empty() && !starving {
        return;
    }
    let mut evidence = Vec::new();
    if let Some(first) = full.first() {
        evidence.push(texts::full_nodes(first, full.len(), nodes.len()));
    }
    if starving {
        evidence.push(texts::emulator_waits(wait));
    }
    evidence.push(texts::CHECK_STARVED.into());
    verdicts.find(Finding {
        severity: Severity::Warning,
        confidence: Confidence::High,
        target: Target::Host,
        evidence,
        fix: vec![fixes::advice(texts::KEEP_FIRST_CORES)],
        marks: full.iter().flat_map(|s| s.iter()).take(MOST_MARKS).map(Mark::Pcpu).collect(),
        ..texts::STARVED.finding()
    });
}
