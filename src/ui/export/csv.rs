//! What a view shows as comma-separated values (RFC 4180): figures as JSON has them, not rounded, under JSON's names. A
//! value that no source gave is empty.

use crate::ui::filter::FieldValue;
use crate::ui::guest_columns::{self, COLUMNS};
use crate::ui::state::AppState;
use crate::ui::view::ScreenView;
use report::document::JsonDocument;
use serde_json::Value;
use std::collections::BTreeSet;

/// Fields that come first, in this order; the others follow in alphabetical order.
const FIRST: [&str; 12] =
    ["domain", "kind", "rule", "severity", "name", "reason", "space", "address", "tid", "comm", "role", "cpu"];

/// The rows of the view.
pub fn table(state: &AppState, document: &JsonDocument) -> String {
    if state.view.shown == ScreenView::Guests {
        return guests(state);
    }
    let document = serde_json::to_value(document).unwrap_or_default();
    let rows: Vec<Value> = match state.view.shown {
        ScreenView::Guests => Vec::new(),
        ScreenView::Threads | ScreenView::Latency => of_guests(&document, &["threads"]),
        ScreenView::Exits => of_guests(&document, &["exits", "userspace_exits", "kvm_events"]),
        ScreenView::Accesses => of_guests(&document, &["accesses"]),
        ScreenView::Disks => of_guests(&document, &["disks", "nics"]),
        ScreenView::Memory => of_guests(&document, &["memory"]),
        ScreenView::Cpus => list(&document["host"]["cpus"]),
        ScreenView::Findings => list(&document["findings"]),
        ScreenView::Sources => list(&document["sources"]),
    };
    values(&rows)
}

/// The guests in the order of the table, a column for each of the table's.
fn guests(state: &AppState) -> String {
    let mut out = line(COLUMNS.iter().map(|c| c.name.to_string()));
    for row in state.table.rows.iter().filter(|r| r.is_guest()) {
        let Some((domain, _)) = state.at_row(*row) else { continue };
        out += &line(COLUMNS.iter().map(|c| match guest_columns::value(c, domain, &state.findings) {
            FieldValue::Figure(figure) => figure.to_string(),
            FieldValue::Text(text) => text,
            FieldValue::Unknown => String::new(),
        }));
    }
    out
}

/// The entries of lists of each guest, with the guest's name, and the list's where there are several.
fn of_guests(document: &Value, lists: &[&str]) -> Vec<Value> {
    let mut rows = Vec::new();
    for domain in list(&document["domains"]) {
        for name in lists {
            for mut entry in list(&domain[name]) {
                if let Value::Object(fields) = &mut entry {
                    fields.insert("domain".into(), domain["name"].clone());
                    if lists.len() > 1 {
                        fields.insert("kind".into(), (*name).into());
                    }
                }
                rows.push(entry);
            }
        }
    }
    rows
}

/// The entries of a list; an object is a list of one.
fn list(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(entries) => entries.clone(),
        Value::Object(_) => vec![value.clone()],
        _ => Vec::new(),
    }
}

fn values(rows: &[Value]) -> String {
    let keys: BTreeSet<&str> =
        rows.iter().filter_map(Value::as_object).flat_map(|o| o.keys().map(String::as_str)).collect();
    let rest = keys.iter().copied().filter(|k| !FIRST.contains(k));
    let names: Vec<&str> = FIRST.into_iter().filter(|k| keys.contains(k)).chain(rest).collect();
    let mut out = line(names.iter().map(|n| (*n).to_string()));
    for row in rows {
        out += &line(names.iter().map(|n| cell(&row[n])));
    }
    out
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(entries) => entries.iter().map(cell).collect::<Vec<_>>().join("; "),
        other => other.to_string(),
    }
}

/// A record. A spreadsheet takes a text that begins with `=`, `+`, `-` or `@` for a formula; names of guests are
/// anybody's, so an apostrophe keeps such a text one (OWASP, CSV injection).
fn line(fields: impl Iterator<Item = String>) -> String {
    let fields: Vec<String> = fields
        .map(|field| {
            let is_formula = field.starts_with(['=', '+', '-', '@', '\t', '\r']) && field.parse::<f64>().is_err();
            let field = if is_formula { format!("'{field}") } else { field };
            if field.contains([',', '"', '\n', '\r']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
        })
        .collect();
    fields.join(",") + "\r\n"
}
