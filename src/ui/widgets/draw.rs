//! Writing into the screen's buffer.

use crate::ui::{StyleId, Theme};
use kvm::without_hidden;
use ratatui::prelude::{Buffer, Color, Rect, Span, Style};

/// Text in a style, without controls and invisible characters.
pub fn span(text: &str, style: Style) -> Span<'static> {
    Span::styled(
        without_hidden(text).into_owned(),
        Style::reset().patch(style),
    )
}

/// The screen's cells, and the theme that they are painted with.
pub struct Canvas<'a> {
    /// The cells.
    pub buf: &'a mut Buffer,
    /// The theme.
    pub theme: &'a Theme,
}

impl Canvas<'_> {
    /// Writes text at a position, cut to a width. The style replaces what was there. Controls and
    /// invisible characters are left out.
    pub fn put(&mut self, x: u16, y: u16, text: &str, columns: u16, style: StyleId) {
        let area = self.buf.area;
        if y < area.bottom() && x < area.right() {
            let span = span(text, self.theme.style(style));
            self.buf
                .set_span(x, y, &span, columns.min(area.right() - x));
        }
    }

    /// Marks the selected one of painted rows, if it is among them: the cursor, and its background.
    pub fn select(&mut self, rows: Rect, at: Option<usize>) {
        let selected = at.and_then(|at| rows.rows().nth(at));
        if let Some(row) = selected {
            let cursor = self.theme.glyphs.cursor.to_string();
            self.put(row.x, row.y, &cursor, 1, StyleId::Strong);
            self.highlight(row);
        }
    }

    /// Gives a painted row the background of a selected row. Text with a colour of its own keeps
    /// it. A theme without a background reverses the whole row.
    pub fn highlight(&mut self, row: Rect) {
        let style = self.theme.selected();
        for at in row.intersection(self.buf.area).positions() {
            let cell = &mut self.buf[at];
            if style.bg.is_none() || cell.fg == Color::Reset {
                cell.fg = style.fg.unwrap_or(Color::Reset);
            }
            cell.set_style(Style { fg: None, ..style });
        }
    }
}
