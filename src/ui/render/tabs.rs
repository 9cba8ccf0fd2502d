//! The line of views: number and name of each, the one on the screen marked.

use crate::ui::draw::put;
use crate::ui::state::AppState;
use crate::ui::text::width;
use crate::ui::theme::{Look, Theme};
use crate::ui::view::ScreenView;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// A view in the line: its left edge, and its name after the number.
type Tab = (ScreenView, u16, String);

/// How the names are written: with a space, without, and the shown view's alone where there is little room.
fn places(area: Rect, shown: ScreenView) -> Vec<Tab> {
    let names: [fn(ScreenView, ScreenView) -> String; 3] = [
        |v, _| format!(" {}", v.tab()),
        |v, _| v.tab().to_string(),
        |v, shown| if v == shown { v.tab().to_string() } else { String::new() },
    ];
    let mut tabs = Vec::new();
    for (i, name) in names.into_iter().enumerate() {
        let gap = if i == 0 { 2 } else { 1 };
        let mut x = area.x + 1;
        tabs.clear();
        for view in ScreenView::ALL {
            let name = name(view, shown);
            let at = x;
            x += 1 + width(&name) + gap;
            tabs.push((view, at, name));
        }
        if x <= area.right() + gap {
            break;
        }
    }
    tabs
}

/// The view whose name stands in this column.
pub fn at(area: Rect, shown: ScreenView, column: u16) -> Option<ScreenView> {
    places(area, shown).into_iter().find(|(_, x, name)| (*x..=x + width(name)).contains(&column)).map(|(view, ..)| view)
}

/// Paints the line.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    for (view, x, name) in places(area, state.view.shown) {
        let (mut key, mut text) = (theme.style(Look::Key), theme.style(Look::Dim));
        if view == state.view.shown {
            (key, text) = (key.patch(theme.selected()), theme.style(Look::Strong).patch(theme.selected()));
        }
        put(buf, x, area.y, &view.key().to_string(), area.right().saturating_sub(x), key);
        put(buf, x + 1, area.y, &name, area.right().saturating_sub(x + 1), text);
    }
}
