//! The guest's hardware threads against the host's siblings.

use super::texts;
use crate::lint::prelude::*;
use faults::PinnedPair;

/// The most pairs that a sentence names.
const MAX_NAMED: usize = 32;

pub(super) fn smt(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let (map, layout) = (ctx.map(), ctx.layout(guest));
    if !layout.running {
        return;
    }
    slow_cores(ctx, guest, verdicts);
    let threads = guest.config.threads_per_core();
    let seen = format!("the guest sees {threads} threads per core, yet these are on different cores");
    // Threads of a guest core, as the guest sees them, on different cores of the host; or vCPUs on siblings of one
    // core, in a guest that sees one thread per core.
    let (pairs, severity, seen, advice, prose) = if threads > 1 {
        let apart = layout.threads_apart(map);
        (apart, Severity::Warning, seen.as_str(), fixes::advice(texts::PIN_CORES_OR_ONE_THREAD), texts::THREADS_APART)
    } else {
        let shared = layout.shared_cores(map);
        let seen = "the guest sees one thread per core, yet these are on threads of one core";
        (shared, Severity::Info, seen, fixes::libvirt_advice(texts::SHOW_THREADS_OR_PIN_CORES), texts::SHARED_CORE)
    };
    if pairs.is_empty() {
        return;
    }
    let named = |(v, w, a, b): &PinnedPair| format!("vCPUs {v} and {w} on CPUs {a} and {b}");
    let mut names: Vec<String> = pairs.iter().take(MAX_NAMED).map(named).collect();
    if pairs.len() > MAX_NAMED {
        names.push(format!("and {} pairs more", pairs.len() - MAX_NAMED));
    }
    let evidence = vec![format!("{seen}: {}", names.join(", ")), "check: lscpu -e".into()];
    let fix = fixes::or_advice(guest_placement(ctx, guest), advice);
    let marks = pairs.iter().flat_map(|p| [Mark::Vcpu(p.0), Mark::Vcpu(p.1)]).collect();
    let found = Finding::new(severity, Confidence::High, evidence, fix).saying(prose);
    verdicts.find(Finding { marks, ..found });
}

/// Reports vCPUs on slow cores of a hybrid host beside others on fast ones, if the plan can move them.
fn slow_cores(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let slow = ctx.layout(guest).on_slow_cores(ctx.map());
    if slow.is_empty() || !ctx.planned(guest).is_some_and(|after| after.on_slow_cores(ctx.map()).is_empty()) {
        return;
    }
    let pins = ctx.layout(guest).pins(ctx.map());
    let (on_slow, on_fast): (Vec<_>, Vec<_>) = pins.partition(|(v, _)| slow.contains(*v));
    let sides = [on_slow, on_fast].map(|pins| pins.into_iter().unzip::<u32, u32, CpuSet, CpuSet>());
    let [(slow_vcpus, slow_cpus), (vcpus, cpus)] = sides;
    let pinned = format!(
        "vCPUs {slow_vcpus} are pinned to slow cores (CPUs {slow_cpus}), vCPUs {vcpus} to fast ones (CPUs {cpus})"
    );
    let evidence = vec![pinned, "look at: lscpu -e=CPU,MAXMHZ".into()];
    let fix = guest_placement(ctx, guest);
    let found = Finding::new(Severity::Warning, Confidence::High, evidence, fix).saying(texts::SLOW_CORES);
    verdicts.find(Finding { marks: slow.iter().map(Mark::Vcpu).collect(), ..found });
}
