//! Writing into the screen's buffer.

use crate::kvm::without_hidden;
use ratatui::buffer::Buffer;
use ratatui::style::Style;

/// Writes text at a position, cut to a width. The style replaces what was there. Controls and invisible
/// characters are left out.
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
