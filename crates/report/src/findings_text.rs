//! Findings as text.

use super::View;
use super::table::{cut, wrapped};
use judge::figures::seconds;
use judge::lint::{CannotTell, Finding, Fix, FixKind, Lasting, RuleId, StillWatched, is_command};
use judge::model::HostModel;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

/// The findings in full, or `no findings`; then the rules that could not be judged, and why.
pub fn all(view: &View<'_>, columns: usize) -> String {
    let mut said: Vec<&Finding> = Vec::new();
    let mut all: Vec<String> = Vec::new();
    for equal in grouped(view.selected_findings()) {
        all.push(one(&equal, &said, columns));
        said.push(equal.first());
    }
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

/// The findings in a line each: severity, guests, title, most important figure.
pub(super) fn lines<'a>(findings: impl Iterator<Item = &'a Finding>) -> impl Iterator<Item = String> {
    let line = |equal: EqualFindings<'_>| {
        let f = equal.first();
        let figure = f.figure().map(|e| format!(": {}", cut(e, 200))).unwrap_or_default();
        format!("{:<8} {}: {}{figure} [{}]", f.severity.as_str(), equal.who(), cut(title(f), 200), f.rule)
    };
    grouped(findings).into_iter().map(line)
}

/// The title without the name of its guest, which stands before it.
fn title(f: &Finding) -> &str {
    f.title.strip_suffix(&format!(" ({})", who(f))).unwrap_or(&f.title)
}

/// Findings about several guests that differ in the guest alone. JSON has one for each guest.
struct EqualFindings<'a>(Vec<&'a Finding>);

impl<'a> EqualFindings<'a> {
    fn first(&self) -> &'a Finding {
        self.0[0]
    }

    /// The guests that it is about, or the host.
    fn who(&self) -> String {
        let names: Vec<String> = self.0.iter().map(|f| who(f)).collect();
        names.join(", ")
    }

    /// The lines of evidence of all, each once.
    fn evidence(&self) -> Vec<&'a str> {
        let mut lines = Vec::new();
        for at in 0..self.first().evidence.len() {
            for line in self.0.iter().filter_map(|f| f.evidence.get(at)) {
                if lines.last() != Some(&line.as_str()) {
                    lines.push(line.as_str());
                }
            }
        }
        lines
    }

    /// The fixes of all: equal ones once, with all their places; commands together.
    fn fixes(&self) -> Vec<PrintedFix> {
        let mut all: Vec<PrintedFix> = Vec::new();
        for at in 0..self.first().fix.len() {
            let begin = all.len();
            for fix in self.0.iter().filter_map(|f| f.fix.get(at)) {
                let place = fix.place();
                let same = all[begin..].iter_mut().find(|printed| {
                    let is_command = fix.kind == FixKind::Command && printed.places.contains(&place);
                    is_command || printed.text == fix.text && printed.undo == fix.undo.clone().unwrap_or_default()
                });
                let Some(printed) = same else {
                    all.push(PrintedFix::new(fix));
                    continue;
                };
                if printed.text != fix.text {
                    printed.text += &format!("\n{}", fix.text);
                    let undo = fix.undo.as_deref().unwrap_or_default();
                    printed.undo = format!("{}\n{undo}", printed.undo).trim().to_string();
                }
                if !printed.places.contains(&place) {
                    printed.places.push(place);
                }
            }
        }
        all
    }
}

/// A fix as it is printed.
struct PrintedFix {
    kind: FixKind,
    places: Vec<String>,
    text: String,
    needs: String,
    undo: String,
}

impl PrintedFix {
    fn new(fix: &Fix) -> Self {
        Self {
            kind: fix.kind,
            places: vec![fix.place()],
            text: fix.text.clone(),
            needs: fix.needs.as_deref().map(|n| format!(" ({})", cut(n, 300))).unwrap_or_default(),
            undo: fix.undo.clone().unwrap_or_default(),
        }
    }

    fn print(&self, out: &mut String, columns: usize) {
        let needs = &self.needs;
        if self.kind == FixKind::Advice {
            out.push_str(&wrapped(&format!("  fix   {}{needs}", cut(&self.text, 2000)), 8, columns));
            return;
        }
        let place = self.places.join(", ");
        out.push_str(&wrapped(&format!("  fix   {}{needs}", cut(&place, 300)), 8, columns));
        paste(out, &self.text);
        if !self.undo.is_empty() {
            out.push_str("  undo  run\n");
            paste(out, &self.undo);
        }
    }
}

/// Findings that are equal but for their guests, at most 64 in a group, each group in the place of its first.
fn grouped<'a>(findings: impl Iterator<Item = &'a Finding>) -> Vec<EqualFindings<'a>> {
    let mut groups: Vec<EqualFindings<'a>> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for f in findings {
        let at = places.entry(nameless(f)).or_insert(groups.len());
        match groups.get_mut(*at) {
            Some(EqualFindings(equal)) if equal.len() < MAX_NAMES => equal.push(f),
            _ => {
                *at = groups.len();
                groups.push(EqualFindings(vec![f]));
            }
        }
    }
    groups
}

/// All that a finding says, without its guest. A finding about the host, or about several guests, is like no other.
fn nameless(f: &Finding) -> String {
    let name = f.domain.as_deref().filter(|name| !name.is_empty() && f.also.is_empty());
    let Some(name) = name else { return format!("{f:p}") };
    let mut all = format!("{} {:?} {:?} {:?} {}\n{}\n", f.rule, f.folded, f.severity, f.confidence, title(f), f.why);
    for line in &f.evidence {
        all.push_str(&line.replace(name, "\0"));
        all.push('\n');
    }
    for fix in &f.fix {
        let _ = writeln!(all, "{:?} {:?}", fix.kind, fix.needs);
    }
    // How steadily each held is told of each.
    let _ = write!(all, "{:?}", f.lasting.as_ref().map(lasting));
    all
}

/// Text to paste: its indentation is kept, and no real line of XML or of a command is cut.
fn paste(out: &mut String, text: &str) {
    text.lines().for_each(|line| out.push_str(&format!("          {}\n", kvm::sanitize(line, 4096))));
}

/// A finding in full. What mends it too and was `said` of another one is not printed again.
fn one(equal: &EqualFindings<'_>, said: &[&Finding], columns: usize) -> String {
    let f = equal.first();
    let prose = |text: &str| wrapped(text, 8, columns);
    let mut out = format!("{:<8} {}: {}", f.severity.as_str(), equal.who(), cut(title(f), 400));
    out = wrapped(&out, 9, columns);
    let rules: Vec<&str> = [&f.rule].into_iter().chain(&f.folded).map(|rule| rule.as_str()).collect();
    out.push_str(&prose(&format!("  rule  {}, {} confidence", rules.join(" + "), f.confidence.as_str())));
    for (i, e) in equal.evidence().into_iter().enumerate() {
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
    let is_long = equal.0.len() == 1 && f.fix.iter().any(|fix| fix.kind != FixKind::Advice);
    let same = said.iter().take(MAX_COMPARED).find(|other| is_long && other.domain == f.domain && other.fix == f.fix);
    if let Some(same) = same {
        out.push_str(&prose(&format!("  fix   the same as above for: {}", cut(&same.title, 400))));
    } else {
        equal.fixes().iter().for_each(|fix| fix.print(&mut out, columns));
    }
    for s in &f.see {
        out.push_str(&prose(&format!("  see   {}", cut(s, 300))));
    }
    out
}
