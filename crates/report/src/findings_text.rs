//! Findings as text.

use super::View;
use super::table::{cut, wrapped};
use judge::figures::seconds;
use judge::lint::{CannotTell, Finding, FixKind, Lasting, RuleId, StillWatched, is_command};
use judge::model::HostModel;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The findings in full, or `no findings`; then the rules that could not be judged, and why.
pub fn all(view: &View<'_>, columns: usize) -> String {
    let mut said: Vec<&Finding> = Vec::new();
    let text = |f| {
        let text = one(f, &said, columns);
        said.push(f);
        text
    };
    let all: Vec<_> = view.selected_findings().map(text).collect();
    let is_young = view.selected_watching().any(StillWatched::is_every_rule);
    let notes = &view.findings.notes;
    let judged_all =
        view.selected_cannot_tell().next().is_none() && view.model.host.unjudged_lines().is_none() && notes.is_empty();
    let mut out = match (all.is_empty(), is_young) {
        (true, true) => "no findings yet: not enough has been seen\n".to_string(),
        (true, false) if judged_all => "no findings\n".to_string(),
        (true, false) => "no findings in what could be judged\n".to_string(),
        (false, _) => all.join("\n"),
    };
    let (cannot_tell, watching): (Vec<_>, Vec<_>) =
        (view.selected_cannot_tell().collect(), view.selected_watching().collect());
    let notes = notes.iter().map(|note| format!("note: {note}"));
    let unjudged = unjudged(&cannot_tell, &watching, &view.model.host, MAX_NAMES);
    for sentence in unjudged.iter().map(Unjudged::sentence).chain(notes) {
        out.push_str(&wrapped(&sentence, 12, columns));
    }
    out
}

/// Something that could not be judged, or not yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unjudged {
    /// What is said of it: `not judged`.
    pub label: String,
    /// What it is, and why: `disk-latency of web-1: the host's block devices are not timed`.
    pub text: String,
}

impl Unjudged {
    fn new(label: impl Into<String>, text: String) -> Self {
        Self { label: label.into(), text }
    }

    /// Both parts.
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.label, self.text)
    }
}

/// What could not be judged or has not been watched for long enough, one for each reason, with at most `max_names`
/// guests or rules in a row.
pub fn unjudged(
    cannot_tell: &[&CannotTell],
    watching: &[&StillWatched],
    host: &HostModel,
    max_names: usize,
) -> Vec<Unjudged> {
    // Often one reason stops many rules.
    let mut by_reason: BTreeMap<&str, (BTreeSet<&str>, BTreeSet<&str>)> = BTreeMap::new();
    let watched: BTreeSet<&str> = watching.iter().map(|w| w.because.as_str()).collect();
    for c in cannot_tell.iter().filter(|c| !watched.contains(c.because.as_str())) {
        let (rules, guests) = by_reason.entry(&c.because).or_default();
        rules.extend(Some(c.rule).filter(|r| *r != RuleId::Every).map(RuleId::as_str));
        guests.extend(c.domain.as_deref());
    }
    let mut all = Vec::new();
    for (because, (rules, guests)) in by_reason {
        let of = if guests.is_empty() { String::new() } else { format!(" of {}", list(&guests, max_names)) };
        let what = if rules.is_empty() { "behaviour".to_string() } else { list(&rules, max_names) };
        all.push(Unjudged::new("not judged", format!("{what}{of}: {}", cut(because, 300))));
    }
    all.extend(still_watched(watching, max_names));
    match host.unjudged_lines() {
        Some((1, line)) => all.push(Unjudged::new("1 line about KVM was not judged", cut(line, 300))),
        Some((n, first)) => {
            all.push(Unjudged::new(format!("{n} lines about KVM were not judged; the first"), cut(first, 300)));
        }
        None => {}
    }
    all
}

/// Where not enough has been seen yet, one for each reason.
fn still_watched(watching: &[&StillWatched], max_names: usize) -> Vec<Unjudged> {
    const LABEL: &str = "still watched";
    let mut by_reason: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for w in watching {
        by_reason.entry(&w.because).or_default().insert(w.domain.as_deref().unwrap_or("host"));
    }
    let mut all = Vec::new();
    for (because, who) in by_reason.iter().take(MAX_NAMES) {
        all.push(Unjudged::new(LABEL, format!("{}: {}", list(who, max_names), cut(because, 300))));
    }
    let more = by_reason.len().saturating_sub(MAX_NAMES);
    if more > 0 {
        all.push(Unjudged::new(LABEL, format!("{more} more")));
    }
    all
}

/// Where not enough has been seen yet, a line each reason.
pub(super) fn watching(view: &View<'_>, columns: usize) -> String {
    still_watched(&view.selected_watching().collect::<Vec<_>>(), MAX_NAMES)
        .iter()
        .map(|unjudged| wrapped(&unjudged.sentence(), 12, columns))
        .collect()
}

/// Names of guests or rules, divided by commas.
fn list(names: &BTreeSet<&str>, max_names: usize) -> String {
    let named = names.iter().take(max_names).map(|n| cut(n, 48));
    let more = (names.len() > max_names).then(|| format!("and {} more", names.len() - max_names));
    named.chain(more).collect::<Vec<_>>().join(", ")
}

/// The guest that a finding is about, or the host.
pub(super) fn who(f: &Finding) -> String {
    f.domain.as_deref().map_or_else(|| "host".to_string(), |d| cut(d, 48))
}

/// How steadily a finding held, in words.
pub fn lasting(l: &Lasting) -> String {
    let mut out = format!("shown in {} of the last {}", seconds(l.shown_s), seconds(l.of_s));
    if l.ago_s > 0.0 {
        let _ = write!(out, ", last {} ago", seconds(l.ago_s));
    }
    if let Some(worst) = &l.worst {
        let _ = write!(out, "; at worst: {}", cut(worst, 300));
    }
    out
}

/// The most findings whose fixes are compared.
const MAX_COMPARED: usize = 256;
/// The most guests or rules that one line names.
const MAX_NAMES: usize = 64;
/// A finding in one line: severity, guest, title, most important figure.
pub fn line(f: &Finding) -> String {
    let figure = f.figure().map(|e| format!(": {}", cut(e, 200))).unwrap_or_default();
    format!("{:<8} {}: {}{figure} [{}]", f.severity.as_str(), who(f), cut(&f.title, 200), f.rule)
}

/// Text to paste: its indentation is kept, and no real line of XML or of a command is cut.
fn paste(out: &mut String, text: &str) {
    text.lines().for_each(|line| out.push_str(&format!("          {}\n", kvm::sanitize(line, 4096))));
}

/// A finding in full. What mends it too and was `said` of another one is not printed again.
fn one(f: &Finding, said: &[&Finding], columns: usize) -> String {
    let prose = |text: &str| wrapped(text, 8, columns);
    let title = f.title.strip_suffix(&format!(" ({})", who(f))).unwrap_or(&f.title);
    let mut out = wrapped(&format!("{:<8} {}: {}", f.severity.as_str(), who(f), cut(title, 400)), 9, columns);
    let rules: Vec<&str> = [&f.rule].into_iter().chain(&f.folded).map(|rule| rule.as_str()).collect();
    out.push_str(&prose(&format!("  rule  {}, {} confidence", rules.join(" + "), f.confidence.as_str())));
    for (i, e) in f.evidence.iter().enumerate() {
        let line = format!("  {}  {}", if i == 0 { "seen" } else { "    " }, cut(e, 500));
        // A command stays on one line, so that it can be pasted.
        out.push_str(&if is_command(e) { line + "\n" } else { prose(&line) });
    }
    if let Some(l) = &f.lasting {
        out.push_str(&prose(&format!("        {}", lasting(l))));
    }
    if !f.why.is_empty() {
        out.push_str(&prose(&format!("  why   {}", cut(&f.why, 2000))));
    }
    let is_long = f.fix.iter().any(|fix| fix.kind != FixKind::Advice);
    let same = said.iter().take(MAX_COMPARED).find(|other| is_long && other.domain == f.domain && other.fix == f.fix);
    if let Some(same) = same {
        out.push_str(&prose(&format!("  fix   the same as above for: {}", cut(&same.title, 400))));
    }
    for fix in f.fix.iter().filter(|_| same.is_none()) {
        let needs = fix.needs.as_deref().map(|n| format!(" ({})", cut(n, 300))).unwrap_or_default();
        if fix.kind == FixKind::Advice {
            out.push_str(&prose(&format!("  fix   {}{needs}", cut(&fix.text, 2000))));
            continue;
        }
        out.push_str(&prose(&format!("  fix   {}{needs}", cut(&fix.place(), 300))));
        paste(&mut out, &fix.text);
        if let Some(undo) = &fix.undo {
            out.push_str("  undo  run\n");
            paste(&mut out, undo);
        }
    }
    for s in &f.see {
        out.push_str(&prose(&format!("  see   {}", cut(s, 300))));
    }
    out
}
