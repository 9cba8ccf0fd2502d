//! Emulator, `IOThreads` and vhost on the CPUs of pinned vCPUs.

use super::texts;
use crate::kvm::CpuSet;
use crate::kvm::thread_name::Role;
use crate::lint::context::Context;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Fix, Mark, Severity, Target};
use crate::lint::fixes;
use crate::lint::links;
use crate::lint::verdicts::Verdicts;
use crate::model::ThreadModel;

/// The most other guests that one finding names.
const MOST_GUESTS: usize = 8;

/// CPUs for emulator and `IOThreads`: not isolated, without a pinned vCPU, near the guest's vCPUs.
fn room_for_helpers(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Option<CpuSet> {
    let host = ctx.topology();
    let single = &guest.vcpu_cpus.single;
    let isolated = host.isolated.clone().unwrap_or_default();
    let free = host.all().difference(&ctx.pinned_by_others(guest)).difference(single).difference(&isolated);
    let nodes: CpuSet = single.iter().filter_map(|c| host.node_of(c)).collect();
    let near: CpuSet = free.iter().filter(|c| host.node_of(*c).is_some_and(|n| nodes.contains(n))).collect();
    [near, free].into_iter().find(|s| !s.is_empty())
}

/// Pins the helpers away from vCPUs. `tid` is the one thread to move in a guest that libvirt does not run.
fn pin_helpers(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    emulator: bool,
    iothreads: &[u32],
    tid: Option<i32>,
) -> Vec<Fix> {
    if ctx.topology().cpus.is_empty() {
        let pinned = ctx.pinned_by_others(guest).union(&guest.vcpu_cpus.single);
        return vec![fixes::advice(texts::helpers_outside(&pinned))];
    }
    let Some(room) = room_for_helpers(ctx, guest) else { return vec![fixes::advice(texts::NO_ROOM_FOR_HELPERS)] };
    if guest.config.libvirt == Some(false) {
        let taskset = |tid| fixes::command(format!("taskset -pc {room} {tid}")).needing(fixes::UNTIL_GUEST_ENDS);
        return tid.map(taskset).into_iter().collect();
    }
    let (mut pins, mut commands) = (Vec::new(), Vec::new());
    if emulator {
        pins.push(format!("  <emulatorpin cpuset='{room}'/>"));
        commands.push(fixes::virsh(guest, "emulatorpin", &format!("{room} --live --config")));
    }
    for id in iothreads {
        pins.push(format!("  <iothreadpin iothread='{id}' cpuset='{room}'/>"));
        commands.push(fixes::virsh(guest, "iothreadpin", &format!("{id} {room} --live --config")));
    }
    vec![
        fixes::command(commands.join("\n")).needing(fixes::LIVE_AND_KEPT),
        fixes::xml(format!("<cputune>\n{}\n</cputune>", pins.join("\n"))).needing(texts::XML_NEXT_START),
    ]
}

pub(super) fn emulator(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let single = &guest.vcpu_cpus.single;
    if single.is_empty() {
        return;
    }
    other_guests_emulators(ctx, guest, verdicts);
    let is_helper = |t: &&ThreadModel| matches!(t.role, Role::Emulator | Role::Iothread | Role::Vhost);
    let helpers: Vec<&ThreadModel> = guest.domain.threads.iter().filter(is_helper).collect();
    if helpers.is_empty() {
        return configured_helpers(ctx, guest, verdicts);
    }
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
        // It counts when it has no other CPU, or when it was found on this one.
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
    let iothreads: Vec<u32> =
        if thread.role == Role::Iothread { thread.index.into_iter().collect() } else { Vec::new() };
    let pin_emulator = thread.role != Role::Iothread || iothreads.is_empty();
    let mut marks = vec![Mark::Thread(thread.tid)];
    marks.extend(shared.iter().map(Mark::Pcpu));
    let mask = thread.place.affinity.as_deref();
    verdicts.find(Finding {
        severity,
        confidence: Confidence::High,
        target: Target::Thread(thread.tid),
        title: texts::helper_title(thread.role),
        why: texts::HELPER_WHY.into(),
        evidence: vec![
            texts::helper((thread.role, thread.tid), mask, &shared, busy, &guest.window()),
            texts::check_thread(thread.tid),
        ],
        fix: pin_helpers(ctx, guest, pin_emulator, &iothreads, Some(thread.tid)),
        cost: Some(busy).filter(|b| *b > 0.0),
        marks,
        ..Finding::default()
    });
}

/// Emulators of other guests that are pinned to the CPUs of this guest's vCPUs.
fn other_guests_emulators(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let single = &guest.vcpu_cpus.single;
    let shared: Vec<(&GuestContext<'_>, CpuSet)> = ctx
        .others(guest)
        .filter(|g| g.running())
        .filter_map(|g| Some((g, g.config.pins.emulator.as_ref()?.intersection(single))))
        .filter(|(_, cpus)| !cpus.is_empty())
        .take(MOST_GUESTS)
        .collect();
    let Some(first) = shared.first().and_then(|(_, cpus)| cpus.first()) else { return };
    let evidence = |(other, cpus): &(&GuestContext<'_>, CpuSet)| {
        [texts::other_emulator(other.name(), cpus), fixes::check_pins(other)]
    };
    verdicts.find(Finding {
        also: shared.iter().map(|(other, _)| other.name().to_owned()).collect(),
        severity: if guest.config.pins.realtime.is_empty() { Severity::Info } else { Severity::Warning },
        confidence: Confidence::High,
        target: Target::Pcpu(first),
        evidence: shared.iter().flat_map(evidence).collect(),
        fix: shared.iter().flat_map(|(other, _)| pin_helpers(ctx, other, true, &[], None)).collect(),
        see: vec![links::CPU_TUNING.into()],
        marks: shared.iter().flat_map(|(_, cpus)| cpus.iter()).map(Mark::Pcpu).collect(),
        ..texts::OTHER_EMULATOR.finding()
    });
}

/// The same from the configuration alone.
fn configured_helpers(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let single = &guest.vcpu_cpus.single;
    let pins = &guest.config.pins;
    let meets = |set: Option<&CpuSet>| set.is_some_and(|s| s.intersects(single));
    let emulator = meets(pins.emulator());
    let iothreads: Vec<u32> = (1..=pins.iothread_count).filter(|id| meets(pins.iothread(*id))).collect();
    let host = ctx.topology();
    // A thread without a pin may run anywhere, but the scheduler puts nothing on isolated CPUs by itself.
    let may_roam = guest.domain.exits.count == 0
        && !host.cpus.is_empty()
        && !single.iter().all(|c| host.is_isolated(c))
        && guest.vcpus().is_some_and(|n| guest.vcpu_cpus.masks.len() as f64 >= n);
    let roams = may_roam && pins.emulator().is_none();
    let loose: Vec<u32> = (1..=pins.iothread_count).filter(|id| may_roam && pins.iothread(*id).is_none()).collect();
    if !emulator && iothreads.is_empty() && !roams && loose.is_empty() {
        return;
    }
    let iothread = |id: &u32| texts::configured_helper(&format!("IOThread {id}"), pins.iothread(*id), single);
    let mut evidence = Vec::new();
    if emulator || roams {
        evidence.push(texts::configured_helper("the emulator", pins.emulator(), single));
    }
    evidence.extend(iothreads.iter().chain(&loose).map(iothread));
    evidence.push(fixes::check_pins(guest));
    let to_pin: Vec<u32> = iothreads.iter().chain(&loose).copied().collect();
    verdicts.find(Finding {
        // A vCPU of real-time priority does not let them run at all while it works.
        severity: if pins.realtime.is_empty() { Severity::Info } else { Severity::Warning },
        confidence: if emulator || !iothreads.is_empty() { Confidence::High } else { Confidence::Medium },
        evidence,
        fix: pin_helpers(ctx, guest, emulator || roams, &to_pin, None),
        marks: single.iter().map(Mark::Pcpu).collect(),
        ..texts::CONFIGURED_HELPERS.finding()
    });
}
