//! Draws the screen from its state alone.

use super::views::page::paint_section;
use super::views::{detail, guest_tables, guests, minute};
use super::widgets::{footer, header, help, menu, say, timeline};
use super::{AppState, PageState, Popup, ScreenView, StyleId, Theme, layout};
use ratatui::buffer::Buffer;
use ratatui::layout::Position;
use ratatui::style::Modifier;

/// Draws the whole screen into a buffer. Returns the position of the text cursor while text is
/// typed.
pub fn paint(buf: &mut Buffer, state: &AppState, theme: &Theme) -> Option<Position> {
    let area = buf.area;
    if layout::is_too_small(state.size) || area.width < state.size.0 || area.height < state.size.1 {
        let (columns, rows) = layout::SMALLEST;
        let text = format!(
            "kvmtop needs at least {columns} columns and {rows} rows; this terminal has {} x {}. \
                Please enlarge it.",
            area.width, area.height
        );
        say(buf, area, &text, StyleId::Text, theme);
        return None;
    }
    let plan = layout::plan(state);
    header::paint(buf, plan.header, state, theme);
    if state.view == ScreenView::Guests {
        guests::paint(buf, plan.list, state, theme);
        detail::paint(buf, plan.detail, state, theme);
        guest_tables::paint(buf, plan.tables, state, theme);
        if !plan.minute.is_empty() {
            paint_section(buf, plan.minute, &minute::section(state), 0, state, theme);
        }
    }
    if !plan.page.is_empty() {
        // Beside the list the page is only looked at: it is not scrolled or folded there.
        let shown = if state.view == ScreenView::Guests {
            PageState::default()
        } else {
            state.page
        };
        state
            .shown_page()
            .paint(buf, plan.page, shown, state, theme);
    }
    if !plan.timeline.is_empty() {
        timeline::paint(buf, plan.timeline, state, theme);
    }
    let cursor = footer::paint(buf, plan.footer, state, theme);
    match &state.popup {
        Some(Popup::Help(scroll)) => help::paint(buf, area, *scroll, state, theme),
        Some(Popup::Menu(menu, at)) => menu::paint(buf, area, (*menu, *at), state, theme),
        Some(Popup::Input(..)) | None => {}
    }
    if theme.is_ascii() {
        // Names of guests may be in any script.
        buf.content
            .iter_mut()
            .filter(|c| !c.symbol().is_ascii())
            .for_each(|c| {
                c.set_symbol("?");
            });
    }
    if theme.is_plain() {
        buf.content
            .iter_mut()
            .for_each(|cell| cell.modifier = Modifier::empty());
    }
    cursor
}
