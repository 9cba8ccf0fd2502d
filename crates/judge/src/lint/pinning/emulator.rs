//! Emulator, `IOThreads` and vhost on the CPUs of pinned vCPUs.

use super::texts;
use crate::lint::context::Context;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Fix, Mark, Severity, Target};
use crate::lint::fixes;
use crate::lint::links;
use crate::lint::verdicts::Verdicts;
use crate::model::ThreadModel;
use crate::placement::HelperLayout;
use kvm::CpuSet;
use kvm::thread_name::Role;
use std::collections::BTreeMap;

/// The most other guests that one finding names.
const MAX_GUESTS: usize = 16;

/// What moves the helpers of some guests away from pinned vCPUs.
fn move_helpers(ctx: &Context<'_>, guests: &[usize], pinned: &CpuSet) -> Vec<Fix> {
    let fix = fixes::placement::placement(ctx, guests);
    if !fix.is_empty() {
        return fix;
    }
    vec![if ctx.map().all.is_empty() {
        fixes::libvirt_advice(texts::helpers_outside(pinned))
    } else {
        fixes::advice(texts::NO_ROOM_FOR_HELPERS)
    }]
}

pub(super) fn emulator(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let others = HelpersByCpu::new(ctx);
    for guest in &ctx.guests {
        let single = ctx.layout(guest).single(ctx.map());
        if single.is_empty() || !guest.running() {
            continue;
        }
        other_guests(ctx, guest, &single, &others, verdicts);
        let is_helper = |t: &&ThreadModel| matches!(t.role, Role::Emulator | Role::Iothread | Role::Vhost);
        let helpers: Vec<&ThreadModel> = guest.domain.threads.iter().filter(is_helper).collect();
        if helpers.is_empty() {
            configured_helpers(ctx, guest, &single, verdicts);
        } else {
            running_helpers(ctx, guest, &single, &helpers, verdicts);
        }
    }
}

/// Helper threads as they are measured.
fn running_helpers(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    single: &CpuSet,
    helpers: &[&ThreadModel],
    verdicts: &mut Verdicts,
) {
    let steps = &ctx.thresholds().pinning.emulator;
    let mut worst: Option<(Severity, f64, &ThreadModel, CpuSet)> = None;
    for thread in helpers {
        let Some(mask) = thread.place.affinity.as_deref() else { continue };
        let shared = mask.intersection(single);
        if shared.is_empty() {
            continue;
        }
        let busy = thread.cpu.map_or(0.0, |c| c.busy());
        let there = thread.place.cpu.is_some_and(|c| shared.contains(c));
        // A helper counts if it can run on no other CPU, or was seen on this one.
        let severity = if mask.is_subset(single) {
            steps.of(busy).unwrap_or_default()
        } else if there && let Some(s) = steps.of(busy) {
            s
        } else {
            continue;
        };
        let realtime = guest
            .vcpu_threads()
            .any(|v| matches!(v.place.policy, Some(1 | 2)) && v.pinned_cpu().is_some_and(|c| shared.contains(c)));
        let severity = if realtime { severity.max(Severity::Warning) } else { severity };
        if worst.as_ref().is_none_or(|w| (severity, busy) > (w.0, w.1)) {
            worst = Some((severity, busy, thread, shared));
        }
    }
    let Some((severity, busy, thread, shared)) = worst else { return };
    let mut marks = vec![Mark::Thread(thread.tid)];
    marks.extend(shared.iter().map(Mark::Pcpu));
    let mask = thread.place.affinity.as_deref();
    let measured = thread.cpu.map(|_| busy);
    verdicts.find_for(
        guest.index,
        guest,
        Finding {
            severity,
            confidence: Confidence::High,
            target: Target::Thread(thread.tid),
            title: texts::helper_title(thread.role),
            why: texts::HELPER_WHY.into(),
            evidence: vec![
                texts::helper((thread.role, thread.tid), mask, &shared, measured, &guest.window()),
                texts::check_thread(thread.tid),
            ],
            fix: move_helpers(ctx, &[guest.index], single),
            cost: Some(busy).filter(|b| *b > 0.0),
            marks,
            ..Finding::default()
        },
    );
}

/// A pinned helper: guest, number (none: the emulator) and pin.
type PinnedHelper<'a> = (usize, Option<u32>, &'a CpuSet);

/// The first few pinned helpers of all running guests, by the CPUs of their pins that hold a vCPU.
struct HelpersByCpu<'a> {
    by_cpu: BTreeMap<u32, Vec<PinnedHelper<'a>>>,
}

impl<'a> HelpersByCpu<'a> {
    fn new(ctx: &'a Context<'_>) -> Self {
        let map = ctx.map();
        let layouts = &ctx.placement.layouts;
        let single = layouts.iter().fold(CpuSet::new(), |a, l| a.union(&l.single(map)));
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
        Self { by_cpu }
    }
}

/// Helpers of other guests that are pinned to the CPUs of this guest's vCPUs.
fn other_guests(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    single: &CpuSet,
    helpers: &HelpersByCpu<'_>,
    verdicts: &mut Verdicts,
) {
    let mut found: BTreeMap<(usize, Option<u32>), CpuSet> = BTreeMap::new();
    let mut cut = false;
    for list in single.iter().filter_map(|cpu| helpers.by_cpu.get(&cpu)) {
        cut |= list.len() > MAX_GUESTS;
        for (g, id, cpus) in list.iter().filter(|(g, ..)| *g != guest.index) {
            if found.len() < MAX_GUESTS {
                found.entry((*g, *id)).or_insert_with(|| cpus.intersection(single));
            } else {
                cut |= !found.contains_key(&(*g, *id));
            }
        }
    }
    let Some(first) = found.values().find_map(CpuSet::first) else { return };
    let mut guests: Vec<usize> = found.keys().map(|(g, _)| *g).collect();
    guests.dedup();
    let all = found.values().fold(CpuSet::new(), |a, b| a.union(b));
    let mut evidence: Vec<String> =
        found.iter().map(|((g, id), cpus)| texts::other_helper(ctx.guests[*g].name(), *id, cpus)).collect();
    evidence.extend(guests.first().map(|g| fixes::check_pins(&ctx.guests[*g])));
    let mut moved = guests.clone();
    moved.push(guest.index);
    let mut fix = move_helpers(ctx, &moved, single);
    fix.extend(cut.then(|| fixes::advice(fixes::placement::MORE_IN_PLAN)));
    verdicts.find_for(
        guest.index,
        guest,
        Finding {
            also: guests.iter().map(|g| ctx.guests[*g].name().to_owned()).collect(),
            severity: if guest.config.pins.realtime.is_empty() { Severity::Info } else { Severity::Warning },
            confidence: Confidence::High,
            target: Target::Pcpu(first),
            evidence,
            fix,
            see: vec![links::CPU_TUNING.into()],
            marks: all.iter().map(Mark::Pcpu).collect(),
            ..texts::OTHER_HELPERS.finding()
        },
    );
}

/// The guest's own helpers, from the configuration alone.
fn configured_helpers(ctx: &Context<'_>, guest: &GuestContext<'_>, single: &CpuSet, verdicts: &mut Verdicts) {
    let layout = ctx.layout(guest);
    let wrong: Vec<(Option<u32>, &HelperLayout)> =
        layout.helpers().filter(|(_, h)| layout.disturbs(ctx.map(), h)).collect();
    if wrong.is_empty() {
        return;
    }
    let pinned = wrong.iter().any(|(_, h)| h.cpus.is_some());
    let line = |(id, h): &(Option<u32>, &HelperLayout)| {
        texts::configured_helper(&texts::helper_name(*id), h.cpus.as_ref(), single)
    };
    let mut evidence: Vec<String> = wrong.iter().take(MAX_GUESTS).map(line).collect();
    evidence.push(fixes::check_pins(guest));
    verdicts.find_for(
        guest.index,
        guest,
        Finding {
            // A vCPU of real-time priority does not let them run at all while it works.
            severity: if guest.config.pins.realtime.is_empty() { Severity::Info } else { Severity::Warning },
            confidence: if pinned { Confidence::High } else { Confidence::Medium },
            evidence,
            fix: move_helpers(ctx, &[guest.index], single),
            marks: single.iter().map(Mark::Pcpu).collect(),
            ..texts::CONFIGURED_HELPERS.finding()
        },
    );
}
