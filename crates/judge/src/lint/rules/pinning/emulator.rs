//! Emulator, `IOThreads` and vhost on the CPUs of pinned vCPUs.

use crate::figures::figure;
use crate::lint::facts::{
    Confidence, Context, Finding, Fix, GuestContext, Mark, Severity, Target, Verdicts, helper_name,
    worst_of,
};
use crate::lint::fixes;
use crate::lint::fixes::placement::guest_placement;
use crate::model::ThreadModel;
use crate::placement::HelperLayout;
use kvm::CpuSet;
use kvm::thread_name::Role;

/// The most helpers that one finding names.
const MAX_HELPERS: usize = 16;

const NO_ROOM_FOR_HELPERS: &str = "No CPU of this host is free of pinned vCPUs: remove one for the \
    emulator";

pub(super) fn emulator(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    for guest in ctx.guests.iter().filter(|g| g.running()) {
        let single = ctx.layout(guest).single(ctx.map());
        let measured = helper_threads(guest).any(ThreadModel::was_seen);
        let own = if measured {
            running_helpers(ctx, guest, &single)
        } else {
            configured_helpers(ctx, guest, &single)
        };
        if let Some(finding) = own {
            verdicts.find_for(guest, finding);
        }
    }
}

/// What moves the helpers of a guest away from pinned vCPUs.
fn move_helpers(ctx: &Context<'_>, guest: &GuestContext<'_>, pinned: &CpuSet) -> Vec<Fix> {
    let other = if ctx.map().all.is_empty() {
        fixes::libvirt_advice(format!(
            "Pin the emulator and IOThreads to CPUs outside of {pinned} (<emulatorpin>, \
             <iothreadpin>); the CPUs of this host are unknown"
        ))
    } else {
        fixes::advice(NO_ROOM_FOR_HELPERS)
    };
    fixes::or_advice(guest_placement(ctx, guest), other)
}

fn helper_threads<'a>(guest: &GuestContext<'a>) -> impl Iterator<Item = &'a ThreadModel> {
    guest
        .domain
        .threads
        .iter()
        .filter(|t| matches!(t.role, Role::Emulator | Role::Iothread | Role::Vhost))
}

/// Helper threads as they are measured.
fn running_helpers(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    single: &CpuSet,
) -> Option<Finding> {
    let steps = &ctx.thresholds().pinning.emulator;
    let disturbing = helper_threads(guest).filter_map(|thread| {
        let mask = thread.place.affinity.as_deref()?;
        let shared = Some(mask.intersection(single)).filter(|shared| !shared.is_empty())?;
        let busy = thread.cpu.map_or(0.0, |c| c.busy());
        // A helper counts if it can run on no other CPU, or was seen on this one.
        let only_there = mask.is_subset(single);
        let is_there = only_there || thread.place.cpu.is_some_and(|c| shared.contains(c));
        let severity = steps
            .of(busy)
            .filter(|_| is_there)
            .or(only_there.then_some(Severity::Info))?;
        Some((severity, busy, (thread, mask, shared)))
    });
    let (severity, busy, (thread, mask, shared)) = worst_of(disturbing)?;
    let name = thread.label();
    let used = thread.cpu.map(|_| {
        format!(
            "; the thread uses {} % of a CPU {}",
            figure(busy),
            guest.window()
        )
    });
    let used = used.unwrap_or_default();
    let evidence = vec![format!(
        "{name} may use CPUs {mask}, and a vCPU is pinned to CPU {shared}{used}"
    )];
    let marks = [Mark::Thread(thread.tid)]
        .into_iter()
        .chain(shared.iter().map(Mark::Pcpu))
        .collect();
    let found = Finding::new(
        severity,
        Confidence::High,
        evidence,
        move_helpers(ctx, guest, single),
    );
    let cost = Some(busy).filter(|b| *b > 0.0);
    Some(Finding {
        target: Target::Thread(thread.tid),
        cost,
        marks,
        ..found
    })
}

/// The guest's own helpers, from the configuration alone. Where some are pinned, the others were
/// forgotten; without any pin they find a free CPU.
fn configured_helpers(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    single: &CpuSet,
) -> Option<Finding> {
    let layout = ctx.layout(guest);
    let are_pinned = layout.helpers.values().any(|h| h.cpus.is_some());
    let disturbs = |h: &HelperLayout| layout.disturbs(ctx.map(), h) && are_pinned;
    let wrong: Vec<_> = layout
        .helpers
        .iter()
        .filter(|(_, h)| disturbs(h))
        .take(MAX_HELPERS)
        .collect();
    let line = |(id, h): &(&Option<u32>, &HelperLayout)| match (helper_name(**id), &h.cpus) {
        (name, Some(cpus)) => format!(
            "{name} may use CPUs {cpus}; vCPUs are pinned to {}",
            cpus.intersection(single)
        ),
        (name, None) => {
            format!("{name} has no pin and may run on all CPUs, also on {single} of the vCPUs")
        }
    };
    let evidence: Vec<String> = wrong.iter().map(line).collect();
    if evidence.is_empty() {
        return None;
    }
    let found = Finding::new(
        Severity::Info,
        Confidence::High,
        evidence,
        move_helpers(ctx, guest, single),
    );
    Some(Finding {
        marks: single.iter().map(Mark::Pcpu).collect(),
        ..found
    })
}
