//! Events that end or break a guest, or that the host's log tells of, and the findings that they make. Several families
//! report what the log says of their subject.

mod log;
mod texts;

use crate::figures::figure;
use crate::lint::facts::Context;
use crate::lint::facts::finding::{Confidence, Finding, Mark, Severity, is_made, join};
use crate::lint::facts::guest::{GuestContext, place_text};
use crate::lint::facts::shell::is_plain_name;
use crate::lint::facts::verdicts::Verdicts;
use crate::lint::fixes;
use crate::model::ExitKind;
use kvm::kernel_log::{LogKind, no_kvm};
use kvm::userspace_exit as returns;
use log::{LineFilter, add_log_lines, is_new, is_recent};
use sample::Direction;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use texts::Incident;

/// Places of failures that evidence names.
const MAX_PLACES: usize = 4;
/// `HV_X64_MSR_CRASH_CTL` (Hyper-V TLFS).
const CRASH_CTL: u64 = 0x4000_0105;
/// A guest may reboot by a triple fault, with as many as this.
const REBOOT_FAULTS: u64 = 2;

/// Events by the index of their guest; `None` where the guest is unknown or gone.
type ByGuest = BTreeMap<Option<usize>, Incidents>;

/// One event with its evidence.
struct Event {
    severity: Severity,
    incident: &'static Incident,
    evidence: String,
}

/// The events of one guest, or of the host.
#[derive(Default)]
struct Incidents {
    events: Vec<Event>,
    marks: Vec<Mark>,
}

impl Incidents {
    fn add(&mut self, severity: Severity, incident: &'static Incident, evidence: String) {
        self.events.push(Event { severity, incident, evidence });
    }
}

/// Exits that occur only in such events.
const EXITS: [(ExitKind, Severity, &Incident); 4] = [
    (ExitKind::InvalidState, Severity::Critical, &texts::ENTRY_FAILED),
    (ExitKind::TripleFault, Severity::Warning, &texts::TRIPLE_FAULT),
    (ExitKind::Notify, Severity::Warning, &texts::NOTIFY),
    (ExitKind::BusLock, Severity::Warning, &texts::BUS_LOCKS),
];

/// What `KVM_RUN` returned: a `KVM_EXIT_*` number, or an errno below 0.
fn returned(reason: i32) -> Option<(Severity, &'static Incident)> {
    Some(match reason {
        returns::FAIL_ENTRY => (Severity::Critical, &texts::ENTRY_FAILED),
        returns::SHUTDOWN => (Severity::Warning, &texts::TRIPLE_FAULT),
        returns::NOTIFY => (Severity::Warning, &texts::NOTIFY),
        returns::BUS_LOCK => (Severity::Warning, &texts::BUS_LOCKS),
        returns::UNKNOWN | returns::EXCEPTION | returns::INTERNAL_ERROR => (Severity::Critical, &texts::INTERNAL_ERROR),
        returns::ARM_SEA => (Severity::Critical, &texts::MACHINE_CHECK),
        errno if errno == returns::MEMORY_FAULT || errno < 0 => (Severity::Critical, &texts::RUN_FAILED),
        _ => return None,
    })
}

/// Exits and log lines of crashes, defects and bus locks.
pub(super) fn abnormal(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let all = ctx.guests.iter().map(|guest| (Some(guest.index), by_exits(ctx, guest))).collect();
    report(ctx, is_new, all, verdicts);
}

/// The recent lines of the log that the rule reports.
pub(super) fn logged(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    report(ctx, is_recent, ByGuest::new(), verdicts);
}

/// What stands in the way of KVM: the most exact reason in the log. A module that is loaded has found its hardware.
pub(super) fn no_kvm_cause(ctx: &Context<'_>) -> Option<&'static Incident> {
    let facts = &ctx.model.host.facts;
    // Without its vendor's module, x86's `kvm` does nothing.
    let is_loaded = facts.kvm_flavour.as_deref().is_some_and(|module| module != "kvm");
    let works = is_loaded || ctx.guests.iter().any(|guest| guest.domain.exits.count > 0);
    let lines = ctx.model.host.kernel_log.iter().filter(|line| line.kind == LogKind::NoKvm);
    let code = lines.filter_map(|line| line.data).filter(|code| *code < no_kvm::NO_EXTENSION || !works).max();
    match code {
        None if ctx.is_file() || works || facts.arch != "x86_64" => None,
        Some(no_kvm::BUSY) => Some(&texts::KVM_BUSY),
        _ if facts.virtualised == Some(true) => Some(&texts::KVM_NOT_NESTED),
        Some(no_kvm::NO_EXTENSION) => Some(&texts::KVM_NO_EXTENSION),
        Some(no_kvm::OFF_IN_FIRMWARE) => Some(&texts::KVM_OFF),
        _ => Some(&texts::KVM_ABSENT),
    }
}

/// Whether anything that ended or broke a guest is known.
pub(super) fn something_broke(ctx: &Context<'_>) -> bool {
    log::tells_of_a_crash(ctx) || ctx.guests.iter().any(|guest| !by_exits(ctx, guest).events.is_empty())
}

/// The events that a guest's exits and returns of `KVM_RUN` show.
fn by_exits(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Incidents {
    let mut found = Incidents::default();
    let over = guest.window();
    // A guest that still runs after a triple fault has rebooted.
    let goes_on = !ctx.is_file() && guest.running();
    let weigh = |severity: Severity, incident: &Incident, n: u64| {
        if *incident == texts::TRIPLE_FAULT && goes_on && n <= REBOOT_FAULTS { Severity::Info } else { severity }
    };
    for (kind, severity, incident) in EXITS {
        let exits = guest.exits(&[kind]);
        if exits.count == 0 {
            continue;
        }
        let mut reasons: Vec<&str> = Vec::new();
        for mark in &exits.marks {
            if let Mark::Exit(name) = mark {
                reasons.push(name);
            }
        }
        let on = exits.vcpu.map_or_else(String::new, |vcpu| format!(" on vCPU {vcpu}"));
        let text = format!("{} {} exits{on} {over}", figure(exits.count as f64), reasons.join(", "));
        found.add(weigh(severity, incident, exits.count), incident, text);
        found.marks.extend(exits.marks);
    }
    let mut failure = None;
    for (vcpu, reason, count) in &guest.domain.userspace {
        if vcpu.is_some() || *count == 0 || returns::is_ordinary_errno(*reason) {
            continue;
        }
        let Some((severity, incident)) = returned(*reason) else { continue };
        let name = returns::display(*reason);
        let meaning = returns::errno_meaning(*reason).map_or_else(String::new, |m| format!(" ({m})"));
        let text = format!("{count} returns of KVM_RUN with {name}{meaning} {over}");
        found.add(weigh(severity, incident, *count), incident, text);
        failure = Some((severity, incident));
    }
    if let Some((severity, incident)) = failure {
        for place in guest.domain.places.iter().filter(|place| place.failed).take(MAX_PLACES) {
            let text = format!("the exit before: {}, {}", place_text(place), guest.place_vcpu(place));
            found.add(severity, incident, text);
        }
    }
    let crash = guest.msrs(Direction::Write, |m| m == CRASH_CTL);
    if crash.count > 0 {
        let text = "Windows wrote to its crash register, MSR 0x40000105".into();
        found.add(Severity::Warning, &texts::WINDOWS_CRASH, text);
        found.marks.extend(crash.marks);
    }
    found
}

/// Reports the events of each guest, also from the rule's lines in the host's log, as one finding.
fn report(ctx: &Context<'_>, counts: LineFilter, mut all: ByGuest, verdicts: &mut Verdicts) {
    add_log_lines(ctx, verdicts.rule(), counts, &mut all);
    for (owner, found) in all {
        let mut events = found.events;
        // The exact one says more.
        if events.iter().any(|event| *event.incident == texts::EMULATION) {
            events.iter_mut().for_each(|event| {
                if *event.incident == texts::INTERNAL_ERROR {
                    event.incident = &texts::EMULATION;
                }
            });
        }
        let Some(worst) = events.iter().min_by_key(|event| Reverse(event.severity)) else { continue };
        let (severity, title, problem) = (worst.severity, worst.incident.title, worst.incident.problem);
        let mut incidents = vec![worst.incident];
        join(&mut incidents, events.iter().map(|event| event.incident).collect());
        let (mut see, mut fix, mut why) = (Vec::new(), Vec::new(), Vec::new());
        for incident in incidents {
            join(&mut see, incident.links.iter().map(|link| (*link).to_owned()).collect());
            join(&mut fix, vec![fixes::advice(incident.next)]);
            join(&mut why, vec![incident.why]);
        }
        let evidence = events.into_iter().map(|event| event.evidence).chain(look_at(ctx, owner)).collect();
        let finding = Finding::new(severity, Confidence::High, evidence, fix);
        let (title, problem, why) = (title.into(), problem.into(), why.join(". "));
        verdicts.find_of(ctx, owner, Finding { title, problem, why, see, marks: found.marks, ..finding });
    }
}

/// The commands that show more about an event, where no log is at hand: on a running host the kernel's newest lines are
/// all that is read.
fn look_at(ctx: &Context<'_>, owner: Option<usize>) -> Vec<String> {
    if ctx.is_file() && !ctx.model.host.kernel_log.is_empty() {
        return Vec::new();
    }
    let mut all = Vec::new();
    if let Some(guest) = owner.and_then(|i| ctx.guests.get(i))
        && guest.config.libvirt != Some(false)
        && is_plain_name(guest.name())
        && !is_made(guest.name())
    {
        all.push(format!("look at: tail -n 50 /var/log/libvirt/qemu/{}.log", guest.name()));
    }
    all.push("look at: journalctl -k".into());
    all
}
