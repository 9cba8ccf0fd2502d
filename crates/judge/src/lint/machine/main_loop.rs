//! QEMU's main thread.

use super::texts;
use crate::lint::prelude::*;
use crate::model::call_tree;

/// From this rate of accesses on, emulated timers are worth naming.
const TIMER_ACCESSES: f64 = 100.0;

/// A profile older than this says nothing about now.
const PROFILE_LASTS_MS: i64 = 600_000;
/// Functions that are named.
const NAMED: usize = 3;

/// What the thread does, if its stack was sampled lately.
fn functions(ctx: &Context<'_>, guest: &GuestContext<'_>, tid: i32) -> Option<String> {
    let profile = &guest.domain.profile.as_ref()?.stacks;
    let samples = profile.samples_of(Some(tid));
    if samples == 0 || ctx.model.time_ms.saturating_sub(profile.began_ms) > PROFILE_LASTS_MS {
        return None;
    }
    let longest = call_tree::functions(profile, Some(tid)).into_iter().filter(|time| time.own > 0).take(NAMED);
    let share = |own: u64| figure(own as f64 / samples as f64 * 100.0);
    let named: Vec<String> = longest.map(|t| format!("{} % in {}", share(t.own), t.function.full_name())).collect();
    Some(format!("of {samples} samples of its stack: {}", named.join(", ")))
}

pub(super) fn main_loop(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let Some(thread) = guest.domain.emulator() else { return };
    let Some(cpu) = thread.cpu.filter(|cpu| cpu.busy() >= ctx.thresholds().machine.main_loop) else { return };
    if guest.migrating() || guest.vcpu_threads().next().is_none() {
        return;
    }
    let (busy, usr, sys) = (figure(cpu.busy()), figure(cpu.usr), figure(cpu.sys));
    let over = guest.window();
    let mut evidence = vec![format!("QEMU's main thread uses {busy} % of a CPU ({usr} % user, {sys} % kernel) {over}")];
    let is_timer = |name: &str| matches!(name, "rtc" | "hpet" | "acpi-tmr");
    let timers = guest.accesses(|r| r.device_name().is_some_and(is_timer));
    if timers.rate_or_zero() >= TIMER_ACCESSES {
        let rate = or_unknown(timers.rate, figure);
        evidence.push(format!("the guest makes {rate} accesses/s to timers that this thread serves"));
    }
    let tid = thread.tid;
    evidence.push(functions(ctx, guest, tid).unwrap_or_else(|| format!("look at: kvmtop profile {tid}")));
    let mut fix = Vec::new();
    if guest.config.pins.iothread_count == 0 {
        let xml = "In its XML that is <iothreads>1</iothreads> and <driver iothread='1'/>";
        fix.extend([fixes::advice(texts::USE_IOTHREAD), fixes::libvirt_advice(xml)]);
    }
    fix.push(fixes::advice(texts::CLOSE_SCREENS));
    let found = Finding::new(Severity::Warning, Confidence::Medium, evidence, fix);
    let (target, marks) = (Target::Thread(tid), vec![Mark::Thread(tid)]);
    verdicts.find(Finding { target, cost: Some(cpu.busy()), marks, ..found });
}
