//! Signs that end or break a guest: which signs stand for which event, and how rules collect them from exits, returns
//! of `KVM_RUN` and the host's log.

use super::guest::{place_text, vcpu_text};
use super::incident_texts::{self as words, Incident};
use crate::figures::bytes;
use crate::lint::engine::finding::is_made;
use crate::lint::engine::grouping::join;
use crate::lint::fixes::shell::is_plain_name;
use crate::lint::prelude::*;
use Severity::{Critical, Info, Warning};
use kvm::kernel_log::{CGROUP_LIMIT, INCOMING_MIGRATION, LogKind, LogLine, NODE_LIMIT, no_kvm};
use kvm::userspace_exit as returns;
use std::cell::LazyCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Maximum age of a log line that counts on a running host, seconds: users open kvmtop to find recent events.
const RECENT_S: f64 = 3600.0;
/// `HV_X64_MSR_CRASH_CTL` (Hyper-V TLFS).
const CRASH_CTL: u64 = 0x4000_0105;
/// A CPU that hangs is first reported after 20 s or a little more. One that did not run is reported late, seconds.
const STOOD_STILL_S: u64 = 30;
/// Places of failures, guests and kinds of unexplained lines that evidence names.
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

/// What a line of the log stands for.
struct Sign {
    kind: LogKind,
    /// The codes of the line that it takes: suberrors of [`LogKind::InternalError`] (`KVM_INTERNAL_ERROR_…` in
    /// include/uapi/linux/kvm.h), errnos of [`LogKind::DiskError`]. Empty: any.
    codes: &'static [u64],
    /// Words of which the line has to contain one; `*` matches any words between. Empty: any line.
    names: &'static [&'static str],
    rule: RuleId,
    event: Event,
}

const fn sign(kind: LogKind, codes: &'static [u64], rule: RuleId, event: Event) -> Sign {
    Sign { kind, codes, names: &[], rule, event }
}

/// The same for lines that name one of these.
const fn naming(names: &'static [&'static str], kind: LogKind, rule: RuleId, event: Event) -> Sign {
    Sign { kind, codes: &[], names, rule, event }
}

/// The same for lines about a start that failed.
const fn start(names: &'static [&'static str], incident: &'static Incident) -> Sign {
    naming(names, LogKind::StartFailed, HostErrors, (Warning, incident))
}

use RuleId::{
    AbnormalExit, DiskErrors, GuestKilled, HostErrors, HostFrequency, HostLockup, HostMemoryPressure, HpetClock,
};

const PIECES: Event = (Warning, &words::START_PIECES);
const NO_MEMORY: Event = (Warning, &words::START_MEMORY);
/// What KVM and VFIO say of a piece of memory that they refuse.
const NOT_MAPPED: &[&str] = &["kvm_set_user_memory_region failed", "kvm_set_phys_mem", "dma mapping failed, unable"];

/// What QEMU says of a guest's MSR that KVM does not take.
const MSRS: &[&str] = &["failed to set msr", "failed to get msr", "_msrs: assertion"];
/// What the kernel says of an IOMMU that waits for a device.
const NO_ANSWER: &[&str] = &["completion-wait", "inv_timeout", "invalidation time"];

/// All signs; the first that fits a line counts, so the exact ones of a kind come first.
static SIGNS: &[Sign] = &[
    sign(LogKind::EntryFailed, &[], AbnormalExit, (Critical, &words::ENTRY_FAILED)),
    sign(LogKind::TripleFault, &[], AbnormalExit, (Warning, &words::TRIPLE_FAULT)),
    sign(LogKind::SplitLock, &[], AbnormalExit, (Warning, &words::BUS_LOCKS)),
    sign(LogKind::BusLock, &[], AbnormalExit, (Warning, &words::BUS_LOCKS)),
    sign(LogKind::InternalError, &[1], AbnormalExit, (Critical, &words::EMULATION)),
    sign(LogKind::InternalError, &[3], AbnormalExit, (Critical, &words::DELIVERY)),
    naming(&["init_signal"], LogKind::InternalError, AbnormalExit, (Critical, &words::HOST_INIT)),
    sign(LogKind::InternalError, &[], AbnormalExit, (Critical, &words::INTERNAL_ERROR)),
    sign(LogKind::EptMisconfig, &[], AbnormalExit, (Critical, &words::EPT_MISCONFIG)),
    sign(LogKind::RunFailed, &[], AbnormalExit, (Critical, &words::RUN_FAILED)),
    sign(LogKind::MachineCheck, &[], AbnormalExit, (Critical, &words::MACHINE_CHECK)),
    sign(LogKind::StartFailed, &[INCOMING_MIGRATION], HostErrors, (Warning, &words::NOT_TAKEN_OVER)),
    start(&["hyperv", "hyper-v", "requested feature", "cpu model", "host doesn't support"], &words::START_CPU),
    start(
        &["rlimit_memlock", "locked memory", "vfio_map_dma failed: cannot allocate", "vfio_map_dma: -12"],
        &words::START_MEMLOCK,
    ),
    start(&["vfio", "iommu group", "is not viable", "failed to get group"], &words::START_VFIO),
    start(&["\" lock", "another process using", "address already in use", "resource busy"], &words::START_IN_USE),
    start(&["cpu affinity", "cpuset"], &words::START_AFFINITY),
    start(&["failed to connect", "vhost-user", "vhost_user"], &words::START_SOCKET),
    start(&["permission denied", "operation not permitted"], &words::START_DENIED),
    start(&["backing store for guest ram", "hugepage", "huge page", "hugetlb"], &words::START_HUGE_PAGES),
    // Of kernels alone, which need it at once.
    naming(&["kvm_create_vm", "initialize kvm: cannot allocate"], LogKind::StartFailed, HostMemoryPressure, PIECES),
    naming(&["cannot allocate memory", "out of memory"], LogKind::StartFailed, HostMemoryPressure, NO_MEMORY),
    start(
        &["no such file", "no such device", "could not open", "network not", "not active", "bridge helper"],
        &words::START_MISSING,
    ),
    start(&["start failed: qemu failed: got timeout"], &words::START_SLOW),
    start(&["start failed: qemu "], &words::START_UNSAID),
    sign(LogKind::StartFailed, &[], HostErrors, (Warning, &words::START_FAILED)),
    naming(&["warning:"], LogKind::KernelBug, AbnormalExit, (Info, &words::KERNEL_BUG)),
    sign(LogKind::KernelBug, &[], AbnormalExit, (Warning, &words::KERNEL_BUG)),
    sign(LogKind::EmulationFailure, &[], AbnormalExit, (Warning, &words::EMULATION)),
    sign(LogKind::KilledForMemory, &[CGROUP_LIMIT], GuestKilled, (Critical, &words::KILLED_AT_LIMIT)),
    sign(LogKind::KilledForMemory, &[NODE_LIMIT], GuestKilled, (Critical, &words::KILLED_ON_NODES)),
    sign(LogKind::KilledForMemory, &[], GuestKilled, (Critical, &words::KILLED_FOR_MEMORY)),
    sign(LogKind::OutOfMemory, &[], GuestKilled, (Warning, &words::OUT_OF_MEMORY)),
    naming(NOT_MAPPED, LogKind::Killed, GuestKilled, (Critical, &words::KILLED_IN_MAP)),
    naming(MSRS, LogKind::Killed, GuestKilled, (Critical, &words::KILLED_BY_MSR)),
    sign(LogKind::Killed, &[], GuestKilled, (Critical, &words::KILLED)),
    sign(LogKind::MemoryFailure, &[], GuestKilled, (Critical, &words::MEMORY_FAILURE)),
    naming(&["not resettable"], LogKind::Terminated, GuestKilled, (Info, &words::NOT_RESETTABLE)),
    sign(LogKind::Terminated, &[], GuestKilled, (Info, &words::TERMINATED)),
    sign(LogKind::DeviceHeld, &[], HostErrors, (Warning, &words::DEVICE_HELD)),
    naming(&["giving up", "inaccessible"], LogKind::DeviceReset, HostErrors, (Critical, &words::DEVICE_RESET)),
    sign(LogKind::DeviceReset, &[], HostErrors, (Warning, &words::DEVICE_RESET)),
    naming(OTHER_CPUS, LogKind::Lockup, HostLockup, (Critical, &words::WAIT_FOR_CPU)),
    sign(LogKind::Lockup, &[], HostLockup, (Critical, &words::LOCKUP)),
    naming(OWN_MEMSLOTS, LogKind::HungTask, HostLockup, (Warning, &words::HUNG_IN_KVM)),
    naming(MEMSLOTS, LogKind::HungTask, HostLockup, (Warning, &words::HUNG_MEMSLOTS)),
    naming(MEMORY, LogKind::HungTask, HostLockup, (Warning, &words::HUNG_MEMORY)),
    naming(STORAGE, LogKind::HungTask, HostLockup, (Warning, &words::HUNG_STORAGE)),
    sign(LogKind::HungTask, &[], HostLockup, (Warning, &words::HUNG_TASK)),
    sign(LogKind::OtherLockup, &[], HostLockup, (Warning, &words::OTHER_LOCKUP)),
    sign(LogKind::GuestLockup, &[], HostLockup, (Warning, &words::GUEST_LOCKUP)),
    sign(LogKind::GuestHungTask, &[], HostLockup, (Warning, &words::GUEST_HUNG_TASK)),
    sign(LogKind::GuestClock, &[], HostErrors, (Info, &words::GUEST_CLOCK)),
    naming(&["warning:"], LogKind::GuestBug, AbnormalExit, (Info, &words::GUEST_BUG)),
    naming(&["hyper-v"], LogKind::GuestBug, AbnormalExit, (Warning, &words::WINDOWS_CRASH)),
    sign(LogKind::GuestBug, &[], AbnormalExit, (Warning, &words::GUEST_BUG)),
    sign(LogKind::SlowInterrupt, &[], HostLockup, (Info, &words::SLOW_INTERRUPT)),
    sign(LogKind::RealtimeThrottled, &[], HostLockup, (Warning, &words::REALTIME_THROTTLED)),
    sign(LogKind::Overheated, &[], HostFrequency, (Warning, &words::OVERHEATED)),
    naming(&["frequency mismatch"], LogKind::HostClock, HostErrors, (Warning, &words::OTHER_TSC)),
    sign(LogKind::HostClock, &[], HostErrors, (Warning, &words::HOST_CLOCK)),
    naming(NO_ANSWER, LogKind::IommuFault, HostErrors, (Warning, &words::IOMMU_NO_ANSWER)),
    naming(&["vfio"], LogKind::IommuFault, HostErrors, (Warning, &words::IOMMU_FAULT)),
    sign(LogKind::IommuFault, &[], HostErrors, (Info, &words::IOMMU_FAULT)),
    sign(LogKind::HardwareError, &[], HostErrors, (Warning, &words::HARDWARE_ERROR)),
    sign(LogKind::TimerIrq, &[], HpetClock, (Info, &words::TIMER_IRQ)),
    sign(LogKind::PacketsDropped, &[], HostErrors, (Warning, &words::PACKETS_DROPPED)),
    sign(LogKind::DiskError, &[28, 122], DiskErrors, (Warning, &words::DISK_FULL)),
    sign(LogKind::DiskError, &[5], DiskErrors, (Warning, &words::DISK_DEVICE)),
    sign(LogKind::DiskError, &[108], DiskErrors, (Warning, &words::DISK_BLOCKED)),
    sign(LogKind::DiskError, &[116], DiskErrors, (Warning, &words::DISK_STALE)),
    sign(LogKind::DiskError, &[], DiskErrors, (Warning, &words::DISK_ERROR)),
    sign(LogKind::HostDisk, &[28], DiskErrors, (Warning, &words::DISK_FULL)),
    sign(LogKind::HostDisk, &[], DiskErrors, (Warning, &words::HOST_DISK)),
    naming(&["qmp command 'guest-"], LogKind::Unexplained, HostErrors, (Info, &words::NO_ANSWER_OF_AGENT)),
    naming(&["acquire state change lock"], LogKind::Unexplained, HostErrors, (Info, &words::NO_ANSWER_OF_QEMU)),
    naming(NO_ANSWER_OF_QEMU, LogKind::Unexplained, HostErrors, (Warning, &words::NO_ANSWER_OF_QEMU)),
    sign(LogKind::Unexplained, &[], HostErrors, (Info, &words::UNEXPLAINED)),
    sign(LogKind::NoKvm, &[], RuleId::NoKvm, (Warning, &words::KVM_ABSENT)),
];

/// What Proxmox says of a QEMU whose main thread is busy or stuck.
const NO_ANSWER_OF_QEMU: &[&str] = &["qmp socket", "qmp command '*' failed - got timeout"];
/// Parts of the names of functions that wait for other CPUs and their locks.
const OTHER_CPUS: &[&str] = &["smp_call_function", "flush_tlb", "csd_lock", "multi_cpu_stop", "spin_lock", "queued_"];
/// The same for a change of a guest's memory map.
const MEMSLOTS: &[&str] = &["synchronize_srcu", "kvm_swap_active_memslots"];
/// The same for a change that KVM itself makes while a vCPU runs.
const OWN_MEMSLOTS: &[&str] = &["avic_", "apicv", "x86_set_memory_region"];
/// The same for free memory; the first are the words of XFS.
const MEMORY: &[&str] = &["allocation deadlock", "shrink_", "reclaim", "compact_zone", "alloc_pages_slow", "swap"];
/// The same for a file system or a device.
const STORAGE: &[&str] = &[
    "io_sched", "blk_", "bio", "wait_on_", "folio", "iomap", "nfs", "rpc_", "ceph_", "rbd_", "xfs_", "ext4_", "jbd2_",
    "btrfs_", "gfs2", "ocfs2", "fuse_", "zfs", "zio_", "dm_", "scsi_", "nvme_", "fsync",
];

/// The sign that a line is.
fn of_line(line: &LogLine) -> Option<&'static Sign> {
    // Most kinds have no names.
    let text = LazyCell::new(|| {
        // Of a report with a stack the functions count. What comes before them names threads and programs.
        let is_stack = matches!(line.kind, LogKind::Lockup | LogKind::HungTask);
        let text = if is_stack { line.text.split_once(" … ").map_or("", |(_, stack)| stack) } else { &line.text };
        // Names of files are not causes; those of devices are.
        let words = text.split_whitespace().filter(|word| !word.contains('/') || word.contains("/dev/"));
        words.collect::<Vec<_>>().join(" ").to_ascii_lowercase()
    });
    SIGNS.iter().filter(|sign| sign.kind == line.kind).find(|sign| {
        let is_coded = sign.codes.is_empty() || line.data.is_some_and(|code| sign.codes.contains(&code));
        let is_named = |name: &&str| name.split('*').all(|part| text.contains(part));
        is_coded && (sign.names.is_empty() || sign.names.iter().any(is_named))
    })
}

/// Whether an exact sign of the same kind is there, which says more than this general one.
fn is_said(general: &Incident, all: &[&'static Incident]) -> bool {
    if *general == words::UNEXPLAINED {
        return all.iter().any(|incident| *incident != general);
    }
    let is_general = |sign: &&Sign| sign.event.1 == general && sign.codes.is_empty() && sign.names.is_empty();
    let is_exact = |sign: &Sign| sign.event.1 != general && all.contains(&sign.event.1);
    SIGNS.iter().filter(is_general).any(|of| SIGNS.iter().any(|sign| sign.kind == of.kind && is_exact(sign)))
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
    /// The guests and processes that lines of the log name, and the seconds of these.
    guests: BTreeSet<String>,
    processes: BTreeSet<String>,
    seconds: BTreeSet<Option<u64>>,
}

impl Incidents {
    /// How many guests or processes it concerns, if several, and the same with their names and whether it was at once.
    /// A guest may be named in one line and its process in another, and a guest that starts again is a new process.
    fn several(&self) -> Option<(String, String)> {
        let (of, what) =
            [(&self.processes, "processes"), (&self.guests, "guests")].into_iter().max_by_key(|(of, _)| of.len())?;
        let names = of.iter().take(MAX_PLACES).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if of.len() > MAX_PLACES { ", …" } else { "" };
        let at_once = self.seconds.len() == 1 && !self.seconds.contains(&None);
        let cause = if at_once { ", all within a second: look for one cause, on the host" } else { "" };
        let count = format!("{} {what}", of.len());
        (of.len() > 1).then(|| (count.clone(), format!("{count}: {names}{more}{cause}")))
    }
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
    let told = lines.filter_map(|line| line.data).filter(|code| *code < no_kvm::NO_EXTENSION || !works);
    let code = told.max_by_key(|code| (*code != no_kvm::EMULATED, *code));
    let is_absent = !ctx.is_file() && !works && facts.arch == "x86_64";
    match code.or(is_absent.then_some(no_kvm::ABSENT))? {
        no_kvm::DENIED => Some(&words::KVM_DENIED),
        no_kvm::BUSY => Some(&words::KVM_BUSY),
        no_kvm::EMULATED => Some(&words::KVM_UNUSED),
        _ if facts.virtualised == Some(true) => Some(&words::KVM_NOT_NESTED),
        no_kvm::NO_EXTENSION => Some(&words::KVM_NO_EXTENSION),
        no_kvm::OFF_IN_FIRMWARE => Some(&words::KVM_OFF),
        _ => Some(&words::KVM_ABSENT),
    }
}

/// Whether anything that ended or broke a guest is known.
pub(super) fn something_broke(ctx: &Context<'_>) -> bool {
    let mut lines = ctx.model.host.kernel_log.iter().filter(|line| is_recent(ctx, line));
    lines.any(|line| of_line(line).is_some_and(|sign| matches!(sign.rule, AbnormalExit | GuestKilled)))
        || ctx.guests.iter().any(|guest| !by_exits(ctx, guest).all.is_empty())
}

/// Reports the events of each guest as one finding, with those of the rule's lines in the host's log.
fn report(ctx: &Context<'_>, counts: Counts, mut all: ByGuest, verdicts: &mut Verdicts) {
    add_log_lines(ctx, verdicts.rule(), counts, &mut all);
    for (owner, events) in all {
        let given: Vec<&Incident> = events.all.iter().map(|event| event.1).collect();
        let exact = events.all.iter().filter(|event| !is_said(event.1, &given));
        let Some((severity, worst, _)) = exact.clone().min_by_key(|event| Reverse(event.0)) else { continue };
        let (severity, mut all, mut see, mut fix) = (*severity, vec![*worst], Vec::new(), Vec::new());
        let (mut means, mut causes, mut said) = (Vec::new(), Vec::new(), Vec::new());
        join(&mut all, exact.map(|event| event.1).collect());
        for incident in all {
            join(&mut see, incident.links.iter().map(|link| (*link).to_owned()).collect());
            join(&mut fix, vec![fixes::advice(incident.next)]);
            join(&mut means, vec![incident.means]);
            join(&mut causes, incident.causes.split("; ").collect());
        }
        if ctx.is_file() && (verdicts.rule() == HostMemoryPressure || worst.links == [links::OOM]) {
            // The only guest that is described, though the log names its process alone.
            let guest = owner.or((ctx.guests.len() == 1).then_some(0)).and_then(|i| ctx.guests.get(i));
            let (beside, change) = memory_beside(ctx, guest);
            said.extend(beside);
            // A limit of a cgroup, or a host without memory, stays what it is.
            if verdicts.rule() == HostMemoryPressure || **worst == words::KILLED_ON_NODES {
                fix.splice(0..0, change);
            }
        }
        let mut title = worst.title.to_owned();
        let several = events.several().map(|(count, text)| {
            title = format!("{title} ({count})");
            text
        });
        let (problem, is_open) = (worst.problem.into(), **worst == words::UNEXPLAINED);
        let why = format!("{}. Likely causes, the likeliest first: {}", means.join(". "), causes.join("; "));
        let sure = if **worst == words::STOOD_STILL { Confidence::Medium } else { Confidence::High };
        let (shown, confidence) = if is_open { (MAX_PLACES, Confidence::Low) } else { (usize::MAX, sure) };
        let more = events.all.len().saturating_sub(shown);
        said.extend((more > 0).then(|| format!("lines of {more} more kinds")));
        let seen = events.all.into_iter().map(|event| event.2).take(shown);
        let evidence = several.into_iter().chain(seen).chain(said).chain(logs(ctx, owner)).collect();
        let found = Finding::new(severity, confidence, evidence, fix);
        verdicts.find_of(ctx, owner, Finding { title, problem, why, see, marks: events.marks, ..found });
    }
}

/// What the files say of the memory of a guest and of its host, and a change of the guest's setting that helps.
fn memory_beside(ctx: &Context<'_>, guest: Option<&GuestContext<'_>>) -> (Vec<String>, Vec<Fix>) {
    let own = guest.and_then(|guest| guest.config.memory);
    let available = ctx.param("memory.available").or(ctx.param("memory.free")).zip(ctx.param("memory.total"));
    let mut said = known([
        own.map(|memory| format!("the configuration gives the guest {} of memory", bytes(memory))),
        available.map(|(available, total)| format!("free printed: {available} available, {total} in all")),
    ]);
    let Some((guest, nodes)) = guest.and_then(|guest| Some((guest, guest.config.numa.nodes.as_ref()?))) else {
        return (said, Vec::new());
    };
    let other_mode = guest.config.numa.mode.as_deref().filter(|mode| *mode != "strict");
    let bound = match other_mode {
        Some(mode) => format!("comes from node {nodes} (<numatune>, mode {mode})"),
        None => format!("is bound to node {nodes} (<numatune>, policy=bind)"),
    };
    said.push(format!("the memory of {} {bound}", guest.name()));
    for node in nodes.iter() {
        let [size, free] = ["size", "free"].map(|what| ctx.param(&format!("numa.node{node}.{what}:")));
        said.extend(size.zip(free).map(|(size, free)| format!("node {node} has {size}, {free} of it free")));
    }
    let element = format!("<numatune>\n  <memory mode='preferred' nodeset='{nodes}'/>\n</numatune>");
    // libvirt before 9.3 refuses to prefer several.
    let is_one = nodes.len() == 1 && other_mode.is_none();
    let fix = is_one.then(|| fixes::setting(guest, element, "policy=preferred in the place of policy=bind"));
    let fix = fix.into_iter().flatten();
    (said, fix.map(|fix| fix.needing("takes memory of other nodes when these are full; at its next start")).collect())
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
            let on = exits.vcpu.map_or_else(String::new, |vcpu| format!(" on vCPU {vcpu}"));
            let text = format!("{} {reasons} exits{on} {over}", figure(exits.count as f64));
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
    let no_kvm = if rule == RuleId::NoKvm { no_kvm_cause(ctx) } else { None }.map(|cause| (Warning, cause));
    let still = stood_still(ctx);
    let event = |line: &LogLine| {
        let sign = of_line(line).filter(|sign| sign.rule == rule)?;
        match line.kind {
            LogKind::NoKvm => no_kvm,
            _ if still.contains(&(line.data, second(line))) => Some((Warning, &words::STOOD_STILL)),
            _ => Some(sign.event),
        }
    };
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
    // One interrupt shows no clock.
    let is_sole = |lines: &[&LogLine]| matches!(lines, [line] if line.kind == LogKind::TimerIrq);
    for (_, lines) in alike.iter().filter(|(new, lines)| *new && !is_sole(lines)) {
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
        let events = all.entry(owner).or_default();
        events.all.push((severity, incident, text));
        if owner.is_none() && NAME_A_GUEST.contains(&first.kind) {
            events.guests.extend(lines.iter().filter_map(|line| line.guest.clone()));
            events.processes.extend(lines.iter().filter_map(|line| line.pid).map(|pid| format!("PID {pid}")));
            events.seconds.extend(lines.iter().map(|line| second(line)));
        }
    }
}

/// The kinds of lines whose process is a guest's, not a thread.
const NAME_A_GUEST: [LogKind; 4] =
    [LogKind::InternalError, LogKind::EntryFailed, LogKind::EmulationFailure, LogKind::KilledForMemory];

/// The second of a line.
fn second(line: &LogLine) -> Option<u64> {
    line.time_s.map(|at| at as u64)
}

/// The lengths and times of lockups that several CPUs reported at once and once only: no CPU hung by itself, but the
/// machine did not run, or its clock jumped. A CPU that hangs is reported again.
fn stood_still(ctx: &Context<'_>) -> BTreeSet<(Option<u64>, Option<u64>)> {
    let mut reported: BTreeMap<_, (Option<u64>, Option<u64>)> = BTreeMap::new();
    for line in &ctx.model.host.kernel_log {
        let is_lockup = matches!(line.kind, LogKind::Lockup | LogKind::OtherLockup | LogKind::GuestLockup);
        let cpu = line.text.split_once("CPU#").filter(|_| is_lockup).map(|(_, rest)| rest);
        if let Some(cpu) = cpu.and_then(|rest| rest.split(' ').next()) {
            // A post may quote a line in its title.
            let first = reported.entry((cpu, line.time_s.is_some())).or_insert((line.data, second(line)));
            let between = second(line).unwrap_or_default().saturating_sub(first.1.unwrap_or_default());
            if line.data > first.0.max(Some(between)) {
                first.0 = None;
            }
        }
    }
    let late = reported.values().filter(|(seconds, _)| *seconds >= Some(STOOD_STILL_S));
    let mut seen = BTreeSet::new();
    late.filter(|report| !seen.insert(**report)).copied().collect()
}

/// The commands that show more about an event, where no log is at hand: on a running host the kernel's newest lines are
/// all that is read.
fn logs(ctx: &Context<'_>, owner: Option<usize>) -> impl Iterator<Item = String> {
    let is_read = ctx.is_file() && !ctx.model.host.kernel_log.is_empty();
    let guest = owner.and_then(|i| ctx.guests.get(i)).filter(|guest| guest.config.libvirt != Some(false));
    let file = guest.map(GuestContext::name).filter(|name| is_plain_name(name) && !is_made(name));
    let of_qemu = file.map(|file| format!("look at: tail -n 50 /var/log/libvirt/qemu/{file}.log"));
    of_qemu.into_iter().chain(["look at: journalctl -k".into()]).filter(move |_| !is_read)
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
        (LogKind::InternalError, 4) => "suberror 4: an exit reason that KVM does not expect",
        (LogKind::EntryFailed, 0x8000_0021) => "reason 0x80000021: invalid guest state",
        (LogKind::EntryFailed, 0x8000_0022) => "reason 0x80000022: the guest's MSRs could not be loaded",
        (LogKind::EntryFailed, 0x8000_0029) => "reason 0x80000029: a machine check of the hardware",
        (LogKind::EntryFailed, 0xffff_ffff | u64::MAX) => "AMD's VMEXIT_INVALID: invalid guest state",
        _ => return None,
    })
}
