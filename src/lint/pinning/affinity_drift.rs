//! Where threads may run against where the configuration wants them.

use crate::kvm::CpuSet;
use crate::lint::context::guest::{Context, GuestContext};
use crate::lint::engine::verdicts::Verdicts;
use crate::lint::{Confidence, Finding, Mark, Severity, fix, propose};

const CPUTUNE_DOC: &str = "https://libvirt.org/formatdomain.html#cpu-tuning";

/// P-13: affinity against configuration.
pub(crate) fn drift(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let mut online: CpuSet = world.model.host.cpus.iter().map(|c| c.cpu).collect();
    if guest.config.libvirt != Some(true) || guest.config.pins.vcpus.is_empty() && guest.config.pins.emulator.is_none()
    {
        return;
    }
    let mut threads = guest.vcpu_threads().peekable();
    if threads.peek().is_some() && (online.is_empty() || threads.all(|t| t.place.affinity.is_none())) {
        return verdicts
            .cannot("where the guest's threads may run is not known, so it cannot be held against its pins");
    }
    if online.is_empty() {
        // Files alone: the host that they describe.
        online = propose::topology(world.model).all();
    }
    if online.is_empty() {
        return;
    }
    let mut lines = Vec::new();
    let mut marks = Vec::new();
    let mut commands = Vec::new();
    for (v, want) in &guest.config.pins.vcpus {
        let reachable = want.intersection(&online);
        if reachable.is_empty() {
            lines.push(format!("vCPU {v} is to run on CPU {want}, which is offline or not there"));
            marks.push(Mark::Vcpu(*v));
            continue;
        }
        let Some(thread) = guest.domain.vcpu(*v) else { continue };
        let Some(is) = thread.place.affinity.as_deref().map(|a| a.intersection(&online)) else { continue };
        if is != reachable {
            lines.push(format!("vCPU {v} is configured for CPU {want} and may use {is}"));
            commands.push(fix::virsh(guest, "vcpupin", &format!("{v} {want} --live")));
            marks.push(Mark::Vcpu(*v));
        }
    }
    if let (Some(want), Some(thread)) = (&guest.config.pins.emulator, guest.domain.emulator())
        && let Some(is) = thread.place.affinity.as_deref().map(|a| a.intersection(&online))
        && is != want.intersection(&online)
        && want.intersects(&online)
    {
        lines.push(format!("the emulator is configured for CPU {want} and may use {is}"));
        commands.push(fix::virsh(guest, "emulatorpin", &format!("{want} --live")));
        marks.push(Mark::Thread(thread.tid));
    }
    if lines.is_empty() {
        return;
    }
    lines.truncate(8);
    lines.push(format!("check: {}; taskset -pc TID", fix::virsh(guest, "vcpupin", "")));
    let (title, why) = if commands.is_empty() {
        (
            "vCPUs are pinned to CPUs that the host does not have online",
            "No vCPU can be put on a CPU that is not there: the guest does not start so, or runs where the kernel puts it",
        )
    } else {
        (
            "A thread's CPU affinity is not what the configuration asks for",
            "Something else set it: taskset, a cpuset of the service manager, another tool, or a CPU that went offline and came back",
        )
    };
    let fixes = if commands.is_empty() {
        vec![
            fix::command(fix::virsh(guest, "vcpupin", "VCPU CPU --live --config")).needing("with a CPU that is online"),
        ]
    } else {
        vec![fix::command(commands.join("\n")).needing("effective at once")]
    };
    verdicts.find(Finding {
        severity: Severity::Warning,
        confidence: Confidence::High,
        title: title.into(),
        evidence: lines,
        why: why.into(),
        fix: fixes,
        see: vec![CPUTUNE_DOC.into()],
        marks,
        ..Finding::default()
    });
}
