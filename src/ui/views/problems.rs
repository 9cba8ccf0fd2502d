//! The problems of the selected guest, or of the host: evidence, cost, fix, reason, and how to
//! check.

use super::section::{Section, TextLine};
use crate::ui::{
    Action, AppState, RowKey, SectionId, StyleId, clean_line, clean_lines, fit_words, width, wrap,
};
use judge::figures::{count, seconds, share};
use judge::lint::{Finding, FixKind, RuleId, is_command};
use judge::model::DomainModel;
use report::findings_text;

const TITLE: &str = "problems";
/// Widest text that is still easy to read.
const MAX_WIDTH: u16 = 120;

/// The section.
pub fn section(state: &AppState, columns: u16) -> Section<'_> {
    let problems = state.problems();
    let Some(open) = state.problem() else {
        return Section::text(SectionId::Problems, TITLE, Vec::new()).with_note(verdict(state));
    };
    let mut text = Labelled::new(columns);
    for f in &problems {
        text.headline(f, &f.title);
        if std::ptr::eq(open, *f) {
            text.in_full(f, state);
        }
    }
    text.add("", &watched(state).unwrap_or_default(), StyleId::Dim);
    let mut section = Section::text(SectionId::Problems, TITLE, text.lines);
    section.note = problems.len().to_string();
    if !open.fix.is_empty() {
        section.right = keys(state);
    }
    section
}

/// All problems of the host and its guests, the worst first: a line each, and the first line of its
/// fix.
pub fn all(state: &AppState, columns: u16) -> Section<'_> {
    let title = "what to do on this host";
    let findings = &state.report.findings;
    if findings.is_empty() {
        return Section::text(SectionId::Problems, title, Vec::new())
            .with_note("nothing was found");
    }
    let mut text = Labelled::new(columns);
    for f in findings {
        text.headline(f, &format!("{}: {}", f.subjects(), f.title));
        let mut fix = String::new();
        if let Some(first) = f.fix.first() {
            fix = first.text.lines().next().unwrap_or_default().into();
            if first.kind != FixKind::Advice {
                fix = format!("{}: {}", first.place(), fix.trim());
            }
        }
        let fix = fit_words(&clean_line(&fix), text.columns.saturating_sub(6), '~');
        let pieces = vec![("      ".into(), StyleId::Text), (fix, StyleId::Dim)];
        text.lines.push(pieces.into());
    }
    let problems = count(findings.len(), "problem");
    Section::text(SectionId::Problems, title, text.lines)
        .with_note(format!("{problems}, the worst first"))
}

/// Labelled text, wrapped to a width.
struct Labelled {
    columns: u16,
    lines: Vec<TextLine>,
}

impl Labelled {
    fn new(columns: u16) -> Self {
        Self {
            columns: columns.saturating_sub(2).min(MAX_WIDTH),
            lines: Vec::new(),
        }
    }

    /// Adds a text after a label, which is written once.
    fn add(&mut self, mut label: &str, text: &str, look: StyleId) {
        for line in wrap(&clean_lines(text), self.columns.saturating_sub(10)) {
            let pieces = vec![(format!("  {label:<8}"), StyleId::Head), (line, look)];
            self.lines.push(pieces.into());
            label = "";
        }
    }

    /// Adds severity, a title and cost in a line.
    fn headline(&mut self, f: &Finding, title: &str) {
        let cost = cost(f).unwrap_or_default();
        let room = self.columns.saturating_sub(width(&cost) + 4);
        let title = fit_words(&clean_line(title), room, '~');
        let gap = " ".repeat((room + 2 - width(&title)).into());
        let pieces = vec![
            ("  ".into(), StyleId::Text),
            (title, StyleId::Strong),
            (gap + &cost, StyleId::Text),
        ];
        self.lines.push(TextLine {
            mark: Some(f.severity),
            pieces,
            key: Some(RowKey::of(f.id())),
        });
    }

    /// Adds all about a problem.
    fn in_full(&mut self, f: &Finding, state: &AppState) {
        let mut checks = Vec::new();
        let mut label = "SEEN";
        for line in &f.evidence {
            if is_command(line) {
                checks.push(
                    line.split_once(": ")
                        .map_or(&**line, |(_, command)| command),
                );
            } else {
                self.add(label, line, StyleId::Text);
                label = "";
            }
        }
        let mut since = Vec::new();
        if let Some(ms) = f.since_ms {
            since.push(format!("seen since {}", state.clock(ms)));
        }
        // Of what held all the time the beginning says all.
        let unsteady = f.lasting.as_ref().filter(|l| l.shown_s < l.of_s);
        since.extend(unsteady.map(findings_text::lasting));
        self.add(label, &since.join("; "), StyleId::Dim);
        self.add("WHY", &f.why, StyleId::Text);
        for (n, fix) in f.fix.iter().enumerate() {
            let label = if n == 0 { "FIX" } else { "" };
            if fix.kind == FixKind::Advice {
                self.add(label, &fix.text, StyleId::Text);
            } else {
                self.add(label, &format!("{}:", fix.place()), StyleId::Dim);
                for line in fix.text.lines() {
                    self.add("", &format!("  {line}"), StyleId::Strong);
                }
            }
            if let Some(needs) = &fix.needs {
                self.add("", &format!("needs: {needs}"), StyleId::Dim);
            }
        }
        self.add("CHECK", &checks.join("\n"), StyleId::Text);
        let mut rule = format!("{}, {} confidence", f.rule, f.confidence.as_str());
        if !f.folded.is_empty() {
            let folded: Vec<&str> = f.folded.iter().map(|rule| rule.as_str()).collect();
            rule += &format!("; includes {}", folded.join(", "));
        }
        self.add("RULE", &rule, StyleId::Dim);
        self.add("SEE", &f.see.join("\n"), StyleId::Dim);
    }
}

/// The keys that hand the fix out: `y copy  w write to a file`.
pub fn keys(state: &AppState) -> String {
    let copy = state.key_name(Action::Copy);
    let write = state.key_name(Action::Write);
    format!("{copy} copy  {write} write to a file")
}

/// `costs 52 % of a CPU`.
pub fn cost(f: &Finding) -> Option<String> {
    f.cost
        .map(|percent| format!("costs {} % of a CPU", share(percent)))
}

/// What is said of a row without problems: nothing found, or why that says little.
pub fn verdict(state: &AppState) -> String {
    if state.model.as_ref().is_none_or(|m| m.interval_s.is_none()) {
        return "measuring the first interval".into();
    }
    let name = state.domain().map(DomainModel::name);
    let mut unjudged: Vec<_> = state.report.cannot_tell.iter().collect();
    unjudged.retain(|c| c.domain.as_deref() == name);
    if let Some(every) = unjudged.iter().find(|c| c.rule == RuleId::Every) {
        return format!("not judged: {}", clean_line(&every.because));
    }
    if let Some(watched) = watched(state) {
        return format!("nothing found yet; {watched}");
    }
    if unjudged.is_empty() {
        return "nothing found".into();
    }
    let rules = count(unjudged.len(), "rule");
    format!("nothing found, but {rules} could not be judged")
}

/// What is not judged yet about the selected row, and for how long, in a line.
fn watched(state: &AppState) -> Option<String> {
    let name = state.domain().map(DomainModel::name);
    let mut watching = state.report.watching.iter();
    let w = watching.find(|w| w.domain.as_deref() == name)?;
    let left = seconds((w.needed_s - w.seen_s).max(1.0).ceil());
    Some(format!("still measuring, {left} left"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::tests::{busy, press};
    use crate::ui::views::section::Body;
    use std::cmp::Reverse;

    /// The section's lines as text.
    fn lines(state: &AppState, columns: u16) -> Vec<String> {
        let Body::Text(lines) = section(state, columns).body else {
            panic!()
        };
        lines
            .iter()
            .map(|line| line.pieces.iter().map(|(text, _)| text.as_str()).collect())
            .collect()
    }

    #[test]
    fn problems_are_in_order_and_enter_opens_one() {
        let mut state = busy(120, 60);
        for _ in 0..9 {
            if state.problems().len() < 2 {
                press(&mut state, "j");
            }
        }
        let costs: Vec<_> = state
            .problems()
            .iter()
            .map(|f| (Reverse(f.severity), Reverse(f.cost.map(|c| c as u32))))
            .collect();
        assert!(costs.len() > 1 && costs.is_sorted(), "{costs:?}");
        let second = state.problems()[1].id();
        let heads = |state: &AppState| {
            let Body::Text(lines) = section(state, 118).body else {
                panic!()
            };
            (0..lines.len())
                .filter(|n| lines[*n].mark.is_some())
                .collect::<Vec<_>>()
        };
        let before = heads(&state);
        assert_eq!(before.len(), costs.len());
        press(&mut state, "<Enter>");
        (0..=before[1]).for_each(|_| drop(press(&mut state, "j")));
        press(&mut state, "<Enter>");
        assert_eq!(state.problem().map(Finding::id), Some(second));
        assert_eq!(heads(&state)[1], 1, "the first is closed");
    }

    #[test]
    fn nothing_is_said_twice_and_no_figure_leaves_its_unit() {
        let mut state = busy(80, 24);
        for columns in [60, 80, 118] {
            for _ in 0..state.list.rows.len() {
                let (problem, lines) = (state.problem().cloned(), lines(&state, columns));
                assert!(lines.iter().all(|line| width(line) < columns), "{lines:#?}");
                assert!(
                    lines
                        .iter()
                        .filter(|line| line.contains("seen since"))
                        .count()
                        <= 1
                );
                for unit in ["%", "us", "ms", "s"] {
                    assert!(
                        lines
                            .iter()
                            .all(|line| !line.trim_start().starts_with(&format!("{unit} "))),
                        "{lines:#?}"
                    );
                }
                let is_said =
                    |line: &&String| line.trim_start().len() > 30 && !line.contains("needs:");
                let mut said: Vec<&String> = lines.iter().filter(is_said).collect();
                let all = said.len();
                said.sort_unstable();
                said.dedup();
                assert_eq!(said.len(), all, "{lines:#?}");
                let rules = problem
                    .map_or_else(Vec::new, |f| [f.rule].into_iter().chain(f.folded).collect());
                for rule in rules {
                    assert!(lines.iter().any(|line| line.contains(rule.as_str())));
                }
                press(&mut state, "j");
            }
            press(&mut state, "g");
        }
    }
}
