//! Findings as text.

use super::View;
use super::table::{cut, wrapped};
use judge::figures::seconds;
use judge::lint::{CannotTell, Finding, Fix, FixKind, Lasting, RuleId, StillWatched, is_command};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

/// The most guests or rules that one line names.
const MAX_NAMES: usize = 64;

/// The findings in full, or `no findings`; then the rules that could not be judged, and why.
pub fn all_findings(view: &View<'_>, columns: usize) -> String {
    let findings: Vec<String> = grouped(view.selected_findings())
        .iter()
        .map(|equal| in_full(equal, columns))
        .collect();
    let cannot_tell: Vec<_> = view.selected_cannot_tell().collect();
    let watching: Vec<_> = view.selected_watching().collect();
    let mut out = if !findings.is_empty() {
        findings.join("\n")
    } else if !watching.is_empty() {
        "no findings yet: not enough has been seen\n".to_string()
    } else {
        "no findings\n".to_string()
    };
    let notes = view
        .findings
        .notes
        .iter()
        .map(|note| format!("note: {note}"));
    let unjudged = unjudged(&cannot_tell, &watching, MAX_NAMES);
    for sentence in unjudged.iter().map(Unjudged::sentence).chain(notes) {
        out.push_str(&wrapped(&sentence, 12, columns));
    }
    out
}

/// Something that could not be judged, or not yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unjudged {
    /// What is said of it: `not judged`.
    pub label: &'static str,
    /// What it is, and why: `disk-latency of web-1: the host's block devices are not timed`.
    pub text: String,
}

impl Unjudged {
    /// Both parts.
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.label, self.text)
    }
}

/// What could not be judged or has not been watched for long enough, one for each reason, with at
/// most `max_names` guests or rules in a row.
pub fn unjudged(
    cannot_tell: &[&CannotTell],
    watching: &[&StillWatched],
    max_names: usize,
) -> Vec<Unjudged> {
    // Often one reason stops many rules, so rules and guests are listed by reason.
    let mut by_reason: BTreeMap<&str, (BTreeSet<&str>, BTreeSet<&str>)> = BTreeMap::new();
    for c in cannot_tell {
        if watching.iter().any(|w| w.because == c.because) {
            continue;
        }
        let (rules, guests) = by_reason.entry(&c.because).or_default();
        rules.insert(if c.rule == RuleId::Every {
            "behaviour"
        } else {
            c.rule.as_str()
        });
        guests.extend(c.domain.as_deref());
    }
    let mut entries = Vec::new();
    for (because, (rules, guests)) in by_reason {
        let of_guests = if guests.is_empty() {
            String::new()
        } else {
            format!(" of {}", joined(&guests, max_names))
        };
        let text = format!(
            "{}{of_guests}: {}",
            joined(&rules, max_names),
            cut(because, 300)
        );
        entries.push(Unjudged {
            label: "not judged",
            text,
        });
    }
    entries.extend(still_watched(watching, max_names));
    entries
}

/// Where not enough has been seen yet, one for each reason.
fn still_watched(watching: &[&StillWatched], max_names: usize) -> Vec<Unjudged> {
    let mut by_reason: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for w in watching {
        by_reason
            .entry(&w.because)
            .or_default()
            .insert(w.domain.as_deref().unwrap_or("host"));
    }
    let mut entries = Vec::new();
    for (because, who) in by_reason.into_iter().take(MAX_NAMES) {
        entries.push(Unjudged {
            label: "still watched",
            text: format!("{}: {}", joined(&who, max_names), cut(because, 300)),
        });
    }
    entries
}

/// Where not enough has been seen yet, a line each reason.
pub(super) fn watching_lines(view: &View<'_>, columns: usize) -> String {
    let entries = still_watched(&view.selected_watching().collect::<Vec<_>>(), MAX_NAMES);
    entries
        .iter()
        .map(|unjudged| wrapped(&unjudged.sentence(), 12, columns))
        .collect()
}

/// Names of guests or rules, divided by commas.
fn joined(names: &BTreeSet<&str>, max_names: usize) -> String {
    let mut named: Vec<String> = names.iter().take(max_names).map(|n| cut(n, 48)).collect();
    if names.len() > max_names {
        named.push(format!("and {} more", names.len() - max_names));
    }
    named.join(", ")
}

/// The guest that a finding is about, or the host.
pub(super) fn subject(f: &Finding) -> String {
    cut(f.domain.as_deref().unwrap_or("host"), 48)
}

/// How steadily a finding held, in words.
pub fn lasting(l: &Lasting) -> String {
    let mut out = format!(
        "shown in {} of the last {}",
        seconds(l.shown_s),
        seconds(l.of_s)
    );
    if l.ago_s > 0.0 {
        let _ = write!(out, ", last {} ago", seconds(l.ago_s));
    }
    out
}

/// A finding in a line: severity, guest, title, most important figure.
pub(super) fn one_line(f: &Finding) -> String {
    let figure = f
        .figure()
        .map(|e| format!(": {}", cut(e, 200)))
        .unwrap_or_default();
    format!(
        "{:<8} {}: {}{figure} [{}]",
        f.severity.as_str(),
        subject(f),
        cut(&f.title, 200),
        f.rule
    )
}

/// Groups findings of several guests that say the same. A group stands where its first finding was.
fn grouped<'a>(findings: impl Iterator<Item = &'a Finding>) -> Vec<Vec<&'a Finding>> {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    let mut group_of: HashMap<(RuleId, &str, &str), usize> = HashMap::new();
    for f in findings {
        let index = *group_of
            .entry((f.rule, f.severity.as_str(), &f.title))
            .or_insert(groups.len());
        match groups.get_mut(index) {
            Some(group) => group.push(f),
            None => groups.push(vec![f]),
        }
    }
    groups
}

/// Equal findings in full: all guests, what is seen of each, and each fix once.
fn in_full(equal: &[&Finding], columns: usize) -> String {
    let Some(f) = equal.first() else {
        return String::new();
    };
    let names: BTreeSet<&str> = equal
        .iter()
        .map(|f| f.domain.as_deref().unwrap_or("host"))
        .collect();
    let head = format!(
        "{:<8} {}: {}",
        f.severity.as_str(),
        joined(&names, MAX_NAMES),
        cut(&f.title, 400)
    );
    let mut out = wrapped(&head, 9, columns);
    let rules: Vec<&str> = [&f.rule]
        .into_iter()
        .chain(&f.folded)
        .map(|rule| rule.as_str())
        .collect();
    let confidence = f.confidence.as_str();
    let head = format!("{}, {confidence} confidence", rules.join(" + "));
    write_entry(&mut out, "rule", &head, columns);
    let mut seen: Vec<&String> = equal.iter().flat_map(|f| &f.evidence).collect();
    seen.dedup();
    for e in seen {
        // A command stays on one line, so that it can be pasted.
        let columns = if is_command(e) { usize::MAX } else { columns };
        write_entry(&mut out, "seen", &cut(e, 500), columns);
    }
    if let Some(l) = &f.lasting {
        write_entry(&mut out, "seen", &lasting(l), columns);
    }
    if !f.why.is_empty() {
        write_entry(&mut out, "why", &cut(&f.why, 2000), columns);
    }
    for f in distinct_fixes(equal) {
        write_fix(&mut out, f, columns);
    }
    for s in &f.see {
        write_entry(&mut out, "see", &cut(s, 300), columns);
    }
    out
}

/// Writes a part of a finding after the word for it.
fn write_entry(out: &mut String, word: &str, text: &str, columns: usize) {
    out.push_str(&wrapped(&format!("  {word:<5} {text}"), 8, columns));
}

/// The fixes of all findings, equal ones once.
fn distinct_fixes<'a>(findings: &[&'a Finding]) -> Vec<&'a Fix> {
    let mut fixes: Vec<&Fix> = Vec::new();
    for fix in findings.iter().flat_map(|f| &f.fix) {
        let is_known = fixes.iter().any(|known| {
            known.kind == fix.kind && known.text == fix.text && known.place() == fix.place()
        });
        if !is_known {
            fixes.push(fix);
        }
    }
    fixes
}

fn write_fix(out: &mut String, fix: &Fix, columns: usize) {
    let needs = fix
        .needs
        .as_deref()
        .map(|n| format!(" ({})", cut(n, 300)))
        .unwrap_or_default();
    let is_advice = fix.kind == FixKind::Advice;
    let what = if is_advice {
        cut(&fix.text, 2000)
    } else {
        cut(&fix.place(), 300)
    };
    write_entry(out, "fix", &(what + &needs), columns);
    if is_advice {
        return;
    }
    write_lines(out, &fix.text);
    if let Some(undo) = &fix.undo {
        out.push_str("  undo  run\n");
        write_lines(out, undo);
    }
}

/// Writes text to paste. Its indentation is kept, and no line that XML or a command really has is
/// cut.
fn write_lines(out: &mut String, text: &str) {
    for line in text.lines() {
        out.push_str(&format!("          {}\n", kvm::sanitize(line, 4096)));
    }
}
