//! Tables: which columns fit, and painting their cells. Widths are fixed, so a figure that grows moves nothing.

use super::bars;
use super::draw::{highlight, put};
use super::text::{fit, fit_middle, fit_words, width};
use super::theme::{Look, Theme};
use judge::figures::UNKNOWN;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use std::borrow::Cow;

/// How a column is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnLayout {
    /// Smallest width.
    pub width: u16,
    /// How many columns it may take beyond that where there is room.
    pub grow: u16,
    /// Whether its text is aligned to the right.
    pub right: bool,
    /// When room is short, the highest is left out first; 0 always stays.
    pub priority: u8,
}

impl ColumnLayout {
    /// A column of text.
    pub const fn left(width: u16, grow: u16, priority: u8) -> Self {
        Self { width, grow, right: false, priority }
    }

    /// A column of figures.
    pub const fn right(width: u16, grow: u16, priority: u8) -> Self {
        Self { width, grow, right: true, priority }
    }
}

/// Content of a cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Text or a figure.
    Text(String, Look),
    /// A name, which is cut in its middle, and the state it is in.
    Name(String, Option<&'static str>, Look),
    /// A bar of guest, usr, sys and wait, and the value of the full bar.
    Bar([f64; 4], f64),
    /// A sparkline: its points, newest last, the number of the first one, and the top of the scale.
    Spark(Vec<Option<f64>>, usize, f64),
}

impl Cell {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into(), Look::Text)
    }

    /// An empty cell.
    pub fn blank() -> Self {
        Self::text("")
    }

    /// A name: of one that is too long the middle is left out.
    pub fn name(name: impl Into<String>) -> Self {
        Self::Name(name.into(), None, Look::Text)
    }

    /// A value that no source gave.
    pub fn unknown() -> Self {
        Self::Text(UNKNOWN.into(), Look::Dim)
    }

    /// A value printed by `f`, or unknown.
    pub fn figure(value: Option<f64>, f: fn(f64) -> String) -> Self {
        value.map_or_else(Self::unknown, |v| Self::text(f(v)))
    }

    /// Whether it holds a value.
    pub fn is_known(&self) -> bool {
        !matches!(self, Self::Text(t, _) if t == UNKNOWN || t.is_empty())
    }

    /// A bar of four parts.
    pub fn bar(parts: [f64; 4], whole: f64) -> Self {
        Self::Bar(parts, whole)
    }

    /// The same cell in another look; an unknown value stays dim.
    #[must_use]
    pub fn role(self, role: Look) -> Self {
        match self {
            Self::Text(t, _) if t != UNKNOWN => Self::Text(t, role),
            Self::Name(name, state, _) => Self::Name(name, state, role),
            other => other,
        }
    }
}

/// A column that fits: its index, left edge (relative) and width.
pub type Fitted = (usize, u16, u16);

/// Which columns fit into `columns` screen columns with a gap of one. The highest priority numbers are left out first;
/// spare room is shared.
pub fn fit_columns(layouts: &[ColumnLayout], columns: u16) -> Vec<Fitted> {
    let mut kept: Vec<usize> = (0..layouts.len()).collect();
    let need = |kept: &[usize]| -> u16 {
        kept.iter().map(|&i| layouts[i].width).sum::<u16>() + kept.len().saturating_sub(1) as u16
    };
    while need(&kept) > columns {
        let last = kept.iter().enumerate().filter(|(_, i)| layouts[**i].priority > 0);
        // Of equal ones the rightmost is left out.
        let Some((at, _)) = last.max_by_key(|(at, i)| (layouts[**i].priority, *at)) else { break };
        kept.remove(at);
    }
    let mut room = columns.saturating_sub(need(&kept));
    let mut widths: Vec<u16> = kept.iter().map(|&i| layouts[i].width).collect();
    let mut grew = true;
    while room > 0 && grew {
        grew = false;
        for (w, &i) in widths.iter_mut().zip(&kept) {
            if room > 0 && *w < layouts[i].width + layouts[i].grow {
                *w += 1;
                room -= 1;
                grew = true;
            }
        }
    }
    let mut x = 0;
    kept.into_iter()
        .zip(widths)
        .map(|(i, w)| {
            let at = x;
            x += w + 1;
            (i, at, w)
        })
        .collect()
}

/// Look of a row as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RowLook {
    /// As its cells are.
    #[default]
    Plain,
    /// Less important.
    Dim,
    /// Part of a finding, in the look of its severity.
    Marked(Look),
}

/// Paints a row's cells, which `cell` makes by the index of the column.
pub fn paint<'a>(
    buf: &mut Buffer,
    area: Rect,
    fitted: &[Fitted],
    layouts: &[ColumnLayout],
    cell: impl Fn(usize) -> Cow<'a, Cell>,
    look: (RowLook, bool),
    theme: &Theme,
) {
    let (row, selected) = look;
    let style = |role: Look| match row {
        RowLook::Dim => theme.style(Look::Dim),
        RowLook::Marked(mark) if role == Look::Text => theme.style(mark).add_modifier(Modifier::BOLD),
        _ => theme.style(role),
    };
    for &(i, x, w) in fitted {
        let x = area.x + x;
        let w = w.min(area.right().saturating_sub(x));
        match cell(i).as_ref() {
            Cell::Text(text, role) => {
                let text = fit_words(text, w, theme.glyphs.cut);
                let x = if layouts[i].right { x + w - width(&text).min(w) } else { x };
                put(buf, x, area.y, &text, w, style(*role));
            }
            Cell::Bar(parts, whole) => {
                bars::parts(buf, x, area.y, w, *parts, *whole, theme);
            }
            Cell::Name(name, state, role) => {
                put(buf, x, area.y, &name_text(name, *state, w, theme), w, style(*role));
            }
            Cell::Spark(points, first, top) => {
                bars::spark(buf, Rect { x, width: w, height: 1, ..area }, (points, *first), *top, theme);
            }
        }
    }
    if selected {
        highlight(buf, Rect { height: 1, ..area }, theme);
    }
}

/// Paints the shape of a severity in the margin of a row: its colour alone says nothing without colours.
fn mark(buf: &mut Buffer, area: Rect, role: Look, theme: &Theme) {
    let [critical, warning, info] = theme.glyphs.severity;
    let shape = match role {
        Look::Critical => critical,
        Look::Warning => warning,
        _ => info,
    };
    if let Some(x) = area.x.checked_sub(1) {
        put(buf, x, area.y, &shape.to_string(), 1, theme.style(role));
    }
}

/// A name and its state, `web-1 (paused)`, in a width. Of a long name the middle is left out; a narrow column has the
/// first letter of the state.
fn name_text(name: &str, state: Option<&str>, columns: u16, theme: &Theme) -> String {
    /// With less room for a name the state is shortened.
    const MIN_NAME: u16 = 10;
    let cut = theme.glyphs.cut;
    let Some(state) = state else { return fit_middle(name, columns, cut) };
    let long = format!(" ({state})");
    let room = columns.saturating_sub(width(&long));
    if width(name) <= room || room >= MIN_NAME {
        return fit_middle(name, room, cut) + &long;
    }
    let short: String = [" (", &state[..1], ")"].concat();
    fit_middle(name, columns.saturating_sub(width(&short)), cut) + &short
}

/// Paints the line of headers.
pub fn header(
    buf: &mut Buffer,
    area: Rect,
    fitted: &[Fitted],
    layouts: &[ColumnLayout],
    heads: &[String],
    theme: &Theme,
) {
    for &(i, x, w) in fitted {
        let text = fit(&heads[i], w, theme.glyphs.cut);
        let x = area.x + if layouts[i].right { x + w - width(&text).min(w) } else { x };
        put(buf, x, area.y, &text, w, theme.style(Look::Head));
    }
}

/// The rows of a list. A cell is made when it is painted: there may be thousands of rows, and a screen shows fifty.
pub trait ListRows {
    /// The number of rows.
    fn count(&self) -> usize;
    /// A cell by the indices of its row and column.
    fn cell(&self, row: usize, column: usize) -> Cow<'_, Cell>;
    /// Look of a row.
    fn look(&self, row: usize) -> RowLook;
}

impl ListRows for Vec<(Vec<Cell>, RowLook)> {
    fn count(&self) -> usize {
        self.len()
    }

    fn cell(&self, row: usize, column: usize) -> Cow<'_, Cell> {
        self[row].0.get(column).map_or_else(|| Cow::Owned(Cell::blank()), Cow::Borrowed)
    }

    fn look(&self, row: usize) -> RowLook {
        self[row].1
    }
}

/// A list with headers. It scrolls so that the selected row is visible.
pub struct List<'a, Rows = Vec<(Vec<Cell>, RowLook)>> {
    /// Headers and layout.
    pub columns: &'a [(&'static str, ColumnLayout)],
    /// The rows: cells and look.
    pub rows: Rows,
    /// The selected row, if the list has the focus.
    pub at: Option<usize>,
}

impl<Rows: ListRows> List<'_, Rows> {
    /// Paints headers and as many rows as there is room for.
    pub fn paint(&self, buf: &mut Buffer, area: Rect, theme: &Theme) {
        if area.height == 0 || area.width == 0 {
            return;
        }
        let layouts: Vec<ColumnLayout> = self.columns.iter().map(|(_, s)| *s).collect();
        let heads: Vec<String> = self.columns.iter().map(|(h, _)| (*h).to_string()).collect();
        let fitted = self.fit(&layouts, area.width);
        header(buf, Rect { height: 1, ..area }, &fitted, &layouts, &heads, theme);
        let height = usize::from(area.height - 1);
        let count = self.rows.count();
        let at = self.at.map(|at| at.min(count.saturating_sub(1)));
        let offset = at.map_or(0, |at| (at + 1).saturating_sub(height));
        for line in (offset..count).take(height) {
            let area = Rect { y: area.y + 1 + (line - offset) as u16, height: 1, ..area };
            let look = (self.rows.look(line), at == Some(line));
            paint(buf, area, &fitted, &layouts, |column| self.rows.cell(line, column), look, theme);
            if let RowLook::Marked(role) = look.0 {
                mark(buf, area, role, theme);
            }
        }
    }

    /// Width of a column in an area of `columns` screen columns; 0 if the column is left out.
    pub fn width_of(&self, column: usize, columns: u16) -> u16 {
        let layouts: Vec<ColumnLayout> = self.columns.iter().map(|(_, s)| *s).collect();
        self.fit(&layouts, columns).into_iter().find(|(i, ..)| *i == column).map_or(0, |(.., w)| w)
    }

    /// The columns that fit. A column without any value (such as times, of an engine that only counts) is left out.
    fn fit(&self, layouts: &[ColumnLayout], columns: u16) -> Vec<Fitted> {
        let count = self.rows.count();
        let has_values = |i: usize| layouts[i].priority == 0 || (0..count).any(|row| self.rows.cell(row, i).is_known());
        let kept: Vec<usize> = (0..layouts.len()).filter(|&i| count == 0 || has_values(i)).collect();
        let kept_layouts: Vec<ColumnLayout> = kept.iter().map(|&i| layouts[i]).collect();
        fit_columns(&kept_layouts, columns).into_iter().map(|(i, x, w)| (kept[i], x, w)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_without_any_value_is_left_out() {
        let list = |cell: Cell| List {
            columns: &[("NAME", LAYOUTS[0]), ("A", LAYOUTS[1]), ("B", LAYOUTS[2])],
            rows: vec![(vec![Cell::unknown(), cell, Cell::text("1")], RowLook::Plain)],
            at: None,
        };
        let ids = |l: List<'_, _>| l.fit(&LAYOUTS, 80).iter().map(|f| f.0).collect::<Vec<_>>();
        assert_eq!(ids(list(Cell::unknown())), [0, 2]);
        assert_eq!(ids(list(Cell::text("0"))), [0, 1, 2]);
    }

    const LAYOUTS: [ColumnLayout; 3] =
        [ColumnLayout::left(10, 5, 0), ColumnLayout::right(5, 0, 2), ColumnLayout::right(5, 0, 1)];

    #[test]
    fn the_least_important_columns_are_left_out_first() {
        let ids = |w| fit_columns(&LAYOUTS, w).iter().map(|f| f.0).collect::<Vec<_>>();
        assert_eq!(ids(80), [0, 1, 2]);
        assert_eq!(ids(22), [0, 1, 2]);
        assert_eq!(ids(21), [0, 2]);
        assert_eq!(ids(12), [0]);
        assert_eq!(ids(3), [0]);
    }

    #[test]
    fn spare_room_goes_to_what_can_grow() {
        assert_eq!(fit_columns(&LAYOUTS, 24), [(0, 0, 12), (1, 13, 5), (2, 19, 5)]);
        assert_eq!(fit_columns(&LAYOUTS, 200)[0], (0, 0, 15));
    }
}
