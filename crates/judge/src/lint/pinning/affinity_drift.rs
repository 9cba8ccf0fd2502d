//! Where threads may run against where the configuration wants them.

use super::texts;
use crate::lint::context::Context;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Mark, Severity};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;

/// The most threads that evidence names.
const MAX_LINES: usize = 8;

pub(super) fn affinity(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    if guest.running() {
        drift(ctx, guest, verdicts);
    }
}

fn drift(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let pins = &guest.config.pins;
    if guest.config.libvirt != Some(true) || *pins == crate::model::Pins::default() {
        return;
    }
    let mut threads = guest.vcpu_threads().peekable();
    let host_measured = !ctx.model.host.cpus.is_empty();
    if threads.peek().is_some() && (!host_measured || threads.all(|t| t.place.affinity.is_none())) {
        return verdicts.cannot_tell(texts::AFFINITY_UNKNOWN);
    }
    let all = &ctx.map().all;
    if all.is_empty() {
        return;
    }
    let layout = ctx.layout(guest);
    let mut lines = Vec::new();
    let mut marks = Vec::new();
    let mut unreachable = false;
    for v in layout.absent.iter() {
        let Some(want) = pins.vcpu(v) else { continue };
        lines.push(texts::absent_pin(&format!("vCPU {v}"), want, &want.difference(all)));
        unreachable |= !want.intersects(all);
        marks.push(Mark::Vcpu(v));
    }
    for (id, _) in layout.helpers().filter(|(_, h)| h.absent) {
        let want = id.map_or_else(|| pins.emulator(), |id| pins.iothread(id));
        let want = want.cloned().unwrap_or_default();
        lines.push(texts::absent_pin(&texts::helper_name(id), &want, &want.difference(all)));
        unreachable |= !want.intersects(all);
    }
    let absent = lines.len();
    for (v, want) in &layout.drifted {
        let now = layout.vcpus.get(*v as usize).cloned().unwrap_or_default();
        lines.push(texts::drifted(&format!("vCPU {v}"), want, &now));
        marks.push(Mark::Vcpu(*v));
    }
    for (id, helper) in layout.helpers() {
        let Some(want) = &helper.drifted else { continue };
        lines.push(texts::drifted(&texts::helper_name(id), want, &helper.cpus.clone().unwrap_or_default()));
        marks.extend(guest.domain.emulator().filter(|_| id.is_none()).map(|t| Mark::Thread(t.tid)));
    }
    if lines.is_empty() {
        return;
    }
    let beyond = layout.drifted.iter().find_map(|(_, want)| fixes::cpu_groups::bound(guest, want));
    let beyond = beyond
        .or_else(|| layout.helpers().find_map(|(_, helper)| fixes::cpu_groups::bound(guest, helper.drifted.as_ref()?)));
    let all_absent = absent == lines.len();
    if lines.len() > MAX_LINES {
        let rest = lines.len() - MAX_LINES;
        lines.truncate(MAX_LINES);
        lines.push(texts::more(rest));
    }
    lines.extend(beyond.map(|group| texts::bounded(&fixes::cpu_groups::name(group), &group.cpus)));
    lines.push(texts::check_drift(&fixes::virsh(guest, "vcpupin", "")));
    let mut fix = fixes::placement::guest_placement(ctx, guest);
    if fix.is_empty() {
        fix.push(fixes::libvirt_advice(texts::ONLINE_CPUS));
    }
    verdicts.find(Finding {
        severity: if all_absent && !unreachable { Severity::Info } else { Severity::Warning },
        confidence: Confidence::High,
        evidence: lines,
        fix,
        marks,
        ..if all_absent { texts::OFFLINE } else { texts::DRIFT }.finding()
    });
}
