//! The order of rows: by the column that the user chose, and steady, so that a list can be read.

use super::{ColumnId, RowKey};
use std::collections::HashMap;

/// For how long rows keep their places, and findings their figures, milliseconds.
const HOLD_MS: i64 = 5000;
/// Intervals end a little early now and then.
const EARLY_MS: i64 = 200;

/// An order by a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sort {
    /// The column.
    pub column: ColumnId,
    /// Whether the order is reversed.
    pub reversed: bool,
}

/// What the user chose for a table, and where its rows are.
#[derive(Debug, Clone, Default)]
pub struct TableState {
    /// The order; `None` for the table's own.
    pub sort: Option<Sort>,
    /// The columns shown, left to right; `None` for those that it has at first.
    pub columns: Option<Vec<ColumnId>>,
    /// The places of the rows.
    pub order: RowOrder,
}

impl TableState {
    /// Sorts in this order.
    pub fn sort_to(&mut self, sort: Sort) {
        self.sort = Some(sort);
        self.order = RowOrder::default();
    }

    /// Sorts by a column; by the same one again in the reverse order.
    pub fn sort_by(&mut self, column: ColumnId) {
        let reversed = self
            .sort
            .is_some_and(|sort| sort.column == column && !sort.reversed);
        self.sort_to(Sort { column, reversed });
    }
}

/// Whether what was taken over at a time has been shown for long enough.
pub fn is_due(taken_ms: Option<i64>, now_ms: i64) -> bool {
    taken_ms.is_none_or(|taken| !(0..HOLD_MS - EARLY_MS).contains(&(now_ms - taken)))
}

/// The places that rows keep for some seconds.
#[derive(Debug, Clone, Default)]
pub struct RowOrder {
    /// Where each row is; empty while rows may be anywhere.
    pub places: HashMap<RowKey, usize>,
    taken_ms: Option<i64>,
}

impl RowOrder {
    /// Whether rows may change places now.
    pub fn is_due(&self, now_ms: i64) -> bool {
        is_due(self.taken_ms, now_ms)
    }

    /// Keeps the places of these rows from now on.
    pub fn keep(&mut self, rows: Vec<RowKey>, now_ms: i64) {
        self.places = rows.into_iter().zip(0..).collect();
        self.taken_ms = Some(now_ms);
    }
}
