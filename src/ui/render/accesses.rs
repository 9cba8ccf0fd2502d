//! Ports, addresses and MSRs that the selected guest or vCPU touched, with the device behind each.

use super::{say, scope, title};
use crate::figures::{micros, rate, share};
use crate::lint::Mark;
use crate::model::AccessRow;
use crate::ui::cells::severity_role;
use crate::ui::grid::{Cell, ColumnLayout, List, RowLook};
use crate::ui::state::AppState;
use crate::ui::text::clean;
use crate::ui::theme::{Look, Theme};
use crate::ui::view::ScreenView;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Header and layout.
pub const COLUMNS: [(&str, ColumnLayout); 9] = [
    ("DEVICE", ColumnLayout::left(14, 14, 0)),
    ("WHAT", ColumnLayout::left(14, 12, 7)),
    ("ADDRESS", ColumnLayout::left(15, 4, 1)),
    ("DIR", ColumnLayout::left(5, 0, 1)),
    ("/s", ColumnLayout::right(6, 0, 0)),
    ("%TIME", ColumnLayout::right(5, 0, 2)),
    ("MEAN us", ColumnLayout::right(7, 0, 3)),
    ("MAX us", ColumnLayout::right(6, 0, 6)),
    ("FROM", ColumnLayout::left(8, 0, 4)),
];

/// What the columns mean.
pub const HELP: [(&str, &str); 9] = [
    ("DEVICE", "Device that owns the address in this guest; (k): the kernel serves it. For an MSR, its name."),
    ("WHAT", "The device in plain words."),
    ("ADDRESS", "I/O port, guest-physical address or MSR number; `other` is whatever did not fit the engine's table."),
    ("DIR", "What the guest did: read or write."),
    ("/s", "Accesses per second."),
    ("%TIME", "Time in the exits that served the accesses, share of the time in all exits of the guest."),
    ("MEAN us", "Mean of those exits, exit to entry, microseconds."),
    ("MAX us", "The longest of the interval."),
    (
        "FROM",
        "Where the name comes from: mtree (the guest's own memory tree), built-in (a table of its machine type), file.",
    ),
];

/// The rows that the panel shows.
pub fn rows(state: &AppState) -> Vec<&AccessRow> {
    let Some(d) = state.domain() else { return Vec::new() };
    match state.vcpu() {
        Some(v) => d.vcpu_accesses.iter().filter(|a| a.vcpu == Some(v)).collect(),
        None => d.accesses.iter().collect(),
    }
}

/// How many rows there are.
pub fn len(state: &AppState) -> usize {
    rows(state).len()
}

/// Paints the view or panel.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let rows = rows(state);
    let total = rows.iter().filter_map(|r| r.rate).reduce(|a, b| a + b);
    let right = total.map(|t| format!("{}/s", rate(t))).unwrap_or_default();
    let inner = title(buf, area, ScreenView::Accesses.title(), &scope(state), &right, theme);
    if inner.is_empty() || state.domain().is_none() {
        return;
    }
    if rows.is_empty() {
        say(buf, inner, "No port, device memory or MSR was touched in this interval.", Look::Dim, theme);
        return;
    }
    let list = List {
        columns: &COLUMNS,
        rows: rows.iter().map(|r| (cells(r), look(r, state))).collect(),
        at: (state.view.shown == ScreenView::Accesses).then_some(state.view.at),
    };
    list.paint(buf, inner, theme);
}

fn cells(r: &AccessRow) -> Vec<Cell> {
    let device = match &r.device {
        Some(d) => {
            let offset = r
                .address
                .filter(|a| *a > d.base && r.space != crate::kvm::Space::Msr)
                .map(|a| format!("+{:x}", a - d.base));
            let kernel = if d.in_kernel && r.space != crate::kvm::Space::Msr { " (k)" } else { "" };
            Cell::text(format!("{}{}{kernel}", clean(&d.name), offset.unwrap_or_default()))
        }
        None => Cell::unknown(),
    };
    let from = r.device.as_ref().map_or_else(Cell::unknown, |d| Cell::text(d.from.as_str()).role(Look::Dim));
    vec![
        device,
        Cell::text(r.device.as_ref().and_then(|d| d.friendly.as_deref()).map(clean).unwrap_or_default())
            .role(Look::Dim),
        Cell::text(format!("{} {}", r.space.as_str(), r.address_text())),
        Cell::text(r.direction.as_str()),
        Cell::figure(r.rate, rate),
        Cell::figure(r.time_percent, share),
        Cell::figure(r.span.mean_us(), micros),
        Cell::figure(r.span.max_ns.map(|n| n as f64 / 1e3), micros),
        from,
    ]
}

/// The row of a finding has the look of its severity.
fn look(r: &AccessRow, state: &AppState) -> RowLook {
    let name = state.domain().map(crate::model::DomainModel::name);
    let mark = Mark::Access(r.space, r.address, r.direction);
    let fired = state.findings.iter().filter(|f| f.domain.as_deref() == name && f.marks.contains(&mark));
    fired.map(|f| f.severity).max().map_or(RowLook::Plain, |s| RowLook::Marked(severity_role(s)))
}
