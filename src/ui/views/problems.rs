//! The problems of the selected guest, or of the host: evidence, cost, fix, reason, and how to
//! check.

use super::section::{Section, TextLine};
use crate::ui::action::Action;
use crate::ui::page_state::SectionId;
use crate::ui::state::AppState;
use crate::ui::table::RowKey;
use crate::ui::text::{clean_line, clean_lines, fit_words, width, wrap};
use crate::ui::theme::StyleId;
use judge::figures::{count, seconds, share};
use judge::lint::{Finding, FixKind, RuleId, is_command};
use judge::model::DomainModel;
use report::findings_text;

const TITLE: &str = "problems";
/// Widest text that is still easy to read.
const MAX_WIDTH: u16 = 120;

/// The section.
pub fn section(state: &AppState, columns: u16) -> Section<'_> {
    let (problems, open) = (state.problems(), state.problem());
    let Some(open) = open else {
        return Section::folded(SectionId::Problems, TITLE, verdict(state));
    };
    let mut text = Labelled {
        columns: columns.saturating_sub(2).min(MAX_WIDTH),
        lines: Vec::new(),
    };
    for f in &problems {
        text.headline(f, &f.title);
        if std::ptr::eq(open, *f) {
            text.in_full(f, state);
        }
    }
    text.add("", &watched(state).unwrap_or_default(), StyleId::Dim);
    let right = if open.fix.is_empty() {
        String::new()
    } else {
        keys(state)
    };
    let section = Section::text(SectionId::Problems, TITLE, text.lines);
    section
        .with_note(problems.len().to_string())
        .with_right(right)
}

/// All problems of the host and its guests, the worst first: a line each, and the first line of its
/// fix.
pub fn all(state: &AppState, columns: u16) -> Section<'_> {
    let findings = &state.report.findings;
    let mut text = Labelled {
        columns: columns.saturating_sub(2).min(MAX_WIDTH),
        lines: Vec::new(),
    };
    for f in findings {
        text.headline(f, &format!("{}: {}", f.subjects(), f.title));
        let mut fix = String::new();
        if let Some(first) = f.fix.first() {
            let line = first.text.lines().next().unwrap_or_default();
            fix = match first.kind {
                FixKind::Advice => clean_line(line),
                _ => clean_line(&format!("{}: {}", first.place(), line.trim())),
            };
        }
        let fix = fit_words(&fix, text.columns.saturating_sub(6), '~');
        let pieces = vec![("      ".into(), StyleId::Text), (fix, StyleId::Dim)];
        text.lines.push(pieces.into());
    }
    let title = "what to do on this host";
    if findings.is_empty() {
        return Section::folded(SectionId::Problems, title, "nothing was found");
    }
    let section = Section::text(SectionId::Problems, title, text.lines);
    section.with_note(format!(
        "{}, the worst first",
        count(findings.len(), "problem")
    ))
}

/// Labelled text, wrapped to a width.
struct Labelled {
    columns: u16,
    lines: Vec<TextLine>,
}

impl Labelled {
    /// Adds a text after a label, which is written once.
    fn add(&mut self, label: &str, text: &str, look: StyleId) {
        let lines = wrap(&clean_lines(text), self.columns.saturating_sub(10)).into_iter();
        let labels = std::iter::once(label).chain(std::iter::repeat(""));
        let lines = labels
            .zip(lines)
            .map(|(l, line)| vec![(format!("  {l:<8}"), StyleId::Head), (line, look)].into());
        self.lines.extend(lines);
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
        let (checks, seen): (Vec<&String>, Vec<&String>) =
            f.evidence.iter().partition(|line| is_command(line));
        let mut label = Some("SEEN").into_iter().chain(std::iter::repeat(""));
        let mut once = || label.next().unwrap_or_default();
        seen.iter()
            .for_each(|line| self.add(once(), line, StyleId::Text));
        // Of what held all the time the beginning says all.
        let unsteady = f.lasting.as_ref().filter(|l| l.shown_s < l.of_s);
        let since = f
            .since_ms
            .map(|ms| format!("seen since {}", state.clock(ms)))
            .into_iter();
        let since: Vec<String> = since.chain(unsteady.map(findings_text::lasting)).collect();
        self.add(once(), &since.join("; "), StyleId::Dim);
        self.add("WHY", &f.why, StyleId::Text);
        for (n, fix) in f.fix.iter().enumerate() {
            let label = if n == 0 { "FIX" } else { "" };
            if fix.kind == FixKind::Advice {
                self.add(label, &fix.text, StyleId::Text);
            } else {
                self.add(label, &format!("{}:", fix.place()), StyleId::Dim);
                fix.text
                    .lines()
                    .for_each(|line| self.add("", &format!("  {line}"), StyleId::Strong));
            }
            let needs = fix.needs.as_ref().map(|needs| format!("needs: {needs}"));
            self.add("", &needs.unwrap_or_default(), StyleId::Dim);
        }
        let commands = checks.iter().map(|line| {
            line.split_once(": ")
                .map_or(line.as_str(), |(_, command)| command)
        });
        self.add(
            "CHECK",
            &commands.collect::<Vec<_>>().join("\n"),
            StyleId::Text,
        );
        let folded: Vec<&str> = f.folded.iter().map(|rule| rule.as_str()).collect();
        let folded = if folded.is_empty() {
            String::new()
        } else {
            format!("; includes {}", folded.join(", "))
        };
        self.add(
            "RULE",
            &format!("{}, {} confidence{folded}", f.rule, f.confidence.as_str()),
            StyleId::Dim,
        );
        self.add("SEE", &f.see.join("\n"), StyleId::Dim);
    }
}

/// The keys that hand the fix out: `y copy  w write to a file`.
pub fn keys(state: &AppState) -> String {
    format!(
        "{} copy  {} write to a file",
        state.key_name(Action::Copy),
        state.key_name(Action::Write)
    )
}

/// `costs 52 % of a CPU`.
pub fn cost(f: &Finding) -> Option<String> {
    f.cost
        .map(|percent| format!("costs {} % of a CPU", share(percent)))
}

/// What is said of a row without problems: nothing found, or why that says little.
pub fn verdict(state: &AppState) -> String {
    let name = state.domain().map(DomainModel::name);
    let unjudged = || {
        state
            .report
            .cannot_tell
            .iter()
            .filter(|c| c.domain.as_deref() == name)
    };
    match (
        unjudged().find(|c| c.rule == RuleId::Every),
        watched(state),
        unjudged().count(),
    ) {
        _ if state.model.as_ref().is_none_or(|m| m.interval_s.is_none()) => "measuring the first \
            interval"
            .into(),
        (Some(every), ..) => format!("not judged: {}", clean_line(&every.because)),
        (_, Some(watched), _) => format!("nothing found yet; {watched}"),
        (.., 0) => "nothing found".into(),
        (.., rules) => format!(
            "nothing found, but {} could not be judged",
            count(rules, "rule")
        ),
    }
}

/// What is not judged yet about the selected row, and for how long, in a line.
fn watched(state: &AppState) -> Option<String> {
    let name = state.domain().map(DomainModel::name);
    let w = state
        .report
        .watching
        .iter()
        .find(|w| w.domain.as_deref() == name)?;
    Some(format!(
        "still measuring, {} left",
        seconds((w.needed_s - w.seen_s).max(1.0).ceil())
    ))
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
