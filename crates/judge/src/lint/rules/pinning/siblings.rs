//! Busy vCPUs of two guests on the hardware threads of one core, while whole cores are idle.

use crate::figures::figure;
use crate::lint::facts::{
    Confidence, Context, Finding, GuestContext, Mark, Severity, Target, Verdicts,
};
use crate::lint::fixes;
use crate::model::ThreadModel;
use crate::placement::{PhysicalCore, singles};
use kvm::CpuSet;
use std::collections::BTreeMap;

/// A core is idle while each of its CPUs is busy for no more of the time, percent.
const IDLE: f64 = 10.0;
/// Both have to run at once for this much of the time, percent.
const TOGETHER: f64 = 10.0;
/// What a vCPU loses while the other thread of its core is busy: two do 1.3 times the work of one
/// (Marr et al., Hyper-Threading Technology Architecture and Microarchitecture, Intel Technology
/// Journal, 2002).
const LOSS: f64 = 0.35;

/// A busy vCPU that may run on one core only.
struct Bound<'a> {
    guest: &'a GuestContext<'a>,
    thread: &'a ThreadModel,
    cpu: u32,
    busy: f64,
}

pub(super) fn siblings(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let map = ctx.map();
    let mut cores: BTreeMap<usize, Vec<Bound<'_>>> = BTreeMap::new();
    for guest in ctx.running() {
        for thread in guest.domain.vcpus() {
            if let Some(bound) = bound_to_core(ctx, guest, thread)
                && let Some(core) = map.core_of(bound.cpu)
            {
                cores.entry(core).or_default().push(bound);
            }
        }
    }
    let idle = idle_cores(ctx);
    for users in cores.values() {
        let Some(a) = users.first() else { continue };
        let node = map.node_of(a.cpu);
        let Some(core) = idle.iter().find(|core| core.node == node) else {
            continue;
        };
        for b in users {
            if b.guest.index != a.guest.index && b.cpu != a.cpu && together(a, b) >= TOGETHER {
                verdicts.find_for(a.guest, shared_core(a, b, core));
                break;
            }
        }
    }
}

/// The least share of the time in which both ran, percent.
fn together(a: &Bound<'_>, b: &Bound<'_>) -> f64 {
    a.busy + b.busy - 100.0
}

/// A busy vCPU, if all CPUs that it may use are of one core.
fn bound_to_core<'a>(
    ctx: &Context<'_>,
    guest: &'a GuestContext<'a>,
    thread: &'a ThreadModel,
) -> Option<Bound<'a>> {
    let map = ctx.map();
    let bound = Bound {
        guest,
        thread,
        cpu: thread.place.cpu?,
        busy: thread.cpu?.busy(),
    };
    let mut affinity = thread.place.affinity.as_ref()?.iter();
    let stays = affinity.all(|cpu| map.same_core(cpu, bound.cpu));
    if stays && bound.busy >= ctx.thresholds().pinning.busy {
        Some(bound)
    } else {
        None
    }
}

/// The cores that are idle and that no vCPU is pinned to, except the first cores, which are the
/// host's.
fn idle_cores<'a>(ctx: &'a Context<'_>) -> Vec<&'a PhysicalCore> {
    let taken = singles(ctx.map(), &ctx.layouts, true).union(&ctx.map().first_cores());
    let is_idle =
        |cpu: &u32| !taken.contains(*cpu) && ctx.busy_of(*cpu).is_some_and(|busy| busy <= IDLE);
    let cores = ctx.map().cores.iter();
    cores.filter(|core| core.cpus.iter().all(is_idle)).collect()
}

fn shared_core(a: &Bound<'_>, b: &Bound<'_>, idle: &PhysicalCore) -> Finding {
    let together = together(a, b);
    let [first, second] = [a, b].map(|v| {
        format!(
            "{} of {} on CPU {} ({} % busy)",
            v.thread.label(),
            v.guest.name(),
            v.cpu,
            figure(v.busy)
        )
    });
    let idle: CpuSet = idle.cpus.iter().copied().collect();
    let evidence = vec![
        format!(
            "{first} and {second} share a core {}: both ran at least {} % of the time",
            a.guest.window(),
            figure(together)
        ),
        format!("CPUs {idle} are a core of their own and idle"),
    ];
    let fix = vec![fixes::advice(
        "Pin one of the two vCPUs to a CPU of an idle core (virsh vcpupin, qm set --affinity)",
    )];
    Finding {
        also: vec![b.guest.name().to_owned()],
        target: Target::Pcpu(a.cpu),
        title: format!(
            "vCPUs of {} and {} share a core while others are idle",
            a.guest.name(),
            b.guest.name()
        ),
        cost: Some(together * LOSS),
        marks: vec![
            Mark::Pcpu(a.cpu),
            Mark::Pcpu(b.cpu),
            Mark::Thread(a.thread.tid),
            Mark::Thread(b.thread.tid),
        ],
        ..Finding::new(Severity::Warning, Confidence::High, evidence, fix)
    }
}
