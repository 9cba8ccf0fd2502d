//! Events that end or break a guest, or that the host's log tells of: which signs stand for which event ([`signs`]),
//! where they are seen ([`by_exits`], [`by_log`]), and the finding that they make.

mod by_exits;
mod by_log;
mod signs;
pub(super) mod texts;

use crate::figures::bytes;
use crate::lint::engine::finding::is_made;
use crate::lint::engine::grouping::join;
use crate::lint::fixes::shell::is_plain_name;
use crate::lint::prelude::*;
use by_exits::by_exits;
use by_log::{add_log_lines, is_new, is_recent};
use kvm::kernel_log::{LogKind, LogLine, no_kvm};
use signs::{is_said, of_line};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use texts::Incident;

/// Places of failures, guests and kinds of unexplained lines that evidence names.
const MAX_PLACES: usize = 4;

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
pub(super) fn logged(ctx: &Context<'_>, verdicts: &mut Verdicts) {
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
        no_kvm::DENIED => Some(&texts::KVM_DENIED),
        no_kvm::BUSY => Some(&texts::KVM_BUSY),
        no_kvm::EMULATED => Some(&texts::KVM_UNUSED),
        _ if facts.virtualised == Some(true) => Some(&texts::KVM_NOT_NESTED),
        no_kvm::NO_EXTENSION => Some(&texts::KVM_NO_EXTENSION),
        no_kvm::OFF_IN_FIRMWARE => Some(&texts::KVM_OFF),
        _ => Some(&texts::KVM_ABSENT),
    }
}

/// Whether anything that ended or broke a guest is known.
pub(super) fn something_broke(ctx: &Context<'_>) -> bool {
    let mut lines = ctx.model.host.kernel_log.iter().filter(|line| is_recent(ctx, line));
    lines.any(|line| of_line(line).is_some_and(|sign| matches!(sign.rule, RuleId::AbnormalExit | RuleId::GuestKilled)))
        || ctx.guests.iter().any(|guest| !by_exits(ctx, guest).all.is_empty())
}

/// Reports the events of each guest, also from the rule's lines in the host's log, as one finding.
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
        if ctx.is_file() && (verdicts.rule() == RuleId::HostMemoryPressure || worst.links == [links::OOM]) {
            // The only guest that is described, though the log names its process alone.
            let guest = owner.or((ctx.guests.len() == 1).then_some(0)).and_then(|i| ctx.guests.get(i));
            let (beside, change) = memory_beside(ctx, guest);
            said.extend(beside);
            // A limit of a cgroup, or a host without memory, stays what it is.
            if verdicts.rule() == RuleId::HostMemoryPressure || **worst == texts::KILLED_ON_NODES {
                fix.splice(0..0, change);
            }
        }
        let mut title = worst.title.to_owned();
        let several = events.several().map(|(count, text)| {
            title = format!("{title} ({count})");
            text
        });
        let (problem, is_open) = (worst.problem.into(), **worst == texts::UNEXPLAINED);
        let why = format!("{}. Likely causes, the likeliest first: {}", means.join(". "), causes.join("; "));
        let sure = if **worst == texts::STOOD_STILL { Confidence::Medium } else { Confidence::High };
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

/// The commands that show more about an event, where no log is at hand: on a running host the kernel's newest lines are
/// all that is read.
fn logs(ctx: &Context<'_>, owner: Option<usize>) -> impl Iterator<Item = String> {
    let is_read = ctx.is_file() && !ctx.model.host.kernel_log.is_empty();
    let guest = owner.and_then(|i| ctx.guests.get(i)).filter(|guest| guest.config.libvirt != Some(false));
    let file = guest.map(GuestContext::name).filter(|name| is_plain_name(name) && !is_made(name));
    let of_qemu = file.map(|file| format!("look at: tail -n 50 /var/log/libvirt/qemu/{file}.log"));
    of_qemu.into_iter().chain(["look at: journalctl -k".into()]).filter(move |_| !is_read)
}
