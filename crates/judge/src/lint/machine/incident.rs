//! Events that end or break a guest: how a rule collects them from exits and from the host's log, and reports them.

use super::texts;
use crate::lint::context::Context;
use crate::lint::engine::finding::{Confidence, Finding, Mark, Severity, Target};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;
use kvm::kernel_log::{INCOMING_MIGRATION, LogKind, LogLine};
use std::collections::BTreeMap;

/// Maximum age of a log line that counts on a running host, seconds: users open kvmtop to find recent events.
const RECENT_S: f64 = 3600.0;

/// The texts that describe such an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Incident {
    /// The finding's title, if it is the worst event.
    pub title: &'static str,
    /// A name in the plural, for evidence.
    pub what: &'static str,
    /// What it means, in one sentence without its full stop.
    pub means: &'static str,
    /// Likely causes, the likeliest first.
    pub causes: &'static str,
    /// What to look at next.
    pub next: &'static str,
    /// What else helps where the guest has this vendor's KVM, this VMM or this manager, an advice each.
    pub more: &'static [&'static str],
    /// Documents about it.
    pub links: &'static [&'static str],
}

/// The events of one guest, or of the host.
#[derive(Default)]
pub(super) struct Incidents {
    worst: Option<(Severity, &'static Incident)>,
    all: Vec<&'static Incident>,
    evidence: Vec<String>,
    marks: Vec<Mark>,
}

impl Incidents {
    pub fn add(&mut self, severity: Severity, incident: &'static Incident, evidence: String) {
        if self.worst.is_none_or(|(worst, _)| severity > worst) {
            self.worst = Some((severity, incident));
        }
        self.evidence.push(evidence);
        if !self.all.contains(&incident) {
            self.all.push(incident);
        }
    }

    pub fn mark(&mut self, marks: Vec<Mark>) {
        self.marks.extend(marks);
    }
}

/// Events by the index of their guest; `None` where the guest is unknown or gone.
pub(super) type ByGuest = BTreeMap<Option<usize>, Incidents>;

/// Reports the events of each guest as one finding.
pub(super) fn report(ctx: &Context<'_>, all: ByGuest, verdicts: &mut Verdicts) {
    for (owner, mut events) in all {
        let Some((severity, worst)) = events.worst else { continue };
        events.all.sort_by_key(|incident| *incident != worst);
        events.evidence.push(texts::CHECK_INCIDENT.into());
        let why: Vec<String> = events
            .all
            .iter()
            .map(|i| format!("{}. Likely causes, the likeliest first: {}", i.means, i.causes))
            .collect();
        let finding = Finding {
            severity,
            confidence: Confidence::High,
            title: worst.title.into(),
            why: why.join(". "),
            evidence: events.evidence,
            fix: events
                .all
                .iter()
                .flat_map(|i| [i.next].into_iter().chain(i.more.iter().copied()))
                .map(fixes::advice)
                .collect(),
            marks: events.marks,
            see: links(&events.all),
            ..Finding::default()
        };
        match owner.and_then(|i| Some((i, ctx.guests.get(i)?))) {
            Some((i, guest)) => verdicts.find_for(i, guest, finding),
            None => verdicts.find(Finding { target: Target::Host, ..finding }),
        }
    }
}

/// The documents about these events, each once.
fn links(all: &[&Incident]) -> Vec<String> {
    let mut links: Vec<String> = Vec::new();
    for link in all.iter().flat_map(|incident| incident.links) {
        if !links.iter().any(|known| known == link) {
            links.push((*link).to_owned());
        }
    }
    links
}

/// Lines of one guest, kind and cause: how many there are, whether one of them is new, the first and the last.
struct LikeLines<'l> {
    count: u64,
    new: bool,
    first: &'l LogLine,
    last: &'l LogLine,
}

/// Adds the lines of the host's log that `words` has words for, by guest. Where one `counts`, the recent ones like it
/// are evidence too.
pub(super) fn add_log_lines(
    ctx: &Context<'_>,
    counts: impl Fn(&LogLine) -> bool,
    words: impl Fn(LogKind, Option<u64>) -> Option<(Severity, &'static Incident)>,
    all: &mut ByGuest,
) {
    let mut lines: BTreeMap<(Option<usize>, LogKind, Option<u64>), LikeLines<'_>> = BTreeMap::new();
    for line in ctx.model.host.kernel_log.iter().filter(|l| words(l.kind, l.data).is_some()) {
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
        let key = (owner(ctx, line), line.kind, cause);
        let like = lines.entry(key).or_insert(LikeLines { count: 0, new: false, first: line, last: line });
        (like.count, like.new, like.last) = (like.count + 1, like.new || new, line);
        // libvirt cites all that QEMU said; its warnings come before the error.
        if like.first.text.contains("warning: ") && !line.text.contains("warning: ") {
            like.first = line;
        }
    }
    for ((owner, kind, cause), like) in lines {
        let Some((severity, incident)) = words(kind, cause).filter(|_| like.new) else { continue };
        let events = all.entry(owner).or_default();
        let text = texts::logged(like.count, incident.what, &like.first.text, &like.last.text);
        events.add(
            severity,
            incident,
            cause.and_then(|c| texts::cause(kind, c)).map_or(text.clone(), |c| text + "; " + c),
        );
    }
}

/// Whether a line was logged within the last hour, or comes from a file.
pub(super) fn is_recent(ctx: &Context<'_>, line: &LogLine) -> bool {
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
