//! Turns the picture on a terminal into the next one with few bytes, because the connection may be
//! slow. ratatui's own backend sends many more: it places the cursor and repeats colours.
//!
//! Changed cells are sent style by style, so that each style is set once. Text between two changes
//! of a line is written again where that is shorter than to jump over it.

use crossterm::cursor::{MoveLeft, MoveRight, MoveTo};
use crossterm::queue;
use crossterm::style::{Attribute, Print, SetAttribute, SetBackgroundColor, SetForegroundColor};
use ratatui::backend::IntoCrossterm;
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Position;
use ratatui::style::{Color, Modifier};
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Bytes of a jump within a line, `ESC [ 12 C`. A VT100 cannot jump to a column (`ESC [ 12 G`).
const JUMP: usize = 5;
/// Modifiers that show on a blank cell.
const ON_BLANKS: Modifier = Modifier::REVERSED.union(Modifier::UNDERLINED);
/// The modifiers that are sent to a terminal.
const MODIFIERS: [(Modifier, Attribute); 4] = [
    (Modifier::BOLD, Attribute::Bold),
    (Modifier::DIM, Attribute::Dim),
    (Modifier::UNDERLINED, Attribute::Underlined),
    (Modifier::REVERSED, Attribute::Reverse),
];

/// Writes the cells that changed. Both pictures have the same size. Afterwards the cursor may be
/// anywhere, and the style is the terminal's default.
///
/// # Errors
/// As the writer has them.
pub fn write_changes(out: &mut impl Write, shown: &Buffer, now: &Buffer) -> io::Result<()> {
    let mut pen = Pen::default();
    // Where the cursor is, if known.
    let mut cursor = None;
    for group in by_style(shown, now) {
        pen.change(out, group.pen)?;
        for (x, y, cell) in group.cells {
            move_cursor(out, cursor, Position { x, y }, now, pen)?;
            queue!(out, Print(cell.symbol()))?;
            // Terminals differ in where the cursor is after the last column or a wide character.
            cursor = if cell.symbol().width() == 1 && x + 1 < now.area.width {
                Some(Position { x: x + 1, y })
            } else {
                None
            };
        }
    }
    pen.change(out, Pen::default())
}

/// Changed cells that one pen shows.
struct StyleGroup<'a> {
    pen: Pen,
    /// Column, line and cell.
    cells: Vec<(u16, u16, &'a Cell)>,
}

/// The cells that changed, by their style.
fn by_style<'a>(shown: &Buffer, now: &'a Buffer) -> Vec<StyleGroup<'a>> {
    let mut groups = Vec::new();
    // Cells of the default style come first.
    let mut index = group_for(&mut groups, &Cell::EMPTY);
    for (x, y, cell) in shown.diff_iter(now) {
        // Neighbours mostly share a style, so the last group is tried first.
        if !groups[index].pen.shows(cell) {
            index = group_for(&mut groups, cell);
        }
        groups[index].cells.push((x, y, cell));
    }
    groups
}

/// The index of the first group whose pen shows a cell; a new group where there is none.
fn group_for(groups: &mut Vec<StyleGroup<'_>>, cell: &Cell) -> usize {
    let known = groups.iter().position(|group| group.pen.shows(cell));
    known.unwrap_or_else(|| {
        groups.push(StyleGroup {
            pen: Pen::of(cell),
            cells: Vec::new(),
        });
        groups.len() - 1
    })
}

/// Moves the cursor from where it is, if known, to a place.
fn move_cursor(
    out: &mut impl Write,
    from: Option<Position>,
    to: Position,
    now: &Buffer,
    pen: Pen,
) -> io::Result<()> {
    let Some(from) = from.filter(|from| from.y == to.y) else {
        return queue!(out, MoveTo(to.x, to.y));
    };
    if from.x > to.x {
        return queue!(out, MoveLeft(from.x - to.x));
    }
    // The cells between are written again if the pen shows them and a jump would be longer.
    let mut between = (from.x..to.x).map(|x| &now[(x, to.y)]);
    let text: String = between.clone().map(Cell::symbol).collect();
    let may_write = between.all(|cell| cell.symbol().len() == 1 && pen.shows(cell));
    if may_write && text.len() < JUMP {
        queue!(out, Print(text))
    } else {
        queue!(out, MoveRight(to.x - from.x))
    }
}

/// Colours and modifiers with which the terminal writes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pen {
    fg: Color,
    bg: Color,
    modifier: Modifier,
}

impl Default for Pen {
    fn default() -> Self {
        Self {
            fg: Color::Reset,
            bg: Color::Reset,
            modifier: Modifier::empty(),
        }
    }
}

impl Pen {
    fn of(cell: &Cell) -> Self {
        Self {
            fg: cell.fg,
            bg: cell.bg,
            modifier: cell.modifier,
        }
    }

    /// Whether a cell that is written with this pen looks as it should. Of a blank cell only the
    /// background is seen.
    fn shows(&self, cell: &Cell) -> bool {
        let wanted = Self::of(cell);
        let is_blank =
            cell.symbol() == " " && !(self.modifier | wanted.modifier).intersects(ON_BLANKS);
        *self == wanted || (is_blank && self.bg == wanted.bg)
    }

    /// Tells the terminal to write as `to` from here on.
    fn change(&mut self, out: &mut impl Write, to: Self) -> io::Result<()> {
        if *self == to {
            return Ok(());
        }
        // Bold and dim have one end in common, so neither can be ended alone. Hence the whole style
        // is reset when any modifier ends.
        if !to.modifier.contains(self.modifier) || to == Self::default() {
            queue!(out, SetAttribute(Attribute::Reset))?;
            *self = Self::default();
        }
        for (modifier, attribute) in MODIFIERS {
            if to.modifier.contains(modifier) && !self.modifier.contains(modifier) {
                queue!(out, SetAttribute(attribute))?;
            }
        }
        if to.fg != self.fg {
            match place_among_sixteen(to.fg) {
                // 30 to 37, and 90 to 97 for the bright ones.
                Some(n) => write!(out, "\x1b[{}m", if n < 8 { 30 + n } else { 90 + n - 8 })?,
                None => queue!(out, SetForegroundColor(to.fg.into_crossterm()))?,
            }
        }
        if to.bg != self.bg {
            queue!(out, SetBackgroundColor(to.bg.into_crossterm()))?;
        }
        *self = to;
        Ok(())
    }
}

/// The index of a colour among the terminal's sixteen colours. Without it, crossterm sends a
/// 256-colour sequence, which a terminal with only sixteen colours may read as two modifiers.
fn place_among_sixteen(colour: Color) -> Option<usize> {
    use Color as C;
    #[rustfmt::skip]
    const SIXTEEN: [C; 16] = [
        C::Black, C::Red, C::Green, C::Yellow, C::Blue, C::Magenta, C::Cyan, C::Gray,
        C::DarkGray, C::LightRed, C::LightGreen, C::LightYellow,
        C::LightBlue, C::LightMagenta, C::LightCyan, C::White,
    ];
    SIXTEEN.iter().position(|one| *one == colour)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    const AREA: Rect = Rect::new(0, 0, 40, 6);

    /// A picture: texts at places, in styles.
    fn picture(texts: &[(u16, u16, String, usize)]) -> Buffer {
        let styles = [
            Style::new(),
            Style::new().fg(Color::Indexed(133)),
            Style::new()
                .fg(Color::Indexed(203))
                .add_modifier(Modifier::BOLD),
            Style::new().fg(Color::Indexed(133)).bg(Color::Indexed(238)),
            Style::new().add_modifier(Modifier::REVERSED),
            Style::new()
                .fg(Color::Green)
                .add_modifier(Modifier::UNDERLINED | Modifier::DIM),
        ];
        let mut buffer = Buffer::empty(AREA);
        for (x, y, text, style) in texts {
            buffer.set_stringn(
                *x,
                *y,
                text,
                usize::from(AREA.width - x),
                Style::reset().patch(styles[*style]),
            );
        }
        buffer
    }

    fn sent(shown: &Buffer, now: &Buffer) -> Vec<u8> {
        let mut out = Vec::new();
        write_changes(&mut out, shown, now).unwrap();
        out
    }

    fn texts() -> impl Strategy<Value = Vec<(u16, u16, String, usize)>> {
        let text = "[ab \u{2593}\u{2581}]{1,12}";
        prop::collection::vec((0..AREA.width, 0..AREA.height, text, 0..6_usize), 0..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn a_terminal_shows_the_picture(pictures in prop::collection::vec(texts(), 1..5)) {
            let n = |n: u16| std::num::NonZero::new(n).unwrap();
            let mut terminal = vt100::Parser::new(n(AREA.height), n(AREA.width), 0);
            let mut shown = Buffer::empty(AREA);
            for texts in pictures {
                let now = picture(&texts);
                terminal.process(&sent(&shown, &now));
                shown = now;
            }
            for at in AREA.positions() {
                let cell = terminal.screen().cell(at.y, at.x).unwrap();
                let wanted = &shown[at];
                let text = if cell.contents().is_empty() { " " } else { cell.contents() };
                prop_assert!(text == wanted.symbol(), "{at}: {text:?} for {wanted:?}");
                let colour = |c: Color| match c {
                    Color::Indexed(n) => vt100::Color::Idx(n),
                    Color::Green => vt100::Color::Idx(2),
                    _ => vt100::Color::Default,
                };
                prop_assert_eq!(cell.bgcolor(), colour(wanted.bg));
                prop_assert_eq!(cell.inverse(), wanted.modifier.contains(Modifier::REVERSED));
                prop_assert_eq!(cell.underline(), wanted.modifier.contains(Modifier::UNDERLINED));
                if wanted.symbol() != " " {
                    prop_assert_eq!(cell.fgcolor(), colour(wanted.fg));
                    prop_assert_eq!(cell.bold(), wanted.modifier.contains(Modifier::BOLD));
                    prop_assert_eq!(cell.dim(), wanted.modifier.contains(Modifier::DIM));
                }
            }
        }
    }

    #[test]
    fn what_did_not_change_is_not_sent() {
        let one = picture(&[(0, 0, "abc".into(), 2)]);
        assert!(sent(&one, &one).is_empty());
    }

    #[test]
    fn a_short_gap_is_written_and_a_long_one_jumped() {
        let line = |text: &str| picture(&[(0, 0, text.into(), 0)]);
        assert_eq!(
            sent(&line("1 ab 2 abcdefgh 3"), &line("4 ab 5 abcdefgh 6")),
            b"\x1b[1;1H4 ab 5\x1b[10C6"
        );
    }

    #[test]
    fn behind_a_wide_character_the_cursor_is_placed() {
        let line = |text: &str| picture(&[(0, 0, text.into(), 0)]);
        assert_eq!(
            sent(&line("abcd"), &line("\u{30b3}xd")),
            "\x1b[1;1H\u{30b3}\x1b[1;3Hx".as_bytes()
        );
    }

    #[test]
    fn a_colour_is_set_once() {
        let rows = |a: &str, b: &str| {
            picture(&[
                (0, 0, a.into(), 1),
                (9, 0, b.into(), 0),
                (20, 0, a.into(), 1),
            ])
        };
        let expected = b"\x1b[1;10H4\x1b[38;5;133m\x1b[10D3\x1b[19C3\x1b[0m";
        assert_eq!(sent(&rows("1", "2"), &rows("3", "4")), expected);
    }
}
