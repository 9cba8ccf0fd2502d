//! vCPUs or memory over several NUMA nodes.

use super::texts;
use crate::figures::bytes;
use crate::lint::pinning::helper_name;
use crate::lint::prelude::*;

/// The most cells that evidence lists.
const MAX_CELLS: usize = 16;
const CHECK_NODES: &str = "check: lscpu -e; numactl --hardware";
const MIB: f64 = 1024.0 * 1024.0;

pub(super) fn split(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let (map, layout) = (ctx.map(), ctx.layout(guest));
    if map.nodes.len() < 2 || !layout.running {
        return;
    }
    let crossed = cells_crossed(ctx, guest);
    let Some(cpus) = layout.confined(map) else { return crossed.into_iter().for_each(|found| verdicts.find(found)) };
    let nodes = map.nodes_of(&cpus);
    let memory = if layout.is_split(map) {
        Some(vcpus_split(ctx, guest, &cpus, &nodes))
    } else if nodes.is_empty() {
        None
    } else {
        memory_elsewhere(ctx, guest, &cpus, &nodes)
    };
    let marks: Vec<Mark> = (0..layout.vcpus.len() as u32).map(Mark::Vcpu).collect();
    let of_vcpus = [helpers_elsewhere(ctx, guest, &cpus, &nodes), memory].into_iter().flatten();
    let of_vcpus = of_vcpus.map(|found| Finding { marks: marks.clone(), ..found });
    crossed.into_iter().chain(of_vcpus).for_each(|found| verdicts.find(found));
}

fn vcpus_split(ctx: &Context<'_>, guest: &GuestContext<'_>, cpus: &CpuSet, nodes: &CpuSet) -> Finding {
    let biggest = ctx.map().nodes.values().map(CpuSet::len).max().unwrap_or(0);
    let must_span = ctx.layout(guest).vcpus.len() > biggest;
    let severity = if must_span { Severity::Info } else { Severity::Warning };
    let mut evidence = vec![format!("its vCPUs may use CPUs {cpus}, on nodes {nodes}; the guest sees one node")];
    if let Some(bound) = guest.config.numa.nodes.as_ref().filter(|b| !b.is_empty() && !nodes.is_subset(b)) {
        let away = nodes.difference(bound);
        evidence.push(format!("its memory is bound to node {bound}, away from the vCPUs on node {away}"));
    }
    evidence.push(CHECK_NODES.into());
    let fix = fixes::or_advice(guest_placement(ctx, guest), fixes::libvirt_advice(texts::SHOW_NODES));
    let title = "The guest's vCPUs are spread over NUMA nodes that it does not see".into();
    Finding { title, ..Finding::new(severity, Confidence::High, evidence, fix) }
}

/// Cells whose vCPUs are pinned away from the cell's memory.
fn cells_crossed(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Option<Finding> {
    let (map, layout) = (ctx.map(), ctx.layout(guest));
    let crossed = layout.cells_elsewhere(map);
    if crossed.is_empty() {
        return None;
    }
    let line = |(cell, vcpus): &(usize, Vec<u32>)| {
        let now = vcpus.iter().filter_map(|v| layout.vcpus.get(*v as usize)).fold(CpuSet::new(), |a, b| a.union(b));
        let memory = layout.cells.get(*cell).and_then(|c| c.nodes.clone()).unwrap_or_default();
        let id = guest.config.numa.cells.get(*cell).map_or(*cell, |c| c.id as usize);
        let (vcpus, now): (CpuSet, CpuSet) = (vcpus.iter().copied().collect(), map.nodes_of(&now));
        format!("cell {id}: memory on node {memory}, vCPUs {vcpus} pinned to node {now}")
    };
    let mut evidence: Vec<String> = crossed.iter().take(MAX_CELLS).map(line).collect();
    evidence.push(CHECK_NODES.into());
    let fix = fixes::or_advice(guest_placement(ctx, guest), fixes::libvirt_advice(texts::MATCH_CELLS));
    let found = Finding::new(Severity::Warning, Confidence::High, evidence, fix).saying(texts::CELLS_CROSSED);
    let marks = crossed.iter().flat_map(|(_, vcpus)| vcpus).map(|v| Mark::Vcpu(*v)).collect();
    Some(Finding { marks, ..found })
}

/// Reports helpers that are pinned to nodes without any of the guest's vCPUs. If the plan cannot place the helpers on
/// the vCPUs' nodes either, it reports nothing.
fn helpers_elsewhere(ctx: &Context<'_>, guest: &GuestContext<'_>, cpus: &CpuSet, nodes: &CpuSet) -> Option<Finding> {
    let (map, layout) = (ctx.map(), ctx.layout(guest));
    let helpers: Vec<(Option<u32>, &HelperLayout)> =
        layout.helpers().filter(|(_, h)| layout.is_elsewhere(map, h)).collect();
    if helpers.is_empty() || ctx.planned(guest).is_none_or(|p| p.helpers().any(|(_, h)| p.is_elsewhere(map, h))) {
        return None;
    }
    let busy = helpers.iter().filter_map(|(id, _)| guest.domain.helper(*id)?.cpu).map(|c| c.busy()).reduce(f64::max);
    let line = |(id, h): &(Option<u32>, &HelperLayout)| {
        let cpus = h.cpus.clone().unwrap_or_default();
        format!("{} is pinned to CPUs {cpus} on node {}", helper_name(*id), map.nodes_of(&cpus))
    };
    let mut evidence: Vec<String> = helpers.iter().take(MAX_CELLS).map(line).collect();
    evidence.push(format!("the vCPUs are pinned to CPUs {cpus} on node {nodes}"));
    evidence.push(fixes::check_pins(guest));
    let severity = busy.and_then(|b| ctx.thresholds().pinning.emulator.of(b)).unwrap_or_default();
    let found = Finding::new(severity, Confidence::High, evidence, guest_placement(ctx, guest));
    Some(Finding { cost: busy.filter(|b| *b > 0.0), ..found.saying(texts::HELPERS_ELSEWHERE) })
}

fn memory_elsewhere(ctx: &Context<'_>, guest: &GuestContext<'_>, cpus: &CpuSet, nodes: &CpuSet) -> Option<Finding> {
    let by_node = &guest.domain.node_memory;
    let all = total(by_node.values().copied()) as f64;
    if all > 0.0 {
        // What is measured counts as soon as the guest has its memory: while it starts, little of that is its own.
        let t = &ctx.thresholds().pinning;
        let near = total(by_node.iter().filter(|(n, _)| nodes.contains(**n)).map(|(_, b)| *b));
        let local = 100.0 * near as f64 / all;
        let (warning, critical) = t.local_memory;
        if guest.not_judged.is_some() || all < t.local_memory_least * MIB || local >= warning {
            return None;
        }
        let severity = if local < critical { Severity::Critical } else { Severity::Warning };
        let list = by_node.iter().map(|(n, b)| format!("node {n} {}", bytes(*b))).collect::<Vec<_>>().join(", ");
        let local = figure(local);
        let evidence = vec![
            format!("{local} % of its memory is on the nodes of its vCPUs ({nodes}): {list}"),
            format!("look at: numastat -p {}", guest.domain.facts.pid.unwrap_or_default()),
        ];
        let found = Finding::new(severity, Confidence::High, evidence, move_memory(guest, nodes));
        return Some(found.saying(texts::MEMORY_ELSEWHERE));
    }
    let bound = guest.config.numa.nodes.as_ref().filter(|_| ctx.layout(guest).memory_elsewhere(ctx.map()))?;
    let evidence = vec![
        format!("<numatune> binds memory to node {bound}; the vCPUs are pinned to CPUs {cpus} on node {nodes}"),
        format!("look at: {}", fixes::virsh(guest, "numatune", "")),
    ];
    let planned = guest_placement(ctx, guest);
    let fix = if planned.is_empty() { move_memory(guest, nodes) } else { planned };
    let found = Finding::new(Severity::Warning, Confidence::High, evidence, fix);
    Some(Finding { see: vec![links::NUMA_TUNING.into()], ..found.saying(texts::MEMORY_BOUND_ELSEWHERE) })
}

fn move_memory(guest: &GuestContext<'_>, nodes: &CpuSet) -> Vec<Fix> {
    let mut fix = Vec::new();
    if guest.config.libvirt != Some(false) {
        let text = format!("<numatune>\n  <memory mode='strict' nodeset='{nodes}'/>\n</numatune>");
        fix.push(fixes::xml(text).needing(&fixes::into_xml(guest, fixes::POWER_CYCLE)));
    }
    fix.extend(fixes::placement::migrate(guest, nodes));
    fix
}
