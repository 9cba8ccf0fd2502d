//! Arranges the rows of the table of guests: filter, order, threads. The selection follows its guest or thread.

use super::guest_columns::{self, COLUMNS, SortValue};
use super::guest_table::{GuestTable, TableRow, TableRowKey, key};
use crate::lint::Finding;
use crate::model::{DomainKey, DomainModel, Model};
use std::cmp::Ordering;
use std::collections::HashMap;

/// Rebuilds the rows after a new interval or a change of filter or order.
pub fn arrange(table: &mut GuestTable, model: &Model, findings: &[Finding]) {
    let keys: Vec<DomainKey> = model.domains.iter().map(key).collect();
    let mut shown: Vec<usize> = (0..keys.len()).filter(|&i| is_shown(table, &model.domains[i], findings)).collect();
    let before: HashMap<&DomainKey, usize> = table.order.iter().enumerate().map(|(i, k)| (k, i)).collect();
    shown.sort_by_key(|&i| before.get(&keys[i]).copied().unwrap_or(usize::MAX));
    let value = guest_columns::column(table.sort.column).sort;
    let values: Vec<SortValue> = model.domains.iter().map(|d| value(d, findings)).collect();
    order(&mut shown, &values, table.sort.reversed);
    table.order = shown.iter().map(|&i| keys[i].clone()).collect();
    table.unfolded.retain(|k| keys.contains(k));
    table.rows.clear();
    for i in shown {
        table.rows.push(TableRow { domain: i, thread: None });
        if table.unfolded.contains(&keys[i]) {
            table.rows.extend((0..model.domains[i].threads.len()).map(|t| TableRow { domain: i, thread: Some(t) }));
        }
    }
    follow(table, model, &keys);
}

/// Sorts by figures that are never quite the same: a row passes another only if it is clearly ahead of it.
fn order(shown: &mut [usize], values: &[SortValue], reversed: bool) {
    for i in 1..shown.len() {
        let mut at = i;
        while at > 0 {
            let ahead = values[shown[at]].clearly(&values[shown[at - 1]]);
            if (if reversed { ahead.reverse() } else { ahead }) != Ordering::Greater {
                break;
            }
            shown.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// Moves the selection with the selected row. If that row is gone, the row now at its place is selected.
fn follow(table: &mut GuestTable, model: &Model, keys: &[DomainKey]) {
    let Some(cursor) = &table.cursor else {
        table.at = 0;
        return;
    };
    let same = |r: &TableRow| {
        keys[r.domain] == cursor.domain && r.thread.map(|t| model.domains[r.domain].threads[t].tid) == cursor.thread
    };
    let guest = |r: &TableRow| keys[r.domain] == cursor.domain && r.thread.is_none();
    match table.rows.iter().position(same).or_else(|| table.rows.iter().position(guest)) {
        Some(at) => table.at = at,
        None => table.at = table.at.min(table.rows.len().saturating_sub(1)),
    }
    table.cursor = row_key(table, model, table.at);
}

/// Guest and thread of the row at an index.
pub fn row_key(table: &GuestTable, model: &Model, at: usize) -> Option<TableRowKey> {
    let row = table.rows.get(at)?;
    let domain = model.domains.get(row.domain)?;
    let thread = match row.thread {
        Some(t) => Some(domain.threads.get(t)?.tid),
        None => None,
    };
    Some(TableRowKey { domain: key(domain), thread })
}

/// Whether a guest passes the filter.
fn is_shown(table: &GuestTable, domain: &DomainModel, findings: &[Finding]) -> bool {
    table.filter.shows(domain.name(), &|i| guest_columns::value(&COLUMNS[i], domain, findings))
}
