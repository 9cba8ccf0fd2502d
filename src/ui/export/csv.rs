//! The tables of a view as comma-separated values (RFC 4180): figures are not rounded. A value that
//! no source gave is empty.

use crate::ui::table::Value;
use crate::ui::views::guests::{self, GuestRow};
use crate::ui::{AnyTable, AppState, ColumnId, ListRow, ScreenView, Table};
use jiff::Timestamp;
use kvm::without_hidden;
use sample::GuestId;

/// The tables of the view, a blank line between two. The list of guests has all that pass the
/// filter, and no other row.
pub fn tables(state: &AppState) -> String {
    if state.view == ScreenView::Guests {
        return table(&all_guests(state));
    }
    state
        .page_of(state.view)
        .tables()
        .map(table)
        .collect::<Vec<_>>()
        .join("\r\n")
}

fn all_guests(state: &AppState) -> Table<GuestRow<'_>> {
    let guests = state.list.guests.iter();
    Table {
        rows: guests
            .map(|at| GuestRow::new(state, ListRow::Guest(*at)))
            .collect(),
        ..guests::table(state)
    }
}

fn table(table: &dyn AnyTable) -> String {
    let columns: Vec<ColumnId> = (0..table.width()).map(ColumnId).collect();
    let mut out = line(columns.iter().map(|id| table.head(*id).name.to_string()));
    for row in 0..table.len() {
        out += &line(columns.iter().map(|id| text_of(table.value(row, *id))));
    }
    out
}

fn text_of(value: Value) -> String {
    match value {
        Value::Figure(figure) => figure.to_string(),
        Value::Text(text) => without_hidden(&text).into_owned(),
        Value::Unknown => String::new(),
    }
}

/// Columns of the list by name.
///
/// # Errors
/// A sentence with the names that there are.
pub fn columns<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Vec<ColumnId>, String> {
    let all = guests::columns();
    let mut found = Vec::new();
    for name in names {
        let Some(at) = all.iter().position(|column| column.head.name == name) else {
            let known: Vec<&str> = all.iter().map(|column| column.head.name).collect();
            return Err(format!(
                "no column {name:?}; there are {}",
                known.join(", ")
            ));
        };
        found.push(ColumnId(at));
    }
    Ok(found)
}

/// The guests of an interval, a line each: the time (UTC), then these columns.
pub fn guest_lines(state: &AppState, columns: &[ColumnId], with_head: bool) -> String {
    let table = all_guests(state);
    let mut out = String::new();
    if with_head {
        let names = columns.iter().map(|id| table.head(*id).name.to_owned());
        out += &line(["time".to_owned()].into_iter().chain(names));
    }
    for row in 0..table.len() {
        let cells = columns.iter().map(|id| text_of(table.value(row, *id)));
        let time = time(state, "%Y-%m-%dT%H:%M:%SZ");
        out += &line([time].into_iter().chain(cells));
    }
    out
}

/// The interval as one line, as `esxtop -b` and perfmon write it: the time, then each figure of
/// each guest that the head has. The first interval decides which guests those are.
pub fn wide_line(
    state: &AppState,
    columns: &[ColumnId],
    guests: &mut Option<Vec<GuestId>>,
) -> String {
    let table = all_guests(state);
    let places: Vec<(GuestId, usize)> = (0..table.len())
        .filter_map(|row| Some((table.rows[row].domain?.facts.id(), row)))
        .collect();
    let mut out = String::new();
    let guests = guests.get_or_insert_with(|| {
        out = wide_head(state, &table, columns);
        places.iter().map(|(id, _)| id.clone()).collect()
    });
    let mut cells = vec![time(state, "%m/%d/%Y %H:%M:%S")];
    for guest in guests {
        let row = places
            .iter()
            .find(|(id, _)| id == guest)
            .map(|(_, row)| *row);
        for column in columns {
            cells.push(
                row.map(|row| text_of(table.value(row, *column)))
                    .unwrap_or_default(),
            );
        }
    }
    out + &line(cells.into_iter())
}

/// The names of the figures of all guests.
fn wide_head(state: &AppState, table: &Table<GuestRow<'_>>, columns: &[ColumnId]) -> String {
    let model = state.model.as_ref();
    let host = model.map_or("", |model| model.host.facts.hostname.as_str());
    let mut head = vec!["(PDH-CSV 4.0) (UTC)(0)".to_owned()];
    for guest in table.rows.iter().filter_map(|row| row.domain) {
        let pid = guest.facts.pid.unwrap_or(0);
        let name = guest.name();
        for column in columns {
            let figure = table.head(*column).header;
            head.push(format!("\\\\{host}\\Guest({pid}:{name})\\{figure}"));
        }
    }
    line(head.into_iter())
}

/// The time of the interval, UTC.
fn time(state: &AppState, form: &str) -> String {
    let ms = state.model.as_ref().map_or(0, |model| model.time_ms);
    let time = Timestamp::from_millisecond(ms).unwrap_or_default();
    time.strftime(form).to_string()
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
