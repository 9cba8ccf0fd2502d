//! The line of views: number and name of each, the one on the screen marked.

use super::domains::severity_glyph;
use crate::ui::cells::severity_role;
use crate::ui::draw::{highlight, put};
use crate::ui::state::AppState;
use crate::ui::text::width;
use crate::ui::theme::{Look, Theme};
use crate::ui::view::ScreenView;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// A view in the line: its left edge, its name after the number, and its mark.
type Tab = (ScreenView, u16, String, Option<(char, Look)>);

/// What a view has to say while another one is on the screen: findings, missing sources.
fn mark(view: ScreenView, state: &AppState, theme: &Theme) -> Option<(char, Look)> {
    match view {
        ScreenView::Findings => {
            let worst = state.findings.iter().map(|f| f.severity).max()?;
            Some((severity_glyph(worst, theme), severity_role(worst)))
        }
        ScreenView::Sources => {
            let model = state.model.as_ref()?;
            // What was looked at there is known: a host without libvirt is not warned about for ever.
            let is_news = model.troubled_sources().iter().any(|source| !state.seen_sources.contains(source));
            (is_news || model.lost > 0).then_some((theme.glyphs.severity[1], Look::Warning))
        }
        _ => None,
    }
}

/// How the names are written: with a space, without, and the shown view's alone where there is little room.
fn places(area: Rect, state: &AppState, theme: &Theme) -> Vec<Tab> {
    let names: [fn(ScreenView) -> String; 2] = [|v| format!(" {}", v.tab()), |v| v.short_tab().to_string()];
    let place = |gap: u16, name: &dyn Fn(ScreenView) -> String| {
        let mut x = area.x + 1;
        let mut tabs = Vec::new();
        for view in ScreenView::ALL {
            let (name, mark) = (name(view), mark(view, state, theme));
            let at = x;
            x += 1 + width(&name) + u16::from(mark.is_some()) + gap;
            tabs.push((view, at, name, mark));
        }
        (tabs, x - gap)
    };
    for (gap, name) in [(2, names[0]), (1, names[1])] {
        let (tabs, end) = place(gap, &name);
        if end <= area.right() {
            return tabs;
        }
    }
    place(1, &|v| if v == state.view.shown { v.tab().to_string() } else { String::new() }).0
}

/// The view whose name is in this column.
pub fn at(area: Rect, state: &AppState, column: u16) -> Option<ScreenView> {
    let tabs = places(area, state, &Theme::default());
    tabs.into_iter().find(|(_, x, name, _)| (*x..=x + width(name)).contains(&column)).map(|(view, ..)| view)
}

/// Paints the line.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let room = |x: u16| area.right().saturating_sub(x);
    for (view, x, name, mark) in places(area, state, theme) {
        put(buf, x, area.y, &view.key().to_string(), room(x), theme.style(Look::Key));
        let shown = view == state.view.shown;
        put(buf, x + 1, area.y, &name, room(x + 1), theme.style(if shown { Look::Strong } else { Look::Dim }));
        let end = x + 1 + width(&name);
        if let Some((glyph, look)) = mark {
            put(buf, end, area.y, &glyph.to_string(), room(end), theme.style(look));
        }
        if shown {
            highlight(buf, Rect { x, width: end - x, ..area }, theme);
        }
    }
}
