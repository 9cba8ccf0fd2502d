//! The tables of a view as comma-separated values (RFC 4180): figures are not rounded. A value that
//! no source gave is empty.

use crate::ui::guest_list::ListRow;
use crate::ui::screen_view::ScreenView;
use crate::ui::state::AppState;
use crate::ui::table::{AnyTable, ColumnId, Table, Value};
use crate::ui::views::guests::{self, GuestRow};
use kvm::without_hidden;

/// The tables of the view, a blank line between two. The list of guests has all that pass the
/// filter, and no other row.
pub fn tables(state: &AppState) -> String {
    if state.view == ScreenView::Guests {
        let rows = state
            .list
            .guests
            .iter()
            .map(|at| GuestRow::new(state, ListRow::Guest(*at)))
            .collect();
        return table(&Table {
            rows,
            ..guests::table(state)
        });
    }
    state
        .page_of(state.view)
        .tables()
        .map(table)
        .collect::<Vec<_>>()
        .join("\r\n")
}

fn table(table: &dyn AnyTable) -> String {
    let columns: Vec<ColumnId> = (0..table.width()).map(ColumnId).collect();
    let mut out = line(columns.iter().map(|id| table.head(*id).name.to_string()));
    for row in 0..table.len() {
        out += &line(columns.iter().map(|id| match table.value(row, *id) {
            Value::Figure(figure) => figure.to_string(),
            Value::Text(text) => without_hidden(&text).into_owned(),
            Value::Unknown => String::new(),
        }));
    }
    out
}

/// A record. A spreadsheet takes a text that begins with `=`, `+`, `-` or `@` for a formula; names
/// of guests are anybody's, so an apostrophe keeps such a text one (OWASP, CSV injection).
fn line(fields: impl Iterator<Item = String>) -> String {
    let fields: Vec<String> = fields
        .map(|field| {
            let is_formula = field.starts_with(['=', '+', '-', '@', '\t', '\r'])
                && field.parse::<f64>().is_err();
            let field = if is_formula {
                format!("'{field}")
            } else {
                field
            };
            if field.contains([',', '"', '\n', '\r']) {
                format!("\"{}\"", field.replace('"', "\"\""))
            } else {
                field
            }
        })
        .collect();
    fields.join(",") + "\r\n"
}
