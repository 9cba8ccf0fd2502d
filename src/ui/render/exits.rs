//! Exits by reason of the selected guest or vCPU.

use super::{histogram, say, scope, title, userspace};
use crate::figures::{micros, percent, rate, share};
use crate::kvm::exit_reason;
use crate::lint::Mark;
use crate::model::{ExitRow, ExitTable};
use crate::sample::EngineLevel;
use crate::ui::cells::severity_role;
use crate::ui::draw::put;
use crate::ui::grid::{Cell, ColumnLayout, List, RowLook};
use crate::ui::state::AppState;
use crate::ui::text::{clean, fit_words};
use crate::ui::theme::{Look, Theme};
use crate::ui::view::ScreenView;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Headers and layout.
pub const COLUMNS: [(&str, ColumnLayout); 10] = [
    ("REASON", ColumnLayout::left(16, 8, 0)),
    ("/s", ColumnLayout::right(6, 0, 0)),
    ("%CNT", ColumnLayout::right(4, 0, 1)),
    ("%WORK", ColumnLayout::right(5, 0, 0)),
    ("%CPU", ColumnLayout::right(5, 0, 2)),
    ("MEAN us", ColumnLayout::right(7, 0, 3)),
    ("P99 us", ColumnLayout::right(6, 0, 4)),
    ("MAX us", ColumnLayout::right(6, 0, 5)),
    ("%VMM", ColumnLayout::right(4, 0, 6)),
    ("%STOLEN", ColumnLayout::right(7, 0, 7)),
];

/// What the columns mean.
pub const HELP: [(&str, &str); 10] = [
    ("REASON", "Exit reason as the kernel names it. Idle reasons (HLT, WFx) are dim and come last."),
    ("/s", "Exits per second."),
    ("%CNT", "Share of the exits of the guest or vCPU."),
    ("%WORK", "Share of the time in all exits but idle ones."),
    ("%CPU", "Time in these exits, percent of one host CPU over the interval."),
    ("MEAN us", "From kvm_exit to the next kvm_entry of the vCPU, microseconds."),
    ("P99 us", "99 of 100 exits were shorter (from a histogram by powers of two)."),
    ("MAX us", "The longest of the interval."),
    ("%VMM", "Part of the time that was spent outside the kernel, in the VMM."),
    ("%STOLEN", "Part of the time in which the vCPU was runnable while another task had its CPU."),
];

/// The table that the panel shows.
pub fn table(state: &AppState) -> Option<&ExitTable> {
    let d = state.domain()?;
    match state.vcpu() {
        Some(v) => d.vcpu_exits.iter().find(|(n, _)| *n == v).map(|(_, t)| t),
        None => Some(&d.exits),
    }
}

/// How many rows it has.
pub fn len(state: &AppState) -> usize {
    let rows = table(state).map_or(0, |t| t.rows.len());
    // A line says that exits to the VMM are shown instead, or why there are none.
    rows.max(if instead(state) { userspace::exits(state).len() + 1 } else { 0 })
}

/// Whether exits to the VMM are shown instead.
fn instead(state: &AppState) -> bool {
    state.model.as_ref().is_some_and(crate::model::Model::no_kvm_exit)
}

/// Paints the view, or the panel of the first screen. The view has exits to the VMM and KVM's counters below.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let below = if state.view.shown == ScreenView::Exits { area.height * 2 / 5 } else { 0 };
    by_reason(buf, Rect { height: area.height - below, ..area }, state, theme);
    if below > 0 {
        userspace::paint(buf, Rect { y: area.bottom() - below, height: below, ..area }, state, theme);
    }
}

fn by_reason(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let Some(m) = &state.model else { return };
    let table = table(state);
    let total = table.and_then(|t| Some(format!("{}/s", rate(t.count as f64 / m.interval_s?))));
    let work =
        table.and_then(|t| Some(format!("work {} % of a cpu", percent(t.work_ns? as f64 / (m.interval_s? * 1e7)))));
    let right = [total, work].into_iter().flatten().collect::<Vec<_>>().join("  ");
    let right = if table.is_some_and(|t| t.count > 0) { right } else { String::new() };
    let mut inner = title(buf, area, ScreenView::Exits.title(), &scope(state), &right, theme);
    if inner.is_empty() || state.domain().is_none() {
        return;
    }
    let rows = table.map(|t| t.rows.as_slice()).unwrap_or_default();
    if rows.is_empty() {
        let text = nothing(state);
        let used = say(buf, inner, &text, Look::Dim, theme);
        if instead(state) && len(state) > 0 {
            inner.y += used;
            inner.height -= used;
            userspace::exits_list(state, state.view.shown == ScreenView::Exits).paint(buf, inner, theme);
        }
        return;
    }
    let focused = state.view.shown == ScreenView::Exits;
    let of = rows.get(if focused { state.view.at.min(rows.len() - 1) } else { 0 });
    let used = foot(buf, inner, rows.len() as u16 + 1, focused, of, theme);
    inner.height -= used;
    let list = List {
        columns: &COLUMNS,
        rows: rows.iter().map(|r| (cells(r, m.interval_s), look(r, state))).collect(),
        at: focused.then_some(state.view.at),
    };
    list.paint(buf, inner, theme);
}

/// Paints how long exits of a reason take and what the reason means, if there is room below the table; in the focused
/// panel the meaning may take the place of a row. Returns the number of lines.
fn foot(buf: &mut Buffer, area: Rect, table: u16, focused: bool, row: Option<&ExitRow>, theme: &Theme) -> u16 {
    let Some(row) = row else { return 0 };
    let spare = area.height.saturating_sub(table);
    let mut lines = 0;
    let mut below = |n: u16| {
        lines += n;
        Rect { y: area.bottom() - lines, height: n, ..area }
    };
    if let Some(text) = meaning(row)
        && (spare >= 1 || focused && area.height >= 5)
    {
        let at = below(1);
        put(buf, at.x, at.y, &fit_words(text, at.width, theme.glyphs.cut), at.width, theme.style(Look::Dim));
    }
    if spare > histogram::LINES + 1 {
        histogram::paint(buf, below(histogram::LINES), row, theme);
    }
    lines
}

fn meaning(r: &ExitRow) -> Option<&'static str> {
    r.id.and_then(|(isa, code)| exit_reason::meaning(isa, code))
}

fn cells(r: &ExitRow, interval_s: Option<f64>) -> Vec<Cell> {
    let part = |ns: Option<u64>| {
        let all = r.span.total_ns.filter(|t| *t > 0)?;
        Some(100.0 * ns? as f64 / all as f64)
    };
    let cpu = r.span.total_ns.zip(interval_s).map(|(t, s)| t as f64 / (s * 1e7));
    vec![
        Cell::text(clean(&r.reason)),
        Cell::figure(r.rate, rate),
        Cell::figure(r.count_percent, share),
        Cell::figure(r.work_percent, share),
        Cell::figure(cpu.filter(|_| !r.idle), percent),
        Cell::figure(r.span.mean_us(), micros),
        Cell::figure(r.span.quantile_us(0.99), micros),
        Cell::figure(r.span.max_ns.map(|n| n as f64 / 1e3), micros),
        Cell::figure(part(r.userspace_ns), share),
        Cell::figure(part(r.preempted_ns), share),
    ]
}

/// The row of a finding has the look of its severity; idle reasons are dim.
fn look(r: &ExitRow, state: &AppState) -> RowLook {
    let name = state.domain().map(crate::model::DomainModel::name);
    let fired = state.findings.iter().filter(|f| f.domain.as_deref() == name);
    let worst = fired.filter(|f| f.marks.contains(&Mark::Exit(r.reason.clone()))).map(|f| f.severity).max();
    match worst {
        Some(s) => RowLook::Marked(severity_role(s)),
        None if r.idle => RowLook::Dim,
        None => RowLook::Plain,
    }
}

/// Why there is no exit to show.
fn nothing(state: &AppState) -> String {
    let Some(m) = &state.model else { return String::new() };
    if m.interval_s.is_none() {
        return "Measuring the first interval …".into();
    }
    if m.no_kvm_exit() {
        let flavour = m.host.facts.kvm_flavour.as_deref().map(|f| format!(" ({})", clean(f))).unwrap_or_default();
        return format!("This kernel{flavour} fires no kvm_exit: accesses and exits to the VMM are shown instead.");
    }
    if m.engine.level == EngineLevel::None || m.engine.kind == crate::sample::EngineKind::None {
        let rate_known = state.domain().is_some_and(|d| d.exit_rate.0.is_some());
        let counters = if rate_known { " EXITS/s comes from KVM's own counters." } else { "" };
        return format!("Exits are not being traced.{counters} Press e to trace, 0 to see what is missing.");
    }
    "No exit in this interval.".into()
}
