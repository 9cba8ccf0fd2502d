//! Writing into the screen's buffer.

use crate::ui::{StyleId, Theme};
use kvm::without_hidden;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::Span;

/// Text in a style, without controls and invisible characters.
pub fn span(text: &str, style: Style) -> Span<'static> {
    Span::styled(
        without_hidden(text).into_owned(),
        Style::reset().patch(style),
    )
}

/// Writes text at a position, cut to a width. The style replaces what was there. Controls and
/// invisible characters are left out.
pub fn put(buf: &mut Buffer, x: u16, y: u16, text: &str, columns: u16, style: Style) {
    let area = buf.area;
    if y < area.bottom() && x < area.right() {
        buf.set_span(x, y, &span(text, style), columns.min(area.right() - x));
    }
}

/// Marks the selected one of painted rows, if it is among them: the cursor, and its background.
pub fn select(buf: &mut Buffer, rows: Rect, at: Option<usize>, theme: &Theme) {
    let selected = at.and_then(|at| rows.rows().nth(at));
    if let Some(row) = selected {
        let cursor = theme.glyphs.cursor.to_string();
        put(buf, row.x, row.y, &cursor, 1, theme.style(StyleId::Strong));
        highlight(buf, row, theme);
    }
}

/// Gives a painted row the background of a selected row. Text with a colour of its own keeps it. A
/// theme without a background reverses the whole row.
pub fn highlight(buf: &mut Buffer, row: Rect, theme: &Theme) {
    let style = theme.selected();
    for at in row.intersection(buf.area).positions() {
        let cell = &mut buf[at];
        if style.bg.is_none() || cell.fg == Color::Reset {
            cell.fg = style.fg.unwrap_or(Color::Reset);
        }
        cell.set_style(Style { fg: None, ..style });
    }
}
