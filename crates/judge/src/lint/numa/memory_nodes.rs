//! vCPUs or memory over several NUMA nodes.

use super::texts;
use crate::lint::context::Context;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Fix, Mark, Severity};
use crate::lint::fixes::{self, placement};
use crate::lint::links;
use crate::lint::verdicts::Verdicts;
use crate::model::total;
use crate::placement::HelperLayout;
use kvm::CpuSet;

/// The most cells that evidence lists.
const MAX_CELLS: usize = 16;

const MIB: f64 = 1024.0 * 1024.0;

/// Where a guest's vCPUs are pinned.
struct PinnedNodes {
    cpus: CpuSet,
    nodes: CpuSet,
    marks: Vec<Mark>,
}

pub(super) fn split(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let (map, layout) = (ctx.map(), ctx.layout(guest));
    if map.nodes.len() < 2 || !layout.running {
        return;
    }
    cells_crossed(ctx, guest, verdicts);
    let Some(cpus) = layout.confined(map) else { return };
    let marks = (0..layout.vcpus.len() as u32).map(Mark::Vcpu).collect();
    let pinned = PinnedNodes { nodes: map.nodes_of(&cpus), cpus, marks };
    helpers_elsewhere(ctx, guest, &pinned, verdicts);
    if layout.split_nodes(map).is_some() {
        vcpus_split(ctx, guest, pinned, verdicts);
    } else if !pinned.nodes.is_empty() {
        memory_elsewhere(ctx, guest, pinned, verdicts);
    }
}

fn vcpus_split(ctx: &Context<'_>, guest: &GuestContext<'_>, pinned: PinnedNodes, verdicts: &mut Verdicts) {
    let PinnedNodes { cpus, nodes, marks } = pinned;
    let biggest = ctx.map().nodes.values().map(CpuSet::len).max().unwrap_or(0);
    let must_span = ctx.layout(guest).vcpus.len() > biggest;
    let mut fix = placement::guest_placement(ctx, guest);
    if fix.is_empty() {
        fix.push(fixes::libvirt_advice(texts::SHOW_NODES));
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

/// Cells whose vCPUs are pinned away from the cell's memory.
fn cells_crossed(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let (map, layout) = (ctx.map(), ctx.layout(guest));
    let crossed = layout.cells_elsewhere(map);
    if crossed.is_empty() {
        return;
    }
    let line = |(cell, vcpus): &(usize, Vec<u32>)| {
        let now = vcpus.iter().filter_map(|v| layout.vcpus.get(*v as usize)).fold(CpuSet::new(), |a, b| a.union(b));
        let memory = layout.cells.get(*cell).and_then(|c| c.nodes.clone()).unwrap_or_default();
        let id = guest.config.numa.cells.get(*cell).map_or(*cell, |c| c.id as usize);
        texts::cell_elsewhere(id, &vcpus.iter().copied().collect(), &map.nodes_of(&now), &memory)
    };
    let mut evidence: Vec<String> = crossed.iter().take(MAX_CELLS).map(line).collect();
    evidence.push(texts::CHECK_NODES.into());
    let mut fix = placement::guest_placement(ctx, guest);
    if fix.is_empty() {
        fix.push(fixes::libvirt_advice(texts::MATCH_CELLS));
    }
    verdicts.find(Finding {
        severity: Severity::Warning,
        confidence: Confidence::High,
        evidence,
        fix,
        marks: crossed.iter().flat_map(|(_, vcpus)| vcpus).map(|v| Mark::Vcpu(*v)).collect(),
        ..texts::CELLS_CROSSED.finding()
    });
}

/// Reports helpers that are pinned to nodes without any of the guest's vCPUs. If the plan cannot place the helpers on
/// the vCPUs' nodes either, it reports nothing.
fn helpers_elsewhere(ctx: &Context<'_>, guest: &GuestContext<'_>, pinned: &PinnedNodes, verdicts: &mut Verdicts) {
    let (map, layout) = (ctx.map(), ctx.layout(guest));
    let helpers: Vec<(Option<u32>, &HelperLayout)> =
        layout.helpers().filter(|(_, h)| layout.is_elsewhere(map, h)).collect();
    if helpers.is_empty() || ctx.planned(guest).is_none_or(|p| p.helpers().any(|(_, h)| p.is_elsewhere(map, h))) {
        return;
    }
    let busy = helpers.iter().filter_map(|(id, _)| guest.domain.helper(*id)?.cpu).map(|c| c.busy()).reduce(f64::max);
    let line = |(id, h): &(Option<u32>, &HelperLayout)| {
        let cpus = h.cpus.clone().unwrap_or_default();
        texts::helper_elsewhere(*id, &cpus, &map.nodes_of(&cpus))
    };
    let mut evidence: Vec<String> = helpers.iter().take(MAX_CELLS).map(line).collect();
    evidence.push(texts::vcpus_on(&pinned.cpus, &pinned.nodes));
    evidence.push(fixes::check_pins(guest));
    verdicts.find(Finding {
        severity: busy.and_then(|b| ctx.thresholds().pinning.emulator.of(b)).unwrap_or_default(),
        confidence: Confidence::High,
        evidence,
        fix: placement::guest_placement(ctx, guest),
        cost: busy.filter(|b| *b > 0.0),
        marks: pinned.marks.clone(),
        ..texts::HELPERS_ELSEWHERE.finding()
    });
}

fn memory_elsewhere(ctx: &Context<'_>, guest: &GuestContext<'_>, pinned: PinnedNodes, verdicts: &mut Verdicts) {
    let PinnedNodes { cpus, nodes, marks } = pinned;
    let by_node: Vec<(u32, u64)> = guest.domain.node_memory.iter().map(|(n, b)| (*n, *b)).collect();
    let all = total(by_node.iter().map(|(_, b)| *b));
    if all > 0 {
        // What is measured counts as soon as the guest has its memory: while it starts, little of that is its own.
        let least = ctx.thresholds().pinning.local_memory_least;
        if guest.not_judged.is_some() || (all as f64) < least * MIB {
            return;
        }
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
    let elsewhere = |_: &&CpuSet| ctx.layout(guest).memory_elsewhere(ctx.map());
    if let Some(bound) = guest.config.numa.nodes.as_ref().filter(elsewhere) {
        let mut fix = placement::guest_placement(ctx, guest);
        if fix.is_empty() {
            fix = move_memory(guest, &nodes);
        }
        verdicts.find(Finding {
            severity: Severity::Warning,
            confidence: Confidence::High,
            evidence: vec![
                texts::bound_elsewhere(bound, &cpus, &nodes),
                texts::check_binding(&fixes::virsh(guest, "numatune", "")),
            ],
            fix,
            see: vec![links::NUMA_TUNING.into()],
            marks,
            ..texts::MEMORY_BOUND_ELSEWHERE.finding()
        });
    }
}

fn move_memory(guest: &GuestContext<'_>, nodes: &CpuSet) -> Vec<Fix> {
    let mut fix = Vec::new();
    if guest.config.libvirt != Some(false) {
        let text = format!("<numatune>\n  <memory mode='strict' nodeset='{nodes}'/>\n</numatune>");
        fix.push(fixes::xml(text).needing(&fixes::into_xml(guest, fixes::POWER_CYCLE)));
    }
    fix.extend(placement::migrate(guest, nodes));
    fix
}
