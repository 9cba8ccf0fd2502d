//! A popup: framed text over the screen that can be scrolled.

use crate::ui::draw::put;
use crate::ui::text::{fit, width};
use crate::ui::theme::{Look, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Clear, Widget};

/// A line: pieces of text, each with its look.
pub type StyledLine = Vec<(String, Look)>;

/// Widest text that is still easy to read.
const WIDEST: u16 = 120;

/// How many columns of text a popup has on a screen of this width.
pub fn room(screen: u16) -> u16 {
    screen.saturating_sub(4).min(WIDEST)
}

/// Paints the frame, its title, a note on its lower edge, and the lines from `scroll` on.
pub fn paint(
    buf: &mut Buffer,
    screen: Rect,
    title: StyledLine,
    note: &str,
    lines: &[StyledLine],
    scroll: u16,
    theme: &Theme,
) {
    let width_all = room(screen.width) + 4;
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
    let mut x = area.x + 2;
    let end = area.right() - 2;
    put(buf, x - 1, area.y, " ", 1, theme.style(Look::Text));
    for (text, role) in title {
        let text = fit(&text, end.saturating_sub(x + 1), theme.glyphs.cut);
        put(buf, x, area.y, &text, end.saturating_sub(x), theme.style(role));
        x += width(&text);
    }
    put(buf, x, area.y, " ", 1, theme.style(Look::Text));
    let shown = usize::from(height - 2);
    let scroll = usize::from(scroll).min(lines.len().saturating_sub(shown));
    for (i, line) in lines.iter().skip(scroll).take(shown).enumerate() {
        let mut x = area.x + 2;
        for (text, role) in line {
            put(buf, x, area.y + 1 + i as u16, text, end.saturating_sub(x), theme.style(*role));
            x += width(text);
        }
    }
    let more = if lines.len() > shown {
        format!("{}-{} of {}", scroll + 1, scroll + shown, lines.len())
    } else {
        String::new()
    };
    let foot = [note, &more].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join("  ");
    if !foot.is_empty() {
        let foot = format!(" {} ", fit(&foot, area.width.saturating_sub(6), theme.glyphs.cut));
        put(buf, area.right() - 2 - width(&foot), area.bottom() - 1, &foot, width(&foot), theme.style(Look::Dim));
    }
}

fn frame(buf: &mut Buffer, area: Rect, theme: &Theme) {
    let [top_left, top_right, bottom_left, bottom_right, horizontal, vertical] = theme.glyphs.frame;
    let style = theme.style(Look::Dim);
    let run = horizontal.to_string().repeat(usize::from(area.width - 2));
    put(buf, area.x, area.y, &format!("{top_left}{run}{top_right}"), area.width, style);
    put(buf, area.x, area.bottom() - 1, &format!("{bottom_left}{run}{bottom_right}"), area.width, style);
    for y in area.y + 1..area.bottom() - 1 {
        put(buf, area.x, y, &vertical.to_string(), 1, style);
        put(buf, area.right() - 1, y, &vertical.to_string(), 1, style);
    }
}
