//! The findings, a line each: the strip below the tables, and the panel.

use super::domains::severity_glyph;
use super::{finding, header, say, scope, title};
use crate::lint::{Finding, StillWatched};
use crate::ui::cells::severity_role;
use crate::ui::draw::{highlight, put};
use crate::ui::grid::{Cell, ColumnLayout, List, RowLook};
use crate::ui::state::AppState;
use crate::ui::text::{clean, clean_line, fit_middle, fit_words, width};
use crate::ui::theme::{Look, Theme};
use crate::ui::view::ScreenView;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// From this width on a line says since when the finding is seen.
const SINCE_FROM: u16 = 100;
/// Width of `seen since 14:03`.
const SINCE_WIDTH: u16 = 16;
/// With less room a line has the figure and no title.
const FIGURE_ALONE: u16 = 50;

const CANNOT_TELL: [(&str, ColumnLayout); 3] = [
    ("CANNOT TELL", ColumnLayout::left(22, 0, 0)),
    ("GUEST", ColumnLayout::left(14, 10, 1)),
    ("BECAUSE", ColumnLayout::left(20, 150, 0)),
];

/// The worst findings, as many as fit.
pub fn strip(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let n = state.findings.len();
    let room = usize::from(area.height.saturating_sub(1));
    let mut left = if n > room { format!("{room} of {n}") } else { n.to_string() };
    if !state.watching.is_empty() {
        left.push_str(&format!(", {} still watched", state.watching.len()));
    }
    let inner = title(buf, area, ScreenView::Findings.title(), &left, "9: evidence and fix", theme);
    for (i, f) in state.findings.iter().take(inner.height.into()).enumerate() {
        line(buf, Rect { y: inner.y + i as u16, height: 1, ..inner }, f, false, state, theme);
    }
}

/// Paints the panel.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let shown = state.findings_in_view();
    let n = shown.len();
    let whose = if state.view.is_of_all() { "of all guests and the host".to_string() } else { scope(state) };
    let left = if n > 0 { format!("{n}, {whose}") } else { whose };
    let inner = title(
        buf,
        area,
        ScreenView::Findings.title(),
        &left,
        if n > 0 { "Enter: evidence and fix" } else { "" },
        theme,
    );
    if n == 0 {
        let young = state.model.as_ref().is_none_or(|m| m.interval_s.is_none());
        let text = match (young, state.watching.is_empty()) {
            (true, _) => "Measuring the first interval …".to_string(),
            (false, true) => nothing_found(state),
            (false, false) => "Nothing found yet: not enough has been seen.".to_string(),
        };
        let used = say(buf, inner, &text, Look::Dim, theme);
        let rest = Rect { y: inner.y + used, height: inner.height - used, ..inner };
        cannot_tell(buf, rest, state, theme);
        return;
    }
    let note = still_watched(state).filter(|_| inner.height > 2);
    let inner = match note {
        Some(text) => {
            let y = inner.bottom() - 1;
            put(
                buf,
                inner.x + 2,
                y,
                &fit_words(&text, inner.width.saturating_sub(2), theme.glyphs.cut),
                inner.width,
                theme.style(Look::Dim),
            );
            Rect { height: inner.height - 1, ..inner }
        }
        None => inner,
    };
    let at = (state.view.shown == ScreenView::Findings).then(|| state.view.at.min(n - 1));
    // The selected one is shown below the list where both have room.
    let list = (n as u16).min(inner.height).min((inner.height / 2).max(4));
    if let Some(f) = at.and_then(|at| shown.get(at)) {
        let room = Rect { y: inner.y + list + 1, height: inner.height.saturating_sub(list + 1), ..inner };
        preview(buf, room, f, state, theme);
    }
    let height = usize::from(list).max(1);
    let offset = at.map_or(0, |at| (at + 1).saturating_sub(height));
    for (i, f) in shown.iter().enumerate().skip(offset).take(height) {
        let area = Rect { y: inner.y + (i - offset) as u16, height: 1, ..inner };
        line(buf, area, f, at == Some(i), state, theme);
    }
}

/// What an empty list means: all is quiet, but for lines of the log that no rule judges.
fn nothing_found(state: &AppState) -> String {
    let lines = state.model.as_ref().and_then(|m| m.host.unjudged_lines());
    lines.map_or_else(
        || "Nothing found: all quiet.".to_string(),
        |(n, first)| {
            format!("Nothing found; {n} lines of the log about KVM are not judged, the first: {}", clean_line(first))
        },
    )
}

/// The rules that could not be judged, and why: no finding does not mean that all is well.
fn cannot_tell(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let row = |rule: &'static str, domain: Option<&str>, because: &str| {
        let who = domain.map_or_else(|| "host".to_string(), clean);
        (vec![Cell::text(rule), Cell::text(who), Cell::text(clean_line(because)).role(Look::Dim)], RowLook::Plain)
    };
    let watching = watching(state).map(|w| row(w.rule, w.domain.as_deref(), &w.because));
    let rows = watching.chain(state.cannot_tell.iter().map(|c| row(c.rule, c.domain.as_deref(), &c.because)));
    let list: List<'_> = List { columns: &CANNOT_TELL, rows: rows.collect(), at: None };
    if !list.rows.is_empty() {
        list.paint(buf, Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area }, theme);
    }
}

/// Where not enough has been seen, and that is not said among the rules that cannot tell.
fn watching(state: &AppState) -> impl Iterator<Item = &StillWatched> {
    let is_said = |w: &StillWatched| state.cannot_tell.iter().any(|c| c.because == w.because && c.domain == w.domain);
    state.watching.iter().filter(move |w| !is_said(w))
}

/// In a line, beside findings: who is still looked at.
fn still_watched(state: &AppState) -> Option<String> {
    let first = state.watching.first()?;
    let who = first.domain.as_deref().map_or_else(|| "host".to_string(), clean);
    let more = state.watching.len() - 1;
    let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
    Some(format!("still watched{more}: {who}: {}", clean_line(&first.because)))
}

/// The selected finding below the list, as much as fits: Enter shows all of it.
fn preview(buf: &mut Buffer, area: Rect, f: &Finding, state: &AppState, theme: &Theme) {
    for (i, line) in finding::lines(f, state, area.width).into_iter().take(area.height.into()).enumerate() {
        let mut x = area.x + 2;
        for (text, role) in line {
            put(buf, x, area.y + i as u16, &text, area.right().saturating_sub(x), theme.style(role));
            x += width(&text);
        }
    }
}

/// A finding in a line: mark, guest, decisive figure, title, and since when it is seen.
fn line(buf: &mut Buffer, area: Rect, f: &Finding, selected: bool, state: &AppState, theme: &Theme) {
    let role = severity_role(f.severity);
    let cut = theme.glyphs.cut;
    put(buf, area.x, area.y, &severity_glyph(f.severity, theme).to_string(), 1, theme.style(role));
    let since = f.since_ms.filter(|_| area.width >= SINCE_FROM);
    let since = since.map(|ms| format!("seen since {}", header::clock_minute(ms, state))).unwrap_or_default();
    // The columns stand still, with or without a time.
    let since_width = if area.width >= SINCE_FROM { width(&since).max(SINCE_WIDTH) } else { 0 };
    let end = area.right() - since_width;
    put(buf, end, area.y, &since, since_width, theme.style(Look::Dim));
    let who = f.domain.as_deref().map_or_else(|| "host".to_string(), clean);
    let who_width = (area.width / 7).clamp(10, 24);
    let x = area.x + 2;
    put(buf, x, area.y, &fit_middle(&who, who_width, cut), who_width, theme.style(Look::Strong));
    let x = x + who_width + 1;
    let room = end.saturating_sub(x + 1);
    let (headline, figure) = (clean_line(&f.title), f.figure().map(clean_line).unwrap_or_default());
    // The columns of figures and titles stand still. Where both do not fit the figure tells more.
    let figure_room = match (figure.is_empty(), room) {
        (true, _) => 0,
        (false, ..FIGURE_ALONE) => room,
        (false, _) => room * 11 / 20,
    };
    put(buf, x, area.y, &fit_words(&figure, figure_room, cut), figure_room, theme.style(Look::Text));
    let gap = if figure_room > 0 { 2 } else { 0 };
    let rest = room.saturating_sub(figure_room + gap);
    let look = theme.style(if figure_room > 0 { Look::Dim } else { Look::Text });
    put(buf, x + figure_room + gap, area.y, &fit_words(&headline, rest, cut), rest, look);
    if selected {
        highlight(buf, area, theme);
    }
}
