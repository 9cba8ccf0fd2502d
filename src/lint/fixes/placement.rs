//! A guest's placement as fixes: XML to keep, commands to try at once.

use super::{LIVE_AND_KEPT, UNTIL_GUEST_ENDS, command, virsh, xml};
use crate::kvm::CpuSet;
use crate::lint::context::Context;
use crate::lint::context::guest::GuestContext;
use crate::lint::context::placement::{PlacementPlan, PlacementRequest, fewest_moves, plan};
use crate::lint::engine::finding::Fix;
use crate::model::total;

/// Plans a place for all threads of a guest. `None` where this host has no room or its topology is unknown.
pub(crate) fn plan_for(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Option<PlacementPlan> {
    let request = PlacementRequest {
        vcpus: guest.vcpus()? as u32,
        threads: guest.config.threads_per_core(),
        iothreads: guest.config.pins.iothread_count,
        taken: ctx.pinned_by_others(guest),
        current: guest.vcpu_cpus.single.clone(),
        emulator: guest.config.pins.emulator.clone(),
        nodes: memory_nodes(guest),
    };
    plan(ctx.topology(), &request)
}

/// The nodes to which the configuration binds the guest's memory, else the node that holds most of it.
fn memory_nodes(guest: &GuestContext<'_>) -> CpuSet {
    if let Some(bound) = &guest.config.numa.nodes {
        return bound.clone();
    }
    let all = total(guest.domain.node_memory.values().copied());
    guest.domain.node_memory.iter().filter(|(_, b)| **b * 2 > all).map(|(n, _)| *n).collect()
}

/// The plan for a guest as fixes. Empty where there is no plan.
pub(crate) fn pin_all(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Fix> {
    let Some(plan) = plan_for(ctx, guest) else { return Vec::new() };
    if guest.config.libvirt == Some(false) {
        return tasksets(&plan, guest).map(|t| command(t).needing(UNTIL_GUEST_ENDS)).into_iter().collect();
    }
    let host = ctx.topology();
    let memory =
        if host.nodes().len() > 1 { "; only then does memory follow, and it has to fit on the node" } else { "" };
    vec![
        xml(plan.xml(host)).needing(&format!("{}{memory}", kept_in_xml(guest))),
        command(commands(&plan, guest)).needing(LIVE_AND_KEPT),
    ]
}

/// As [`pin_all`], moving as few vCPUs as possible away from each other and from other guests.
pub(crate) fn pin_fewest(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Fix> {
    let host = ctx.topology();
    let threads = guest.config.threads_per_core();
    let pinned = ctx.pinned_by_others(guest);
    // Best away from the other guests' pools, and from where the guest's own emulator and IOThreads run.
    let pins = &guest.config.pins;
    let helpers = (1..=pins.iothread_count).filter_map(|id| pins.iothread(id)).chain(pins.emulator());
    let avoid = helpers.fold(CpuSet::new(), |a, b| a.union(b));
    let others = ctx.others(guest).map(|g| &g.vcpu_cpus.reach);
    let pools = others.filter(|reach| **reach != host.all()).fold(pinned.clone(), |a, b| a.union(b));
    let Some(moved) = fewest_moves(host, &guest.vcpu_cpus.all, &pools, &avoid, threads)
        .or_else(|| fewest_moves(host, &guest.vcpu_cpus.all, &pinned, &avoid, threads))
    else {
        return pin_all(ctx, guest);
    };
    if guest.config.libvirt == Some(false) {
        let line = |(v, cpu): &(u32, u32)| Some(format!("taskset -pc {cpu} {}", guest.domain.vcpu(*v)?.tid));
        let lines: Vec<String> = moved.iter().filter_map(line).collect();
        return vec![command(lines.join("\n")).needing(UNTIL_GUEST_ENDS)];
    }
    let pins: Vec<String> = moved.iter().map(|(v, cpu)| format!("  <vcpupin vcpu='{v}' cpuset='{cpu}'/>")).collect();
    let lines: Vec<String> =
        moved.iter().map(|(v, cpu)| virsh(guest, "vcpupin", &format!("{v} {cpu} --live --config"))).collect();
    vec![
        command(lines.join("\n")).needing(LIVE_AND_KEPT),
        xml(format!("<cputune>\n{}\n</cputune>", pins.join("\n"))).needing(&kept_in_xml(guest)),
    ]
}

fn kept_in_xml(guest: &GuestContext<'_>) -> String {
    format!("goes into the XML of {}; takes effect at its next start", guest.name())
}

/// The plan as live `virsh` commands.
fn commands(plan: &PlacementPlan, guest: &GuestContext<'_>) -> String {
    let pin = |(v, cpu)| virsh(guest, "vcpupin", &format!("{v} {cpu} --live --config"));
    let mut lines: Vec<String> = plan.vcpus.iter().enumerate().map(pin).collect();
    if !plan.helpers.is_empty() {
        lines.push(virsh(guest, "emulatorpin", &format!("{} --live --config", plan.helpers)));
        let iothread = |id| virsh(guest, "iothreadpin", &format!("{id} {} --live --config", plan.helpers));
        lines.extend((1..=plan.iothreads).map(iothread));
    }
    lines.join("\n")
}

/// For a guest that libvirt does not run: one `taskset` per vCPU thread.
fn tasksets(plan: &PlacementPlan, guest: &GuestContext<'_>) -> Option<String> {
    let lines: Vec<String> = guest
        .vcpu_threads()
        .filter_map(|t| Some(format!("taskset -pc {} {}", plan.vcpus.get(t.index? as usize)?, t.tid)))
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}
