//! MSRs that KVM does not have.

use super::texts;
use crate::kvm::kernel_log::LogKind;
use crate::kvm::{Space, msr};
use crate::lint::context::Context;
use crate::lint::engine::finding::{Confidence, Finding, Mark, Severity, Target};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;
use crate::sample::Direction;
use std::collections::BTreeMap;

/// The most MSRs that evidence lists.
const MOST_MSRS: usize = 24;

/// The unhandled MSRs of one guest.
#[derive(Default)]
struct UnhandledMsrs {
    /// How often each MSR was accessed; the flag is true for writes.
    accesses: BTreeMap<(u32, bool), u64>,
    marks: Vec<Mark>,
    /// Whether the host's log reports some of them.
    logged: bool,
}

/// Unhandled MSRs by the index of their guest; `None` where the guest is unknown.
fn by_guest(ctx: &Context<'_>) -> BTreeMap<Option<usize>, UnhandledMsrs> {
    let mut all: BTreeMap<Option<usize>, UnhandledMsrs> = BTreeMap::new();
    for (i, g) in ctx.guests.iter().enumerate() {
        for row in g.domain.accesses.iter().filter(|r| r.space == Space::Msr && r.faults > 0) {
            let Some(number) = row.address.and_then(|a| u32::try_from(a).ok()) else { continue };
            let found = all.entry(Some(i)).or_default();
            *found.accesses.entry((number, row.direction == Direction::Write)).or_default() += row.faults;
            found.marks.push(Mark::Access(row.space, row.address, row.direction));
        }
    }
    let about_msrs =
        |k| matches!(k, LogKind::UnhandledMsr | LogKind::IgnoredMsr | LogKind::HypervMsr | LogKind::PerfCounter);
    for line in ctx.model.host.kernel_log.iter().filter(|l| about_msrs(l.kind)) {
        let Some(number) = line.msr else { continue };
        let owner = ctx.by_pid(line.pid);
        // The log of a running host also has lines of guests that ended long ago.
        if owner.is_none() && !ctx.is_file() {
            continue;
        }
        let found = all.entry(owner).or_default();
        *found.accesses.entry((number, line.write)).or_default() += 1;
        found.logged = true;
    }
    all
}

pub(super) fn unhandled_msrs(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    for (owner, found) in by_guest(ctx) {
        let sensors = found.accesses.keys().all(|(m, _)| msr::is_power_meter(*m));
        let line =
            |((m, write), n): (&(u32, bool), &u64)| texts::msr_accesses(*m, msr::name(*m).as_deref(), *write, *n);
        let mut evidence: Vec<String> = found.accesses.iter().take(MOST_MSRS).map(line).collect();
        if found.logged {
            evidence.push(texts::FROM_KERNEL_LOG.into());
        }
        evidence.push(texts::CHECK_MSRS.into());
        let prose = if sensors { texts::SENSOR_MSRS } else { texts::UNHANDLED_MSRS };
        let finding = Finding {
            severity: Severity::Info,
            confidence: Confidence::High,
            evidence,
            fix: vec![
                fixes::advice(if sensors { texts::NO_ACTION_SENSORS } else { texts::NO_ACTION_MSRS }),
                fixes::command(texts::SILENCE_MSRS).needing(texts::SILENCE_MSRS_NEED),
            ],
            marks: found.marks,
            ..prose.finding()
        };
        match owner.and_then(|i| Some((i, ctx.guests.get(i)?))) {
            Some((i, guest)) => verdicts.find_for(i, guest, finding),
            None => verdicts.find(Finding { target: Target::Host, ..finding }),
        }
    }
}
