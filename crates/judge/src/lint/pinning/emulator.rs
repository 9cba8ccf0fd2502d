//! Emulator, `IOThreads` and vhost on the CPUs of pinned vCPUs.

use super::texts::{self, helper_name};
use crate::lint::prelude::*;
use std::collections::BTreeMap;

/// The most other guests that one finding names.
const MAX_GUESTS: usize = 16;

pub(super) fn emulator(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let others = pinned_helpers(ctx);
    for guest in ctx.guests.iter().filter(|g| g.running()) {
        let single = ctx.layout(guest).single(ctx.map());
        let is_helper = |t: &&ThreadModel| matches!(t.role, Role::Emulator | Role::Iothread | Role::Vhost);
        let helpers: Vec<&ThreadModel> = guest.domain.threads.iter().filter(is_helper).collect();
        let own = if helpers.is_empty() {
            configured_helpers(ctx, guest, &single)
        } else {
            running_helpers(ctx, guest, &single, &helpers)
        };
        for finding in [other_guests(ctx, guest, &single, &others), own].into_iter().flatten() {
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
        fixes::advice(texts::NO_ROOM_FOR_HELPERS)
    };
    fixes::or_advice(placement(ctx, guests), other)
}

/// Helper threads as they are measured.
fn running_helpers(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    single: &CpuSet,
    helpers: &[&ThreadModel],
) -> Option<Finding> {
    let steps = &ctx.thresholds().pinning.emulator;
    let mut worst: Option<(Severity, f64, &ThreadModel, &CpuSet, CpuSet)> = None;
    for thread in helpers {
        let Some(mask) = thread.place.affinity.as_deref() else { continue };
        let shared = mask.intersection(single);
        let busy = thread.cpu.map_or(0.0, |c| c.busy());
        let there = thread.place.cpu.is_some_and(|c| shared.contains(c));
        // A helper counts if it can run on no other CPU, or was seen on this one.
        let mut severity = match steps.of(busy) {
            _ if shared.is_empty() => continue,
            Some(severity) if there || mask.is_subset(single) => severity,
            None if mask.is_subset(single) => Severity::Info,
            _ => continue,
        };
        let is_realtime = |v: &ThreadModel| matches!(v.place.policy, Some(1 | 2));
        if guest.vcpu_threads().any(|v| is_realtime(v) && v.pinned_cpu().is_some_and(|c| shared.contains(c))) {
            severity = severity.max(Severity::Warning);
        }
        if worst.as_ref().is_none_or(|w| (severity, busy) > (w.0, w.1)) {
            worst = Some((severity, busy, thread, mask, shared));
        }
    }
    let (severity, busy, thread, mask, shared) = worst?;
    let role = match thread.role {
        Role::Iothread => "IOThread",
        Role::Vhost => "vhost thread",
        _ => "emulator thread",
    };
    let (id, tid) = match thread.tid {
        tid if tid > 0 => (format!(" {tid}"), tid.to_string()),
        _ => (String::new(), "TID".to_owned()),
    };
    let window = guest.window();
    let used =
        thread.cpu.map(|_| format!("; the thread uses {} % of a CPU {window}", figure(busy))).unwrap_or_default();
    let evidence = vec![
        format!("{role}{id} may use CPUs {mask}, and a vCPU is pinned to CPU {shared}{used}"),
        format!("look at: taskset -pc {tid}"),
    ];
    Some(Finding {
        target: Target::Thread(thread.tid),
        title: format!("The guest's {role} may run on the CPU of a pinned vCPU"),
        cost: Some(busy).filter(|b| *b > 0.0),
        marks: [Mark::Thread(thread.tid)].into_iter().chain(shared.iter().map(Mark::Pcpu)).collect(),
        ..Finding::new(severity, Confidence::High, evidence, move_helpers(ctx, &[guest.index], single))
    })
}

/// A pinned helper: guest, number (none: the emulator) and pin.
type PinnedHelper<'a> = (usize, Option<u32>, &'a CpuSet);

/// The first few pinned helpers of all running guests, by the CPUs of their pins that hold a vCPU.
fn pinned_helpers<'a>(ctx: &'a Context<'_>) -> BTreeMap<u32, Vec<PinnedHelper<'a>>> {
    let layouts = &ctx.placement.layouts;
    let single = layouts.iter().fold(CpuSet::new(), |a, l| a.union(&l.single(ctx.map())));
    let mut by_cpu: BTreeMap<u32, Vec<PinnedHelper<'_>>> = BTreeMap::new();
    for (g, layout) in layouts.iter().enumerate().filter(|(_, l)| l.running) {
        let pin = |h: &'a HelperLayout| h.cpus.as_ref().filter(|_| h.pinned);
        for (id, cpus) in layout.helpers().filter_map(|(id, h)| Some((id, pin(h)?))) {
            for cpu in cpus.intersection(&single).iter() {
                let list = by_cpu.entry(cpu).or_default();
                // One more, because one of them may be the guest's own.
                if list.len() <= MAX_GUESTS {
                    list.push((g, id, cpus));
                }
            }
        }
    }
    by_cpu
}

/// Helpers of other guests that are pinned to the CPUs of this guest's vCPUs.
fn other_guests(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    single: &CpuSet,
    helpers: &BTreeMap<u32, Vec<PinnedHelper<'_>>>,
) -> Option<Finding> {
    let mut found: BTreeMap<(usize, Option<u32>), CpuSet> = BTreeMap::new();
    let mut cut = false;
    for list in single.iter().filter_map(|cpu| helpers.get(&cpu)) {
        cut |= list.len() > MAX_GUESTS;
        for (g, id, cpus) in list.iter().filter(|(g, ..)| *g != guest.index) {
            if found.len() < MAX_GUESTS {
                found.entry((*g, *id)).or_insert_with(|| cpus.intersection(single));
            } else {
                cut |= !found.contains_key(&(*g, *id));
            }
        }
    }
    let first = found.values().find_map(CpuSet::first)?;
    let mut guests: Vec<usize> = found.keys().map(|(g, _)| *g).collect();
    guests.dedup();
    let names: Vec<&str> = guests.iter().map(|g| ctx.guests[*g].name()).collect();
    let line = |((g, id), cpus): (&(usize, Option<u32>), &CpuSet)| {
        let (helper, other) = (helper_name(*id), ctx.guests[*g].name());
        format!("{helper} of {other} is pinned to CPUs {cpus} of this guest's vCPUs")
    };
    let mut evidence: Vec<String> = found.iter().map(line).collect();
    evidence.extend(guests.first().map(|g| fixes::check_pins(&ctx.guests[*g])));
    let also = names.into_iter().map(str::to_owned).collect();
    guests.push(guest.index);
    let mut fix = move_helpers(ctx, &guests, single);
    fix.extend(cut.then(|| fixes::advice(fixes::placement::MORE_IN_PLAN)));
    let all = found.values().fold(CpuSet::new(), |a, b| a.union(b));
    Some(Finding {
        also,
        target: Target::Pcpu(first),
        see: vec![links::CPU_TUNING.into()],
        marks: all.iter().map(Mark::Pcpu).collect(),
        ..Finding::new(configured_severity(guest), Confidence::High, evidence, fix).saying(texts::OTHER_HELPERS)
    })
}

/// A vCPU of real-time priority does not let helpers run at all while it works.
fn configured_severity(guest: &GuestContext<'_>) -> Severity {
    if guest.config.pins.realtime.is_empty() { Severity::Info } else { Severity::Warning }
}

/// The guest's own helpers, from the configuration alone.
fn configured_helpers(ctx: &Context<'_>, guest: &GuestContext<'_>, single: &CpuSet) -> Option<Finding> {
    let layout = ctx.layout(guest);
    let wrong: Vec<(Option<u32>, &HelperLayout)> =
        layout.helpers().filter(|(_, h)| layout.disturbs(ctx.map(), h)).collect();
    if wrong.is_empty() {
        return None;
    }
    let pinned = wrong.iter().any(|(_, h)| h.cpus.is_some());
    let line = |(id, h): &(Option<u32>, &HelperLayout)| match &h.cpus {
        Some(cpus) => format!("{} may use CPUs {cpus}; vCPUs are pinned to {single}", helper_name(*id)),
        None => {
            format!("{} has no pin and may run on all CPUs, also on {single} of the vCPUs", helper_name(*id))
        }
    };
    let mut evidence: Vec<String> = wrong.iter().take(MAX_GUESTS).map(line).collect();
    evidence.push(fixes::check_pins(guest));
    let confidence = if pinned { Confidence::High } else { Confidence::Medium };
    let fix = move_helpers(ctx, &[guest.index], single);
    let found = Finding::new(configured_severity(guest), confidence, evidence, fix);
    Some(Finding { marks: single.iter().map(Mark::Pcpu).collect(), ..found.saying(texts::CONFIGURED_HELPERS) })
}
