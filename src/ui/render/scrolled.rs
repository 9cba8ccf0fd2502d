//! Text of many lines in place of a view, of which a part is shown.

use super::popup::StyledLine;
use super::title;
use crate::ui::draw::put;
use crate::ui::text::width;
use crate::ui::theme::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Paints lines from the one scrolled to, below a title that says which they are; never past the last.
pub fn page(buf: &mut Buffer, area: Rect, name: &str, note: &str, lines: &[StyledLine], scroll: u16, theme: &Theme) {
    let room = usize::from(area.height.saturating_sub(1));
    let scroll = usize::from(scroll).min(lines.len().saturating_sub(room));
    let part = if lines.len() > room {
        format!("lines {}-{} of {}", scroll + 1, scroll + room, lines.len())
    } else {
        String::new()
    };
    let inner = title(buf, area, name, note, &part, theme);
    text(buf, inner, &lines[scroll..], theme);
}

/// Paints lines, each cut to the area.
pub fn text(buf: &mut Buffer, area: Rect, lines: &[StyledLine], theme: &Theme) {
    for (i, line) in lines.iter().take(area.height.into()).enumerate() {
        let mut x = area.x;
        for (text, look) in line {
            put(buf, x, area.y + i as u16, text, area.right().saturating_sub(x), theme.style(*look));
            x += width(text);
        }
    }
}
