//! The way back from the placement plan: the pins as they are now.

use super::cpu_groups::narrow;
use super::placement::{MAX_PINS, PlannedPin, pins_of, tasksets};
use super::shell::quoted;
use super::{advice, command, is_transient, scope, virsh};
use crate::lint::context::Context;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::Fix;
use crate::placement::GuestPlan;
use kvm::CpuSet;

/// The fixes that undo the plan for a guest. Empty where the plan changes nothing.
pub(crate) fn undo(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Fix> {
    let Some(part) = ctx.placement.plan().guests.get(guest.index).filter(|part| !part.is_empty()) else {
        return Vec::new();
    };
    let (map, now) = (ctx.map(), ctx.layout(guest));
    let set = |cpus: Option<&CpuSet>| cpus.filter(|c| !c.is_empty()).unwrap_or(&map.all).clone();
    let before = GuestPlan {
        vcpus: part.vcpus.keys().map(|v| (*v, set(now.vcpus.get(*v as usize)))).collect(),
        emulator: part.emulator.as_ref().map(|_| set(now.emulator.cpus.as_ref())),
        iothreads: part
            .iothreads
            .keys()
            .map(|i| (*i, set(now.iothreads.get(i).and_then(|h| h.cpus.as_ref()))))
            .collect(),
        ..GuestPlan::default()
    };
    if guest.config.libvirt == Some(false) {
        let lines: Vec<String> = tasksets(guest, &before).take(MAX_PINS).chain(narrow(guest, part)).collect();
        return if lines.is_empty() { Vec::new() } else { vec![command(lines.join("\n"))] };
    }
    let mut fix = Vec::new();
    let mut lines = pins(ctx, guest, &before, part);
    lines.extend(narrow(guest, part));
    if !lines.is_empty() {
        fix.push(command(lines.join("\n")));
    }
    if part.threads.is_some() || part.memory.is_some() || !part.cells.is_empty() || !part.memnodes.is_empty() {
        if is_transient(guest) {
            fix.push(advice("the rest of its XML stays as it is in what it is created from"));
            return fix;
        }
        let file = guest.name().replace(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c), "_");
        let file = quoted(&format!("./{file}.xml"));
        let save = virsh(guest, "dumpxml", "--inactive");
        fix.push(advice(format!("the rest of its XML: {save} > {file} before, virsh define {file} to go back")));
    }
    fix
}

/// The pins before a plan as commands. `virsh` takes `r` for all CPUs of the host (virsh(1), vcpupin, emulatorpin,
/// iothreadpin).
fn pins(ctx: &Context<'_>, guest: &GuestContext<'_>, before: &GuestPlan, part: &GuestPlan) -> Vec<String> {
    let line = |(old, new): (PlannedPin<'_>, PlannedPin<'_>)| {
        // A pin that was right in the configuration all along stays there.
        let keep = if old.configured == Some(new.cpus) { "--live" } else { scope(guest) };
        let cpus = if ctx.map().restricts(old.cpus) { old.cpus.to_string() } else { "r".into() };
        old.virsh(guest, &cpus, keep)
    };
    pins_of(guest, before).zip(pins_of(guest, part)).take(MAX_PINS).map(line).collect()
}
