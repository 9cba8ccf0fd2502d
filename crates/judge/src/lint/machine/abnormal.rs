//! Exits and log lines of crashes, defects and bus locks.

use super::incident::{self, ByGuest, Incident, Incidents};
use super::{incident_texts as words_of, texts};
use crate::lint::context::Context;
use crate::lint::context::exit_kind::ExitKind;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::Severity;
use crate::lint::verdicts::Verdicts;
use kvm::kernel_log::{INCOMING_MIGRATION, LogKind, LogLine};
use kvm::userspace_exit;
use sample::{Direction, DomainState};

/// `HV_X64_MSR_CRASH_CTL` (Hyper-V TLFS).
const CRASH_CTL: u64 = 0x4000_0105;
/// Suberrors (`KVM_INTERNAL_ERROR_…` in include/uapi/linux/kvm.h).
const SIMULTANEOUS: u64 = 2;
const DELIVERY: u64 = 3;
const UNEXPECTED_EXIT: u64 = 4;
/// A guest may reboot by a triple fault, with as many as this.
const REBOOT_FAULTS: u64 = 2;

const EXITS: &[(ExitKind, Severity, &Incident)] = &[
    (ExitKind::InvalidState, Severity::Critical, &words_of::ENTRY_FAILED),
    (ExitKind::TripleFault, Severity::Warning, &words_of::TRIPLE_FAULT),
    (ExitKind::Notify, Severity::Warning, &words_of::NOTIFY),
    (ExitKind::BusLock, Severity::Warning, &words_of::BUS_LOCKS),
];

pub(super) fn abnormal(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let mut all = ByGuest::new();
    for (i, guest) in ctx.guests.iter().enumerate() {
        add_exits(ctx, guest, all.entry(Some(i)).or_default());
    }
    incident::add_log_lines(ctx, |line| is_new(ctx, line), words, &mut all);
    incident::report(ctx, all, verdicts);
}

/// The words for a kind of log line and the code in it, if it is one of this rule.
pub(super) fn words(kind: LogKind, code: Option<u64>) -> Option<(Severity, &'static Incident)> {
    Some(match kind {
        LogKind::StartFailed if code == Some(INCOMING_MIGRATION) => (Severity::Warning, &words_of::NOT_TAKEN_OVER),
        LogKind::StartFailed => (Severity::Warning, &words_of::START_FAILED),
        LogKind::InternalError if code == Some(SIMULTANEOUS) => (Severity::Critical, &words_of::TWO_EXCEPTIONS),
        LogKind::InternalError if code == Some(DELIVERY) => (Severity::Critical, &words_of::INTERRUPTED_DELIVERY),
        LogKind::InternalError if code == Some(UNEXPECTED_EXIT) => (Severity::Critical, &words_of::UNEXPECTED_EXIT),
        LogKind::EntryFailed => (Severity::Critical, &words_of::ENTRY_FAILED),
        LogKind::InternalError => (Severity::Critical, &words_of::INTERNAL_ERROR),
        LogKind::RunFailed => (Severity::Critical, &words_of::RUN_FAILED),
        LogKind::MachineCheck => (Severity::Critical, &words_of::MACHINE_CHECK),
        LogKind::KernelBug => (Severity::Warning, &words_of::KERNEL_BUG),
        LogKind::TripleFault => (Severity::Warning, &words_of::TRIPLE_FAULT),
        LogKind::EmulationFailure => (Severity::Warning, &words_of::EMULATION),
        LogKind::SplitLock | LogKind::BusLock => (Severity::Warning, &words_of::BUS_LOCKS),
        _ => return None,
    })
}

/// Whether a guest had abnormal exits.
pub(super) fn has_exits(guest: &GuestContext<'_>) -> bool {
    EXITS.iter().any(|(kind, ..)| guest.exits(&[*kind]).count > 0)
        || served(guest).next().is_some()
        || guest.msrs(Direction::Write, |m| m == CRASH_CTL).count > 0
}

/// On a running host a line is an event: it counts when it appears, not for as long as the log holds it. Of what
/// happened before kvmtop started, only what is about a guest that runs counts, and recent reports of the kernel that
/// name no guest by their nature.
fn is_new(ctx: &Context<'_>, line: &LogLine) -> bool {
    let old = line.time_s.zip(ctx.log_judged_s).is_some_and(|(at, judged)| at <= judged);
    let watched = ctx.log_judged_s.is_some() || matches!(line.kind, LogKind::EntryFailed | LogKind::KernelBug);
    ctx.is_file() || !old && (ctx.by_pid(line.pid).is_some() || watched && incident::is_recent(ctx, line))
}

fn add_exits(ctx: &Context<'_>, guest: &GuestContext<'_>, events: &mut Incidents) {
    // A guest that still runs after a triple fault has rebooted.
    let goes_on = !ctx.is_file() && guest.domain.state == DomainState::Running;
    let reboot = |incident: &Incident, n: u64| *incident == words_of::TRIPLE_FAULT && goes_on && n <= REBOOT_FAULTS;
    for (kind, severity, incident) in EXITS {
        let exits = guest.exits(&[*kind]);
        if exits.count == 0 {
            continue;
        }
        let severity = if reboot(incident, exits.count) { Severity::Info } else { *severity };
        events.add(severity, incident, texts::abnormal(exits.count, incident.what, &guest.window()));
        events.mark(exits.marks);
    }
    for (reason, count, severity, incident) in served(guest) {
        let severity = if reboot(incident, count) { Severity::Info } else { severity };
        events.add(severity, incident, texts::returned(count, reason, incident.what, &guest.window()));
    }
    let crash = guest.msrs(Direction::Write, |m| m == CRASH_CTL);
    if crash.count > 0 {
        events.add(Severity::Warning, &words_of::WINDOWS_CRASH, words_of::WINDOWS_CRASH.what.into());
        events.mark(crash.marks);
    }
}

/// The returns of `KVM_RUN` that end or break a guest.
fn served<'a>(guest: &'a GuestContext<'_>) -> impl Iterator<Item = (i32, u64, Severity, &'static Incident)> + use<'a> {
    let sums = guest.domain.userspace.iter().filter(|(vcpu, _, count)| vcpu.is_none() && *count > 0);
    sums.filter_map(|(_, reason, count)| {
        let (severity, incident) = match *reason {
            errno if userspace_exit::is_ordinary_errno(errno) => return None,
            i32::MIN..0 => (Severity::Critical, &words_of::RUN_FAILED),
            userspace_exit::SHUTDOWN => (Severity::Warning, &words_of::TRIPLE_FAULT),
            userspace_exit::FAIL_ENTRY => (Severity::Critical, &words_of::ENTRY_FAILED),
            userspace_exit::UNKNOWN | userspace_exit::EXCEPTION | userspace_exit::INTERNAL_ERROR => {
                (Severity::Critical, &words_of::INTERNAL_ERROR)
            }
            userspace_exit::BUS_LOCK => (Severity::Warning, &words_of::BUS_LOCKS),
            userspace_exit::NOTIFY => (Severity::Warning, &words_of::NOTIFY),
            userspace_exit::MEMORY_FAULT => (Severity::Critical, &words_of::RUN_FAILED),
            userspace_exit::ARM_SEA => (Severity::Critical, &words_of::MACHINE_CHECK),
            _ => return None,
        };
        Some((*reason, *count, severity, incident))
    })
}
