//! The rows of the list, their order, and what is selected.

use super::columns::{GuestRow, columns_through};
use crate::ui::{AppState, ListRow, RowKey, RowStyle, Table, TableId, layout, step};
use judge::lint::Severity;
use judge::model::{DomainModel, Model};
use std::cmp::Reverse;

/// From this many idle guests on, they share a row.
const MIN_FOLDED: usize = 4;
/// Less of a CPU than this, in percent, moves no guest past another: two that do little would
/// change places for ever.
const LITTLE_PERCENT: f64 = 5.0;
/// A guest that uses, and whose vCPUs wait for, less of a CPU than this is idle; percent.
const IDLE_PERCENT: f64 = 1.0;
/// Of the columns of the screen beyond this, a third is room for longer names.
const WIDE_COLUMNS: u16 = 124;

/// The list as a table: its rows are in order already.
pub fn table(state: &AppState) -> Table<GuestRow<'_>> {
    let rows = state.list.rows.iter().map(|row| GuestRow::new(state, *row));
    Table {
        rows: rows.collect(),
        ..empty_table(state)
    }
}

/// The table without rows.
fn empty_table(state: &AppState) -> Table<GuestRow<'_>> {
    let mut columns = columns_through(state.lens);
    columns[0].head.layout.width += layout::plan(state).list.width.saturating_sub(WIDE_COLUMNS) / 3;
    Table {
        id: TableId::Guests,
        columns,
        rows: Vec::new(),
        key: |r| key(r.state, r.row),
        style,
    }
}

fn style(row: &GuestRow<'_>) -> RowStyle {
    if let Some(found) = row.worst() {
        return RowStyle::Severity(found.severity);
    }
    match row.row {
        ListRow::Idle(_) => RowStyle::Dim,
        _ if row.domain.is_some_and(is_idle) => RowStyle::Dim,
        _ => RowStyle::Plain,
    }
}

/// The guests that do something.
pub fn busy(model: &Model) -> impl Iterator<Item = RowKey> {
    let guests = model.domains.iter();
    guests
        .filter(|d| d.cpu.is_some() && !is_idle(d))
        .map(|d| RowKey::of(d.key()))
}

/// Whether a guest does nothing.
pub fn is_idle(d: &DomainModel) -> bool {
    d.cpu.is_some_and(|c| c.busy() < IDLE_PERCENT) && d.longest_wait().unwrap_or(0.0) < IDLE_PERCENT
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
    let filter = &state.list.filter;
    for (at, guest) in model.domains.iter().enumerate() {
        let row = GuestRow::new(state, ListRow::Guest(at));
        if filter.shows(guest.name(), &|at| table.columns[at].value(&row)) {
            table.rows.push(row);
        }
    }
    table.rows.sort_by_cached_key(|row| Reverse(row.rank()));
    let table = table.in_order(state.table(TableId::Guests));
    let mut guests = Vec::new();
    let mut rows = Vec::new();
    let mut awake = Vec::new();
    for row in &table.rows {
        if let ListRow::Guest(at) = row.row {
            guests.push(at);
        }
        rows.push(row.row);
        if !may_fold(row) {
            awake.push(row.row);
        }
    }
    let is_filtered = !filter.is_empty();
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
    state.list.rows = rows;
    state.list.guests = guests;
    follow(state);
}

/// Whether a guest may share the row of idle guests.
fn may_fold(row: &GuestRow<'_>) -> bool {
    let Some(guest) = row.domain else {
        return false;
    };
    is_idle(guest)
        && !row.state.awake.has(RowKey::of(guest.key()))
        && row.worst().is_none_or(|f| f.severity < Severity::Warning)
}

impl GuestRow<'_> {
    /// Guests that something stopped are first, then the worst guest: its worst problem, then what
    /// it loses, then how busy it is.
    fn rank(&self) -> (Option<Severity>, Option<Severity>, i64, i64) {
        let lost = self.costs().and_then(|costs| costs.lost);
        let busy = self.domain.and_then(|d| Some(d.cpu?.busy()));
        let [lost, busy] =
            [lost, busy].map(|percent| percent.filter(|p| *p >= LITTLE_PERCENT).map_or(0, step));
        let severity = self.worst().map(|f| f.severity);
        (self.stopped(), severity, lost, busy)
    }
}

/// Moves the selection with the selected row. If that row is gone, the row now at its place is
/// selected.
fn follow(state: &mut AppState) {
    let Some(cursor) = state.list.cursor else {
        state.list.at = 0;
        return;
    };
    let mut rows = state.list.rows.iter();
    let place = rows.position(|row| key(state, *row) == cursor);
    let last = state.list.rows.len().saturating_sub(1);
    state.list.at = place.unwrap_or(state.list.at.min(last));
    let row = state.list.rows.get(state.list.at);
    state.list.cursor = row.map(|row| key(state, *row));
}
