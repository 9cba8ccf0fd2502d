//! MSRs that KVM does not have.

use super::{incidents, texts};
use crate::lint::prelude::*;
use kvm::kernel_log::LogKind;
use kvm::msr;
use std::collections::BTreeMap;

/// The most MSRs that evidence lists.
const MAX_MSRS: usize = 24;

/// The unhandled MSRs of one guest.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "any of them can be true without the others")]
struct UnhandledMsrs {
    /// How often each MSR was accessed; the flag is true for writes.
    accesses: BTreeMap<(u32, bool), u64>,
    marks: Vec<Mark>,
    /// Whether some of the accesses raised a fault in the guest. Traced accesses count here only if they did.
    faulted: bool,
    /// Whether some of the accesses passed without a fault.
    ignored: bool,
    /// Whether the host's log has some of them.
    logged: bool,
    /// Whether `report_ignored_msrs` silences some of the lines.
    silenceable: bool,
}

/// Unhandled MSRs by the index of their guest; `None` where the guest is unknown.
fn by_guest(ctx: &Context<'_>) -> BTreeMap<Option<usize>, UnhandledMsrs> {
    let mut all: BTreeMap<Option<usize>, UnhandledMsrs> = BTreeMap::new();
    for (i, g) in ctx.guests.iter().enumerate() {
        for row in g.domain.accesses.iter().filter(|r| r.space == Space::Msr && r.faults > 0) {
            let Some(number) = row.address.and_then(|a| u32::try_from(a).ok()) else { continue };
            let found = all.entry(Some(i)).or_default();
            let times = found.accesses.entry((number, row.direction == Direction::Write)).or_default();
            *times = times.saturating_add(row.faults);
            found.faulted = true;
            found.marks.push(Mark::Access(row.space, row.address, row.direction));
        }
    }
    for line in &ctx.model.host.kernel_log {
        let faulted = matches!(line.kind, LogKind::UnhandledMsr | LogKind::HypervMsr);
        let ignored = matches!(line.kind, LogKind::IgnoredMsr | LogKind::PerfCounter);
        let Some(number) = line.msr.filter(|_| faulted || ignored) else { continue };
        let owner = ctx.by_pid(line.pid);
        // The log of a running host also has lines of guests that ended long ago.
        if owner.is_none() && !ctx.is_file() {
            continue;
        }
        let found = all.entry(owner).or_default();
        let times = found.accesses.entry((number, line.write)).or_default();
        *times = times.saturating_add(1);
        found.logged = true;
        found.faulted |= faulted;
        found.ignored |= ignored;
        // The parameter silences "ignored …" since Linux 4.15, and "Unhandled RDMSR(0x…)" since 6.2; not what kernels
        // in between print as "unhandled rdmsr: 0x…" (arch/x86/kvm/x86.{c,h}).
        found.silenceable |= line.kind == LogKind::IgnoredMsr || line.text.contains("Unhandled ");
    }
    all
}

pub(super) fn unhandled_msrs(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let all = by_guest(ctx);
    let broken = !all.is_empty() && incidents::something_broke(ctx);
    for (owner, found) in all {
        let sensors = found.accesses.keys().all(|(m, _)| msr::is_power_meter(*m));
        let line =
            |((m, write), n): (&(u32, bool), &u64)| texts::msr_accesses(*m, msr::name(*m).as_deref(), *write, *n);
        let mut evidence: Vec<String> = found.accesses.iter().take(MAX_MSRS).map(line).collect();
        if found.logged {
            evidence.push(texts::FROM_KERNEL_LOG.into());
        }
        evidence.push(texts::CHECK_MSRS.into());
        let prose = if sensors { texts::SENSOR_MSRS } else { texts::UNHANDLED_MSRS };
        let mut why = vec![prose.why];
        why.extend(found.faulted.then_some(texts::FAULTED));
        why.extend(found.ignored.then_some(texts::IGNORED));
        let finding = Finding {
            severity: Severity::Info,
            confidence: Confidence::High,
            title: prose.title.into(),
            why: why.join(". "),
            evidence,
            fix: advice(sensors, &found, broken),
            marks: found.marks,
            ..Finding::default()
        };
        verdicts.find_of(ctx, owner, finding);
    }
}

/// Advice for the finding. `broken`: something ended or broke a guest, so "no action" would be wrong advice.
fn advice(sensors: bool, found: &UnhandledMsrs, broken: bool) -> Vec<Fix> {
    let mut all = vec![fixes::advice(match (broken, sensors, found.faulted, found.ignored) {
        (true, ..) => texts::SEE_THE_CRASH,
        (_, true, ..) => texts::NO_ACTION_SENSORS,
        (_, _, true, true) => texts::NO_ACTION_MIXED,
        (_, _, true, false) => texts::NO_ACTION_MSRS,
        (_, _, false, _) => texts::NO_ACTION_IGNORED,
    })];
    // Lines that may explain a crash, or say when which of two answers was given, are not to be silenced.
    if found.silenceable && !broken && (sensors || !found.faulted || !found.ignored) {
        all.push(fixes::command(texts::SILENCE_MSRS).needing(texts::SILENCE_MSRS_NEED));
    }
    all
}
