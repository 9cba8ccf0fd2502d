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
use super::theme::{StyleId, Theme};
use draw::put;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::symbols::scrollbar::Set;
use ratatui::widgets::{Scrollbar, ScrollbarOrientation, ScrollbarState, StatefulWidget};

/// A line: pieces of text, each with its look.
pub type StyledLine = Vec<(String, StyleId)>;

/// Columns of the left text of a title that its right text leaves alone.
const MIN_LEFT: u16 = 16;

/// Paints a title on a rule, with text after it and at the right end.
pub fn title(buf: &mut Buffer, line: Rect, name: &str, left: &str, right: &str, theme: &Theme) {
    let rule = theme.glyphs.rule.to_string().repeat(line.width.into());
    put(
        buf,
        line.x,
        line.y,
        &rule,
        line.width,
        theme.style(StyleId::Dim),
    );
    let mut x = line.x + 1;
    let name = format!(" {name} ");
    put(
        buf,
        x,
        line.y,
        &name,
        line.width.saturating_sub(1),
        theme.style(StyleId::Head),
    );
    x += width(&name);
    let room = line.right().saturating_sub(x + 1);
    let right_width = width(right) + 2;
    let left_width = width(left).min(MIN_LEFT);
    let right_fits = !right.is_empty() && right_width + left_width + 1 < room;
    let left_room = if right_fits { room - right_width } else { room };
    if !left.is_empty() {
        let text = format!(
            " {} ",
            fit_words(left, left_room.saturating_sub(2), theme.glyphs.cut)
        );
        put(buf, x, line.y, &text, left_room, theme.style(StyleId::Text));
    }
    if right_fits {
        put(
            buf,
            line.right() - 1 - right_width,
            line.y,
            &format!(" {right} "),
            right_width,
            theme.style(StyleId::Dim),
        );
    }
}

/// Paints pieces of text in a line, cut to it.
pub fn paint_line(buf: &mut Buffer, line: Rect, pieces: &StyledLine, theme: &Theme) {
    let mut x = line.x;
    for (text, look) in pieces {
        put(
            buf,
            x,
            line.y,
            text,
            line.right().saturating_sub(x),
            theme.style(*look),
        );
        x = x.saturating_add(width(text));
    }
}

/// Paints sentences, wrapped to an area.
pub fn say(buf: &mut Buffer, area: Rect, text: &str, look: StyleId, theme: &Theme) {
    for (line, y) in wrap(text, area.width).iter().zip(area.y..area.bottom()) {
        put(buf, area.x, y, line, area.width, theme.style(look));
    }
}

/// Paints the scroll bar at the right edge of an area whose content has more lines than fit.
pub fn scrollbar(buf: &mut Buffer, area: Rect, lines: usize, top: usize, theme: &Theme) {
    let room = usize::from(area.height);
    if lines <= room || room < 3 {
        return;
    }
    let (thumb, track) = (
        theme.glyphs.bar[0].to_string(),
        theme.glyphs.frame[5].to_string(),
    );
    let symbols = Set {
        track: &track,
        thumb: &thumb,
        begin: &track,
        end: &track,
    };
    let bar = Scrollbar::new(ScrollbarOrientation::VerticalRight)
        .symbols(symbols)
        .begin_symbol(None)
        .end_symbol(None)
        .style(theme.style(StyleId::Dim));
    let mut state = ScrollbarState::new(lines - room)
        .position(top)
        .viewport_content_length(room);
    bar.render(area, buf, &mut state);
}
