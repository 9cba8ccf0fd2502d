//! Painting a table: its header and single rows, at any line of the screen.

use super::any_table::AnyTable;
use super::cell::{Cell, RowStyle};
use super::column::ColumnId;
use super::fit::{ColumnLayout, Fitted, fit_columns};
use super::order::TableState;
use super::registry::TableId;
use crate::ui::text::{fit, fit_middle, fit_words, width};
use crate::ui::theme::{StyleId, Theme};
use crate::ui::widgets::bars;
use crate::ui::widgets::draw::{highlight, put};
use judge::lint::Severity;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Columns in front of the cells: the selection and the severity.
const MARKS: u16 = 3;

/// A table whose columns were fitted to a width.
pub struct TablePainter<'a> {
    table: &'a dyn AnyTable,
    state: &'a TableState,
    theme: &'a Theme,
    columns: Vec<ColumnId>,
    layouts: Vec<ColumnLayout>,
    fitted: Vec<Fitted>,
}

impl<'a> TablePainter<'a> {
    /// Fits the columns of a table. A column without any value (such as times, of an engine that
    /// only counts) is left out, but not from the list of guests, whose columns keep their places.
    pub fn new(
        table: &'a dyn AnyTable,
        state: &'a TableState,
        columns: u16,
        theme: &'a Theme,
    ) -> Self {
        let has_values = |id: &ColumnId| {
            let rows = table.len();
            table.id() == TableId::Guests
                || table.head(*id).layout.priority == 0
                || rows == 0
                || (0..rows).any(|row| table.cell(row, *id).is_known())
        };
        let shown: Vec<ColumnId> = shown_columns(table, state)
            .into_iter()
            .filter(has_values)
            .collect();
        let layouts: Vec<ColumnLayout> = shown.iter().map(|id| table.head(*id).layout).collect();
        let fitted = fit_columns(&layouts, columns.saturating_sub(MARKS));
        Self {
            table,
            state,
            theme,
            columns: shown,
            layouts,
            fitted,
        }
    }

    /// Whether a column is painted.
    pub fn shows(&self, column: ColumnId) -> bool {
        self.fitted
            .iter()
            .any(|(at, ..)| self.columns[*at] == column)
    }

    /// Paints the headers. A table that is sorted by a column without room says so after its first
    /// header.
    pub fn head(&self, buf: &mut Buffer, line: Rect) {
        let sort = self.state.sort;
        for (n, &(at, x, room)) in self.fitted.iter().enumerate() {
            let id = self.columns[at];
            let head = self.table.head(id);
            let text = match sort {
                Some(sort) if sort.column == id => {
                    format!("{}{}", self.sort_mark(sort.reversed), head.header)
                }
                Some(sort) if n == 0 && !self.shows(sort.column) => {
                    let by = self.table.head(sort.column).header;
                    format!("{} by {by}{}", head.header, self.sort_mark(sort.reversed))
                }
                _ => head.header.to_string(),
            };
            let text = fit(&text, room, self.theme.glyphs.cut);
            let x = x + if self.layouts[at].right {
                room - width(&text).min(room)
            } else {
                0
            };
            put(
                buf,
                line.x + MARKS + x,
                line.y,
                &text,
                room,
                self.theme.style(StyleId::Head),
            );
            if text == bars::LEGEND {
                let mut x = line.x + MARKS + x;
                for (word, hue) in text.split(' ').zip(bars::HUES) {
                    put(buf, x, line.y, word, room, self.theme.style(hue));
                    x += width(word) + 1;
                }
            }
        }
    }

    fn sort_mark(&self, reversed: bool) -> char {
        self.theme.glyphs.sort[usize::from(reversed)]
    }

    /// Paints a row.
    pub fn row(&self, buf: &mut Buffer, line: Rect, row: usize, is_selected: bool) {
        let row_style = self.table.style(row);
        let style = |look: StyleId| match row_style {
            RowStyle::Dim => self.theme.style(StyleId::Dim),
            _ => self.theme.style(look),
        };
        let cut = self.theme.glyphs.cut;
        let left = line.x + MARKS;
        for &(at, x, room) in &self.fitted {
            let x = left + x;
            let room = room.min(line.right().saturating_sub(x));
            match self.table.cell(row, self.columns[at]) {
                Cell::Text(text, look) => {
                    let text = fit_words(&text, room, cut);
                    let x = if self.layouts[at].right {
                        x + room - width(&text).min(room)
                    } else {
                        x
                    };
                    put(buf, x, line.y, &text, room, style(look));
                }
                Cell::Cost(cost) => put(
                    buf,
                    x,
                    line.y,
                    &cost.text(room.into()),
                    room,
                    style(StyleId::Text),
                ),
                Cell::Bar(parts, whole) => {
                    bars::parts(buf, x, line.y, room, parts, whole, self.theme);
                }
                Cell::Name(name, state, look) => {
                    put(
                        buf,
                        x,
                        line.y,
                        &name_text(&name, state, room, cut),
                        room,
                        style(look),
                    );
                }
            }
        }
        if let RowStyle::Severity(severity) = row_style {
            let (glyph, look) = severity_mark(severity, self.theme);
            put(
                buf,
                line.x + 1,
                line.y,
                &glyph.to_string(),
                1,
                self.theme.style(look),
            );
        }
        if is_selected {
            put(
                buf,
                line.x,
                line.y,
                &self.theme.glyphs.cursor.to_string(),
                1,
                self.theme.style(StyleId::Strong),
            );
            highlight(buf, line, self.theme);
        }
    }
}

/// The columns that the user chose, else those that the table has at first.
fn shown_columns(table: &dyn AnyTable, state: &TableState) -> Vec<ColumnId> {
    let at_first = || {
        (0..table.width())
            .map(ColumnId)
            .filter(|id| !table.head(*id).is_hidden)
            .collect()
    };
    state.columns.clone().unwrap_or_else(at_first)
}

/// The mark of a severity and its look: its colour alone says nothing without colours.
pub fn severity_mark(severity: Severity, theme: &Theme) -> (char, StyleId) {
    let [critical, warning, info] = theme.glyphs.severity;
    let mark = match severity {
        Severity::Critical => critical,
        Severity::Warning => warning,
        Severity::Info => info,
    };
    (mark, severity_style(severity))
}

/// The style of a severity.
pub fn severity_style(severity: Severity) -> StyleId {
    match severity {
        Severity::Critical => StyleId::Critical,
        Severity::Warning => StyleId::Warning,
        Severity::Info => StyleId::Info,
    }
}

/// A name and its state, `web-1 (paused)`, in a width. Of a long name the middle is left out, of
/// the state nothing.
fn name_text(name: &str, state: Option<&str>, columns: u16, cut: char) -> String {
    let Some(state) = state else {
        return fit_middle(name, columns, cut);
    };
    let label = format!(" ({state})");
    fit_middle(name, columns.saturating_sub(width(&label)), cut) + &label
}
