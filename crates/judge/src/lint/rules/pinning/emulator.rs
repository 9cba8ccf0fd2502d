//! Emulator, `IOThreads` and vhost on the CPUs of pinned vCPUs.

use crate::figures::figure;
use crate::lint::facts::Context;
use crate::lint::facts::finding::{Confidence, Finding, Fix, Mark, Severity, Target, worst_of};
use crate::lint::facts::guest::GuestContext;
use crate::lint::facts::placement::helper_name;
use crate::lint::facts::verdicts::Verdicts;
use crate::lint::fixes;
use crate::lint::fixes::placement::placement;
use crate::model::ThreadModel;
use crate::placement::HelperLayout;
use crate::placement::singles;
use kvm::CpuSet;
use kvm::thread_name::Role;
use std::collections::BTreeMap;

/// The most other guests that one finding names.
const MAX_GUESTS: usize = 16;

const NO_ROOM_FOR_HELPERS: &str = "No CPU of this host is free of pinned vCPUs: remove one for the emulator";

pub(super) fn emulator(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let others = pinned_helpers(ctx);
    for guest in ctx.guests.iter().filter(|g| g.running()) {
        let single = ctx.layout(guest).single(ctx.map());
        let measured = helper_threads(guest).any(ThreadModel::was_seen);
        let own = if measured { running_helpers(ctx, guest, &single) } else { configured_helpers(ctx, guest, &single) };
        for finding in [other_guests(ctx, guest, &others), own].into_iter().flatten() {
            verdicts.find_for(guest, finding);
        }
    }
}

/// What moves the helpers of some guests away from pinned vCPUs.
fn move_helpers(ctx: &Context<'_>, guests: &[usize], pinned: &CpuSet) -> Vec<Fix> {
    let other = if ctx.map().all.is_empty() {
        fixes::libvirt_advice(format!(
            "Pin the emulator and IOThreads to CPUs outside of {pinned} (<emulatorpin>, <iothreadpin>); the CPUs of \
             this host are unknown"
        ))
    } else {
        fixes::advice(NO_ROOM_FOR_HELPERS)
    };
    fixes::or_advice(placement(ctx, guests), other)
}

fn helper_threads<'a>(guest: &GuestContext<'a>) -> impl Iterator<Item = &'a ThreadModel> {
    guest.domain.threads.iter().filter(|t| matches!(t.role, Role::Emulator | Role::Iothread | Role::Vhost))
}

/// Helper threads as they are measured.
fn running_helpers(ctx: &Context<'_>, guest: &GuestContext<'_>, single: &CpuSet) -> Option<Finding> {
    let steps = &ctx.thresholds().pinning.emulator;
    let disturbing = helper_threads(guest).filter_map(|thread| {
        let mask = thread.place.affinity.as_deref()?;
        let shared = Some(mask.intersection(single)).filter(|shared| !shared.is_empty())?;
        let busy = thread.cpu.map_or(0.0, |c| c.busy());
        // A helper counts if it can run on no other CPU, or was seen on this one.
        let only_there = mask.is_subset(single);
        let is_there = only_there || thread.place.cpu.is_some_and(|c| shared.contains(c));
        let severity = steps.of(busy).filter(|_| is_there).or(only_there.then_some(Severity::Info))?;
        Some((severity, busy, (thread, mask, shared)))
    });
    let (severity, busy, (thread, mask, shared)) = worst_of(disturbing)?;
    let name = thread.label();
    let used = thread.cpu.map(|_| format!("; the thread uses {} % of a CPU {}", figure(busy), guest.window()));
    let used = used.unwrap_or_default();
    let evidence = vec![format!("{name} may use CPUs {mask}, and a vCPU is pinned to CPU {shared}{used}")];
    let marks = [Mark::Thread(thread.tid)].into_iter().chain(shared.iter().map(Mark::Pcpu)).collect();
    let found = Finding::new(severity, Confidence::High, evidence, move_helpers(ctx, &[guest.index], single));
    let cost = Some(busy).filter(|b| *b > 0.0);
    Some(Finding { target: Target::Thread(thread.tid), cost, marks, ..found })
}

/// Pinned helpers by CPU: guest, number (none: the emulator) and pin.
type PinnedHelpers<'a> = BTreeMap<u32, Vec<(usize, Option<u32>, &'a CpuSet)>>;

/// The first few pinned helpers of all running guests, by the CPUs of their pins that hold a vCPU.
fn pinned_helpers<'a>(ctx: &'a Context<'_>) -> PinnedHelpers<'a> {
    let layouts = &ctx.layouts;
    let single = singles(ctx.map(), layouts, true);
    let mut by_cpu = PinnedHelpers::new();
    for (g, layout) in layouts.iter().enumerate().filter(|(_, l)| l.running) {
        let pin = |h: &'a HelperLayout| h.cpus.as_ref().filter(|_| h.pinned);
        for (id, cpus) in layout.helpers.iter().filter_map(|(id, h)| Some((*id, pin(h)?))) {
            for cpu in cpus.intersection(&single).iter() {
                let list = by_cpu.entry(cpu).or_default();
                // Two more: one tells that the list is cut, one may be the guest's own.
                if list.len() < MAX_GUESTS + 2 {
                    list.push((g, id, cpus));
                }
            }
        }
    }
    by_cpu
}

/// Helpers of other guests that are pinned to the CPUs of this guest's vCPUs.
fn other_guests(ctx: &Context<'_>, guest: &GuestContext<'_>, helpers: &PinnedHelpers<'_>) -> Option<Finding> {
    let single = &ctx.layout(guest).single(ctx.map());
    let mut found: BTreeMap<(usize, Option<u32>), CpuSet> = BTreeMap::new();
    let others = single.iter().filter_map(|cpu| helpers.get(&cpu)).flatten().filter(|(g, ..)| *g != guest.index);
    for (g, id, cpus) in others {
        if found.len() <= MAX_GUESTS {
            found.entry((*g, *id)).or_insert_with(|| cpus.intersection(single));
        }
    }
    let cut = found.len() > MAX_GUESTS;
    let first = found.values().find_map(CpuSet::first)?;
    let mut guests: Vec<usize> = found.keys().map(|(g, _)| *g).collect();
    guests.dedup();
    let also = guests.iter().map(|g| ctx.guests[*g].name().to_owned()).collect();
    let line = |((g, id), cpus): (&(usize, Option<u32>), &CpuSet)| {
        let (helper, other) = (helper_name(*id), ctx.guests[*g].name());
        format!("{helper} of {other} is pinned to CPUs {cpus} of this guest's vCPUs")
    };
    let evidence = found.iter().map(line).collect();
    guests.push(guest.index);
    let mut fix = move_helpers(ctx, &guests, single);
    fix.extend(cut.then(|| fixes::advice(fixes::placement::MORE_IN_PLAN)));
    let all = found.values().fold(CpuSet::new(), |a, b| a.union(b));
    let marks = all.iter().map(Mark::Pcpu).collect();
    let title = "Another guest's emulator or IOThread is pinned to this guest's vCPU CPUs".into();
    let found = Finding::new(Severity::Info, Confidence::High, evidence, fix);
    Some(Finding { also, target: Target::Pcpu(first), title, marks, ..found })
}

/// The guest's own helpers, from the configuration alone. Where some are pinned, the others were forgotten; without any
/// pin they find a free CPU.
fn configured_helpers(ctx: &Context<'_>, guest: &GuestContext<'_>, single: &CpuSet) -> Option<Finding> {
    let layout = ctx.layout(guest);
    let are_pinned = layout.helpers.values().any(|h| h.cpus.is_some());
    let disturbs = |h: &HelperLayout| layout.disturbs(ctx.map(), h) && are_pinned;
    let wrong: Vec<_> = layout.helpers.iter().filter(|(_, h)| disturbs(h)).take(MAX_GUESTS).collect();
    let line = |(id, h): &(&Option<u32>, &HelperLayout)| match (helper_name(**id), &h.cpus) {
        (name, Some(cpus)) => format!("{name} may use CPUs {cpus}; vCPUs are pinned to {}", cpus.intersection(single)),
        (name, None) => format!("{name} has no pin and may run on all CPUs, also on {single} of the vCPUs"),
    };
    let evidence: Vec<String> = wrong.iter().map(line).collect();
    if evidence.is_empty() {
        return None;
    }
    let found = Finding::new(Severity::Info, Confidence::High, evidence, move_helpers(ctx, &[guest.index], single));
    Some(Finding { marks: single.iter().map(Mark::Pcpu).collect(), ..found })
}
