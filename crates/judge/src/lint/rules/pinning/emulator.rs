//! Emulator, `IOThreads` and vhost on the CPUs of pinned vCPUs.

use crate::figures::{figure, or_unknown};
use crate::lint::facts::{
    Confidence, Context, Finding, Fix, GuestContext, Mark, Severity, Target, Verdicts, helper_name,
    worst_of,
};
use crate::lint::fixes;
use crate::lint::fixes::placement::guest_placement;
use crate::model::ThreadModel;
use kvm::CpuSet;
use kvm::thread_name::Role;

/// The most helpers that one finding names.
const MAX_HELPERS: usize = 16;

pub(super) fn emulator(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    for guest in ctx.running() {
        let single = ctx.layout(guest).single(ctx.map());
        let found = if helper_threads(guest).any(ThreadModel::was_seen) {
            running_helpers(ctx, guest, &single)
        } else {
            configured_helpers(ctx, guest, &single)
        };
        if let Some(finding) = found {
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
        fixes::advice(
            "No CPU of this host is free of pinned vCPUs: remove one for the \
            emulator",
        )
    };
    fixes::or_advice(guest_placement(ctx, guest), other)
}

fn helper_threads<'a>(guest: &GuestContext<'a>) -> impl Iterator<Item = &'a ThreadModel> {
    let threads = guest.domain.threads.iter();
    threads.filter(|t| matches!(t.role, Role::Emulator | Role::Iothread | Role::Vhost))
}

/// Helper threads as they are measured.
fn running_helpers(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    single: &CpuSet,
) -> Option<Finding> {
    let mut disturbing = Vec::new();
    for thread in helper_threads(guest) {
        let Some(mask) = thread.place.affinity.as_deref() else {
            continue;
        };
        let shared = mask.intersection(single);
        // A helper counts if it can run on no other CPU, or was seen on this one.
        let only_there = !shared.is_empty() && mask.is_subset(single);
        let is_there = only_there || thread.place.cpu.is_some_and(|c| shared.contains(c));
        let busy = thread.cpu.map_or(0.0, |c| c.busy());
        let mut severity = ctx.thresholds().pinning.emulator.severity(busy);
        if only_there {
            severity = severity.or(Some(Severity::Info));
        }
        if let Some(severity) = severity
            && is_there
        {
            disturbing.push((severity, busy, (thread, mask, shared)));
        }
    }
    let (severity, busy, (thread, mask, shared)) = worst_of(disturbing)?;
    let evidence = vec![format!(
        "{} may use CPUs {mask}, and a vCPU is pinned to CPU {shared}; the thread uses {} % of a \
            CPU {}",
        thread.label(),
        or_unknown(thread.cpu.map(|cpu| cpu.busy()), figure),
        guest.window()
    )];
    let mut marks = vec![Mark::Thread(thread.tid)];
    marks.extend(shared.iter().map(Mark::Pcpu));
    let fix = move_helpers(ctx, guest, single);
    Some(Finding {
        target: Target::Thread(thread.tid),
        cost: Some(busy).filter(|b| *b > 0.0),
        marks,
        ..Finding::new(severity, Confidence::High, evidence, fix)
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
    if layout.helpers.values().all(|h| h.cpus.is_none()) {
        return None;
    }
    let mut evidence = Vec::new();
    for (id, helper) in &layout.helpers {
        if layout.disturbs(ctx.map(), helper) && evidence.len() < MAX_HELPERS {
            let name = helper_name(*id);
            evidence.push(if let Some(cpus) = &helper.cpus {
                let shared = cpus.intersection(single);
                format!("{name} may use CPUs {cpus}; vCPUs are pinned to {shared}")
            } else {
                format!("{name} has no pin and may run on all CPUs, also on {single} of the vCPUs")
            });
        }
    }
    if evidence.is_empty() {
        return None;
    }
    let fix = move_helpers(ctx, guest, single);
    Some(Finding {
        marks: single.iter().map(Mark::Pcpu).collect(),
        ..Finding::new(Severity::Info, Confidence::High, evidence, fix)
    })
}
