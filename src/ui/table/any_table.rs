//! A table of rows and columns, whatever its rows are.

use super::{Cell, Column, ColumnHead, ColumnId, RowKey, RowStyle, TableId, TableState, Value};

/// The rows of a table, and what its columns say of a row.
pub struct Table<Row> {
    /// Which table it is.
    pub id: TableId,
    /// All columns, left to right.
    pub columns: Vec<Column<Row>>,
    /// The rows in the order that the table has until a column is chosen.
    pub rows: Vec<Row>,
    /// What a row is about.
    pub key: fn(&Row) -> RowKey,
    /// How a row is painted.
    pub style: fn(&Row) -> RowStyle,
}

impl<Row> Table<Row> {
    /// The table with its rows in the order that the user chose, and held where it was a moment
    /// ago.
    #[must_use]
    pub fn in_order(mut self, state: &TableState) -> Self {
        if let Some(sort) = state.sort
            && let Some(column) = self.columns.get(sort.column.0)
        {
            self.rows.sort_by_cached_key(|row| column.sort_key(row));
            if sort.reversed {
                self.rows.reverse();
            }
        }
        // Rows that hold a place keep it; the others follow them.
        let places = &state.order.places;
        if !places.is_empty() {
            let key = self.key;
            self.rows
                .sort_by_cached_key(|row| places.get(&key(row)).copied().unwrap_or(usize::MAX));
        }
        self
    }
}

/// A table of any type of row.
pub trait AnyTable {
    /// Which table it is.
    fn id(&self) -> TableId;
    /// What describes its columns.
    fn head(&self, column: ColumnId) -> &ColumnHead;
    /// The number of columns.
    fn width(&self) -> usize;
    /// The number of rows.
    fn len(&self) -> usize;
    /// What a row is about.
    fn key(&self, row: usize) -> RowKey;
    /// How a row is painted.
    fn style(&self, row: usize) -> RowStyle;
    /// A cell.
    fn cell(&self, row: usize, column: ColumnId) -> Cell;
    /// A value, for CSV and JSON.
    fn value(&self, row: usize, column: ColumnId) -> Value;
}

impl<Row> AnyTable for Table<Row> {
    fn id(&self) -> TableId {
        self.id
    }

    fn head(&self, column: ColumnId) -> &ColumnHead {
        &self.columns[column.0].head
    }

    fn width(&self) -> usize {
        self.columns.len()
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn key(&self, row: usize) -> RowKey {
        (self.key)(&self.rows[row])
    }

    fn style(&self, row: usize) -> RowStyle {
        (self.style)(&self.rows[row])
    }

    fn cell(&self, row: usize, column: ColumnId) -> Cell {
        self.columns[column.0].cell(&self.rows[row])
    }

    fn value(&self, row: usize, column: ColumnId) -> Value {
        self.columns[column.0].value(&self.rows[row])
    }
}
