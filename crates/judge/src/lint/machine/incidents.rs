//! Signs that end or break a guest: which signs stand for which event, and how rules collect them from exits, returns
//! of `KVM_RUN` and the host's log.

use super::guest::{place_text, vcpu_text};
use super::incident_texts::{self as words, Incident};
use crate::lint::engine::grouping::join;
use crate::lint::prelude::*;
use Severity::{Critical, Info, Warning};
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

/// An event and how bad it is.
type Event = (Severity, &'static Incident);

/// Exits that occur only in such events.
const EXITS: [(ExitKind, Severity, &Incident); 4] = [
    (ExitKind::InvalidState, Critical, &words::ENTRY_FAILED),
    (ExitKind::TripleFault, Warning, &words::TRIPLE_FAULT),
    (ExitKind::Notify, Warning, &words::NOTIFY),
    (ExitKind::BusLock, Warning, &words::BUS_LOCKS),
];

/// What `KVM_RUN` returned: a `KVM_EXIT_*` number, or an errno below 0.
fn of_return(reason: i32) -> Option<Event> {
    Some(match reason {
        returns::FAIL_ENTRY => (Critical, &words::ENTRY_FAILED),
        returns::SHUTDOWN => (Warning, &words::TRIPLE_FAULT),
        returns::NOTIFY => (Warning, &words::NOTIFY),
        returns::BUS_LOCK => (Warning, &words::BUS_LOCKS),
        returns::UNKNOWN | returns::EXCEPTION | returns::INTERNAL_ERROR => (Critical, &words::INTERNAL_ERROR),
        returns::ARM_SEA => (Critical, &words::MACHINE_CHECK),
        errno if errno == returns::MEMORY_FAULT || errno < 0 => (Critical, &words::RUN_FAILED),
        _ => return None,
    })
}

/// The rule that reports a line of the log, and the event that the line stands for; `no_kvm` is what lines about a
/// missing KVM stand for. The codes of [`LogKind::InternalError`] are suberrors (`KVM_INTERNAL_ERROR_…` in
/// include/uapi/linux/kvm.h), those of [`LogKind::DiskError`] errnos.
fn of_line(line: &LogLine, no_kvm: Option<&'static Incident>) -> Option<(RuleId, Event)> {
    use RuleId::{AbnormalExit, DiskErrors, GuestKilled, HostLockup, NoKvm};
    let (rule, severity, incident) = match (line.kind, line.data) {
        (LogKind::EntryFailed, _) => (AbnormalExit, Critical, &words::ENTRY_FAILED),
        (LogKind::TripleFault, _) => (AbnormalExit, Warning, &words::TRIPLE_FAULT),
        (LogKind::SplitLock | LogKind::BusLock, _) => (AbnormalExit, Warning, &words::BUS_LOCKS),
        (LogKind::InternalError, Some(1)) => (AbnormalExit, Critical, &words::EMULATION),
        (LogKind::InternalError, _) => (AbnormalExit, Critical, &words::INTERNAL_ERROR),
        (LogKind::EptMisconfig, _) => (AbnormalExit, Critical, &words::EPT_MISCONFIG),
        (LogKind::RunFailed, _) => (AbnormalExit, Critical, &words::RUN_FAILED),
        (LogKind::MachineCheck, _) => (AbnormalExit, Critical, &words::MACHINE_CHECK),
        (LogKind::StartFailed, Some(INCOMING_MIGRATION)) => (AbnormalExit, Warning, &words::NOT_TAKEN_OVER),
        (LogKind::StartFailed, _) => (AbnormalExit, Warning, &words::START_FAILED),
        (LogKind::KernelBug, _) => (AbnormalExit, Warning, &words::KERNEL_BUG),
        (LogKind::EmulationFailure, _) => (AbnormalExit, Warning, &words::EMULATION),
        (LogKind::KilledForMemory, Some(CGROUP_LIMIT)) => (GuestKilled, Critical, &words::KILLED_AT_LIMIT),
        (LogKind::KilledForMemory, Some(NODE_LIMIT)) => (GuestKilled, Critical, &words::KILLED_ON_NODES),
        (LogKind::KilledForMemory, _) => (GuestKilled, Critical, &words::KILLED_FOR_MEMORY),
        (LogKind::OutOfMemory, _) => (GuestKilled, Warning, &words::OUT_OF_MEMORY),
        (LogKind::Killed, _) => (GuestKilled, Critical, &words::KILLED),
        (LogKind::MemoryFailure, _) => (GuestKilled, Critical, &words::MEMORY_FAILURE),
        (LogKind::Terminated, _) => (GuestKilled, Info, &words::TERMINATED),
        (LogKind::Lockup, _) if stack_has(line, OTHER_CPUS) => (HostLockup, Critical, &words::WAIT_FOR_CPU),
        (LogKind::Lockup, _) => (HostLockup, Critical, &words::LOCKUP),
        (LogKind::HungTask, _) if stack_has(line, MEMSLOTS) => (HostLockup, Warning, &words::HUNG_MEMSLOTS),
        (LogKind::HungTask, _) if stack_has(line, MEMORY) => (HostLockup, Warning, &words::HUNG_MEMORY),
        (LogKind::HungTask, _) if stack_has(line, STORAGE) => (HostLockup, Warning, &words::HUNG_STORAGE),
        (LogKind::HungTask, _) => (HostLockup, Warning, &words::HUNG_TASK),
        (LogKind::OtherLockup, _) => (HostLockup, Warning, &words::OTHER_LOCKUP),
        (LogKind::GuestLockup, _) => (HostLockup, Warning, &words::GUEST_LOCKUP),
        (LogKind::GuestHungTask, _) => (HostLockup, Warning, &words::GUEST_HUNG_TASK),
        (LogKind::GuestClock, _) => (HostLockup, Info, &words::GUEST_CLOCK),
        (LogKind::DiskError, Some(28 | 122)) => (DiskErrors, Warning, &words::DISK_FULL),
        (LogKind::DiskError, Some(5)) => (DiskErrors, Warning, &words::DISK_DEVICE),
        (LogKind::DiskError, Some(108)) => (DiskErrors, Warning, &words::DISK_BLOCKED),
        (LogKind::DiskError, Some(116)) => (DiskErrors, Warning, &words::DISK_STALE),
        (LogKind::DiskError, _) => (DiskErrors, Warning, &words::DISK_ERROR),
        (LogKind::NoKvm, _) => (NoKvm, Warning, no_kvm?),
        _ => return None,
    };
    Some((rule, (severity, incident)))
}

/// Parts of the names of functions that wait for other CPUs and their locks.
const OTHER_CPUS: &[&str] = &["smp_call_function", "flush_tlb", "csd_lock", "multi_cpu_stop", "spin_lock", "queued_"];
/// The same for a change of a guest's memory map.
const MEMSLOTS: &[&str] = &["synchronize_srcu", "kvm_swap_active_memslots"];
/// The same for free memory; the first are the words of XFS.
const MEMORY: &[&str] = &["allocation deadlock", "shrink_", "reclaim", "compact_zone", "alloc_pages_slow", "swap"];
/// The same for a file system or a device.
const STORAGE: &[&str] = &[
    "io_sched", "blk_", "bio", "wait_on_", "folio", "iomap", "nfs", "rpc_", "ceph_", "rbd_", "xfs_", "ext4_", "jbd2_",
    "btrfs_", "gfs2", "ocfs2", "fuse_", "zfs", "zio_", "dm_", "scsi_", "nvme_", "fsync",
];

/// Whether a line's stack names one of these functions. What comes before it names threads and programs.
fn stack_has(line: &LogLine, names: &[&str]) -> bool {
    let stack = line.text.split_once(" … ").map(|(_, stack)| stack);
    stack.is_some_and(|stack| names.iter().any(|name| stack.contains(name)))
}

/// Whether a line of the log is news.
type Counts = fn(&Context<'_>, &LogLine) -> bool;

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
    report(ctx, is_new, all, verdicts);
}

/// The recent lines of the log that the rule reports.
pub(in crate::lint) fn logged(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    report(ctx, is_recent, ByGuest::new(), verdicts);
}

/// What stands in the way of KVM: the most exact reason in the log. A module that is loaded has found its hardware.
pub(super) fn no_kvm_cause(ctx: &Context<'_>) -> Option<&'static Incident> {
    let facts = &ctx.model.host.facts;
    let lines = ctx.model.host.kernel_log.iter().filter(|line| line.kind == LogKind::NoKvm);
    // Without its vendor's module, x86's `kvm` does nothing.
    let is_loaded = facts.kvm_flavour.as_deref().is_some_and(|module| module != "kvm");
    let works = is_loaded || ctx.guests.iter().any(|guest| guest.domain.exits.count > 0);
    let code = lines.filter_map(|line| line.data).filter(|code| *code < no_kvm::NO_EXTENSION || !works).max();
    let is_absent = !ctx.is_file() && !works && facts.arch == "x86_64";
    match code.or(is_absent.then_some(no_kvm::ABSENT))? {
        no_kvm::DENIED => Some(&words::KVM_DENIED),
        no_kvm::BUSY => Some(&words::KVM_BUSY),
        _ if facts.virtualised == Some(true) => Some(&words::KVM_NOT_NESTED),
        no_kvm::NO_EXTENSION => Some(&words::KVM_NO_EXTENSION),
        no_kvm::OFF_IN_FIRMWARE => Some(&words::KVM_OFF),
        _ => Some(&words::KVM_ABSENT),
    }
}

/// Whether anything that ended or broke a guest is known.
pub(super) fn something_broke(ctx: &Context<'_>) -> bool {
    let broke = |rule: RuleId| matches!(rule, RuleId::AbnormalExit | RuleId::GuestKilled);
    let lines = || ctx.model.host.kernel_log.iter().filter(|line| is_recent(ctx, line));
    lines().filter_map(|line| of_line(line, None)).any(|(rule, _)| broke(rule))
        || ctx.guests.iter().any(|guest| !by_exits(ctx, guest).all.is_empty())
}

/// Reports the events of each guest as one finding, with those of the rule's lines in the host's log.
fn report(ctx: &Context<'_>, counts: Counts, mut all: ByGuest, verdicts: &mut Verdicts) {
    add_log_lines(ctx, verdicts.rule(), counts, &mut all);
    for (owner, events) in all {
        let Some((severity, worst, _)) = events.all.iter().min_by_key(|event| Reverse(event.0)) else { continue };
        let (severity, mut all, mut see, mut fix) = (*severity, vec![*worst], Vec::new(), Vec::new());
        join(&mut all, events.all.iter().map(|event| event.1).collect());
        join(&mut see, all.iter().flat_map(|i| i.links).map(|link| (*link).to_owned()).collect());
        join(&mut fix, all.iter().map(|i| fixes::advice(i.next)).collect());
        let why = |i: &&Incident| format!("{}. Likely causes, the likeliest first: {}", i.means, i.causes);
        let (title, problem) = (worst.title.into(), worst.problem.into());
        let why = all.iter().map(why).collect::<Vec<_>>().join(". ");
        let of_vmm = all.iter().any(|incident| incident.next.contains("VMM's log"));
        let kernel = "look at: journalctl -k";
        let check = if of_vmm { "look at: journalctl -k; tail -n 50 /var/log/libvirt/qemu/*.log" } else { kernel };
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
    for (kind, severity, incident) in EXITS {
        let exits = guest.exits(&[kind]);
        if exits.count > 0 {
            let reasons =
                exits.marks.iter().filter_map(|m| if let Mark::Exit(name) = m { Some(name.as_str()) } else { None });
            let reasons = reasons.collect::<Vec<_>>().join(", ");
            let text = format!("{} {reasons} exits {over}", figure(exits.count as f64));
            events.all.push((weigh(severity, incident, exits.count), incident, text));
            events.marks.extend(exits.marks);
        }
    }
    let sums = guest.domain.userspace.iter().filter(|(vcpu, _, count)| vcpu.is_none() && *count > 0);
    let mut failure = None;
    for (_, reason, count) in sums.filter(|(_, reason, _)| !returns::is_ordinary_errno(*reason)) {
        let Some((severity, incident)) = of_return(*reason) else { continue };
        let name = returns::display(*reason);
        let meaning = returns::errno_meaning(*reason).map_or_else(String::new, |m| format!(" ({m})"));
        let text = format!("{count} returns of KVM_RUN with {name}{meaning} {over}");
        events.all.push((weigh(severity, incident, *count), incident, text));
        failure = Some((severity, incident));
    }
    if let Some((severity, incident)) = failure {
        for place in guest.domain.places.iter().filter(|place| place.failed).take(MAX_PLACES) {
            let text = format!("the exit before: {}, {}", place_text(place), vcpu_text(guest, place));
            events.all.push((severity, incident, text));
        }
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
        format!("{returned} returns of KVM_RUN to userspace/s, {woken} wake-ups of vCPUs/s and {exits} {window}")
    })
}

/// The words of a line without its figures, by which lines of one event are alike.
fn words_of(line: &LogLine) -> String {
    let words = line.text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| !word.bytes().any(|b| b.is_ascii_digit())).collect::<Vec<_>>().join(" ")
}

/// Adds the lines of the host's log that are signs of events, by guest. Where one `counts`, the recent ones like it are
/// evidence too.
fn add_log_lines(ctx: &Context<'_>, rule: RuleId, counts: Counts, all: &mut ByGuest) {
    let no_kvm = no_kvm_cause(ctx);
    let event = |line: &LogLine| of_line(line, no_kvm).filter(|of| of.0 == rule).map(|of| of.1);
    // Lines that say the same: whether one of them counts, and all of them.
    let mut alike: Vec<(bool, Vec<&LogLine>)> = Vec::new();
    let mut places = HashMap::new();
    for line in ctx.model.host.kernel_log.iter().filter(|line| event(line).is_some()) {
        let new = counts(ctx, line);
        if !new && !is_recent(ctx, line) {
            continue;
        }
        // The seconds of a lockup grow with each report of it.
        let code = line.data.filter(|_| !matches!(line.kind, LogKind::Lockup | LogKind::HungTask | LogKind::Killed));
        let process = line.pid.filter(|_| line.kind != LogKind::StartFailed);
        let at = *places.entry((ctx.owner(line), line.kind, code, process, words_of(line))).or_insert(alike.len());
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
        let Some((severity, incident)) = event(first) else { continue };
        let owner = ctx.owner(first);
        let whose =
            first.guest.as_ref().filter(|_| owner.is_none()).map_or_else(String::new, |name| format!(" of {name}"));
        let mut text = match lines.len() {
            1 => format!("the log{whose} says: {}", first.text),
            n if first.text == *last => format!("the log{whose} says {n} times: {last}"),
            n => format!("the log{whose} says {n} times, first: {}; last: {last}", first.text),
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
