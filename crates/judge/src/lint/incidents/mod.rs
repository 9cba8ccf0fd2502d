//! Events that end or break a guest, or that the host's log tells of, and the findings that they
//! make. Several families report what the log says of their subject.

mod texts;

use crate::lint::facts::RuleId::{
    self, AbnormalExit, DiskErrors, GuestKilled, HostFrequency, HostLockup, NoKvm,
};
use crate::lint::facts::{Confidence, Context, Finding, GuestContext, Mark, Severity, Verdicts};
use crate::lint::fixes;
use crate::model::ExitKind;
use kvm::kernel_log::{CGROUP_LIMIT, LogKind, LogLine, no_kvm};
use kvm::userspace_exit as returns;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use texts::Incident;

/// Maximum age of a log line that counts on a running host, seconds: users open kvmtop to find
/// recent events.
const RECENT_S: f64 = 3600.0;
/// A guest may reboot by a triple fault, with as many as this.
const REBOOT_FAULTS: u64 = 2;
/// `ENOSPC`
const NO_SPACE: u64 = 28;

/// The event that a line of the log is a sign of, and the rule that reports it.
fn sign_of(line: &LogLine) -> Option<(RuleId, &'static Incident)> {
    Some(match (line.kind, line.data) {
        (LogKind::EntryFailed, _) => (AbnormalExit, &texts::ENTRY_FAILED),
        (LogKind::SplitLock, _) => (AbnormalExit, &texts::BUS_LOCKS),
        (LogKind::InternalError, _) => (AbnormalExit, &texts::INTERNAL_ERROR),
        (LogKind::EmulationFailure, _) => (AbnormalExit, &texts::EMULATION_FAILED),
        (LogKind::RunFailed, _) => (AbnormalExit, &texts::RUN_FAILED),
        (LogKind::MachineCheck, _) => (AbnormalExit, &texts::MEMORY_ERROR),
        (LogKind::KilledForMemory, Some(CGROUP_LIMIT)) => (GuestKilled, &texts::KILLED_AT_LIMIT),
        (LogKind::KilledForMemory, _) => (GuestKilled, &texts::KILLED_FOR_MEMORY),
        (LogKind::Killed, _) => (GuestKilled, &texts::KILLED),
        (LogKind::MemoryFailure, _) => (GuestKilled, &texts::MEMORY_ERROR),
        (LogKind::Lockup, _) => (HostLockup, &texts::LOCKUP),
        (LogKind::HungTask, _) => (HostLockup, &texts::HUNG_TASK),
        (LogKind::Overheated, _) => (HostFrequency, &texts::OVERHEATED),
        (LogKind::HostDisk, Some(NO_SPACE)) => (DiskErrors, &texts::DISK_FULL),
        (LogKind::HostDisk, _) => (DiskErrors, &texts::HOST_DISK),
        (LogKind::NoKvm, _) => (NoKvm, &texts::KVM_ABSENT),
        (LogKind::UnhandledMsr | LogKind::IgnoredMsr | LogKind::Other, _) => return None,
    })
}

/// Exits that occur only in such events.
const EXITS: [(ExitKind, &Incident); 4] = [
    (ExitKind::InvalidState, &texts::ENTRY_FAILED),
    (ExitKind::TripleFault, &texts::TRIPLE_FAULT),
    (ExitKind::Notify, &texts::NOTIFY),
    (ExitKind::BusLock, &texts::BUS_LOCKS),
];

/// What `KVM_RUN` returned: a `KVM_EXIT_*` number, or an errno below 0.
fn returned(reason: i32) -> Option<&'static Incident> {
    Some(match reason {
        returns::FAIL_ENTRY => &texts::ENTRY_FAILED,
        returns::SHUTDOWN => &texts::TRIPLE_FAULT,
        returns::NOTIFY => &texts::NOTIFY,
        returns::BUS_LOCK => &texts::BUS_LOCKS,
        returns::UNKNOWN | returns::EXCEPTION | returns::INTERNAL_ERROR => &texts::INTERNAL_ERROR,
        returns::ARM_SEA => &texts::MEMORY_ERROR,
        errno
            if errno == returns::MEMORY_FAULT
                || errno < 0 && !returns::is_ordinary_errno(errno) =>
        {
            &texts::RUN_FAILED
        }
        _ => return None,
    })
}

/// One event with its evidence.
struct Event {
    severity: Severity,
    incident: &'static Incident,
    evidence: String,
    mark: Option<Mark>,
}

/// Events by the index of their guest; `None` where the guest is unknown or gone.
type ByGuest = BTreeMap<Option<usize>, Vec<Event>>;

/// Exits and log lines of crashes, defects and bus locks.
pub(super) fn abnormal(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let all = ctx
        .guests
        .iter()
        .map(|guest| (Some(guest.index), by_exits(ctx, guest)))
        .collect();
    report(ctx, all, verdicts);
}

/// The recent lines of the log that the rule reports.
pub(super) fn logged(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    report(ctx, ByGuest::new(), verdicts);
}

/// What stands in the way of KVM: the most exact reason in the log. A module that is loaded has
/// found its hardware.
pub(super) fn no_kvm_cause(ctx: &Context<'_>) -> Option<&'static Incident> {
    let facts = &ctx.model.host.facts;
    // Without its vendor's module, x86's `kvm` does nothing.
    let is_loaded = facts
        .kvm_flavour
        .as_deref()
        .is_some_and(|module| module != "kvm");
    let works = is_loaded || ctx.guests.iter().any(|guest| guest.domain.exits.count > 0);
    let lines = ctx
        .model
        .host
        .kernel_log
        .iter()
        .filter(|line| line.kind == LogKind::NoKvm);
    let code = lines
        .filter_map(|line| line.data)
        .filter(|code| *code < no_kvm::NO_EXTENSION || !works)
        .max();
    match code {
        None if ctx.is_file() || works || facts.arch != "x86_64" => None,
        Some(no_kvm::BUSY) => Some(&texts::KVM_BUSY),
        _ if facts.virtualised == Some(true) => Some(&texts::KVM_NOT_NESTED),
        _ => Some(&texts::KVM_ABSENT),
    }
}

/// Whether a line was logged within the last hour, or comes from a file.
fn is_recent(ctx: &Context<'_>, line: &LogLine) -> bool {
    ctx.is_file()
        || line
            .time_s
            .is_some_and(|at| ctx.model.mono_s - at <= RECENT_S)
}

/// The events that a guest's exits and returns of `KVM_RUN` show.
fn by_exits(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Event> {
    let window = guest.window();
    let mut events = Vec::new();
    for row in &guest.domain.exits.rows {
        if let Some((_, incident)) = EXITS.iter().find(|(kind, _)| kind.matches(row)) {
            let count = row.span.count;
            events.push(Event {
                severity: severity_of_count(ctx, guest, incident, count),
                incident,
                evidence: format!("{count} {} exits {window}", row.reason),
                mark: Some(Mark::Exit(row.reason.clone())),
            });
        }
    }
    for row in &guest.domain.userspace {
        if row.vcpu.is_none()
            && let Some(incident) = returned(row.reason)
        {
            let meaning =
                returns::errno_meaning(row.reason).map_or_else(String::new, |m| format!(" ({m})"));
            events.push(Event {
                severity: severity_of_count(ctx, guest, incident, row.count),
                incident,
                evidence: format!(
                    "{} returns of KVM_RUN with {}{meaning} {window}",
                    row.count,
                    returns::display(row.reason)
                ),
                mark: None,
            });
        }
    }
    events
}

/// The severity of so many events: an info where the guest rebooted.
fn severity_of_count(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    incident: &Incident,
    count: u64,
) -> Severity {
    // A guest that still runs after a triple fault has rebooted.
    let goes_on = !ctx.is_file() && guest.running();
    if *incident == texts::TRIPLE_FAULT && goes_on && count <= REBOOT_FAULTS {
        Severity::Info
    } else {
        incident.severity
    }
}

/// Adds the recent lines of the host's log that a rule reports, by guest; those alike are one
/// event.
fn add_log_lines(ctx: &Context<'_>, rule: RuleId, all: &mut ByGuest) {
    let mut alike: BTreeMap<_, (&'static Incident, Vec<&str>)> = BTreeMap::new();
    for line in ctx
        .model
        .host
        .kernel_log
        .iter()
        .filter(|line| is_recent(ctx, line))
    {
        if let Some((_, incident)) = sign_of(line).filter(|sign| sign.0 == rule) {
            let event = (line.kind, incident.title, ctx.owner(line), line.pid);
            alike
                .entry(event)
                .or_insert((incident, Vec::new()))
                .1
                .push(&line.text);
        }
    }
    for ((_, _, owner, _), (mut incident, lines)) in alike {
        if rule == NoKvm {
            let Some(cause) = no_kvm_cause(ctx) else {
                continue;
            };
            incident = cause;
        }
        let evidence = match lines.as_slice() {
            [first, .., last] => format!(
                "the log says {} times, first: {first}; last: {last}",
                lines.len()
            ),
            _ => format!("the log says: {}", lines.concat()),
        };
        all.entry(owner).or_default().push(Event {
            severity: incident.severity,
            incident,
            evidence,
            mark: None,
        });
    }
}

/// Reports the events of each guest, also from the rule's lines in the host's log, as one finding
/// in the words of the worst.
fn report(ctx: &Context<'_>, mut all: ByGuest, verdicts: &mut Verdicts) {
    add_log_lines(ctx, verdicts.rule, &mut all);
    for (owner, mut events) in all {
        events.sort_by_key(|event| Reverse(event.severity));
        let Some(worst) = events.first() else {
            continue;
        };
        let incident = worst.incident;
        let fix = vec![fixes::advice(incident.next)];
        let mut found = Finding {
            title: incident.title.into(),
            why: incident.why.into(),
            see: incident
                .links
                .iter()
                .map(|link| (*link).to_owned())
                .collect(),
            ..Finding::new(worst.severity, Confidence::High, Vec::new(), fix)
        };
        for event in events {
            found.evidence.push(event.evidence);
            found.marks.extend(event.mark);
        }
        if !ctx.is_file() {
            found.evidence.push("look at: journalctl -k".into());
        }
        verdicts.find_of(ctx, owner, found);
    }
}
