//! A column of a table.

use super::cell::Cell;
use super::fit::ColumnLayout;
use crate::ui::{StyleId, clean};
use std::cmp::Reverse;

/// What describes a column, whatever its rows are.
#[derive(Debug, Clone, Copy)]
pub struct ColumnHead {
    /// Its name in filters, CSV and JSON.
    pub name: &'static str,
    /// Header, with the unit.
    pub header: &'static str,
    /// Width, growth, alignment, and when it is left out.
    pub layout: ColumnLayout,
    /// What it shows and what a percentage is relative to.
    pub help: &'static str,
    /// The fields of JSON with the same figures; empty if none has them.
    pub json: &'static str,
    /// Whether the table has it only if the user chooses it.
    pub is_hidden: bool,
    /// Its form where the table shares its lines with others; `None` leaves it out there.
    pub brief: Option<Brief>,
}

/// A column's form in a narrow table.
#[derive(Debug, Clone, Copy)]
pub struct Brief {
    /// Header.
    pub header: &'static str,
    /// Smallest width.
    pub width: u16,
}

/// What a column says of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A figure.
    Figure(f64),
    /// A text.
    Text(String),
    /// No source gave it.
    Unknown,
}

enum Content<Row> {
    Figure(fn(&Row) -> Option<f64>, fn(f64) -> String),
    Text(fn(&Row) -> String),
}

/// A column of a table with this type of row.
#[must_use]
pub struct Column<Row> {
    /// What describes it.
    pub head: ColumnHead,
    content: Content<Row>,
    drawn: Option<fn(&Row) -> Cell>,
    /// From this figure on a cell warns.
    warns_from: Option<f64>,
    rank: Option<fn(&Row) -> Option<f64>>,
    finish: fn(&Row, Cell) -> Cell,
}

impl<Row> Column<Row> {
    fn new(
        name: &'static str,
        header: &'static str,
        layout: ColumnLayout,
        content: Content<Row>,
    ) -> Self {
        let head = ColumnHead {
            name,
            header,
            layout,
            help: "",
            json: "",
            is_hidden: false,
            brief: None,
        };
        Self {
            head,
            content,
            drawn: None,
            warns_from: None,
            rank: None,
            finish: |_, cell| cell,
        }
    }

    /// A column of figures, printed by `print`; `None` is a value that no source gave.
    pub fn figure(
        name: &'static str,
        header: &'static str,
        layout: ColumnLayout,
        value: fn(&Row) -> Option<f64>,
        print: fn(f64) -> String,
    ) -> Self {
        Self::new(name, header, layout, Content::Figure(value, print))
    }

    /// A column of texts; an empty one is a value that no source gave.
    pub fn text(
        name: &'static str,
        header: &'static str,
        layout: ColumnLayout,
        value: fn(&Row) -> String,
    ) -> Self {
        Self::new(name, header, layout, Content::Text(value))
    }

    /// Says what it shows.
    pub fn help(mut self, help: &'static str) -> Self {
        self.head.help = help;
        self
    }

    /// Names the fields of JSON with the same figures.
    pub fn json(mut self, json: &'static str) -> Self {
        self.head.json = json;
        self
    }

    /// Leaves the column out until the user chooses it.
    pub fn hidden(mut self) -> Self {
        self.head.is_hidden = true;
        self
    }

    /// Shows the column in the narrow form of its table too.
    pub fn brief(mut self, header: &'static str, width: u16) -> Self {
        self.head.brief = Some(Brief { header, width });
        self
    }

    /// Draws its cells in another way than as the value alone.
    pub fn drawn(mut self, cell: fn(&Row) -> Cell) -> Self {
        self.drawn = Some(cell);
        self
    }

    /// Draws figures from this one on as a warning.
    pub fn warns_from(mut self, figure: f64) -> Self {
        self.warns_from = Some(figure);
        self
    }

    /// Draws every figure but 0 as a warning.
    pub fn warns_above_zero(self) -> Self {
        self.warns_from(f64::MIN_POSITIVE)
    }

    /// Sorts by a figure other than the value.
    pub fn ranked(mut self, rank: fn(&Row) -> Option<f64>) -> Self {
        self.rank = Some(rank);
        self
    }

    /// Changes its cells after they are made, in the same way for all columns of a table.
    pub fn finished(mut self, finish: fn(&Row, Cell) -> Cell) -> Self {
        self.finish = finish;
        self
    }

    /// Whether its values are texts.
    pub fn is_text(&self) -> bool {
        matches!(self.content, Content::Text(_))
    }

    /// The value of a row.
    pub fn value(&self, row: &Row) -> Value {
        match self.content {
            Content::Figure(value, _) => value(row)
                .filter(|v| v.is_finite())
                .map_or(Value::Unknown, Value::Figure),
            Content::Text(value) => Some(value(row))
                .filter(|t| !t.is_empty())
                .map_or(Value::Unknown, Value::Text),
        }
    }

    /// The cell of a row.
    pub fn cell(&self, row: &Row) -> Cell {
        let cell = match (self.drawn, &self.content) {
            (Some(cell), _) => cell(row),
            (None, Content::Figure(value, print)) => {
                let value = value(row);
                let cell = Cell::figure(value, *print);
                if self.warns_from.is_some() && value >= self.warns_from {
                    cell.styled(StyleId::Warning)
                } else {
                    cell
                }
            }
            (None, Content::Text(value)) => match value(row) {
                text if text.is_empty() => Cell::unknown(),
                text => Cell::text(clean(&text)),
            },
        };
        (self.finish)(row, cell)
    }

    /// Where a row belongs: the greatest figure first, names in alphabetical order, unknown values
    /// last.
    pub(super) fn sort_key(&self, row: &Row) -> SortKey {
        let value = match self.rank {
            Some(rank) => rank(row).map_or(Value::Unknown, Value::Figure),
            None => self.value(row),
        };
        match value {
            Value::Figure(figure) => SortKey::Figure(Reverse(step(figure))),
            Value::Text(text) => SortKey::Text(text.to_lowercase()),
            Value::Unknown => SortKey::Unknown,
        }
    }
}

/// What rows are sorted by.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SortKey {
    Figure(Reverse<i64>),
    Text(String),
    Unknown,
}

/// A figure in steps of a tenth: noise moves no row.
pub fn step(figure: f64) -> i64 {
    let size = figure.abs();
    let steps = if size < 1.0 {
        0
    } else {
        1 + (size.ln() / 1.1_f64.ln()) as i64
    };
    if figure < 0.0 { -steps } else { steps }
}
