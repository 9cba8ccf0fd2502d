//! An open finding: evidence, reason, fix, and how to check it without kvmtop.

use super::domains::severity_glyph;
use super::header;
use super::popup::StyledLine;
use super::scrolled;
use super::title;
use crate::ui::cells::severity_role;
use crate::ui::state::AppState;
use crate::ui::text::{clean, clean_line, clean_lines, wrap};
use crate::ui::theme::{Look, Theme};
use judge::lint::{Finding, Fix, FixKind, is_command};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use report::findings_text;

/// Width of the labels on the left.
const LABEL: u16 = 10;

/// Widest text that is still easy to read.
const WIDEST: u16 = 120;

/// Labelled text, wrapped to a width.
struct Sections {
    room: u16,
    lines: Vec<StyledLine>,
}

impl Sections {
    fn new(columns: u16) -> Self {
        Self { room: columns.saturating_sub(2).min(WIDEST).saturating_sub(LABEL), lines: Vec::new() }
    }

    fn add(&mut self, label: &'static str, text: &str, role: Look) {
        for (i, line) in wrap(text, self.room).into_iter().enumerate() {
            let label = if i == 0 { label } else { "" };
            self.lines.push(vec![(format!("{label:<10}"), Look::Head), (line, role)]);
        }
    }

    fn fix(&mut self, label: &'static str, fix: &Fix) {
        if fix.kind == FixKind::Advice {
            self.add(label, &clean_lines(&fix.text), Look::Text);
        } else {
            self.add(label, &clean_lines(&format!("{}:", fix.place())), Look::Dim);
            for line in clean_lines(&fix.text).lines() {
                self.add("", &format!("  {line}"), Look::Strong);
            }
        }
        if let Some(needs) = &fix.needs {
            self.add("", &format!("needs: {}", clean_lines(needs)), Look::Dim);
        }
    }
}

/// All of the text.
pub fn lines(f: &Finding, state: &AppState, columns: u16) -> Vec<StyledLine> {
    let mut text = Sections::new(columns);
    for (i, e) in f.evidence.iter().enumerate() {
        text.add(if i == 0 { "SEEN" } else { "" }, &clean_lines(e), Look::Text);
    }
    if let Some(ms) = f.since_ms {
        text.add(if f.evidence.is_empty() { "SEEN" } else { "" }, &since(f, ms, state), Look::Dim);
    }
    text.add("", " ", Look::Text);
    text.add("WHY", &clean_lines(&f.why), Look::Text);
    for (i, fix) in f.fix.iter().enumerate() {
        text.add("", " ", Look::Text);
        text.fix(if i == 0 { "FIX" } else { "or" }, fix);
    }
    if !f.see.is_empty() {
        text.add("", " ", Look::Text);
    }
    for (i, s) in f.see.iter().enumerate() {
        text.add(if i == 0 { "SEE" } else { "" }, &clean_lines(s), Look::Dim);
    }
    text.lines
}

/// The essentials: the figures, the first fix, the reason. With little room, only the decisive figure comes before the
/// fix.
pub fn brief(f: &Finding, state: &AppState, columns: u16, room: usize) -> Vec<StyledLine> {
    let whole = first_sight(f, state, columns, 2);
    if whole.len() > room { first_sight(f, state, columns, 1) } else { whole }
}

fn first_sight(f: &Finding, state: &AppState, columns: u16, figures: usize) -> Vec<StyledLine> {
    let mut text = Sections::new(columns);
    for (i, e) in f.evidence.iter().filter(|e| !is_command(e)).take(figures).enumerate() {
        text.add(if i == 0 { "SEEN" } else { "" }, &clean_lines(e), Look::Text);
    }
    if let Some(ms) = f.since_ms.filter(|_| figures > 1) {
        text.add("", &format!("seen since {}", header::clock(ms, state)), Look::Dim);
    }
    if let Some(fix) = f.fix.first() {
        text.fix("FIX", fix);
    }
    text.add("WHY", &clean_lines(&f.why), Look::Text);
    text.lines
}

/// Since when it is seen, and how steadily.
fn since(f: &Finding, ms: i64, state: &AppState) -> String {
    let clock = header::clock(ms, state);
    let steadily = f.lasting.as_ref().map(|l| format!("; {}", clean_lines(&findings_text::lasting(l))));
    format!("seen since {clock}{}", steadily.unwrap_or_default())
}

/// The finding's heading: its severity, its guest, its title. A line for each part of a long title.
fn heading(f: &Finding, columns: u16, theme: &Theme) -> Vec<StyledLine> {
    let who = f.domain.as_deref().map_or_else(|| "host".to_string(), clean);
    let text = format!("{who} {} {}", theme.glyphs.dot, clean_line(&f.title));
    let mark = severity_glyph(f.severity, theme);
    let lines = wrap(&text, columns.saturating_sub(4)).into_iter().enumerate();
    lines
        .map(|(i, line)| {
            let mark = if i == 0 { format!("{mark} ") } else { "  ".into() };
            vec![(mark, severity_role(f.severity)), (line, Look::Strong)]
        })
        .collect()
}

/// Number of lines of the opened finding.
pub fn opened_len(f: &Finding, state: &AppState) -> usize {
    let theme = Theme::default();
    heading(f, state.size.0, &theme).len() + 1 + lines(f, state, state.size.0).len()
}

/// Paints it in place of a view.
pub fn paint(buf: &mut Buffer, area: Rect, f: &Finding, scroll: u16, state: &AppState, theme: &Theme) {
    let shown = state.findings_in_view();
    let at = shown.iter().position(|s| s.id() == f.id()).map_or(1, |at| at + 1);
    let rules: Vec<&str> = std::iter::once(&f.rule).chain(&f.folded).map(|rule| rule.as_str()).collect();
    let note = format!("{} {} {} confidence", rules.join(" + "), theme.glyphs.dot, f.confidence.as_str());
    let mut all = heading(f, area.width, theme);
    all.push(Vec::new());
    all.extend(lines(f, state, area.width));
    let name = format!("FINDING {at} of {}", shown.len().max(1));
    scrolled::page(buf, area, &name, &note, &all, scroll, theme);
}

/// Paints the worst finding about the selected guest on the first screen, as much as fits.
pub fn worst(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let Some(f) = state.worst_finding() else { return };
    let who = state.domain().map(|d| clean(d.name())).unwrap_or_default();
    let left = format!("{who} {} {}", theme.glyphs.dot, clean_line(&f.title));
    let inner = title(buf, area, "WORST FINDING", &left, "", theme);
    let room = usize::from(inner.height);
    let mut all = brief(f, state, area.width, room);
    if all.len() > room && room > 0 {
        all.truncate(room - 1);
        all.push(vec![
            (format!("{:<1$}", "", usize::from(LABEL)), Look::Dim),
            ("9, Enter: the rest".into(), Look::Dim),
        ]);
    }
    scrolled::text(buf, inner, &all, theme);
}
