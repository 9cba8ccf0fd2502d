//! Draws the screen from its state alone.

use super::views::page::paint_section;
use super::views::{detail, guest_tables, guests, minute};
use super::widgets::{footer, header, help, menu, timeline};
use super::{
    AppState, Canvas, Charset, PageState, Palette, Popup, ScreenView, StyleId, Theme, layout,
};
use ratatui::prelude::{Buffer, Modifier, Position};

/// Draws the whole screen into a buffer. Returns the position of the text cursor while text is
/// typed.
pub fn paint(buf: &mut Buffer, state: &AppState, theme: &Theme) -> Option<Position> {
    let area = buf.area;
    let canvas = &mut Canvas { buf, theme };
    if layout::is_too_small(state.size) || area.width < state.size.0 || area.height < state.size.1 {
        let (columns, rows) = layout::SMALLEST;
        let text = format!(
            "kvmtop needs at least {columns} columns and {rows} rows; this terminal has {} x {}. \
                Please enlarge it.",
            area.width, area.height
        );
        canvas.say(area, &text, StyleId::Text);
        return None;
    }
    let plan = layout::plan(state);
    header::paint(canvas, plan.header, state);
    if state.view == ScreenView::Guests {
        guests::paint(canvas, plan.list, state);
        detail::paint(canvas, plan.detail, state);
        guest_tables::paint(canvas, plan.tables, state);
        if !plan.minute.is_empty() {
            paint_section(canvas, plan.minute, &minute::section(state), 0, state);
        }
    }
    if !plan.page.is_empty() {
        // Beside the list the page is only looked at: it is not scrolled or folded there.
        let shown = if state.view == ScreenView::Guests {
            PageState::default()
        } else {
            state.page
        };
        state.shown_page().paint(canvas, plan.page, shown, state);
    }
    if !plan.timeline.is_empty() {
        timeline::paint(canvas, plan.timeline, state);
    }
    let cursor = footer::paint(canvas, plan.footer, state);
    match &state.popup {
        Some(Popup::Help(scroll)) => help::paint(canvas, area, *scroll, state),
        Some(Popup::Menu(menu, at)) => menu::paint(canvas, area, (*menu, *at), state),
        Some(Popup::Input(..)) | None => {}
    }
    if theme.charset == Charset::Ascii {
        // Names of guests may be in any script.
        canvas
            .buf
            .content
            .iter_mut()
            .filter(|c| !c.symbol().is_ascii())
            .for_each(|c| {
                c.set_symbol("?");
            });
    }
    if theme.palette == Palette::Plain {
        canvas
            .buf
            .content
            .iter_mut()
            .for_each(|cell| cell.modifier = Modifier::empty());
    }
    cursor
}
