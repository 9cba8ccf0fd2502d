//! A popup: framed text over the screen that can be scrolled.

use super::draw::{highlight, put};
use super::{StyledLine, paint_line};
use crate::ui::text::{fit, width};
use crate::ui::theme::{StyleId, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Clear, Widget};

/// Widest text that is still easy to read.
const MAX_WIDTH: u16 = 120;

/// How many columns of text a popup has on a screen of this width.
pub fn room(screen: u16) -> u16 {
    screen.saturating_sub(4).min(MAX_WIDTH)
}

/// What a popup shows.
pub struct PopupText<'a> {
    /// Its title.
    pub title: &'a str,
    /// What is said on its lower edge.
    pub note: &'a str,
    /// Its lines.
    pub lines: Vec<StyledLine>,
    /// The first visible line.
    pub scroll: usize,
    /// The selected line.
    pub selected: Option<usize>,
}

/// Paints a popup in the middle of the screen.
pub fn paint(buf: &mut Buffer, screen: Rect, popup: &PopupText<'_>, theme: &Theme) {
    let (lines, width_all) = (&popup.lines, room(screen.width) + 4);
    // The footer stays visible: it shows the keys.
    let height = (lines.len() as u16 + 2).min(screen.height.saturating_sub(1));
    let area = Rect {
        x: screen.x + (screen.width - width_all) / 2,
        y: screen.y + (screen.height - 1 - height) / 2,
        width: width_all,
        height,
    };
    Clear.render(area, buf);
    frame(buf, area, theme);
    let room = area.width - 6;
    let title = format!(" {} ", fit(popup.title, room, theme.glyphs.cut));
    put(
        buf,
        area.x + 1,
        area.y,
        &title,
        room + 2,
        theme.style(StyleId::Strong),
    );
    let shown = usize::from(height - 2);
    let scroll = popup.scroll.min(lines.len().saturating_sub(shown));
    for (i, line) in lines.iter().enumerate().skip(scroll).take(shown) {
        let row = Rect {
            x: area.x + 2,
            y: area.y + 1 + (i - scroll) as u16,
            width: area.width - 4,
            height: 1,
        };
        paint_line(buf, row, line, theme);
        if popup.selected == Some(i) {
            highlight(buf, row, theme);
        }
    }
    let more = format!("{}-{} of {}", scroll + 1, scroll + shown, lines.len());
    let more = if lines.len() > shown {
        more
    } else {
        String::new()
    };
    let foot = [popup.note, &more]
        .into_iter()
        .filter(|s| !s.is_empty())
        .collect::<Vec<_>>()
        .join("  ");
    if !foot.is_empty() {
        let foot = format!(" {} ", fit(&foot, room, theme.glyphs.cut));
        put(
            buf,
            area.right() - 2 - width(&foot),
            area.bottom() - 1,
            &foot,
            width(&foot),
            theme.style(StyleId::Dim),
        );
    }
}

fn frame(buf: &mut Buffer, area: Rect, theme: &Theme) {
    let [
        top_left,
        top_right,
        bottom_left,
        bottom_right,
        horizontal,
        vertical,
    ] = theme.glyphs.frame;
    let style = theme.style(StyleId::Dim);
    let run = horizontal.to_string().repeat(usize::from(area.width - 2));
    put(
        buf,
        area.x,
        area.y,
        &format!("{top_left}{run}{top_right}"),
        area.width,
        style,
    );
    put(
        buf,
        area.x,
        area.bottom() - 1,
        &format!("{bottom_left}{run}{bottom_right}"),
        area.width,
        style,
    );
    for y in area.y + 1..area.bottom() - 1 {
        put(buf, area.x, y, &vertical.to_string(), 1, style);
        put(buf, area.right() - 1, y, &vertical.to_string(), 1, style);
    }
}
