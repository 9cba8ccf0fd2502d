//! Signs that end or break a guest: which signs stand for which event, and how rules collect them from exits, returns
//! of `KVM_RUN` and the host's log.

use super::incident_texts::{self as words, Incident};
use crate::lint::engine::grouping::join;
use crate::lint::prelude::*;
use Severity::{Critical, Info, Warning};
use Sign::{AnyError, Coded, Exit, Log, Return};
use kvm::kernel_log::{INCOMING_MIGRATION, LogKind, LogLine};
use kvm::userspace_exit as returns;
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

/// Events with their signs.
type Signs = &'static [(&'static [Sign], Severity, &'static Incident)];

/// The codes of [`LogKind::InternalError`] are suberrors: `KVM_INTERNAL_ERROR_…` in include/uapi/linux/kvm.h.
const ABNORMAL: Signs = &[
    (
        &[Exit(ExitKind::InvalidState), Return(returns::FAIL_ENTRY), Log(LogKind::EntryFailed)],
        Critical,
        &words::ENTRY_FAILED,
    ),
    (
        &[Exit(ExitKind::TripleFault), Return(returns::SHUTDOWN), Log(LogKind::TripleFault)],
        Warning,
        &words::TRIPLE_FAULT,
    ),
    (&[Exit(ExitKind::Notify), Return(returns::NOTIFY)], Warning, &words::NOTIFY),
    (&[Exit(ExitKind::BusLock), Return(returns::BUS_LOCK)], Warning, &words::BUS_LOCKS),
    (&[Log(LogKind::SplitLock), Log(LogKind::BusLock)], Warning, &words::BUS_LOCKS),
    (&[Return(returns::UNKNOWN), Return(returns::EXCEPTION)], Critical, &words::INTERNAL_ERROR),
    (&[Return(returns::INTERNAL_ERROR), Log(LogKind::InternalError)], Critical, &words::INTERNAL_ERROR),
    (&[Coded(LogKind::InternalError, 1)], Critical, &words::EMULATION),
    (&[Coded(LogKind::InternalError, 2)], Critical, &words::TWO_EXCEPTIONS),
    (&[Coded(LogKind::InternalError, 3)], Critical, &words::INTERRUPTED_DELIVERY),
    (&[Coded(LogKind::InternalError, 4)], Critical, &words::UNEXPECTED_EXIT),
    (&[AnyError, Return(returns::MEMORY_FAULT), Log(LogKind::RunFailed)], Critical, &words::RUN_FAILED),
    (&[Return(returns::ARM_SEA), Log(LogKind::MachineCheck)], Critical, &words::MACHINE_CHECK),
    (&[Log(LogKind::StartFailed)], Warning, &words::START_FAILED),
    (&[Coded(LogKind::StartFailed, INCOMING_MIGRATION)], Warning, &words::NOT_TAKEN_OVER),
    (&[Log(LogKind::KernelBug)], Warning, &words::KERNEL_BUG),
    (&[Log(LogKind::EmulationFailure)], Warning, &words::EMULATION),
];
const KILLED: Signs = &[
    (&[Log(LogKind::KilledForMemory)], Critical, &words::KILLED_FOR_MEMORY),
    (&[Log(LogKind::OutOfMemory)], Warning, &words::OUT_OF_MEMORY),
    (&[Log(LogKind::Killed)], Critical, &words::KILLED),
    (&[Log(LogKind::MemoryFailure)], Critical, &words::MEMORY_FAILURE),
    (&[Log(LogKind::Terminated)], Info, &words::TERMINATED),
];
const LOCKUPS: Signs = &[
    (&[Log(LogKind::Lockup)], Critical, &words::LOCKUP),
    (&[Log(LogKind::HungTask)], Warning, &words::HUNG_TASK),
    (&[Log(LogKind::OtherLockup)], Warning, &words::OTHER_LOCKUP),
    (&[Log(LogKind::GuestLockup)], Warning, &words::GUEST_LOCKUP),
    (&[Log(LogKind::GuestHungTask)], Warning, &words::GUEST_HUNG_TASK),
    (&[Log(LogKind::GuestClock)], Info, &words::GUEST_CLOCK),
];

/// The event that a sign stands for.
fn event(signs: Signs, sign: &Sign) -> Option<(Severity, &'static Incident)> {
    signs.iter().find(|known| known.0.contains(sign)).map(|(_, severity, event)| (*severity, *event))
}

/// The event that a log line with this code stands for.
fn line_event(signs: Signs, kind: LogKind, code: Option<u64>) -> Option<(Severity, &'static Incident)> {
    code.and_then(|code| event(signs, &Coded(kind, code))).or_else(|| event(signs, &Log(kind)))
}

/// Events by the index of their guest, each with its evidence; `None` where the guest is unknown or gone.
type ByGuest = BTreeMap<Option<usize>, Incidents>;

/// The events of one guest, or of the host.
#[derive(Default)]
struct Incidents {
    all: Vec<(Severity, &'static Incident, String)>,
    marks: Vec<Mark>,
}

/// Exits and log lines of crashes, defects and bus locks.
pub(super) fn abnormal(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let all = ctx.guests.iter().map(|guest| (Some(guest.index), by_exits(ctx, guest))).collect();
    report(ctx, ABNORMAL, is_new, all, verdicts);
}

/// Guests whose VMM was killed or crashed, by the host's log.
pub(super) fn killed(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    report(ctx, KILLED, is_recent, ByGuest::new(), verdicts);
}

/// CPUs that hung in the kernel, by the log of a host or of a guest.
pub(super) fn lockups(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    report(ctx, LOCKUPS, is_recent, ByGuest::new(), verdicts);
}

/// Whether anything that ended or broke a guest is known.
pub(super) fn something_broke(ctx: &Context<'_>) -> bool {
    let broke = |line: &LogLine| [ABNORMAL, KILLED].iter().any(|of| line_event(of, line.kind, line.data).is_some());
    ctx.model.host.kernel_log.iter().any(|line| broke(line) && is_recent(ctx, line))
        || ctx.guests.iter().any(|guest| !by_exits(ctx, guest).all.is_empty())
}

/// Reports the events of each guest as one finding, with those of the host's log.
fn report(
    ctx: &Context<'_>,
    signs: Signs,
    counts: fn(&Context<'_>, &LogLine) -> bool,
    mut all: ByGuest,
    verdicts: &mut Verdicts,
) {
    add_log_lines(ctx, signs, counts, &mut all);
    for (owner, events) in all {
        let Some((severity, worst, _)) = events.all.iter().min_by_key(|event| Reverse(event.0)) else { continue };
        let (severity, mut all, mut see) = (*severity, vec![*worst], Vec::new());
        join(&mut all, events.all.iter().map(|event| event.1).collect());
        join(&mut see, all.iter().flat_map(|i| i.links).map(|link| (*link).to_owned()).collect());
        let advice = |i: &&Incident| [(Audience::Everyone, i.next)].into_iter().chain(i.more.iter().copied());
        let advice = all.iter().flat_map(advice).filter(|(_, text)| !text.is_empty());
        let fix = advice.map(|(audience, text)| fixes::advice(text).only(audience)).collect();
        let why = |i: &&Incident| format!("{}. Likely causes, the likeliest first: {}", i.means, i.causes);
        let (title, problem) = (all[0].title.into(), all[0].problem.into());
        let why = all.iter().map(why).collect::<Vec<_>>().join(". ");
        let check = "check: journalctl -k; tail -n 50 /var/log/libvirt/qemu/*.log".into();
        let evidence = events.all.into_iter().map(|event| event.2).chain([check]).collect();
        let found = Finding::new(severity, Confidence::High, evidence, fix);
        verdicts.find_of(ctx, owner, Finding { title, problem, why, see, marks: events.marks, ..found });
    }
}

/// The events that a guest's exits and returns of `KVM_RUN` show.
fn by_exits(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Incidents {
    let (mut events, over) = (Incidents::default(), guest.window());
    // A guest that still runs after a triple fault has rebooted.
    let goes_on = !ctx.is_file() && guest.running();
    let weigh = |severity: Severity, incident: &Incident, n: u64| {
        if *incident == words::TRIPLE_FAULT && goes_on && n <= REBOOT_FAULTS { Info } else { severity }
    };
    for (signs, severity, incident) in ABNORMAL {
        let [Exit(kind), ..] = signs else { continue };
        let exits = guest.exits(&[*kind]);
        if exits.count > 0 {
            let reasons =
                exits.marks.iter().filter_map(|m| if let Mark::Exit(name) = m { Some(name.as_str()) } else { None });
            let reasons = reasons.collect::<Vec<_>>().join(", ");
            let text = format!("{} {reasons} exits {over}", figure(exits.count as f64));
            events.all.push((weigh(*severity, incident, exits.count), incident, text));
            events.marks.extend(exits.marks);
        }
    }
    let sums = guest.domain.userspace.iter().filter(|(vcpu, _, count)| vcpu.is_none() && *count > 0);
    for (_, reason, count) in sums.filter(|(_, reason, _)| !returns::is_ordinary_errno(*reason)) {
        let sign = if *reason < 0 { AnyError } else { Return(*reason) };
        let Some((severity, incident)) = event(ABNORMAL, &sign) else { continue };
        let name = returns::display(*reason);
        let meaning = returns::errno_meaning(*reason).map_or_else(String::new, |m| format!(" ({m})"));
        let text = format!("{count} returns of KVM_RUN with {name}{meaning} {over}");
        events.all.push((weigh(severity, incident, *count), incident, text));
    }
    let crash = guest.msrs(Direction::Write, |m| m == CRASH_CTL);
    if crash.count > 0 {
        let text = "Windows wrote to its crash register, MSR 0x40000105".into();
        events.all.push((Warning, &words::WINDOWS_CRASH, text));
        events.marks.extend(crash.marks);
    }
    events
}

/// Adds the lines of the host's log that are signs of events, by guest. Where one `counts`, the recent ones like it are
/// evidence too.
fn add_log_lines(ctx: &Context<'_>, signs: Signs, counts: fn(&Context<'_>, &LogLine) -> bool, all: &mut ByGuest) {
    // By guest, kind and cause: whether one of the lines counts, and all of them.
    let mut lines: BTreeMap<_, (bool, Vec<&LogLine>)> = BTreeMap::new();
    for line in ctx.model.host.kernel_log.iter().filter(|l| line_event(signs, l.kind, l.data).is_some()) {
        let new = counts(ctx, line);
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
        let Some((severity, incident)) = line_event(signs, kind, cause).filter(|_| new) else { continue };
        // libvirt cites all that QEMU said; its warnings come before the error.
        let first = like.iter().find(|line| !line.text.contains("warning: ")).or(like.first());
        let (Some(first), Some(last)) = (first.map(|line| &line.text), like.last().map(|line| &line.text)) else {
            continue;
        };
        let mut text = match like.len() {
            1 => format!("the log says: {first}"),
            n if first == last => format!("the log says {n} times: {first}"),
            n => format!("the log says {n} times, first: {first}; last: {last}"),
        };
        if let Some(cause) = cause.and_then(|code| code_text(kind, code)) {
            text = text + "; " + cause;
        }
        all.entry(owner).or_default().all.push((severity, incident, text));
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

/// What KVM or the CPU gives as the cause: the suberrors of `uapi/linux/kvm.h`, the basic exit reasons of a failed
/// entry (Intel SDM volume 3, "VM-entry failures during or after loading guest state"), AMD's `VMEXIT_INVALID`.
fn code_text(kind: LogKind, code: u64) -> Option<&'static str> {
    Some(match (kind, code) {
        (LogKind::InternalError, 1) => "suberror 1: an instruction that could not be emulated",
        (LogKind::InternalError, 2) => "suberror 2: two exceptions at once",
        (LogKind::InternalError, 3) => "suberror 3: an exit while an interrupt or exception was delivered",
        (LogKind::InternalError, 4) => "suberror 4: an exit reason that KVM does not expect",
        (LogKind::EntryFailed, 0x8000_0021) => "reason 0x80000021: invalid guest state",
        (LogKind::EntryFailed, 0x8000_0022) => "reason 0x80000022: the guest's MSRs could not be loaded",
        (LogKind::EntryFailed, 0x8000_0029) => "reason 0x80000029: a machine check of the hardware",
        (LogKind::EntryFailed, 0xffff_ffff | u64::MAX) => "AMD's VMEXIT_INVALID: invalid guest state",
        _ => return None,
    })
}
