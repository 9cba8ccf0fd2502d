//! Where threads may run against where the configuration wants them.

use super::texts;
use crate::kvm::CpuSet;
use crate::lint::context::Context;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Mark, Severity};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;

/// The most threads that evidence names.
const MOST_LINES: usize = 8;

pub(super) fn drift(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let pins = &guest.config.pins;
    if guest.config.libvirt != Some(true) || pins.vcpus.is_empty() && pins.emulator.is_none() {
        return;
    }
    let mut threads = guest.vcpu_threads().peekable();
    let host_measured = !ctx.model.host.cpus.is_empty();
    if threads.peek().is_some() && (!host_measured || threads.all(|t| t.place.affinity.is_none())) {
        return verdicts.cannot_tell(texts::AFFINITY_UNKNOWN);
    }
    let online = ctx.online();
    if online.is_empty() {
        return;
    }
    let mut lines = Vec::new();
    let mut marks = Vec::new();
    let mut commands = Vec::new();
    for (v, want) in &pins.vcpus {
        let reachable = want.intersection(&online);
        if reachable.is_empty() {
            lines.push(texts::offline_pin(*v, want));
            marks.push(Mark::Vcpu(*v));
            continue;
        }
        if let Some(allowed) = guest.domain.vcpu(*v).and_then(|t| allowed(t.place.affinity.as_deref(), &online))
            && allowed != reachable
        {
            lines.push(texts::drifted(&format!("vCPU {v}"), want, &allowed));
            commands.push(fixes::virsh(guest, "vcpupin", &format!("{v} {want} --live")));
            marks.push(Mark::Vcpu(*v));
        }
    }
    if let (Some(want), Some(thread)) = (&pins.emulator, guest.domain.emulator())
        && let Some(allowed) = allowed(thread.place.affinity.as_deref(), &online)
        && allowed != want.intersection(&online)
        && want.intersects(&online)
    {
        lines.push(texts::drifted("the emulator", want, &allowed));
        commands.push(fixes::virsh(guest, "emulatorpin", &format!("{want} --live")));
        marks.push(Mark::Thread(thread.tid));
    }
    if lines.is_empty() {
        return;
    }
    lines.truncate(MOST_LINES);
    lines.push(texts::check_drift(&fixes::virsh(guest, "vcpupin", "")));
    let (prose, fix) = if commands.is_empty() {
        let command = fixes::virsh(guest, "vcpupin", "VCPU CPU --live --config");
        (texts::OFFLINE, fixes::command(command).needing(texts::ONLINE_CPU_NEED))
    } else {
        (texts::DRIFT, fixes::command(commands.join("\n")).needing(texts::AT_ONCE))
    };
    verdicts.find(Finding {
        severity: Severity::Warning,
        confidence: Confidence::High,
        evidence: lines,
        fix: vec![fix],
        marks,
        ..prose.finding()
    });
}

/// The online CPUs among those that a thread may use.
fn allowed(affinity: Option<&CpuSet>, online: &CpuSet) -> Option<CpuSet> {
    affinity.map(|a| a.intersection(online))
}
