//! Arranges the rows of the table of guests: filter, order, threads. The selection follows its guest or thread.

use super::guest_columns::{self, COLUMNS, SortValue};
use super::guest_table::{ColumnId, GuestTable, IDLE_THREADS, RowPart, TableRow, TableRowKey};
use super::idle_threads::IdleThreads;
use judge::lint::Finding;
use judge::model::{DomainModel, GuestId, History, Model};
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};

/// Two guests within this many points, and this share, are equally busy in the order by guilt.
const SAME_CPU: (f64, f64) = (2.0, 0.2);
/// Lowest top of the scale of the sparklines, per second, so that noise stays flat.
const MIN_TOP: f64 = 100.0;

/// Rebuilds the rows after a new interval or a change of filter or order.
pub fn arrange(table: &mut GuestTable, model: &Model, findings: &[Finding], history: &History) {
    let keys: Vec<GuestId> = model.domains.iter().map(DomainModel::key).collect();
    let mut shown: Vec<usize> = (0..keys.len()).filter(|&i| is_shown(table, &model.domains[i], findings)).collect();
    let before: HashMap<&GuestId, usize> = table.order.iter().enumerate().map(|(i, k)| (k, i)).collect();
    shown.sort_by_key(|&i| before.get(&keys[i]).copied().unwrap_or(usize::MAX));
    let reversed = table.sort.reversed;
    let turned = |ahead: Ordering| if reversed { ahead.reverse() } else { ahead };
    let value = guest_columns::column(table.sort.column).sort;
    let values: Vec<SortValue> = model.domains.iter().map(|d| value(d, findings)).collect();
    if table.sort.column == ColumnId::Findings {
        let busy: Vec<Option<f64>> = model.domains.iter().map(|d| history.recent_cpu(d)).collect();
        order(&mut shown, |a, b| turned(values[a].clearly(&values[b]).then_with(|| busier(busy[a], busy[b]))));
    } else {
        order(&mut shown, |a, b| turned(values[a].clearly(&values[b])));
    }
    table.pinned.retain(|k| keys.contains(k));
    shown.sort_by_key(|&i| !table.pinned.contains(&keys[i]));
    table.order = shown.iter().map(|&i| keys[i].clone()).collect();
    table.trend_top = scale_top(shown.iter().filter_map(|&i| history.most_exits(&model.domains[i])));
    let unfolded: BTreeSet<GuestId> = keys.iter().filter(|k| table.unfolded.contains(k)).cloned().collect();
    table.unfolded = unfolded;
    table.rows.clear();
    for i in shown {
        table.rows.push(TableRow { domain: i, part: RowPart::Guest });
        if table.unfolded.contains(&keys[i]) {
            let parts = threads(&table.idle, &model.domains[i]);
            table.rows.extend(parts.into_iter().map(|part| TableRow { domain: i, part }));
        }
    }
    follow(table, model, &keys);
}

/// The rows of a guest's threads. Idle helper threads share one.
fn threads(idle: &IdleThreads, domain: &DomainModel) -> Vec<RowPart> {
    let (own, idle) = idle.split(domain);
    let own = own.into_iter().map(RowPart::Thread);
    match idle.as_slice() {
        [] => own.collect(),
        [one] => own.chain([RowPart::Thread(*one)]).collect(),
        more => own.chain([RowPart::Idle(more.len())]).collect(),
    }
}

/// Which of two guests is clearly busier.
fn busier(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) if (a - b).abs() <= SAME_CPU.0 + SAME_CPU.1 * a.max(b) => Ordering::Equal,
        (Some(a), Some(b)) => a.total_cmp(&b),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// The next of 1, 2, 5, 10, … that no value exceeds.
fn scale_top(values: impl Iterator<Item = f64>) -> f64 {
    let most = values.filter(|v| v.is_finite()).fold(0.0, f64::max);
    let mut top = MIN_TOP;
    let mut steps = [2.0, 2.5, 2.0].into_iter().cycle();
    while top < most {
        top *= steps.next().unwrap_or(2.0);
    }
    top
}

/// Sorts by figures that are never quite the same: a row passes another only if it is clearly ahead of it.
fn order(shown: &mut [usize], ahead: impl Fn(usize, usize) -> Ordering) {
    for i in 1..shown.len() {
        let mut at = i;
        while at > 0 && ahead(shown[at], shown[at - 1]) == Ordering::Greater {
            shown.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// Moves the selection with the selected row. If that row is gone, the row now at its place is selected.
fn follow(table: &mut GuestTable, model: &Model, keys: &[GuestId]) {
    let Some(cursor) = &table.cursor else {
        table.at = 0;
        return;
    };
    let same = |r: &TableRow| keys[r.domain] == cursor.domain && thread_of(model, *r) == cursor.thread;
    let guest = |r: &TableRow| keys[r.domain] == cursor.domain && r.is_guest();
    match table.rows.iter().position(same).or_else(|| table.rows.iter().position(guest)) {
        Some(at) => table.at = at,
        None => table.at = table.at.min(table.rows.len().saturating_sub(1)),
    }
    table.cursor = row_key(table, model, table.at);
}

/// The thread that a row's key names.
fn thread_of(model: &Model, row: TableRow) -> Option<i32> {
    match row.part {
        RowPart::Guest => None,
        RowPart::Thread(t) => model.domains.get(row.domain)?.threads.get(t).map(|t| t.tid),
        RowPart::Idle(_) => Some(IDLE_THREADS),
    }
}

/// Guest and thread of the row at an index.
pub fn row_key(table: &GuestTable, model: &Model, at: usize) -> Option<TableRowKey> {
    let row = table.rows.get(at)?;
    let domain = model.domains.get(row.domain)?;
    Some(TableRowKey { domain: domain.key(), thread: thread_of(model, *row) })
}

/// Whether a guest passes the filter.
fn is_shown(table: &GuestTable, domain: &DomainModel, findings: &[Finding]) -> bool {
    table.filter.shows(domain.name(), &|i| guest_columns::value(&COLUMNS[i], domain, findings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_ends_at_a_round_figure() {
        for (most, top) in [(0.0, 100.0), (101.0, 200.0), (480.0, 500.0), (501.0, 1000.0), (35_400.0, 50_000.0)] {
            assert!((scale_top([most, f64::NAN].into_iter()) - top).abs() < 1e-9, "{most}");
        }
    }

    #[test]
    fn guests_about_as_busy_are_equal() {
        assert_eq!(busier(Some(3.0), Some(1.2)), Ordering::Equal);
        assert_eq!(busier(Some(300.0), Some(260.0)), Ordering::Equal);
        assert_eq!(busier(Some(300.0), Some(200.0)), Ordering::Greater);
        assert_eq!(busier(None, Some(0.0)), Ordering::Less);
    }
}
