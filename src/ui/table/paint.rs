//! Painting a table with ratatui's: its header and its rows, at any line of the screen.

use super::column::Brief;
use super::fit::{ColumnLayout, PaintedColumn, fit_columns};
use super::{AnyTable, Cell, ColumnId, RowStyle, TableId, TableState};
use crate::ui::text::fit_middle;
use crate::ui::widgets::bars;
use crate::ui::widgets::draw::span;
use crate::ui::{StyleId, Theme, fit, fit_words, width};
use judge::lint::Severity;
use ratatui::prelude::{Buffer, Constraint, Line, Rect, Style, Widget};
use ratatui::widgets::Row;

/// Columns in front of the cells: the selection, the severity and a gap.
const MARKS: u16 = 3;
/// The same of a brief table, in which no row is selected.
const BRIEF_MARKS: u16 = 2;

/// A table whose columns were fitted to a width.
pub struct TablePainter<'a> {
    /// The table.
    pub table: &'a dyn AnyTable,
    state: &'a TableState,
    theme: &'a Theme,
    marks: u16,
    columns: Vec<PaintedColumn>,
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
        let rows = table.len();
        let mut shown = Vec::new();
        for id in shown_columns(table, state) {
            let head = table.head(id);
            let keeps_its_place = table.id() == TableId::Guests || head.layout.drop_order == 0;
            if keeps_its_place || rows == 0 || (0..rows).any(|row| table.cell(row, id).is_known()) {
                shown.push(PaintedColumn {
                    id,
                    header: head.header,
                    layout: head.layout,
                });
            }
        }
        Self::with_columns(table, state, theme, shown, (columns, MARKS))
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
        mut columns: Vec<PaintedColumn>,
        (width, marks): (u16, u16),
    ) -> Self {
        fit_columns(&mut columns, width.saturating_sub(marks));
        Self {
            table,
            state,
            theme,
            marks,
            columns,
        }
    }

    /// Whether a column is painted.
    pub fn shows(&self, column: ColumnId) -> bool {
        self.columns.iter().any(|painted| painted.id == column)
    }

    /// The width of the marks and of the first column.
    pub fn first_width(&self) -> u16 {
        self.marks + self.columns.first().map_or(0, |first| first.layout.width)
    }

    /// Paints the headers. A table that is sorted by a column without room says so after its first
    /// header.
    pub fn head(&self, buf: &mut Buffer, line: Rect) {
        let mut cells = vec![Line::default()];
        for (n, column) in self.columns.iter().enumerate() {
            cells.push(self.header(column, n == 0));
        }
        self.widget(vec![cells]).render(line, buf);
    }

    fn header(&self, column: &PaintedColumn, is_first: bool) -> Line<'static> {
        let room = column.layout.width;
        let header = column.header;
        if header == bars::LEGEND && width(header) <= room {
            return bars::legend(self.theme);
        }
        let text = match self.state.sort {
            Some(sort) if sort.column == column.id => {
                format!("{}{header}", self.sort_mark(sort.reversed))
            }
            Some(sort) if is_first && !self.shows(sort.column) => {
                let by = self.table.head(sort.column).header;
                format!("{header} {}{by}", self.sort_mark(sort.reversed))
            }
            _ => header.to_string(),
        };
        let text = fit(&text, room, self.theme.glyphs.cut);
        column.line(&text, self.theme.style(StyleId::Head))
    }

    fn sort_mark(&self, reversed: bool) -> char {
        self.theme.glyphs.sort[usize::from(reversed)]
    }

    /// Paints rows from one of them on, as many as fit.
    pub fn rows(&self, buf: &mut Buffer, area: Rect, first: usize) {
        let end = self.table.len().min(first + usize::from(area.height));
        let mut rows = Vec::new();
        for row in first..end {
            let style = self.table.style(row);
            let mut cells = vec![self.mark(style)];
            for column in &self.columns {
                let cell = self.table.cell(row, column.id);
                cells.push(self.cell(cell, column, style));
            }
            rows.push(cells);
        }
        self.widget(rows).render(area, buf);
    }

    /// The mark of a row's severity.
    fn mark(&self, style: RowStyle) -> Line<'static> {
        let RowStyle::Severity(severity) = style else {
            return Line::default();
        };
        let (glyph, look) = severity_mark(severity, self.theme);
        let mark = span(&glyph.to_string(), self.theme.style(look));
        Line::from(mark).right_aligned()
    }

    fn cell(&self, cell: Cell, column: &PaintedColumn, row_style: RowStyle) -> Line<'static> {
        let room = column.layout.width;
        let cut = self.theme.glyphs.cut;
        let (text, look) = match cell {
            Cell::Bar(parts, whole) => return bars::parts(room, parts, whole, self.theme),
            Cell::Text(text, look) => {
                let style = self.style(look, row_style);
                return column.line(&fit_words(&text, room, cut), style);
            }
            Cell::Cost(cost) => (cost.text(room.into()), StyleId::Text),
            Cell::FirstFit(texts) => {
                let fits = texts.iter().find(|text| width(text) <= room);
                let text = fits.or(texts.last()).map_or("", String::as_str);
                (fit(text, room, cut), StyleId::Text)
            }
            Cell::Name(name, state, look) => (name_text(&name, state, room, cut), look),
        };
        Line::from(span(&text, self.style(look, row_style)))
    }

    fn style(&self, look: StyleId, row_style: RowStyle) -> Style {
        match row_style {
            RowStyle::Dim => self.theme.style(StyleId::Dim),
            _ => self.theme.style(look),
        }
    }

    /// Rows of cells, the marks first, as ratatui's table.
    fn widget(&self, rows: Vec<Vec<Line<'static>>>) -> ratatui::widgets::Table<'static> {
        // A gap follows the marks.
        let mut widths = vec![Constraint::Length(self.marks - 1)];
        for column in &self.columns {
            widths.push(Constraint::Length(column.layout.width));
        }
        ratatui::widgets::Table::new(rows.into_iter().map(Row::new), widths)
    }
}

impl PaintedColumn {
    /// Text at the column's side.
    fn line(&self, text: &str, style: Style) -> Line<'static> {
        let line = Line::from(span(text, style));
        if self.layout.right {
            line.right_aligned()
        } else {
            line
        }
    }
}

/// The columns that the user chose, else those that the table has at first.
fn shown_columns(table: &dyn AnyTable, state: &TableState) -> Vec<ColumnId> {
    if let Some(chosen) = &state.columns {
        return chosen.clone();
    }
    let all = (0..table.width()).map(ColumnId);
    all.filter(|id| !table.head(*id).is_hidden).collect()
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
