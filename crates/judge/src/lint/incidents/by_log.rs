//! Events that lines of the host's log are signs of.

use super::signs::of_line;
use super::texts;
use super::{ByGuest, Counts, no_kvm_cause};
use crate::lint::prelude::*;
use kvm::kernel_log::{LogKind, LogLine};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Maximum age of a log line that counts on a running host, seconds: users open kvmtop to find recent events.
const RECENT_S: f64 = 3600.0;
/// A CPU that hangs is first reported after 20 s or a little more. One that did not run is reported late, seconds.
const STOOD_STILL_S: u64 = 30;

/// The words of a line without its figures, by which lines of one event are alike.
fn words_of(line: &LogLine) -> String {
    let words = line.text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| !word.bytes().any(|b| b.is_ascii_digit())).collect::<Vec<_>>().join(" ")
}

/// Adds the lines of the host's log that are signs of events, by guest. Where one `counts`, the recent ones like it are
/// evidence too.
pub(super) fn add_log_lines(ctx: &Context<'_>, rule: RuleId, counts: Counts, all: &mut ByGuest) {
    let no_kvm = if rule == RuleId::NoKvm { no_kvm_cause(ctx) } else { None }.map(|cause| (Severity::Warning, cause));
    let still = stood_still(ctx);
    let event = |line: &LogLine| {
        let sign = of_line(line).filter(|sign| sign.rule == rule)?;
        match line.kind {
            LogKind::NoKvm => no_kvm,
            _ if still.contains(&(line.data, second(line))) => Some((Severity::Warning, &texts::STOOD_STILL)),
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
        if first.text.contains("\" lock")
            && let Some(sharer) = owner.and_then(|owner| sharer(ctx, owner))
        {
            text = text + "; " + &sharer;
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

/// Another guest whose XML has a disk image of this one.
fn sharer(ctx: &Context<'_>, owner: usize) -> Option<String> {
    let images = |at: usize| {
        let xml = ctx.guests.get(at).and_then(|guest| guest.domain.facts.xml_text.as_deref()).unwrap_or_default();
        let paths = xml.split("<source file=").skip(1).filter_map(|path| path.get(1..)?.split(['\'', '"']).next());
        paths.filter(|path| !path.contains(".iso")).collect::<Vec<_>>()
    };
    let own = images(owner);
    let shared = |at: usize| images(at).into_iter().find(|path| own.contains(path));
    let mut others = (0..ctx.guests.len()).filter(|at| *at != owner);
    let (name, path) = others.find_map(|at| Some((ctx.guests.get(at)?.name(), shared(at)?)))?;
    Some(format!("{name} has the image {path} as well"))
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

/// On a running host a line is an event: it counts when it appears, not for as long as the log holds it. Of what
/// happened before kvmtop started, only what is about a guest that runs counts, and recent reports of the kernel that
/// name no guest by their nature.
pub(super) fn is_new(ctx: &Context<'_>, line: &LogLine) -> bool {
    let old = line.time_s.zip(ctx.log_judged_s).is_some_and(|(at, judged)| at <= judged);
    let watched = ctx.log_judged_s.is_some() || matches!(line.kind, LogKind::EntryFailed | LogKind::KernelBug);
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
        (LogKind::InternalError, 4) => "suberror 4: an exit reason that KVM does not expect",
        (LogKind::EntryFailed, 0x8000_0021) => "reason 0x80000021: invalid guest state",
        (LogKind::EntryFailed, 0x8000_0022) => "reason 0x80000022: the guest's MSRs could not be loaded",
        (LogKind::EntryFailed, 0x8000_0029) => "reason 0x80000029: a machine check of the hardware",
        (LogKind::EntryFailed, 0xffff_ffff | u64::MAX) => "AMD's VMEXIT_INVALID: invalid guest state",
        _ => return None,
    })
}
