//! Tables. Every list of the screen is made of [`Column`]s: header, help, width, sort value and
//! cell are one entry, and menus, filters, CSV, JSON, help and documentation come from it.
//!
//! `ratatui`'s own table has neither columns that give way by importance nor cells with bars.

mod any_table;
mod cell;
mod column;
mod fit;
mod order;
mod paint;
mod registry;
mod row_key;

pub use any_table::{AnyTable, Table};
pub use cell::{Cell, RowStyle};
pub use column::{Column, ColumnHead, Value, step};
pub use fit::{left, right};
pub use order::{RowOrder, Sort, TableState, is_due};
pub use paint::{TablePainter, severity_mark, severity_style};
pub use registry::{ColumnId, TableId};
pub use row_key::RowKey;
