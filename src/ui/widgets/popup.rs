//! A popup: framed text over the screen that can be scrolled.

use super::StyledLine;
use super::draw::span;
use crate::ui::{Canvas, StyleId, fit};
use ratatui::prelude::{Line, Rect, Widget};
use ratatui::widgets::{Block, Clear, Padding};

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
pub fn paint(canvas: &mut Canvas, screen: Rect, popup: &PopupText<'_>) {
    let lines = &popup.lines;
    let width_all = room(screen.width) + 4;
    // The footer stays visible: it shows the keys.
    let height = (lines.len() as u16 + 2).min(screen.height.saturating_sub(1));
    let area = Rect {
        x: screen.x + (screen.width - width_all) / 2,
        y: screen.y + (screen.height - 1 - height) / 2,
        width: width_all,
        height,
    };
    let room = area.width - 6;
    let cut = canvas.theme.glyphs.cut;
    let title = format!(" {} ", fit(popup.title, room, cut));
    let shown = usize::from(height - 2);
    let scroll = popup.scroll.min(lines.len().saturating_sub(shown));
    let more = format!("{}-{} of {}", scroll + 1, scroll + shown, lines.len());
    let foot = match (popup.note, lines.len() > shown) {
        (note, false) => note.to_owned(),
        ("", true) => more,
        (note, true) => format!("{note}  {more}"),
    };
    let mut frame = Block::bordered()
        .border_set(canvas.theme.glyphs.frame)
        .border_style(canvas.theme.style(StyleId::Dim))
        .padding(Padding::horizontal(1))
        .title(span(&title, canvas.theme.style(StyleId::Strong)));
    if !foot.is_empty() {
        let foot = format!(" {} ", fit(&foot, room, cut));
        let foot = Line::from(span(&foot, canvas.theme.style(StyleId::Dim)));
        frame = frame.title_bottom(foot.right_aligned());
    }
    let inner = frame.inner(area);
    Clear.render(area, canvas.buf);
    frame.render(area, canvas.buf);
    for (line, row) in lines.iter().skip(scroll).zip(inner.rows()) {
        canvas.line(row, line);
    }
    let selected = popup.selected.and_then(|at| at.checked_sub(scroll));
    if let Some(row) = selected.and_then(|at| inner.rows().nth(at)) {
        canvas.highlight(row);
    }
}
