//! Writing into the screen's buffer.

use crate::ui::theme::Theme;
use kvm::without_hidden;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};

/// Writes text at a position, cut to a width. The style replaces what was there. Controls and
/// invisible characters are left out.
pub fn put(buf: &mut Buffer, x: u16, y: u16, text: &str, columns: u16, style: Style) {
    let area = buf.area;
    if y < area.bottom() && x < area.right() {
        buf.set_stringn(
            x,
            y,
            without_hidden(text),
            usize::from(columns.min(area.right() - x)),
            Style::reset().patch(style),
        );
    }
}

/// Gives a painted row the single background of a selected row. Without theme colours the whole row
/// is reversed.
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
