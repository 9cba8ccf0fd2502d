//! Painting a table: its header and single rows, at any line of the screen.

use super::any_table::AnyTable;
use super::cell::{Cell, RowStyle};
use super::column::{Brief, ColumnId};
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

/// Columns in front of the cells: the selection, the severity and a gap.
const MARKS: u16 = 3;
/// The same of a brief table, in which no row is selected.
const BRIEF_MARKS: u16 = 2;

/// A table whose columns were fitted to a width.
pub struct TablePainter<'a> {
    table: &'a dyn AnyTable,
    state: &'a TableState,
    theme: &'a Theme,
    marks: u16,
    columns: Vec<PaintedColumn>,
    fitted: Vec<Fitted>,
}

#[derive(Clone, Copy)]
struct PaintedColumn {
    id: ColumnId,
    header: &'static str,
    layout: ColumnLayout,
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
        let shown = shown_columns(table, state).into_iter().filter(has_values);
        let columns_of_table = shown
            .map(|id| PaintedColumn {
                id,
                header: table.head(id).header,
                layout: table.head(id).layout,
            })
            .collect();
        Self::with_columns(table, state, theme, columns_of_table, (columns, MARKS))
    }

    /// Fits the narrow form of a table, whose columns keep their places.
    pub fn brief(
        table: &'a dyn AnyTable,
        state: &'a TableState,
        columns: u16,
        theme: &'a Theme,
    ) -> Self {
        let mut brief = Vec::new();
        for id in (0..table.width()).map(ColumnId) {
            let head = table.head(id);
            if let Some(Brief { header, width }) = head.brief {
                let layout = ColumnLayout {
                    width,
                    ..head.layout
                };
                brief.push(PaintedColumn { id, header, layout });
            }
        }
        Self::with_columns(table, state, theme, brief, (columns, BRIEF_MARKS))
    }

    fn with_columns(
        table: &'a dyn AnyTable,
        state: &'a TableState,
        theme: &'a Theme,
        columns: Vec<PaintedColumn>,
        (width, marks): (u16, u16),
    ) -> Self {
        let layouts: Vec<ColumnLayout> = columns.iter().map(|column| column.layout).collect();
        let fitted = fit_columns(&layouts, width.saturating_sub(marks));
        Self {
            table,
            state,
            theme,
            marks,
            columns,
            fitted,
        }
    }

    /// Whether a column is painted.
    pub fn shows(&self, column: ColumnId) -> bool {
        self.fitted
            .iter()
            .any(|(at, ..)| self.columns[*at].id == column)
    }

    /// The width of the marks and of the first column.
    pub fn first_width(&self) -> u16 {
        let (_, _, width) = self.fitted.first().copied().unwrap_or_default();
        self.marks + width
    }

    /// Paints the headers. A table that is sorted by a column without room says so after its first
    /// header.
    pub fn head(&self, buf: &mut Buffer, line: Rect) {
        let sort = self.state.sort;
        for (n, &(at, x, room)) in self.fitted.iter().enumerate() {
            let PaintedColumn { id, header, layout } = self.columns[at];
            let text = match sort {
                Some(sort) if sort.column == id => {
                    format!("{}{header}", self.sort_mark(sort.reversed))
                }
                Some(sort) if n == 0 && !self.shows(sort.column) => {
                    let by = self.table.head(sort.column).header;
                    format!("{header} {}{by}", self.sort_mark(sort.reversed))
                }
                _ => header.to_string(),
            };
            let text = fit(&text, room, self.theme.glyphs.cut);
            let x = x + if layout.right {
                room - width(&text).min(room)
            } else {
                0
            };
            put(
                buf,
                line.x + self.marks + x,
                line.y,
                &text,
                room,
                self.theme.style(StyleId::Head),
            );
            if text == bars::LEGEND {
                let mut x = line.x + self.marks + x;
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
        let left = line.x + self.marks;
        for &(at, x, room) in &self.fitted {
            let x = left + x;
            let room = room.min(line.right().saturating_sub(x));
            match self.table.cell(row, self.columns[at].id) {
                Cell::Text(text, look) => {
                    let text = fit_words(&text, room, cut);
                    let x = if self.columns[at].layout.right {
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
                Cell::FirstFit(texts) => {
                    let fits = texts.iter().find(|text| width(text) <= room);
                    let text = fits.or(texts.last()).map_or("", String::as_str);
                    let text = fit(text, room, cut);
                    put(buf, x, line.y, &text, room, style(StyleId::Text));
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
                line.x + self.marks - BRIEF_MARKS,
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
