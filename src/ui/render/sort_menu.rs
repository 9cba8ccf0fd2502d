//! The menu of sort columns.

use super::popup::{self, StyledLine};
use crate::ui::guest_columns::COLUMNS;
use crate::ui::state::AppState;
use crate::ui::text::{fit_words, width};
use crate::ui::theme::{Look, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Paints it over the screen.
pub fn paint(buf: &mut Buffer, area: Rect, at: usize, state: &AppState, theme: &Theme) {
    let room = popup::room(area.width);
    let g = &theme.glyphs;
    let mut lines: Vec<StyledLine> = Vec::new();
    for (i, c) in COLUMNS.iter().enumerate() {
        let selected = i == at;
        let now = c.id == state.table.sort.column;
        let order = if now { g.sort[usize::from(state.table.sort.reversed)] } else { ' ' };
        let cursor = if selected { g.cursor } else { ' ' };
        let label = format!("{cursor} {order} {:<12}", c.header);
        let help = fit_words(c.help, room.saturating_sub(width(&label)), g.cut);
        let look = if selected || now { Look::Strong } else { Look::Text };
        lines.push(vec![(label, look), (help, Look::Dim)]);
    }
    let title = vec![("sort guests by".into(), Look::Strong)];
    popup::paint(buf, area, title, "Enter: sort; again: reverse", &lines, at.saturating_sub(8) as u16, theme);
}
