//! QEMU's main thread.

use super::texts;
use crate::figures::{figure, or_unknown};
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
    let named = longest.map(|time| (time.own as f64 / samples as f64 * 100.0, time.function.full_name()));
    Some(texts::main_functions(samples, &named.collect::<Vec<_>>()))
}

pub(super) fn main_loop(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let Some(thread) = guest.domain.emulator() else { return };
    let Some(cpu) = thread.cpu else { return };
    let busy = cpu.busy() >= ctx.thresholds().machine.main_loop;
    if !busy || guest.migrating() || guest.vcpu_threads().next().is_none() {
        return;
    }
    let mut evidence = vec![texts::main_thread(cpu.busy(), cpu.usr, cpu.sys, &guest.window())];
    let is_timer = |name: &str| matches!(name, "rtc" | "hpet" | "acpi-tmr");
    let timers = guest.accesses(|r| r.device_name().is_some_and(is_timer));
    if timers.rate_or_zero() >= TIMER_ACCESSES {
        evidence.push(texts::emulated_timers(&or_unknown(timers.rate, figure)));
    }
    evidence.push(functions(ctx, guest, thread.tid).unwrap_or_else(|| texts::check_thread(thread.tid)));
    let mut fix = Vec::new();
    if guest.config.pins.iothread_count == 0 {
        fix.extend([fixes::advice(texts::USE_IOTHREAD), fixes::libvirt_advice(texts::IOTHREAD_XML)]);
    }
    fix.push(fixes::advice(texts::CLOSE_SCREENS));
    verdicts.find(Finding {
        severity: Severity::Warning,
        confidence: Confidence::Medium,
        target: Target::Thread(thread.tid),
        evidence,
        fix,
        cost: Some(cpu.busy()),
        marks: vec![Mark::Thread(thread.tid)],
        ..Finding::default()
    });
}
