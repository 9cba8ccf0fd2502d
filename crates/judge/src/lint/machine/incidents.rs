//! Signs that end or break a guest: which signs stand for which event, and how rules collect them from exits, returns
//! of `KVM_RUN` and the host's log.

use super::guest::{place_text, vcpu_text};
use super::incident_texts::{self as words, Incident};
use crate::figures::listed;
use crate::lint::engine::grouping::join;
use crate::lint::prelude::*;
use Severity::{Critical, Info, Warning};
use Sign::{AnyError, Coded, Exit, Log, Return};
use kvm::kernel_log::{CGROUP_LIMIT, INCOMING_MIGRATION, LogKind, LogLine, NODE_LIMIT, no_kvm};
use kvm::userspace_exit as returns;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// Maximum age of a log line that counts on a running host, seconds: users open kvmtop to find recent events.
const RECENT_S: f64 = 3600.0;
/// `HV_X64_MSR_CRASH_CTL` (Hyper-V TLFS).
const CRASH_CTL: u64 = 0x4000_0105;
/// Places of failures that evidence names.
const MAX_PLACES: usize = 4;
/// A guest may reboot by a triple fault, with as many as this.
const REBOOT_FAULTS: u64 = 2;

/// Returns of `KVM_RUN` per second that are judged without exits.
const MIN_RETURNS: f64 = 10_000.0;

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
    (&[Log(LogKind::EptMisconfig)], Critical, &words::EPT_MISCONFIG),
];
const KILLED: Signs = &[
    (&[Log(LogKind::KilledForMemory)], Critical, &words::KILLED_FOR_MEMORY),
    (&[Coded(LogKind::KilledForMemory, CGROUP_LIMIT)], Critical, &words::KILLED_AT_LIMIT),
    (&[Coded(LogKind::KilledForMemory, NODE_LIMIT)], Critical, &words::KILLED_ON_NODES),
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

/// By errno.
const DISK_ERRORS: Signs = &[
    (&[Log(LogKind::DiskError)], Warning, &words::DISK_ERROR),
    (&[Coded(LogKind::DiskError, 5)], Warning, &words::DISK_DEVICE),
    (&[Coded(LogKind::DiskError, 28), Coded(LogKind::DiskError, 122)], Warning, &words::DISK_FULL),
    (&[Coded(LogKind::DiskError, 108)], Warning, &words::DISK_BLOCKED),
    (&[Coded(LogKind::DiskError, 116)], Warning, &words::DISK_STALE),
];
/// One for each reason why there is no KVM, by its code; the last one where this host is itself a guest.
const NO_KVM: [Signs; 6] = [
    &[(&[Log(LogKind::NoKvm)], Warning, &words::KVM_ABSENT)],
    &[(&[Log(LogKind::NoKvm)], Warning, &words::KVM_DENIED)],
    &[(&[Log(LogKind::NoKvm)], Warning, &words::KVM_BUSY)],
    &[(&[Log(LogKind::NoKvm)], Warning, &words::KVM_NO_EXTENSION)],
    &[(&[Log(LogKind::NoKvm)], Warning, &words::KVM_OFF)],
    &[(&[Log(LogKind::NoKvm)], Warning, &words::KVM_NOT_NESTED)],
];
/// Stacks by a function in them, the most telling first.
const STACKS: &[(LogKind, &[&str], &Incident)] = &[
    (LogKind::HungTask, &["allocation deadlock"], &words::HUNG_XFS),
    (LogKind::HungTask, &["synchronize_srcu", "kvm_swap_active_memslots"], &words::HUNG_MEMSLOTS),
    (LogKind::HungTask, &["shrink_", "reclaim", "compact_zone", "alloc_pages_slow", "swap"], &words::HUNG_MEMORY),
    (LogKind::HungTask, words::STORAGE_FUNCTIONS, &words::HUNG_STORAGE),
    (LogKind::Lockup, &["smp_call_function", "flush_tlb", "csd_lock", "multi_cpu_stop"], &words::WAIT_FOR_CPU),
    (LogKind::Lockup, &["spin_lock", "queued_write_lock", "queued_read_lock"], &words::WAIT_FOR_LOCK),
];

/// The event that a sign stands for.
fn event(signs: Signs, sign: &Sign) -> Option<(Severity, &'static Incident)> {
    signs.iter().find(|known| known.0.contains(sign)).map(|(_, severity, event)| (*severity, *event))
}

/// The event that a log line stands for: by its code, or by the functions of its stack.
fn line_event(signs: Signs, line: &LogLine) -> Option<(Severity, &'static Incident)> {
    let of_code = line.data.and_then(|code| event(signs, &Coded(line.kind, code)));
    let (severity, incident) = of_code.or_else(|| event(signs, &Log(line.kind)))?;
    // What comes before them names threads and programs, except for XFS's complaint.
    let stack = line.text.split_once(" … ").map(|(_, stack)| stack);
    let has = |name: &&str| stack.is_some_and(|stack| stack.contains(name));
    let known = STACKS.iter().find(|(kind, names, _)| *kind == line.kind && names.iter().any(has));
    Some((severity, known.map_or(incident, |known| known.2)))
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

/// Requests of disks that QEMU says have failed.
pub(in crate::lint) fn disk_errors(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    report(ctx, DISK_ERRORS, is_recent, ByGuest::new(), verdicts);
}

/// Why KVM cannot be used, by the log.
pub(super) fn without_kvm(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    if let Some(signs) = no_kvm_signs(ctx) {
        report(ctx, signs, is_recent, ByGuest::new(), verdicts);
    }
}

/// What stands in the way of KVM.
pub(super) fn no_kvm_cause(ctx: &Context<'_>) -> Option<&'static Incident> {
    Some(no_kvm_signs(ctx)?.first()?.2)
}

/// The most exact reason in the log. A module that is loaded has found its hardware.
fn no_kvm_signs(ctx: &Context<'_>) -> Option<Signs> {
    let facts = &ctx.model.host.facts;
    let lines = ctx.model.host.kernel_log.iter().filter(|line| line.kind == LogKind::NoKvm);
    // Without its vendor's module, x86's `kvm` does nothing.
    let is_loaded = facts.kvm_flavour.as_deref().is_some_and(|module| module != "kvm");
    let works = is_loaded || ctx.guests.iter().any(|guest| guest.domain.exits.count > 0);
    let code = lines.filter_map(|line| line.data).filter(|code| *code < no_kvm::NO_EXTENSION || !works).max();
    let is_absent = !ctx.is_file() && !works && facts.arch == "x86_64";
    let code = code.or(is_absent.then_some(no_kvm::ABSENT))?;
    let is_hardware = !matches!(code, no_kvm::DENIED | no_kvm::BUSY);
    let row = if is_hardware && facts.virtualised == Some(true) { NO_KVM.len() - 1 } else { code as usize };
    NO_KVM.get(row).copied()
}

/// Whether anything that ended or broke a guest is known.
pub(super) fn something_broke(ctx: &Context<'_>) -> bool {
    let broke = |line: &LogLine| [ABNORMAL, KILLED].iter().any(|of| line_event(of, line).is_some());
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
        let mut fix = Vec::new();
        join(&mut fix, advice.map(|(audience, text)| fixes::advice(text).only(audience)).collect());
        let why = |i: &&Incident| format!("{}. Likely causes, the likeliest first: {}", i.means, i.causes);
        let (title, problem) = (all[0].title.into(), all[0].problem.into());
        let why = all.iter().map(why).collect::<Vec<_>>().join(". ");
        let of_vmm = all.iter().any(|incident| incident.next.contains("VMM's log"));
        let kernel = "check: journalctl -k";
        let check = if of_vmm { "check: journalctl -k; tail -n 50 /var/log/libvirt/qemu/*.log" } else { kernel };
        let evidence = events.all.into_iter().map(|event| event.2).chain([check.into()]).collect();
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
    let mut failure = None;
    for (_, reason, count) in sums.filter(|(_, reason, _)| !returns::is_ordinary_errno(*reason)) {
        let sign = if *reason < 0 { AnyError } else { Return(*reason) };
        let Some((severity, incident)) = event(ABNORMAL, &sign) else { continue };
        let name = returns::display(*reason);
        let meaning = returns::errno_meaning(*reason).map_or_else(String::new, |m| format!(" ({m})"));
        let text = format!("{count} returns of KVM_RUN with {name}{meaning} {over}");
        events.all.push((weigh(severity, incident, *count), incident, text));
        failure = Some((severity, incident));
    }
    if let Some((severity, incident)) = failure {
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for place in guest.domain.places.iter().filter(|place| place.failed) {
            places.entry(place_text(place)).or_default().push(vcpu_text(guest, place));
        }
        let text = |(place, vcpus)| format!("the exit before: {place}, {}", listed(vcpus));
        events.all.extend(places.into_iter().take(MAX_PLACES).map(text).map(|text| (severity, incident, text)));
    }
    if let Some(text) = returns_at_once(ctx, guest) {
        events.all.push((Warning, &words::RETURNS_AT_ONCE, text));
    }
    let crash = guest.msrs(Direction::Write, |m| m == CRASH_CTL);
    if crash.count > 0 {
        let text = "Windows wrote to its crash register, MSR 0x40000105".into();
        events.all.push((Warning, &words::WINDOWS_CRASH, text));
        events.marks.extend(crash.marks);
    }
    events
}

/// Threads that enter and leave `KVM_RUN` all the time and wake their vCPU each time, while hardly any exit is counted:
/// no guest code runs in between. A device that QEMU emulates takes an exit for each access, and some microseconds.
fn returns_at_once(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Option<String> {
    let seconds = guest.seconds.filter(|_| ctx.is_file())?;
    let rate = |event: &str| guest.domain.kvm_events.get(event).map(|count| *count as f64 / seconds);
    let (returned, woken, exits) = (rate("kvm_userspace_exit")?, rate("kvm_vcpu_wakeup")?, rate("kvm_exit"));
    // Events that are not counted prove nothing, unless there are more returns than devices could cause.
    let fewest = if exits.is_some() { MIN_RETURNS } else { 10.0 * MIN_RETURNS };
    (returned >= fewest && woken >= returned / 2.0 && exits.is_none_or(|exits| exits <= returned / 10.0)).then(|| {
        let exits = exits.map_or_else(|| "no exit".to_owned(), |exits| format!("{} exits/s", figure(exits)));
        let (returned, woken, window) = (figure(returned), figure(woken), guest.window());
        format!(
            "{returned} returns of KVM_RUN to userspace/s (kvm_userspace_exit) and {woken} wake-ups of vCPUs/s \
             {window}, and {exits} of the guest counted"
        )
    })
}

/// The words of a line without its figures, by which lines of one event are alike.
fn words_of(line: &LogLine) -> String {
    let words = line.text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| !word.bytes().any(|b| b.is_ascii_digit())).collect::<Vec<_>>().join(" ")
}

/// Adds the lines of the host's log that are signs of events, by guest. Where one `counts`, the recent ones like it are
/// evidence too.
fn add_log_lines(ctx: &Context<'_>, signs: Signs, counts: fn(&Context<'_>, &LogLine) -> bool, all: &mut ByGuest) {
    // Lines that say the same: whether one of them counts, and all of them.
    let mut alike: Vec<(bool, Vec<&LogLine>)> = Vec::new();
    let mut places = HashMap::new();
    for line in ctx.model.host.kernel_log.iter().filter(|line| line_event(signs, line).is_some()) {
        let new = counts(ctx, line);
        if !new && !is_recent(ctx, line) {
            continue;
        }
        // The seconds of a lockup grow with each report of it. Programs in a guest lock the bus at any place.
        let code = line.data.filter(|_| !matches!(line.kind, LogKind::Lockup | LogKind::HungTask | LogKind::Killed));
        let is_lock = matches!(line.kind, LogKind::SplitLock | LogKind::BusLock);
        let process = line.pid.filter(|_| !is_lock && line.kind != LogKind::StartFailed);
        let words = if is_lock { String::new() } else { words_of(line) };
        let at = *places.entry((ctx.owner(line), line.kind, code, process, words)).or_insert(alike.len());
        if at == alike.len() {
            alike.push((false, Vec::new()));
        }
        alike[at].0 |= new;
        alike[at].1.push(line);
    }
    alike.sort_by_key(|(_, lines)| lines.first().map(|line| line.kind));
    for (_, lines) in alike.iter().filter(|(new, _)| *new) {
        // libvirt cites all that QEMU said; its warnings come before the error.
        let first = lines.iter().find(|line| !line.text.contains("warning: ")).or(lines.first());
        let (Some(first), Some(last)) = (first, lines.last().map(|line| &line.text)) else { continue };
        let Some((severity, incident)) = line_event(signs, first) else { continue };
        let owner = ctx.owner(first);
        let whose =
            first.guest.as_ref().filter(|_| owner.is_none()).map_or_else(String::new, |name| format!(" of {name}"));
        let log = if first.text.contains("kvm_emulate_insn: ") { "trace" } else { "log" };
        let mut text = match lines.len() {
            1 => format!("the {log}{whose} says: {}", first.text),
            n if first.text == *last => format!("the {log}{whose} says {n} times: {last}"),
            n => format!("the {log}{whose} says {n} times, first: {}; last: {last}", first.text),
        };
        if let Some(cause) = first.data.and_then(|code| code_text(first.kind, code)) {
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
