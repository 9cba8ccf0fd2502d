//! Signs that end or break a guest: which signs stand for which event, and how rules collect them from exits, returns
//! of `KVM_RUN` and the host's log.

use super::incident_texts::{self as words, Incident};
use super::texts;
use crate::lint::engine::grouping::join;
use crate::lint::prelude::*;
use Severity::{Critical, Info, Warning};
use Sign::{AnyError, Coded, Exit, Log, Return};
use kvm::kernel_log::{INCOMING_MIGRATION, LogKind, LogLine};
use kvm::userspace_exit as returns;
use sample::DomainState;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Maximum age of a log line that counts on a running host, seconds: users open kvmtop to find recent events.
const RECENT_S: f64 = 3600.0;
/// `HV_X64_MSR_CRASH_CTL` (Hyper-V TLFS).
const CRASH_CTL: u64 = 0x4000_0105;
/// A guest may reboot by a triple fault, with as many as this.
const REBOOT_FAULTS: u64 = 2;

/// What shows that an event happened.
#[derive(PartialEq)]
enum Sign {
    Exit(ExitKind),
    /// A `KVM_EXIT_*` number that `KVM_RUN` returned.
    Return(i32),
    /// An errno that `KVM_RUN` returned, other than the ordinary ones.
    AnyError,
    Log(LogKind),
    /// A log line with this code in it.
    Coded(LogKind, u64),
}

/// Signs with the events that they stand for, and how severe these are.
type Signs = &'static [(Sign, Severity, &'static Incident)];

/// The codes of [`LogKind::InternalError`] are suberrors: `KVM_INTERNAL_ERROR_…` in include/uapi/linux/kvm.h.
const ABNORMAL: Signs = &[
    (Exit(ExitKind::InvalidState), Critical, &words::ENTRY_FAILED),
    (Exit(ExitKind::TripleFault), Warning, &words::TRIPLE_FAULT),
    (Exit(ExitKind::Notify), Warning, &words::NOTIFY),
    (Exit(ExitKind::BusLock), Warning, &words::BUS_LOCKS),
    (Return(returns::FAIL_ENTRY), Critical, &words::ENTRY_FAILED),
    (Return(returns::SHUTDOWN), Warning, &words::TRIPLE_FAULT),
    (Return(returns::NOTIFY), Warning, &words::NOTIFY),
    (Return(returns::BUS_LOCK), Warning, &words::BUS_LOCKS),
    (Return(returns::UNKNOWN), Critical, &words::INTERNAL_ERROR),
    (Return(returns::EXCEPTION), Critical, &words::INTERNAL_ERROR),
    (Return(returns::INTERNAL_ERROR), Critical, &words::INTERNAL_ERROR),
    (Return(returns::MEMORY_FAULT), Critical, &words::RUN_FAILED),
    (Return(returns::ARM_SEA), Critical, &words::MACHINE_CHECK),
    (AnyError, Critical, &words::RUN_FAILED),
    (Log(LogKind::EntryFailed), Critical, &words::ENTRY_FAILED),
    (Log(LogKind::TripleFault), Warning, &words::TRIPLE_FAULT),
    (Log(LogKind::SplitLock), Warning, &words::BUS_LOCKS),
    (Log(LogKind::BusLock), Warning, &words::BUS_LOCKS),
    (Log(LogKind::StartFailed), Warning, &words::START_FAILED),
    (Coded(LogKind::StartFailed, INCOMING_MIGRATION), Warning, &words::NOT_TAKEN_OVER),
    (Log(LogKind::InternalError), Critical, &words::INTERNAL_ERROR),
    (Coded(LogKind::InternalError, 2), Critical, &words::TWO_EXCEPTIONS),
    (Coded(LogKind::InternalError, 3), Critical, &words::INTERRUPTED_DELIVERY),
    (Coded(LogKind::InternalError, 4), Critical, &words::UNEXPECTED_EXIT),
    (Log(LogKind::RunFailed), Critical, &words::RUN_FAILED),
    (Log(LogKind::MachineCheck), Critical, &words::MACHINE_CHECK),
    (Log(LogKind::KernelBug), Warning, &words::KERNEL_BUG),
    (Log(LogKind::EmulationFailure), Warning, &words::EMULATION),
];
const KILLED: Signs = &[
    (Log(LogKind::KilledForMemory), Critical, &words::KILLED_FOR_MEMORY),
    (Log(LogKind::OutOfMemory), Warning, &words::OUT_OF_MEMORY),
    (Log(LogKind::Killed), Critical, &words::KILLED),
    (Log(LogKind::MemoryFailure), Critical, &words::MEMORY_FAILURE),
    (Log(LogKind::Terminated), Info, &words::TERMINATED),
];
const LOCKUPS: Signs = &[
    (Log(LogKind::Lockup), Critical, &words::LOCKUP),
    (Log(LogKind::HungTask), Warning, &words::HUNG_TASK),
    (Log(LogKind::OtherLockup), Warning, &words::OTHER_LOCKUP),
    (Log(LogKind::GuestLockup), Warning, &words::GUEST_LOCKUP),
    (Log(LogKind::GuestHungTask), Warning, &words::GUEST_HUNG_TASK),
    (Log(LogKind::GuestClock), Info, &words::GUEST_CLOCK),
];

/// The event that a sign stands for.
fn event(signs: Signs, sign: &Sign) -> Option<(Severity, &'static Incident)> {
    signs.iter().find(|known| known.0 == *sign).map(|(_, severity, event)| (*severity, *event))
}

/// The event that a log line with this code stands for.
fn logged(signs: Signs, kind: LogKind, code: Option<u64>) -> Option<(Severity, &'static Incident)> {
    code.and_then(|code| event(signs, &Coded(kind, code))).or_else(|| event(signs, &Log(kind)))
}

/// Exits and log lines of crashes, defects and bus locks.
pub(super) fn abnormal(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let mut all = ByGuest::new();
    for (i, guest) in ctx.guests.iter().enumerate() {
        add_exits(ctx, guest, all.entry(Some(i)).or_default());
    }
    add_log_lines(ctx, |line| is_new(ctx, line), ABNORMAL, &mut all);
    report(ctx, all, verdicts);
}

/// Guests whose VMM was killed or crashed, by the host's log.
pub(super) fn killed(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    of_log(ctx, KILLED, verdicts);
}

/// CPUs that hung in the kernel, by the log of a host or of a guest.
pub(super) fn lockups(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    of_log(ctx, LOCKUPS, verdicts);
}

fn of_log(ctx: &Context<'_>, signs: Signs, verdicts: &mut Verdicts) {
    let mut all = ByGuest::new();
    add_log_lines(ctx, |line| is_recent(ctx, line), signs, &mut all);
    report(ctx, all, verdicts);
}

/// Whether anything that ended or broke a guest is known.
pub(super) fn something_broke(ctx: &Context<'_>) -> bool {
    let broke = |line: &LogLine| [ABNORMAL, KILLED].iter().any(|of| logged(of, line.kind, line.data).is_some());
    let has_exits = |guest: &GuestContext<'_>| {
        let mut events = Incidents::default();
        add_exits(ctx, guest, &mut events);
        !events.all.is_empty()
    };
    ctx.model.host.kernel_log.iter().any(|line| broke(line) && is_recent(ctx, line)) || ctx.guests.iter().any(has_exits)
}

/// The events of one guest, or of the host.
#[derive(Default)]
struct Incidents {
    all: Vec<(Severity, &'static Incident)>,
    evidence: Vec<String>,
    marks: Vec<Mark>,
}

impl Incidents {
    fn add(&mut self, severity: Severity, incident: &'static Incident, evidence: String) {
        self.all.push((severity, incident));
        self.evidence.push(evidence);
    }
}

/// Events by the index of their guest; `None` where the guest is unknown or gone.
type ByGuest = BTreeMap<Option<usize>, Incidents>;

/// Reports the events of each guest as one finding.
fn report(ctx: &Context<'_>, all: ByGuest, verdicts: &mut Verdicts) {
    for (owner, mut events) in all {
        let Some((severity, worst)) = events.all.iter().copied().min_by_key(|event| Reverse(event.0)) else { continue };
        let mut all = vec![worst];
        join(&mut all, events.all.into_iter().map(|event| event.1).collect());
        events.evidence.push(texts::CHECK_INCIDENT.into());
        let mut see = Vec::new();
        join(&mut see, all.iter().flat_map(|i| i.links).map(|link| (*link).to_owned()).collect());
        let advice = |i: &&Incident| [(Audience::Everyone, i.next)].into_iter().chain(i.more.iter().copied());
        let advice = all.iter().flat_map(advice).filter(|(_, text)| !text.is_empty());
        let finding = Finding {
            severity,
            confidence: Confidence::High,
            title: worst.title.into(),
            why: all.iter().map(|i| texts::incident(i.means, i.causes)).collect::<Vec<_>>().join(". "),
            evidence: events.evidence,
            fix: advice.map(|(audience, text)| fixes::advice(text).only(audience)).collect(),
            marks: events.marks,
            see,
            ..Finding::default()
        };
        verdicts.find_of(ctx, owner, finding);
    }
}

fn add_exits(ctx: &Context<'_>, guest: &GuestContext<'_>, events: &mut Incidents) {
    // A guest that still runs after a triple fault has rebooted.
    let goes_on = !ctx.is_file() && guest.domain.state == DomainState::Running;
    let weigh = |severity: Severity, incident: &Incident, n: u64| {
        if *incident == words::TRIPLE_FAULT && goes_on && n <= REBOOT_FAULTS { Info } else { severity }
    };
    for (sign, severity, incident) in ABNORMAL {
        let Exit(kind) = sign else { continue };
        let exits = guest.exits(&[*kind]);
        if exits.count > 0 {
            let text = texts::abnormal(exits.count, incident.what, &guest.window());
            events.add(weigh(*severity, incident, exits.count), incident, text);
            events.marks.extend(exits.marks);
        }
    }
    let sums = guest.domain.userspace.iter().filter(|(vcpu, _, count)| vcpu.is_none() && *count > 0);
    for (_, reason, count) in sums.filter(|(_, reason, _)| !returns::is_ordinary_errno(*reason)) {
        let sign = if *reason < 0 { AnyError } else { Return(*reason) };
        let Some((severity, incident)) = event(ABNORMAL, &sign) else { continue };
        let text = texts::returned(*count, *reason, incident.what, &guest.window());
        events.add(weigh(severity, incident, *count), incident, text);
    }
    let crash = guest.msrs(Direction::Write, |m| m == CRASH_CTL);
    if crash.count > 0 {
        events.add(Warning, &words::WINDOWS_CRASH, words::WINDOWS_CRASH.what.into());
        events.marks.extend(crash.marks);
    }
}

/// Adds the lines of the host's log that are signs of events, by guest. Where one `counts`, the recent ones like it are
/// evidence too.
fn add_log_lines(ctx: &Context<'_>, counts: impl Fn(&LogLine) -> bool, signs: Signs, all: &mut ByGuest) {
    /// Whether one of the lines counts, and all of them.
    type AlikeLines<'l> = (bool, Vec<&'l LogLine>);
    // By guest, kind and cause.
    let mut lines: BTreeMap<(Option<usize>, LogKind, Option<u64>), AlikeLines<'_>> = BTreeMap::new();
    for line in ctx.model.host.kernel_log.iter().filter(|l| logged(signs, l.kind, l.data).is_some()) {
        let new = counts(line);
        if !new && !is_recent(ctx, line) {
            continue;
        }
        // The seconds of a lockup grow with each report of it.
        let cause = line.data.filter(|data| match line.kind {
            LogKind::InternalError | LogKind::EntryFailed => true,
            LogKind::StartFailed => *data == INCOMING_MIGRATION,
            _ => false,
        });
        let like = lines.entry((owner(ctx, line), line.kind, cause)).or_default();
        like.0 |= new;
        like.1.push(line);
    }
    for ((owner, kind, cause), (new, like)) in lines {
        let Some((severity, incident)) = logged(signs, kind, cause).filter(|_| new) else { continue };
        // libvirt cites all that QEMU said; its warnings come before the error.
        let first = like.iter().find(|line| !line.text.contains("warning: ")).or(like.first());
        let (Some(first), Some(last)) = (first, like.last()) else { continue };
        let mut text = texts::logged(like.len(), incident.what, &first.text, &last.text);
        if let Some(cause) = cause.and_then(|code| texts::cause(kind, code)) {
            text = text + "; " + cause;
        }
        all.entry(owner).or_default().add(severity, incident, text);
    }
}

/// On a running host a line is an event: it counts when it appears, not for as long as the log holds it. Of what
/// happened before kvmtop started, only what is about a guest that runs counts, and recent reports of the kernel that
/// name no guest by their nature.
fn is_new(ctx: &Context<'_>, line: &LogLine) -> bool {
    let old = line.time_s.zip(ctx.log_judged_s).is_some_and(|(at, judged)| at <= judged);
    let watched = ctx.log_judged_s.is_some() || matches!(line.kind, LogKind::EntryFailed | LogKind::KernelBug);
    ctx.is_file() || !old && (ctx.by_pid(line.pid).is_some() || watched && is_recent(ctx, line))
}

/// Whether a line was logged within the last hour, or comes from a file.
fn is_recent(ctx: &Context<'_>, line: &LogLine) -> bool {
    let age = line.time_s.map(|at| ctx.model.mono_s - at);
    ctx.is_file() || age.is_some_and(|age| age <= RECENT_S)
}

/// The guest that a line is about.
fn owner(ctx: &Context<'_>, line: &LogLine) -> Option<usize> {
    let by_name = || {
        let name = line.guest.as_deref()?;
        ctx.guests.iter().position(|g| g.name() == name)
    };
    // The log of a file with one guest is about that guest, unless it names another process.
    let only = || (ctx.is_file() && ctx.guests.len() == 1 && line.pid.is_none() && line.guest.is_none()).then_some(0);
    ctx.by_pid(line.pid).or_else(by_name).or_else(only)
}
