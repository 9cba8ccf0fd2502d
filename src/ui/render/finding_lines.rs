//! Findings a line each, their parts below each other.

use super::domains::severity_glyph;
use super::header;
use crate::ui::cells::severity_role;
use crate::ui::draw::put;
use crate::ui::folded_findings::FoldedFinding;
use crate::ui::state::AppState;
use crate::ui::text::{clean, clean_line, fit_middle, fit_words, width};
use crate::ui::theme::{Look, Theme};
use judge::lint::Finding;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// From this width on a line says since when the finding is seen.
const SINCE_FROM: u16 = 100;
/// Width of `seen since 14:03`.
const SINCE_WIDTH: u16 = 16;
/// With less room a line has the figure and no title.
const FIGURE_ALONE: u16 = 50;
/// The maximum number of other guests with the same finding that are named.
const MAX_OTHERS: usize = 30;
/// The narrowest and the widest column of guests.
pub const WHO: (u16, u16) = (4, 24);

/// A line of a list of findings.
#[derive(Default)]
pub struct FindingLine {
    /// The mark in front of it.
    pub mark: (char, Look),
    /// The guest.
    pub who: String,
    /// The decisive figure.
    pub figure: String,
    /// What is wrong.
    pub title: String,
    /// The other guests with the same finding.
    pub others: String,
    /// Since when it is seen.
    pub since: String,
}

impl FindingLine {
    /// Of one finding.
    pub fn one(f: &Finding, state: &AppState, theme: &Theme) -> Self {
        Self {
            mark: (severity_glyph(f.severity, theme), severity_role(f.severity)),
            who: f.domain.as_deref().map_or_else(|| "host".to_string(), clean),
            figure: f.figure().map(clean_line).unwrap_or_default(),
            title: clean_line(&f.title),
            others: String::new(),
            since: f.since_ms.map(|ms| format!("seen since {}", header::clock_minute(ms, state))).unwrap_or_default(),
        }
    }

    /// Of the same finding about some guests.
    pub fn of(f: &FoldedFinding<'_>, state: &AppState, theme: &Theme) -> Self {
        let mut line = Self::one(f.worst, state, theme);
        if !f.others.is_empty() {
            let names: Vec<String> = f.others.iter().take(MAX_OTHERS).map(|name| clean(name)).collect();
            line.others = format!("also {}", names.join(", "));
            line.who = format!("{} +{}", line.who, f.others.len());
        }
        line
    }
}

/// The columns of a line's parts: the same on each line of a list, so that they can be read downwards.
pub struct LineColumns {
    who: u16,
    figure: u16,
    title: u16,
    since: u16,
}

impl LineColumns {
    /// As wide as the guests and figures are. A figure that takes more than half of the room stands out of its column.
    pub fn of(lines: &[FindingLine], columns: u16) -> Self {
        let since = if columns >= SINCE_FROM { SINCE_WIDTH } else { 0 };
        let widest = WHO.1.min((columns / 6).max(2 * WHO.0));
        let who = lines.iter().map(|l| width(&l.who)).max().unwrap_or(0).clamp(WHO.0, widest);
        let figure = 2 + who + 1;
        let room = columns.saturating_sub(figure + since + u16::from(since > 0));
        let widths = lines.iter().map(|l| width(&l.figure));
        let widest = widths.filter(|w| *w <= room * 11 / 20).max().filter(|w| *w > 0);
        Self { who, figure, title: figure + widest.map_or(0, |w| w + 2), since }
    }
}

/// Paints a line: mark, guest, decisive figure, title, other guests, and since when it is seen.
pub fn paint(buf: &mut Buffer, area: Rect, columns: &LineColumns, l: &FindingLine, theme: &Theme) {
    let cut = theme.glyphs.cut;
    put(buf, area.x, area.y, &l.mark.0.to_string(), 1, theme.style(l.mark.1));
    let end = area.width - columns.since;
    put(buf, area.x + end, area.y, &l.since, columns.since, theme.style(Look::Dim));
    put(buf, area.x + 2, area.y, &fit_middle(&l.who, columns.who, cut), columns.who, theme.style(Look::Strong));
    let end = end.saturating_sub(u16::from(columns.since > 0));
    let mut part = |x: u16, text: &str, look: Look| {
        let room = end.saturating_sub(x);
        put(buf, area.x + x, area.y, &fit_words(text, room, cut), room, theme.style(look));
    };
    let room = end.saturating_sub(columns.figure);
    let mut behind = columns.figure + width(&l.figure) + 2;
    if l.figure.is_empty() {
        part(columns.figure, &l.title, if l.mark.1 == Look::Dim { Look::Dim } else { Look::Text });
        behind = columns.figure + width(&l.title) + 2;
        part(behind, &l.others, Look::Text);
    } else if l.others.is_empty() {
        part(columns.figure, &l.figure, Look::Text);
        // Where both do not fit the figure tells more.
        if behind <= columns.title && room >= FIGURE_ALONE {
            part(columns.title, &l.title, Look::Dim);
        } else if behind + width(&l.title) <= end {
            part(behind, &l.title, Look::Dim);
        }
    } else {
        // Who else it is about tells more than the title and the end of the figure.
        let others = width(&l.others).min((room / 3).max(room.saturating_sub(width(&l.figure) + 2)));
        let figure = fit_words(&l.figure, room.saturating_sub(others + 2), cut);
        part(columns.figure, &figure, Look::Text);
        behind = columns.figure + width(&figure) + 2;
        if behind + width(&l.title) + 2 + others <= end {
            part(behind, &l.title, Look::Dim);
            behind += width(&l.title) + 2;
        }
        part(behind, &l.others, Look::Text);
    }
}
