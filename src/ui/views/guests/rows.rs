//! The rows of the list, their order, and what is selected.

use super::columns::{GuestRow, columns_through};
use crate::ui::guest_list::ListRow;
use crate::ui::layout;
use crate::ui::state::AppState;
use crate::ui::table::{RowKey, RowStyle, Table, TableId, step};
use judge::lint::Severity;
use judge::model::{DomainModel, Model};
use std::cmp::Reverse;

/// From this many idle guests on, they share a row.
const MIN_FOLDED: usize = 4;
/// Less of a CPU than this, in percent, moves no guest past another: two that do little would
/// change places for ever.
const LITTLE: f64 = 5.0;
/// A guest that uses, and whose vCPUs wait for, less of a CPU than this is idle; percent.
const IDLE: f64 = 1.0;

/// Of the columns of the screen beyond this, a third is room for longer names.
const WIDE: u16 = 124;

/// The list as a table: its rows are in order already.
pub fn table(state: &AppState) -> Table<GuestRow<'_>> {
    let rows = state
        .list
        .rows
        .iter()
        .map(|row| GuestRow::new(state, *row))
        .collect();
    Table {
        rows,
        ..empty_table(state)
    }
}

/// The table without rows.
fn empty_table(state: &AppState) -> Table<GuestRow<'_>> {
    let mut columns = columns_through(state.lens);
    columns[0].head.layout.width += layout::plan(state).list.width.saturating_sub(WIDE) / 3;
    Table {
        id: TableId::Guests,
        columns,
        rows: Vec::new(),
        key: |r| key(r.state, r.row),
        style,
    }
}

fn style(row: &GuestRow<'_>) -> RowStyle {
    match (row.worst(), row.row) {
        (Some(found), _) => RowStyle::Severity(found.severity),
        (None, ListRow::Idle(_)) => RowStyle::Dim,
        (None, _) if row.domain.is_some_and(is_idle) => RowStyle::Dim,
        (None, _) => RowStyle::Plain,
    }
}

/// The guests that do something.
pub fn busy(model: &Model) -> impl Iterator<Item = RowKey> {
    model
        .domains
        .iter()
        .filter(|d| d.cpu.is_some() && !is_idle(d))
        .map(|d| RowKey::of(d.key()))
}

/// Whether a guest does nothing.
pub fn is_idle(d: &DomainModel) -> bool {
    d.cpu.is_some_and(|c| c.busy() < IDLE) && d.longest_wait().unwrap_or(0.0) < IDLE
}

/// What a row of the list is about.
pub fn key(state: &AppState, row: ListRow) -> RowKey {
    match (state.guest_at(row), row) {
        (Some(guest), _) => RowKey::of(guest.key()),
        (None, ListRow::Idle(_)) => RowKey::of("idle"),
        (None, _) => RowKey::of("other"),
    }
}

/// Rebuilds the rows after a new interval or a change of filter or order.
pub fn arrange(state: &mut AppState) {
    let Some(model) = &state.model else { return };
    let mut table = empty_table(state);
    let rows = (0..model.domains.len()).map(|at| GuestRow::new(state, ListRow::Guest(at)));
    let filter = &state.list.filter;
    table.rows = rows
        .filter(|row| {
            filter.shows(row.domain.map_or("", |d| d.name()), &|at| {
                table.columns[at].value(row)
            })
        })
        .collect();
    // Guests that something stopped, then the worst guest: its worst problem, then what it loses,
    // then how busy it is.
    table.rows.sort_by_cached_key(|row| {
        let severity = row.worst().map(|f| f.severity);
        let lost = row.costs().and_then(|costs| costs.lost);
        let busy = row.domain.and_then(|d| Some(d.cpu?.busy()));
        let [lost, busy] =
            [lost, busy].map(|percent| percent.filter(|p| *p >= LITTLE).map_or(0, step));
        Reverse((row.stopped(), severity, lost, busy))
    });
    let table = table.in_order(state.table(TableId::Guests));
    let is_filtered = !filter.is_empty();
    let mut rows: Vec<ListRow> = table.rows.iter().map(|r| r.row).collect();
    let awake: Vec<ListRow> = table
        .rows
        .iter()
        .filter(|r| !folds(state, r))
        .map(|r| r.row)
        .collect();
    let idle = rows.len() - awake.len();
    let is_folded = idle >= MIN_FOLDED && !is_filtered && !state.list.shows_idle;
    if is_folded {
        rows = awake;
    }
    if !is_filtered && !model.host.cpus.is_empty() {
        rows.push(ListRow::Other);
    }
    if is_folded {
        rows.push(ListRow::Idle(idle));
    }
    let guests = table
        .rows
        .iter()
        .filter_map(|r| {
            if let ListRow::Guest(at) = r.row {
                Some(at)
            } else {
                None
            }
        })
        .collect();
    (state.list.rows, state.list.guests) = (rows, guests);
    follow(state);
}

/// Moves the selection with the selected row. If that row is gone, the row now at its place is
/// selected.
fn follow(state: &mut AppState) {
    let last = state.list.rows.len().saturating_sub(1);
    let place = state.list.cursor.map(|cursor| {
        let mut rows = state.list.rows.iter();
        let same = rows.position(|row| key(state, *row) == cursor);
        same.unwrap_or(state.list.at.min(last))
    });
    state.list.at = place.unwrap_or(0);
    if place.is_some() {
        state.list.cursor = state
            .list
            .rows
            .get(state.list.at)
            .map(|row| key(state, *row));
    }
}

/// Whether the row of an idle guest without a problem may be left out.
fn folds(state: &AppState, row: &GuestRow<'_>) -> bool {
    let Some(guest) = row.domain else {
        return false;
    };
    let is_asleep = is_idle(guest) && !state.awake.has(RowKey::of(guest.key()));
    is_asleep && row.worst().is_none_or(|f| f.severity < Severity::Warning)
}
