//! The menus of columns and of formats.

use super::popup::{self, StyledLine};
use crate::ui::guest_columns;
use crate::ui::menus;
use crate::ui::save_format::SaveFormat;
use crate::ui::state::AppState;
use crate::ui::text::fit_words;
use crate::ui::theme::{Look, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Paints the menu of columns.
pub fn columns(buf: &mut Buffer, area: Rect, at: usize, state: &AppState, theme: &Theme) {
    let entries = menus::listed(&state.table).into_iter().map(|(id, is_chosen)| {
        let c = guest_columns::column(id);
        (format!("[{}] {:<11} {:<13}", if is_chosen { 'x' } else { ' ' }, c.header, c.name), c.help)
    });
    let note = "the second name is that of filters, CSV and the config file";
    paint(buf, area, "columns of the table of guests", note, &entries.collect::<Vec<_>>(), at, theme);
}

/// Paints the menu of formats.
pub fn save(buf: &mut Buffer, area: Rect, at: usize, theme: &Theme) {
    let entries = SaveFormat::ALL.map(|f| (format!("{:<6}", f.extension()), f.help()));
    paint(
        buf,
        area,
        "write the view into a file in the current folder",
        "Enter: write  Esc: close",
        &entries,
        at,
        theme,
    );
}

fn paint(buf: &mut Buffer, area: Rect, title: &str, note: &str, entries: &[(String, &str)], at: usize, theme: &Theme) {
    let room = popup::room(area.width);
    let line = |(i, (label, help)): (usize, &(String, &str))| -> StyledLine {
        let cursor = if i == at { theme.glyphs.cursor } else { ' ' };
        let label = format!("{cursor} {label} ");
        let rest = room.saturating_sub(crate::ui::text::width(&label));
        let look = if i == at { Look::Strong } else { Look::Text };
        vec![(label, look), (fit_words(help, rest, theme.glyphs.cut), if i == at { Look::Text } else { Look::Dim })]
    };
    let lines: Vec<StyledLine> = entries.iter().enumerate().map(line).collect();
    let shown = usize::from(area.height.saturating_sub(3)).max(1);
    let scroll = (at + 1).saturating_sub(shown) as u16;
    popup::paint(buf, area, vec![(title.into(), Look::Strong)], note, &lines, scroll, theme);
}
