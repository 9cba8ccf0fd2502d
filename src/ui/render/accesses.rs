//! Ports, addresses and MSRs that the selected guest or vCPU touched, or all guests, with the device at each.

use super::{missing, say, scope, title};
use crate::ui::cells::severity_role;
use crate::ui::grid::{Cell, ColumnLayout, List, RowLook};
use crate::ui::list_row_id::ListRowId;
use crate::ui::order::{self, step};
use crate::ui::state::AppState;
use crate::ui::text::clean;
use crate::ui::theme::{Look, Theme};
use crate::ui::view::ScreenView;
use judge::figures::{figure, micros, rate, share};
use judge::lint::Mark;
use judge::model::{AccessRow, DomainModel, Model};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use sample::SourceId;
use std::cmp::Reverse;

/// Header and layout.
pub const COLUMNS: [(&str, ColumnLayout); 11] = [
    ("GUEST", ColumnLayout::left(8, 14, 1)),
    ("DEVICE", ColumnLayout::left(14, 14, 0)),
    ("WHAT", ColumnLayout::left(14, 12, 7)),
    ("ADDRESS", ColumnLayout::left(15, 4, 1)),
    ("DIR", ColumnLayout::left(5, 0, 1)),
    ("/s", ColumnLayout::right(6, 0, 0)),
    ("COUNT", ColumnLayout::right(6, 0, 5)),
    ("%TIME", ColumnLayout::right(5, 0, 2)),
    ("MEAN us", ColumnLayout::right(7, 0, 3)),
    ("MAX us", ColumnLayout::right(6, 0, 6)),
    ("FROM", ColumnLayout::left(8, 0, 4)),
];

/// What the columns mean.
pub const HELP: [(&str, &str); 10] = [
    ("DEVICE", "Device that owns the address in this guest; (k): the kernel serves it. For an MSR, its name."),
    ("WHAT", "The device in plain words."),
    ("ADDRESS", "I/O port, guest-physical address or MSR number; `other` is whatever did not fit the engine's table."),
    ("DIR", "What the guest did: read or write."),
    ("/s", "Accesses per second."),
    ("COUNT", "How many there were in the interval."),
    ("%TIME", "Time in the exits that served the accesses, share of the time in all exits of the guest."),
    ("MEAN us", "Mean of those exits, exit to entry, microseconds."),
    ("MAX us", "The longest of the interval."),
    (
        "FROM",
        "Where the name comes from: mtree (the guest's own memory tree), built-in (a table of its machine type), file.",
    ),
];

/// The maximum number of rows of all guests; the smallest rows are left out.
const MOST: usize = 2000;

/// A row and its guest.
type GuestAccess<'a> = (&'a DomainModel, &'a AccessRow);

/// The rows that the view or panel shows, and how many there are in all.
fn rows(state: &AppState) -> (Vec<GuestAccess<'_>>, usize) {
    let vcpu = state.vcpu().filter(|_| !state.view.is_of_all());
    let mut rows: Vec<GuestAccess<'_>> = Vec::new();
    for d in state.guests_in_view() {
        let of = if vcpu.is_some() { &d.vcpu_accesses } else { &d.accesses };
        rows.extend(of.iter().map(|row| (d, row)));
    }
    rows.retain(|(_, row)| row.vcpu == vcpu);
    let by_time = state.view.order_of(ScreenView::Accesses) == order::TIME;
    // In steps, so that the addresses of one device, read and written equally often, keep their places.
    rows.sort_by_cached_key(|(_, row)| {
        let time = step(row.span.total_ns.filter(|_| by_time).map(|ns| ns as f64));
        (Reverse((time, step(Some(row.span.count as f64)))), row.space.as_str(), row.address, row.direction.as_str())
    });
    let all = rows.len();
    rows.truncate(MOST);
    (rows, all)
}

/// The number of rows.
pub fn len(state: &AppState) -> usize {
    rows(state).0.len()
}

/// What the rows are about, in their order.
pub fn ids(state: &AppState) -> Vec<ListRowId> {
    let id = |(d, row): &GuestAccess<'_>| {
        ListRowId::of((d.key(), row.vcpu, row.space.as_str(), row.address_text(), row.direction.as_str()))
    };
    rows(state).0.iter().map(id).collect()
}

/// Paints the view or panel.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let in_view = state.view.shown == ScreenView::Accesses;
    let (rows, all) = rows(state);
    let total = rows.iter().filter_map(|(_, r)| r.rate).reduce(|a, b| a + b);
    let right = total.map(|t| format!("{}/s", rate(t))).unwrap_or_default();
    let mut left = scope(state);
    if in_view {
        // Without times the rows are ordered by count.
        let timed = rows.iter().any(|(_, row)| row.span.total_ns.is_some());
        let order = if timed { state.view.order() } else { order::COUNT };
        left = format!("{left}  by {order}");
    }
    if all > rows.len() {
        left = format!("{left}, the first {} of {all}", rows.len());
    }
    let inner = title(buf, area, ScreenView::Accesses.title(), &left, &right, theme);
    if inner.is_empty() || state.domain().is_none() {
        return;
    }
    if rows.is_empty() {
        let nothing = "No port, device memory or MSR was touched in this interval.";
        // Accesses are counted where kvm_exit does not fire, too.
        let counted = state.model.as_ref().is_some_and(Model::no_kvm_exit);
        let sources: &[SourceId] = if counted { &[] } else { &[SourceId::Tracepoints] };
        say(buf, inner, &missing::because(state, nothing, sources), Look::Dim, theme);
        return;
    }
    let list: List<'_> = List {
        columns: &COLUMNS,
        rows: rows.iter().map(|row| (cells(state, row, in_view), look(row, state))).collect(),
        at: in_view.then_some(state.view.at),
    };
    list.paint(buf, inner, theme);
}

fn cells(state: &AppState, (d, r): &GuestAccess<'_>, in_view: bool) -> Vec<Cell> {
    let count = Cell::text(figure(r.span.count as f64));
    let device = match &r.device {
        Some(d) => {
            let kernel = if d.in_kernel && r.space != kvm::Space::Msr { " (k)" } else { "" };
            Cell::text(format!("{}{kernel}", clean(&d.name)))
        }
        None => Cell::unknown(),
    };
    let from = r.device.as_ref().map_or_else(Cell::unknown, |d| Cell::text(d.from.as_str()).role(Look::Dim));
    let guest = if state.view.is_of_all() { Cell::name(clean(d.name())) } else { Cell::blank() };
    vec![
        guest,
        device,
        Cell::text(r.device.as_ref().and_then(|d| d.friendly.as_deref()).map(clean).unwrap_or_default())
            .role(Look::Dim),
        Cell::text(format!("{} {}", r.space.as_str(), r.address_text())),
        Cell::text(r.direction.as_str()),
        Cell::figure(r.rate, rate),
        if in_view { count } else { Cell::blank() },
        Cell::figure(r.time_percent, share),
        Cell::figure(r.span.mean_us(), micros),
        Cell::figure(r.span.max_ns.map(|n| n as f64 / 1e3), micros),
        from,
    ]
}

/// The row of a finding has the look of its severity.
fn look((d, r): &GuestAccess<'_>, state: &AppState) -> RowLook {
    let mark = Mark::Access(r.space, r.address, r.direction);
    let fired = state.findings.iter().filter(|f| f.domain.as_deref() == Some(d.name()) && f.marks.contains(&mark));
    fired.map(|f| f.severity).max().map_or(RowLook::Plain, |s| RowLook::Marked(severity_role(s)))
}
