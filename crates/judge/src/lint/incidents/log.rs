//! Events that lines of the host's log are signs of.

use super::texts::{self, Incident};
use super::{ByGuest, no_kvm_cause};
use crate::lint::facts::Context;
use crate::lint::facts::finding::Severity::{self, Critical, Warning};
use crate::lint::facts::rule_id::RuleId::{
    self, AbnormalExit, DiskErrors, GuestKilled, HostFrequency, HostLockup, NoKvm,
};
use kvm::kernel_log::{CGROUP_LIMIT, LogKind, LogLine, NODE_LIMIT};
use std::collections::HashMap;

/// Maximum age of a log line that counts on a running host, seconds: users open kvmtop to find recent events.
const RECENT_S: f64 = 3600.0;

/// Whether a line of the log counts.
pub(super) type LineFilter = fn(&Context<'_>, &LogLine) -> bool;

/// What a line of the log stands for.
struct Sign {
    kind: LogKind,
    /// The figure of the line: a suberror of [`LogKind::InternalError`] (`KVM_INTERNAL_ERROR_…` in
    /// include/uapi/linux/kvm.h), the scope of an OOM kill, an errno. `None`: any.
    code: Option<u64>,
    /// Words of which the line has to contain one. Empty: any line.
    names: &'static [&'static str],
    rule: RuleId,
    severity: Severity,
    incident: &'static Incident,
}

const fn sign(kind: LogKind, rule: RuleId, severity: Severity, incident: &'static Incident) -> Sign {
    Sign { kind, code: None, names: &[], rule, severity, incident }
}

impl Sign {
    const fn coded(self, code: u64) -> Self {
        Self { code: Some(code), ..self }
    }

    const fn naming(self, names: &'static [&'static str]) -> Self {
        Self { names, ..self }
    }
}

/// Parts of the names of functions that wait for other CPUs and their locks.
const OTHER_CPUS: &[&str] = &["smp_call_function", "flush_tlb", "csd_lock", "multi_cpu_stop", "spin_lock", "queued_"];
/// The same for a change of a guest's memory map.
const MEMSLOTS: &[&str] = &["synchronize_srcu", "kvm_swap_active_memslots"];
/// The same for free memory.
const MEMORY: &[&str] = &["shrink_", "reclaim", "compact_zone", "alloc_pages_slow", "swap"];
/// The same for a file system or a device.
const STORAGE: &[&str] = &[
    "io_sched", "blk_", "bio", "wait_on_", "folio", "iomap", "nfs", "rpc_", "ceph_", "rbd_", "xfs_", "ext4_", "jbd2_",
    "btrfs_", "gfs2", "ocfs2", "fuse_", "zfs", "zio_", "dm_", "scsi_", "nvme_", "fsync",
];

/// All signs; the first that fits a line counts, so the exact ones of a kind come first.
static SIGNS: &[Sign] = &[
    sign(LogKind::EntryFailed, AbnormalExit, Critical, &texts::ENTRY_FAILED),
    sign(LogKind::SplitLock, AbnormalExit, Warning, &texts::BUS_LOCKS),
    sign(LogKind::InternalError, AbnormalExit, Critical, &texts::EMULATION).coded(1),
    sign(LogKind::InternalError, AbnormalExit, Critical, &texts::INTERNAL_ERROR),
    sign(LogKind::RunFailed, AbnormalExit, Critical, &texts::RUN_FAILED),
    sign(LogKind::EmulationFailure, AbnormalExit, Warning, &texts::EMULATION),
    sign(LogKind::MachineCheck, AbnormalExit, Critical, &texts::MACHINE_CHECK),
    sign(LogKind::KilledForMemory, GuestKilled, Critical, &texts::KILLED_AT_LIMIT).coded(CGROUP_LIMIT),
    sign(LogKind::KilledForMemory, GuestKilled, Critical, &texts::KILLED_ON_NODES).coded(NODE_LIMIT),
    sign(LogKind::KilledForMemory, GuestKilled, Critical, &texts::KILLED_FOR_MEMORY),
    sign(LogKind::Killed, GuestKilled, Critical, &texts::KILLED),
    sign(LogKind::MemoryFailure, GuestKilled, Critical, &texts::MEMORY_FAILURE),
    sign(LogKind::Lockup, HostLockup, Critical, &texts::WAIT_FOR_CPU).naming(OTHER_CPUS),
    sign(LogKind::Lockup, HostLockup, Critical, &texts::LOCKUP),
    sign(LogKind::HungTask, HostLockup, Warning, &texts::HUNG_MEMSLOTS).naming(MEMSLOTS),
    sign(LogKind::HungTask, HostLockup, Warning, &texts::HUNG_MEMORY).naming(MEMORY),
    sign(LogKind::HungTask, HostLockup, Warning, &texts::HUNG_STORAGE).naming(STORAGE),
    sign(LogKind::HungTask, HostLockup, Warning, &texts::HUNG_TASK),
    sign(LogKind::Overheated, HostFrequency, Warning, &texts::OVERHEATED),
    sign(LogKind::HostDisk, DiskErrors, Warning, &texts::DISK_FULL).coded(28),
    sign(LogKind::HostDisk, DiskErrors, Warning, &texts::HOST_DISK),
    sign(LogKind::NoKvm, NoKvm, Warning, &texts::KVM_ABSENT),
];

/// The sign that a line is.
fn sign_of(line: &LogLine) -> Option<&'static Sign> {
    // Of a report with a stack the functions count. What comes before them names threads and programs.
    let is_stack = matches!(line.kind, LogKind::Lockup | LogKind::HungTask);
    let text = if is_stack { line.text.split_once(" … ").map_or("", |(_, stack)| stack) } else { &line.text };
    let text = text.to_ascii_lowercase();
    SIGNS.iter().find(|sign| {
        sign.kind == line.kind
            && (sign.code.is_none() || sign.code == line.data)
            && (sign.names.is_empty() || sign.names.iter().any(|name| text.contains(name)))
    })
}

/// Whether a recent line tells of something that ended or broke a guest.
pub(super) fn tells_of_a_crash(ctx: &Context<'_>) -> bool {
    let mut recent = ctx.model.host.kernel_log.iter().filter(|line| is_recent(ctx, line));
    recent.any(|line| sign_of(line).is_some_and(|sign| matches!(sign.rule, AbnormalExit | GuestKilled)))
}

/// Lines that say the same.
struct AlikeLines<'a> {
    sign: &'static Sign,
    /// Whether one of them counts.
    counts: bool,
    lines: Vec<&'a LogLine>,
}

/// Adds the lines of the host's log that are signs of events, by guest. Where one `counts`, the recent ones like it are
/// evidence too.
pub(super) fn add_log_lines(ctx: &Context<'_>, rule: RuleId, counts: LineFilter, all: &mut ByGuest) {
    let mut alike: Vec<AlikeLines<'_>> = Vec::new();
    let mut places = HashMap::new();
    for line in &ctx.model.host.kernel_log {
        let Some(sign) = sign_of(line).filter(|sign| sign.rule == rule) else { continue };
        let is_counted = counts(ctx, line);
        if !is_counted && !is_recent(ctx, line) {
            continue;
        }
        let key = (ctx.owner(line), line.kind, line.pid, words_of(line));
        let at = *places.entry(key).or_insert(alike.len());
        if at == alike.len() {
            alike.push(AlikeLines { sign, counts: false, lines: Vec::new() });
        }
        alike[at].counts |= is_counted;
        alike[at].lines.push(line);
    }
    alike.sort_by_key(|found| found.lines.first().map(|line| line.kind));
    for found in alike.iter().filter(|found| found.counts) {
        let (Some(first), Some(last)) = (found.lines.first(), found.lines.last()) else { continue };
        let incident = if rule == NoKvm { no_kvm_cause(ctx) } else { Some(found.sign.incident) };
        let Some(incident) = incident else { continue };
        let owner = ctx.owner(first);
        let mut text = match (found.lines.len(), &first.guest) {
            (1, Some(guest)) if owner.is_none() => format!("the log of {guest} says: {}", first.text),
            (1, _) => format!("the log says: {}", first.text),
            (n, _) => format!("the log says {n} times, first: {}; last: {}", first.text, last.text),
        };
        if let Some(cause) = first.data.and_then(|code| code_text(first.kind, code)) {
            text = text + "; " + cause;
        }
        all.entry(owner).or_default().add(found.sign.severity, incident, text);
    }
}

/// The words of a line without its figures, by which lines of one event are alike.
fn words_of(line: &LogLine) -> String {
    let words = line.text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| !word.bytes().any(|b| b.is_ascii_digit())).collect::<Vec<_>>().join(" ")
}

/// On a running host a line is an event: it counts when it appears, not for as long as the log holds it. Of what
/// happened before kvmtop started, only what is about a guest that runs counts, and recent reports of the kernel that
/// name no guest by their nature.
pub(super) fn is_new(ctx: &Context<'_>, line: &LogLine) -> bool {
    let old = line.time_s.zip(ctx.log_judged_s).is_some_and(|(at, judged)| at <= judged);
    let watched = ctx.log_judged_s.is_some() || line.kind == LogKind::EntryFailed;
    ctx.is_file() || !old && (ctx.by_pid(line.pid).is_some() || watched && is_recent(ctx, line))
}

/// Whether a line was logged within the last hour, or comes from a file.
pub(super) fn is_recent(ctx: &Context<'_>, line: &LogLine) -> bool {
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
