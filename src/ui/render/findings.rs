//! The findings, a line each: the strip below the tables, and the panel.

use super::domains::severity_glyph;
use super::{finding, header, say, scope, title};
use crate::lint::{EVERY_RULE, Finding, StillWatched};
use crate::ui::cells::severity_role;
use crate::ui::draw::{highlight, put};
use crate::ui::state::AppState;
use crate::ui::text::{clean, clean_line, fit_middle, fit_words, width, wrap};
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
/// Narrowest column of reasons why a rule cannot tell.
const LEAST_REASON: u16 = 24;
/// The narrowest and the widest column of guests.
const WHO: (u16, u16) = (4, 24);

/// The worst findings, as many as fit.
pub fn strip(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let n = state.findings.len();
    let room = usize::from(area.height.saturating_sub(1));
    let mut left = if n > room { format!("{room} of {n}") } else { n.to_string() };
    if !state.watching.is_empty() {
        left.push_str(&format!(", {} still watched", state.watching.len()));
    }
    let inner = title(buf, area, ScreenView::Findings.title(), &left, "9: evidence and fix", theme);
    let shown = state.findings.iter().take(inner.height.into());
    let columns = LineColumns::of(shown.clone(), inner.width);
    for (i, f) in shown.enumerate() {
        line(buf, Rect { y: inner.y + i as u16, height: 1, ..inner }, &columns, f, false, state, theme);
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
    let columns = LineColumns::of(shown.iter().copied(), inner.width);
    for (i, f) in shown.iter().enumerate().skip(offset).take(height) {
        let area = Rect { y: inner.y + (i - offset) as u16, height: 1, ..inner };
        line(buf, area, &columns, f, at == Some(i), state, theme);
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
    let guest = |domain: Option<&str>| domain.map_or_else(|| "host".to_string(), clean);
    let name = |rule: &'static str| if rule == EVERY_RULE { "every rule" } else { rule };
    let watching = watching(state).map(|w| (name(w.rule), guest(w.domain.as_deref()), w.because.as_str()));
    let unjudged = state.cannot_tell.iter().map(|c| (name(c.rule), guest(c.domain.as_deref()), c.because.as_str()));
    let all: Vec<(&str, String, &str)> = watching.chain(unjudged).collect();
    if all.is_empty() {
        return;
    }
    let head = ("CANNOT TELL", "GUEST", "BECAUSE");
    let rule_width = all.iter().map(|(rule, ..)| width(rule)).max().unwrap_or(0).max(width(head.0));
    let who_width = all.iter().map(|(_, who, _)| width(who)).max().unwrap_or(0).clamp(width(head.1), WHO.1);
    let who_at = area.x + rule_width + 1;
    // Without room beside its rule and guest a reason stands below them.
    let beside = rule_width + who_width + 2;
    let (because_at, first) = if beside + LEAST_REASON <= area.width { (beside, 0) } else { (2, 1) };
    let room = area.width.saturating_sub(because_at);
    let mut y = area.y + 1;
    let mut row = |rule: &str, who: &str, because: &str, looks: (Look, Look)| {
        if y < area.bottom() {
            put(buf, area.x, y, rule, rule_width, theme.style(looks.0));
            put(buf, who_at, y, &fit_middle(who, who_width, theme.glyphs.cut), who_width, theme.style(looks.0));
        }
        y += first;
        for text in wrap(because, room) {
            if y < area.bottom() {
                put(buf, area.x + because_at, y, &text, room, theme.style(looks.1));
            }
            y += 1;
        }
    };
    row(head.0, head.1, head.2, (Look::Head, Look::Head));
    for (rule, who, because) in all {
        row(rule, &who, &clean_line(because), (Look::Text, Look::Dim));
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

/// Where the parts of a line stand: the same on each line of a list, so that they can be read downwards.
struct LineColumns {
    who: u16,
    figure: u16,
    title: u16,
    since: u16,
}

impl LineColumns {
    /// As wide as the guests and figures of these findings are. A figure that takes more than half of the room stands
    /// out of its column.
    fn of<'a>(findings: impl Iterator<Item = &'a Finding> + Clone, columns: u16) -> Self {
        let since = if columns >= SINCE_FROM { SINCE_WIDTH } else { 0 };
        let widest = WHO.1.min((columns / 6).max(2 * WHO.0));
        let who = findings.clone().map(|f| width(&who(f))).max().unwrap_or(0).clamp(WHO.0, widest);
        let figure = 2 + who + 1;
        let room = columns.saturating_sub(figure + since + u16::from(since > 0));
        let widths = findings.map(|f| width(&figure_of(f)));
        let widest = widths.filter(|w| *w <= room * 11 / 20).max().filter(|w| *w > 0);
        Self { who, figure, title: figure + widest.map_or(0, |w| w + 2), since }
    }
}

fn who(f: &Finding) -> String {
    f.domain.as_deref().map_or_else(|| "host".to_string(), clean)
}

fn figure_of(f: &Finding) -> String {
    f.figure().map(clean_line).unwrap_or_default()
}

/// A finding in a line: mark, guest, decisive figure, title, and since when it is seen.
fn line(
    buf: &mut Buffer,
    area: Rect,
    columns: &LineColumns,
    f: &Finding,
    selected: bool,
    state: &AppState,
    theme: &Theme,
) {
    let cut = theme.glyphs.cut;
    let mark = severity_glyph(f.severity, theme).to_string();
    put(buf, area.x, area.y, &mark, 1, theme.style(severity_role(f.severity)));
    let end = area.width - columns.since;
    let since = f.since_ms.map(|ms| format!("seen since {}", header::clock_minute(ms, state))).unwrap_or_default();
    put(buf, area.x + end, area.y, &since, columns.since, theme.style(Look::Dim));
    put(buf, area.x + 2, area.y, &fit_middle(&who(f), columns.who, cut), columns.who, theme.style(Look::Strong));
    let end = end.saturating_sub(u16::from(columns.since > 0));
    let (headline, figure) = (clean_line(&f.title), figure_of(f));
    let mut part = |x: u16, text: &str, look: Look| {
        let room = end.saturating_sub(x);
        put(buf, area.x + x, area.y, &fit_words(text, room, cut), room, theme.style(look));
    };
    let behind = columns.figure + width(&figure) + 2;
    if figure.is_empty() {
        part(columns.figure, &headline, Look::Text);
    } else {
        part(columns.figure, &figure, Look::Text);
        // Where both do not fit the figure tells more.
        if behind <= columns.title && end - columns.figure >= FIGURE_ALONE {
            part(columns.title, &headline, Look::Dim);
        } else if behind + width(&headline) <= end {
            part(behind, &headline, Look::Dim);
        }
    }
    if selected {
        highlight(buf, area, theme);
    }
}
