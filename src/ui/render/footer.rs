//! The last line: keys, a message, or the text being typed.

use super::header::clock;
use crate::ui::action::Action;
use crate::ui::draw::put;
use crate::ui::filter;
use crate::ui::guest_columns::filter_fields;
use crate::ui::key_lookup;
use crate::ui::state::{AppState, Popup};
use crate::ui::text::{clean, clean_line, fit, fit_words, width};
use crate::ui::theme::{Look, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

/// Paints the line. Returns the position of the text cursor while text is typed.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) -> Option<Position> {
    let (label, input) = match &state.popup {
        Some(Popup::Filter(input)) => ("filter: ", input),
        Some(Popup::Goto(input)) => ("go to time: ", input),
        _ => {
            keys(buf, area, state, theme);
            return None;
        }
    };
    let x = area.x + 1;
    put(buf, x, area.y, label, area.width, theme.style(Look::Key));
    let x = x + width(label);
    let room = area.right().saturating_sub(x + 1);
    let scroll = input.visual_scroll(room.into());
    let text: String = clean(input.value());
    let shown: String = text.chars().skip(scroll).collect();
    put(buf, x, area.y, &shown, room, theme.style(Look::Text));
    if matches!(state.popup, Some(Popup::Filter(_))) {
        hint(buf, Rect { x: x + width(&shown).min(room) + 2, ..area }, area.right(), state, input.value(), theme);
    }
    let at = x + (input.visual_cursor().saturating_sub(scroll) as u16).min(room);
    Some(Position::new(at, area.y))
}

/// The times whose figures the table compares.
fn since(state: &AppState) -> Option<String> {
    let (a, b) = state.marks.times_ms()?;
    let clock = |ms| clock(ms, state);
    let key = state.keys.of(Action::MarkTime).map_or_else(String::new, |k| format!(" ({})", k.name()));
    Some(match b {
        Some(b) => format!("change from {} to {}{key}", clock(a), clock(b)),
        None => format!("change since {}{key}", clock(a)),
    })
}

/// What is wrong with the filter being typed, else the columns that could follow.
fn hint(buf: &mut Buffer, at: Rect, end: u16, state: &AppState, typed: &str, theme: &Theme) {
    let room = end.saturating_sub(at.x + 1);
    let names = filter::suggestions(typed, &filter_fields());
    let (text, look) = match state.table.filter.error() {
        Some(error) if names.is_empty() => (clean(&error.to_string()), Look::Warning),
        _ if names.is_empty() => return,
        _ => (format!("Tab: {}", names.join(" ")), Look::Dim),
    };
    put(buf, at.x, at.y, &fit(&text, room, theme.glyphs.cut), room, theme.style(look));
}

fn keys(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let mut x = area.x + 1;
    if let Some(message) = &state.message {
        let room = area.width.saturating_sub(2);
        put(buf, x, area.y, &fit_words(&clean_line(message), room, theme.glyphs.cut), room, theme.style(Look::Strong));
        return;
    }
    let mut right = area.right();
    if !state.table.filter.is_empty() {
        let text = format!("filter: {} (Esc clears)", clean(state.table.filter.text()));
        let text = fit(&text, area.width / 2, theme.glyphs.cut);
        right = area.right().saturating_sub(width(&text) + 1);
        put(buf, right, area.y, &text, width(&text), theme.style(Look::Warning));
    }
    if let Some(text) = since(state) {
        let text = fit(&text, area.width / 2, theme.glyphs.cut);
        right = right.saturating_sub(width(&text) + 2);
        put(buf, right, area.y, &text, width(&text), theme.style(Look::Warning));
    }
    for (b, key) in key_lookup::footer(state) {
        let key = key.name();
        if x + width(&key) + width(b.short) + 3 > right {
            break;
        }
        put(buf, x, area.y, &key, width(&key), theme.style(Look::Key));
        x += width(&key) + 1;
        put(buf, x, area.y, b.short, width(b.short), theme.style(Look::Dim));
        x += width(b.short) + 2;
    }
}
