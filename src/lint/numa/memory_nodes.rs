//! vCPUs or memory over several NUMA nodes.

use super::texts;
use crate::kvm::CpuSet;
use crate::lint::context::Context;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Fix, Mark, Severity};
use crate::lint::fixes::{self, placement};
use crate::lint::links;
use crate::lint::verdicts::Verdicts;
use crate::model::total;

/// Where a guest's vCPUs are pinned.
struct PinnedNodes {
    cpus: CpuSet,
    nodes: CpuSet,
    marks: Vec<Mark>,
}

pub(super) fn split(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let host = ctx.topology();
    let pins = &guest.vcpu_cpus.masks;
    let all_pinned = guest.vcpus().is_some_and(|n| pins.len() as f64 >= n);
    if host.nodes().len() < 2 || !all_pinned {
        return;
    }
    let cpus = pins.iter().fold(CpuSet::new(), |a, p| a.union(&p.1));
    let nodes: CpuSet = cpus.iter().filter_map(|c| host.node_of(c)).collect();
    let marks = pins.iter().map(|p| Mark::Vcpu(p.0)).collect();
    let several = nodes.len() > 1 && guest.config.numa.cells < 2 && guest.config.known;
    let pinned = PinnedNodes { cpus, nodes, marks };
    if several {
        vcpus_split(ctx, guest, pinned, verdicts);
    } else if !pinned.nodes.is_empty() {
        memory_elsewhere(ctx, guest, pinned, verdicts);
    }
}

fn vcpus_split(ctx: &Context<'_>, guest: &GuestContext<'_>, pinned: PinnedNodes, verdicts: &mut Verdicts) {
    let host = ctx.topology();
    let PinnedNodes { cpus, nodes, marks } = pinned;
    let biggest = host.nodes().iter().map(|n| host.cpus_of_node(n).len()).max().unwrap_or(0);
    let must_span = guest.vcpus().is_some_and(|n| n as usize > biggest);
    let mut fix = if must_span { Vec::new() } else { placement::pin_all(ctx, guest) };
    if fix.is_empty() {
        fix.push(fixes::advice(texts::SHOW_NODES));
    }
    let mut evidence = vec![texts::vcpus_split(&cpus, &nodes)];
    if let Some(bound) = guest.config.numa.nodes.as_ref().filter(|b| !b.is_empty() && !nodes.is_subset(b)) {
        evidence.push(texts::bound_away(bound, &nodes.difference(bound)));
    }
    evidence.push(texts::CHECK_NODES.into());
    verdicts.find(Finding {
        severity: if must_span { Severity::Info } else { Severity::Warning },
        confidence: Confidence::High,
        evidence,
        fix,
        marks,
        ..texts::VCPUS_SPLIT.finding()
    });
}

fn memory_elsewhere(ctx: &Context<'_>, guest: &GuestContext<'_>, pinned: PinnedNodes, verdicts: &mut Verdicts) {
    let PinnedNodes { cpus, nodes, marks } = pinned;
    let by_node: Vec<(u32, u64)> = guest.domain.node_memory.iter().map(|(n, b)| (*n, *b)).collect();
    let all = total(by_node.iter().map(|(_, b)| *b));
    if all > 0 {
        let near = total(by_node.iter().filter(|(n, _)| nodes.contains(*n)).map(|(_, b)| *b));
        let local = 100.0 * near as f64 / all as f64;
        let (warning, critical) = ctx.thresholds().pinning.local_memory;
        if local >= warning {
            return;
        }
        return verdicts.find(Finding {
            severity: if local < critical { Severity::Critical } else { Severity::Warning },
            confidence: Confidence::High,
            evidence: vec![
                texts::local_share(local, &nodes, &by_node),
                texts::check_memory(guest.domain.facts.pid.unwrap_or_default()),
            ],
            fix: move_memory(guest, &nodes),
            marks,
            ..texts::MEMORY_ELSEWHERE.finding()
        });
    }
    let elsewhere = |b: &&CpuSet| !b.intersects(&nodes) && !b.is_empty();
    if let Some(bound) = guest.config.numa.nodes.as_ref().filter(elsewhere) {
        verdicts.find(Finding {
            severity: Severity::Warning,
            confidence: Confidence::High,
            evidence: vec![
                texts::bound_elsewhere(bound, &cpus, &nodes),
                texts::check_binding(&fixes::virsh(guest, "numatune", "")),
            ],
            fix: move_memory(guest, &nodes),
            see: vec![links::NUMA_TUNING.into()],
            marks,
            ..texts::MEMORY_BOUND_ELSEWHERE.finding()
        });
    }
}

fn move_memory(guest: &GuestContext<'_>, nodes: &CpuSet) -> Vec<Fix> {
    let mut fix = Vec::new();
    if guest.config.libvirt != Some(false) {
        fix.push(fixes::xml(format!("<numatune>\n  <memory mode='strict' nodeset='{nodes}'/>\n</numatune>")));
    }
    if let Some(pid) = guest.domain.facts.pid {
        let others = guest.domain.node_memory.keys().filter(|n| !nodes.contains(**n));
        let others = others.map(ToString::to_string).collect::<Vec<_>>().join(",");
        let command = fixes::command(format!("migratepages {pid} {others} {nodes}"));
        fix.push(command.needing(texts::MOVE_MEMORY_NEED));
    }
    fix
}
