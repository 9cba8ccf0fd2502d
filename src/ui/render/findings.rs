//! The findings, a line each: the strip below the tables, and the panel.

use super::finding_lines::{self, FindingLine, LineColumns, WHO};
use super::popup::StyledLine;
use super::{finding, header, say, scope, title};
use crate::ui::draw::{highlight, put};
use crate::ui::folded_findings;
use crate::ui::state::AppState;
use crate::ui::text::{clean, clean_line, fit_middle, fit_words, width, wrap};
use crate::ui::theme::{Look, Theme};
use crate::ui::view::ScreenView;
use judge::lint::{RuleId, StillWatched};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Narrowest column of reasons why a rule cannot tell.
const MIN_REASON: u16 = 24;
/// With at least this many lines left below the selected finding, the rules that cannot tell are listed there.
const MIN_TABLE: u16 = 4;

/// How many lines the strip can fill below its title.
pub fn strip_len(state: &AppState) -> usize {
    folded_findings::fold(&state.findings).len() + usize::from(too_new(state).is_some())
}

/// The worst findings, as many as fit; below them which guests are too new to be judged in full.
pub fn strip(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let all = folded_findings::fold(&state.findings);
    let room = usize::from(area.height.saturating_sub(1));
    let shown = &all[..all.len().min(room)];
    let n: usize = shown.iter().map(|f| 1 + f.others.len()).sum();
    let total = state.findings.len();
    let left = match (n, total) {
        (_, 0) => "none yet".to_string(),
        _ if n < total => format!("{n} of {total}"),
        _ => n.to_string(),
    };
    let inner = title(buf, area, ScreenView::Findings.title(), &left, "9: evidence and fix", theme);
    let mut lines: Vec<FindingLine> = shown.iter().map(|f| FindingLine::of(f, state, theme)).collect();
    lines.extend(too_new(state).filter(|_| all.len() < room).map(|text| text.line(theme)));
    let columns = LineColumns::of(&lines, inner.width);
    for (i, l) in lines.iter().enumerate() {
        finding_lines::paint(buf, Rect { y: inner.y + i as u16, height: 1, ..inner }, &columns, l, theme);
    }
}

/// Guests of which too little has been seen to say that nothing is wrong with them.
struct TooNew {
    who: String,
    /// From when on enough will have been seen.
    until: String,
}

impl TooNew {
    fn line(self, theme: &Theme) -> FindingLine {
        let text = format!("too new to be judged in full before {}", self.until);
        let cut = theme.glyphs.cut;
        FindingLine { mark: (cut, Look::Dim), who: self.who, title: text, ..FindingLine::default() }
    }
}

/// Guests too new to judge in full, in one steady line; the view of findings gives the details for each guest.
fn too_new(state: &AppState) -> Option<TooNew> {
    let model = state.model.as_ref()?;
    let new: Vec<&StillWatched> = state.watching.iter().filter(|w| w.is_every_rule()).collect();
    let guests: Vec<&str> = new.iter().filter_map(|w| w.domain.as_deref()).collect();
    let who = match guests.as_slice() {
        [] => return None,
        all if all.len() == model.domains.len() && all.len() > 1 => format!("all {}", all.len()),
        [first] => clean(first),
        [first, others @ ..] => format!("{} +{}", clean(first), others.len()),
    };
    let left_s = new.iter().map(|w| w.needed_s - w.seen_s).fold(0.0, f64::max);
    let until_ms = model.time_ms.saturating_add((left_s * 1e3) as i64);
    // Rounded up to the full minute.
    Some(TooNew { who, until: header::clock_minute(until_ms.saturating_add(59_999), state) })
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
    let at = (state.view.shown == ScreenView::Findings).then(|| state.view.at.min(n - 1));
    // The selected one is shown below the list where both have room, and below that what could not be judged.
    let selected = at.and_then(|at| shown.get(at)).map_or_else(Vec::new, |f| finding::lines(f, state, inner.width));
    let list_of = |height: u16| (n as u16).min(height).min((height / 2).max(4));
    let used = list_of(inner.height).saturating_add(selected.len() as u16 + 1);
    let mut inner = inner;
    if used + MIN_TABLE <= inner.height {
        cannot_tell(buf, Rect { y: inner.y + used, height: inner.height - used, ..inner }, state, theme);
    } else if let Some(text) = still_watched(state).filter(|_| inner.height > 2) {
        inner.height -= 1;
        let room = inner.width.saturating_sub(2);
        let text = fit_words(&text, room, theme.glyphs.cut);
        put(buf, inner.x + 2, inner.bottom(), &text, room, theme.style(Look::Dim));
    }
    let list = list_of(inner.height);
    let below = Rect { y: inner.y + list + 1, height: inner.height.saturating_sub(list + 1), ..inner };
    preview(buf, below, selected, theme);
    let height = usize::from(list).max(1);
    let offset = at.map_or(0, |at| (at + 1).saturating_sub(height));
    let lines: Vec<FindingLine> = shown.iter().map(|f| FindingLine::one(f, state, theme)).collect();
    let columns = LineColumns::of(&lines, inner.width);
    for (i, l) in lines.iter().enumerate().skip(offset).take(height) {
        let area = Rect { y: inner.y + (i - offset) as u16, height: 1, ..inner };
        finding_lines::paint(buf, area, &columns, l, theme);
        if at == Some(i) {
            highlight(buf, area, theme);
        }
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
    let name = |rule: RuleId| if rule == RuleId::Every { "every rule" } else { rule.as_str() };
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
    // A reason without enough room beside its rule and guest goes below them.
    let beside = rule_width + who_width + 2;
    let (because_at, first) = if beside + MIN_REASON <= area.width { (beside, 0) } else { (2, 1) };
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
fn preview(buf: &mut Buffer, area: Rect, lines: Vec<StyledLine>, theme: &Theme) {
    for (i, line) in lines.into_iter().take(area.height.into()).enumerate() {
        let mut x = area.x + 2;
        for (text, role) in line {
            put(buf, x, area.y + i as u16, &text, area.right().saturating_sub(x), theme.style(role));
            x += width(&text);
        }
    }
}
