//! Parts that views are painted from, and the lines above and below every view.

pub mod bars;
pub mod draw;
pub mod footer;
pub mod header;
pub mod help;
pub mod menu;
pub mod popup;
pub mod timeline;

use super::text::{fit_words, width, wrap};
use super::theme::StyleId;
use draw::{Canvas, span};
use ratatui::prelude::{Line, Rect, StatefulWidget, Widget};
use ratatui::symbols::scrollbar::Set;
use ratatui::widgets::{
    Block, Borders, Paragraph, Scrollbar, ScrollbarOrientation, ScrollbarState,
};

/// A line: pieces of text, each with its look.
pub type StyledLine = Vec<(String, StyleId)>;

/// Columns of the left text of a title that its right text leaves alone.
const MIN_LEFT: u16 = 16;

impl Canvas<'_> {
    /// Paints a title on a rule, with text after it and at the right end.
    pub fn title(&mut self, line: Rect, name: &str, left: &str, right: &str) {
        let name = format!(" {name} ");
        let room = line.width.saturating_sub(width(&name) + 2);
        let right_width = width(right) + 2;
        let right_fits = !right.is_empty() && right_width + width(left).min(MIN_LEFT) + 1 < room;
        let left_room = if right_fits { room - right_width } else { room };
        let dim = self.theme.style(StyleId::Dim);
        let rule = self.theme.glyphs.rule.to_string();
        let mut pieces = vec![
            span(&rule, dim),
            span(&name, self.theme.style(StyleId::Head)),
        ];
        if !left.is_empty() {
            let left = fit_words(left, left_room.saturating_sub(2), self.theme.glyphs.cut);
            pieces.push(span(&format!(" {left} "), self.theme.style(StyleId::Text)));
        }
        let mut block = Block::new()
            .borders(Borders::TOP)
            .border_set(self.theme.glyphs.frame)
            .border_style(dim)
            .title(Line::from(pieces));
        if right_fits {
            let right = vec![span(&format!(" {right} "), dim), span(&rule, dim)];
            block = block.title(Line::from(right).right_aligned());
        }
        block.render(line, self.buf);
    }

    /// Paints pieces of text in a line, cut to it.
    pub fn line(&mut self, line: Rect, pieces: &StyledLine) {
        let mut spans = Vec::new();
        for (text, look) in pieces {
            spans.push(span(text, self.theme.style(*look)));
        }
        Line::from(spans).render(line, self.buf);
    }

    /// Paints sentences, wrapped to an area.
    pub fn say(&mut self, area: Rect, text: &str, look: StyleId) {
        let mut lines = Vec::new();
        for line in wrap(text, area.width) {
            lines.push(Line::from(span(&line, self.theme.style(look))));
        }
        Paragraph::new(lines).render(area, self.buf);
    }

    /// Paints the scroll bar at the right edge of an area whose content has more lines than fit.
    pub fn scrollbar(&mut self, area: Rect, lines: usize, top: usize) {
        let room = usize::from(area.height);
        if lines <= room || room < 3 {
            return;
        }
        let thumb = self.theme.glyphs.bar[0].to_string();
        let track = self.theme.glyphs.frame.vertical_right;
        let symbols = Set {
            track,
            thumb: &thumb,
            begin: track,
            end: track,
        };
        let bar = Scrollbar::new(ScrollbarOrientation::VerticalRight)
            .symbols(symbols)
            .begin_symbol(None)
            .end_symbol(None)
            .style(self.theme.style(StyleId::Dim));
        let mut state = ScrollbarState::new(lines - room)
            .position(top)
            .viewport_content_length(room);
        bar.render(area, self.buf, &mut state);
    }
}
