//! Exits and log lines of crashes, defects and bus locks.

use super::texts::{self, Abnormality};
use crate::kvm::kernel_log::LogKind;
use crate::lint::context::Context;
use crate::lint::context::exit_kind::ExitKind;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Fix, Mark, Severity, Target};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;
use crate::sample::{Direction, DomainState};
use std::collections::BTreeMap;

/// `KVM_EXIT_INTERNAL_ERROR` (`uapi/linux/kvm.h`).
const EXIT_INTERNAL_ERROR: i32 = 17;
/// `HV_X64_MSR_CRASH_CTL` (Hyper-V TLFS).
const CRASH_CTL: u64 = 0x4000_0105;
/// A guest may reboot by a triple fault, with as many as this.
const REBOOT_FAULTS: u64 = 2;

const EXITS: &[(ExitKind, Abnormality)] = &[
    (ExitKind::BusLock, texts::BUS_LOCKS),
    (ExitKind::Notify, texts::NOTIFY),
    (ExitKind::InvalidState, texts::INVALID_STATE),
    (ExitKind::TripleFault, texts::TRIPLE_FAULT),
];

/// The abnormal events of one guest.
#[derive(Default)]
struct AbnormalEvents {
    severity: Severity,
    evidence: Vec<String>,
    fix: Vec<Fix>,
    marks: Vec<Mark>,
}

impl AbnormalEvents {
    fn add(&mut self, severity: Severity, what: String, advice: &str) {
        self.severity = self.severity.max(severity);
        self.evidence.push(what);
        if !self.fix.iter().any(|f| f.text == advice) {
            self.fix.push(fixes::advice(advice));
        }
    }
}

pub(super) fn abnormal(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let mut all: BTreeMap<Option<usize>, AbnormalEvents> = BTreeMap::new();
    for (i, guest) in ctx.guests.iter().enumerate() {
        if guest.not_judged.is_none() && guest.domain.state != DomainState::Ended {
            add_exits(guest, all.entry(Some(i)).or_default());
        }
    }
    add_log_lines(ctx, &mut all);
    for (owner, mut events) in all.into_iter().filter(|(_, e)| !e.evidence.is_empty()) {
        events.evidence.push(texts::CHECK_ABNORMAL.into());
        let finding = Finding {
            severity: events.severity,
            confidence: Confidence::High,
            evidence: events.evidence,
            fix: events.fix,
            marks: events.marks,
            ..texts::ABNORMAL.finding()
        };
        match owner.and_then(|i| Some((i, ctx.guests.get(i)?))) {
            Some((i, guest)) => verdicts.find_for(i, guest, finding),
            None => verdicts.find(Finding { target: Target::Host, ..finding }),
        }
    }
}

fn add_exits(guest: &GuestContext<'_>, events: &mut AbnormalEvents) {
    for (kind, abnormality) in EXITS {
        let exits = guest.exits(&[*kind]);
        if exits.count == 0 {
            continue;
        }
        let reboot = *kind == ExitKind::TripleFault && exits.count <= REBOOT_FAULTS;
        let severity = if reboot { Severity::Info } else { Severity::Warning };
        events.add(severity, texts::abnormal(exits.count, abnormality.what, &guest.window()), abnormality.fix);
        events.marks.extend(exits.marks);
    }
    let is_error = |u: &&(Option<u32>, i32, u64)| u.0.is_none() && u.1 == EXIT_INTERNAL_ERROR;
    let errors: u64 = guest.domain.userspace.iter().filter(is_error).map(|u| u.2).sum();
    if errors > 0 {
        let what = texts::internal_errors(errors, &guest.window());
        events.add(Severity::Warning, what, texts::EMULATION.fix);
    }
    let crash = guest.msrs(Direction::Write, |m| m == CRASH_CTL);
    if crash.count > 0 {
        events.add(Severity::Warning, texts::WINDOWS_CRASH.what.into(), texts::WINDOWS_CRASH.fix);
        events.marks.extend(crash.marks);
    }
}

/// Lines of the host's log, by guest.
fn add_log_lines(ctx: &Context<'_>, all: &mut BTreeMap<Option<usize>, AbnormalEvents>) {
    let mut lines: BTreeMap<(Option<usize>, LogKind), (u64, &str)> = BTreeMap::new();
    for line in &ctx.model.host.kernel_log {
        if !matches!(line.kind, LogKind::SplitLock | LogKind::BusLock | LogKind::EmulationFailure) {
            continue;
        }
        let owner = ctx.by_pid(line.pid);
        // On a running host a line is an event: it counts when it appears, not for as long as the log holds it.
        let old = line.time_s.zip(ctx.log_judged_s).is_some_and(|(at, judged)| at <= judged);
        if !ctx.is_file() && (owner.is_none() || old) {
            continue;
        }
        lines.entry((owner, line.kind)).or_insert((0, &line.text)).0 += 1;
    }
    for ((owner, kind), (count, text)) in lines {
        let abnormality = if kind == LogKind::EmulationFailure { texts::EMULATION } else { texts::BUS_LOCKS };
        let what = texts::logged(count, abnormality.what, text);
        all.entry(owner).or_default().add(Severity::Warning, what, abnormality.fix);
    }
}
