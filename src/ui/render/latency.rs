//! How long vCPUs wait for a CPU: wake-ups and run delay, now and over the last minutes, and who caused it.

use super::interrupts::InterruptRows;
use super::task_names::TaskNames;
use super::{guests, latency_strip, missing, row_of, say, title};
use crate::ui::cells::severity_role;
use crate::ui::grid::{Cell, ColumnLayout, List, RowLook};
use crate::ui::list_row_id::ListRowId;
use crate::ui::order::{self, step};
use crate::ui::state::AppState;
use crate::ui::text::clean;
use crate::ui::theme::{Look, Theme};
use crate::ui::view::ScreenView;
use judge::figures::{micros, percent, rate};
use judge::lint::Mark;
use judge::model::{DomainModel, ThreadModel};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use sample::{EngineKind, EngineLevel, OtherTask, SourceId, SourceState};
use std::cmp::Reverse;

/// Headers and layout.
pub const COLUMNS: [(&str, ColumnLayout); 11] = [
    ("GUEST", ColumnLayout::left(8, 14, 1)),
    ("VCPU", ColumnLayout::left(6, 2, 0)),
    ("WAKE/s", ColumnLayout::right(6, 0, 4)),
    ("P50 us", ColumnLayout::right(6, 0, 5)),
    ("P99 us", ColumnLayout::right(6, 0, 0)),
    ("MAX us", ColumnLayout::right(6, 0, 3)),
    ("WAIT%", ColumnLayout::right(5, 0, 0)),
    ("DELAY us", ColumnLayout::right(8, 0, 6)),
    ("D99 us", ColumnLayout::right(6, 0, 1)),
    ("WOKEN BY", ColumnLayout::left(12, 24, 7)),
    ("PRE-EMPTED BY", ColumnLayout::left(18, 24, 2)),
];

/// What the columns and the picture mean.
pub const HELP: [(&str, &str); 7] = [
    ("P50 us P99 us MAX us", "Wake-ups, from woken to running: half, 99 of 100 and all of them were quicker."),
    ("WAIT%", "Runnable without a CPU, percent of the interval. esxtop: %RDY."),
    ("DELAY us", "The same as the mean of each time that the vCPU had to get onto a CPU."),
    ("D99 us", "99 of 100 of these times were shorter: from woken or pre-empted to running."),
    ("WOKEN BY", "Who woke it most often; `interrupt`: a timer or a device."),
    ("PRE-EMPTED BY", "Who had its CPU longest while it was runnable, percent of the interval."),
    (
        "picture",
        "The selected vCPU's last 120 intervals, the newest on the right: the darker, the more often it waited that \
         long for a CPU, from woken or pre-empted to running, or from woken alone (key d); `+` its DELAY us; below, \
         its WAIT% as heights up to 100.",
    ),
];

/// A vCPU and its guest.
type VcpuRow<'a> = (&'a DomainModel, &'a ThreadModel);

/// The vCPUs, in the order of the view.
fn rows(state: &AppState) -> Vec<VcpuRow<'_>> {
    let guests = state.guests_in_view().into_iter();
    let mut rows: Vec<_> = guests.flat_map(|d| d.vcpus().map(move |t| (d, t))).collect();
    let order = state.view.order_of(ScreenView::Latency);
    rows.sort_by_cached_key(|(_, t)| {
        let wait = t.cpu.and_then(|c| c.wait);
        Reverse(match order {
            order::P99 => (step(quantile(t, 0.99)), step(wait)),
            order::WAIT => (step(wait), 0),
            _ => (0, 0),
        })
    });
    rows
}

/// Number of rows through which the selection can move.
pub fn len(state: &AppState) -> usize {
    state.guests_in_view().iter().map(|d| d.vcpus().count()).sum()
}

/// What the rows are about, in their order.
pub fn ids(state: &AppState) -> Vec<ListRowId> {
    rows(state).iter().map(|(d, t)| ListRowId::of((d.key(), t.tid, t.index))).collect()
}

fn quantile(t: &ThreadModel, q: f64) -> Option<f64> {
    t.wakeups.as_ref()?.quantile_us(q)
}

/// The selected row.
pub fn at(state: &AppState) -> Option<(&DomainModel, &ThreadModel)> {
    rows(state).get(state.view.at).copied()
}

/// Paints the view.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let rows = rows(state);
    let left = format!("{}  by {}", guests(state, ScreenView::Latency), state.view.order_of(ScreenView::Latency));
    let mut inner = title(buf, area, ScreenView::Latency.title(), &left, "WAIT% of the interval", theme);
    if rows.is_empty() {
        let nothing = "No vCPU thread is known: it is read from /proc/PID/task, which this input does not have.";
        say(buf, inner, &missing::because(state, nothing, &[SourceId::Procfs]), Look::Dim, theme);
        return;
    }
    let selected = row_of(state, ScreenView::Latency).map(|at| at.min(rows.len() - 1));
    let at = selected.unwrap_or(0);
    if rows.iter().all(|(_, t)| t.wakeups.is_none()) {
        let lines = say(buf, inner, &no_wakeups(state), Look::Dim, theme);
        inner.y += lines;
        inner.height -= lines;
    }
    if let Some(traced) = InterruptRows::of(state).filter(|_| state.view.shown == ScreenView::Latency) {
        let below = traced.height(inner.height);
        inner.height -= below;
        traced.paint(buf, Rect { y: inner.bottom(), height: below, ..inner }, state, theme);
    }
    let strip = latency_strip::height(inner.height, rows.len() as u16 + 2, selected.is_some());
    if strip > 0 {
        let table = (rows.len() as u16 + 2).min(inner.height - strip);
        let below = Rect { y: inner.y + table, height: strip, ..inner };
        inner.height = table;
        latency_strip::paint(buf, below, state, rows[at], selected.is_some(), theme);
    }
    let names = TaskNames::of(state);
    let rows: Vec<_> = rows.iter().map(|row| (cells(row, state, &names), look(row, state))).collect();
    List { columns: &COLUMNS, rows, at: selected }.paint(buf, inner, theme);
}

/// Why no vCPU has wake-ups.
fn no_wakeups(state: &AppState) -> String {
    let Some(model) = &state.model else { return String::new() };
    let traces = !model.sources.iter().any(|s| s.id == SourceId::Tracepoints && s.state == SourceState::Missing);
    let nothing = match Some((model.engine.kind, model.engine.level)).filter(|_| traces) {
        Some((EngineKind::Bpf | EngineKind::Perf, EngineLevel::Full)) => {
            return missing::because(
                state,
                "No wake-up measured yet: those of a vCPU are timed from its first event in KVM on.",
                &[],
            );
        }
        Some((EngineKind::Bpf | EngineKind::Perf, _)) if state.session.source.is_recorded() => {
            "Wake-ups were not recorded: that needs tracing at full level."
        }
        Some((EngineKind::Bpf | EngineKind::Perf, _)) => {
            "Wake-ups are not measured: that needs tracing at full level (key e)."
        }
        Some((EngineKind::File, _)) => "Wake-ups are not known: no file has the scheduler's events of these threads.",
        Some((EngineKind::None, _)) | None => "Wake-ups are not measured: nothing is traced.",
    };
    missing::because(state, nothing, &[SourceId::Tracepoints])
}

fn cells((d, t): &VcpuRow<'_>, state: &AppState, names: &TaskNames<'_>) -> Vec<Cell> {
    let seconds = state.model.as_ref().and_then(|m| m.interval_s);
    let wait = t.cpu.and_then(|c| c.wait);
    let wakeups = t.wakeups.as_ref();
    let name = if state.view.is_of_all() { Cell::name(clean(d.name())) } else { Cell::blank() };
    vec![
        name,
        Cell::text(t.index.map_or_else(|| clean(&t.comm), |n| format!("vcpu {n}"))),
        Cell::figure(wakeups.map(|w| w.count).zip(seconds).map(|(n, s)| n as f64 / s), rate),
        Cell::figure(quantile(t, 0.5), micros),
        Cell::figure(quantile(t, 0.99), micros),
        Cell::figure(wakeups.and_then(|w| w.max_ns).map(|ns| ns as f64 / 1e3), micros),
        Cell::figure(wait, percent).role(if wait.is_some_and(|w| w >= 5.0) { Look::Wait } else { Look::Text }),
        Cell::figure(t.run_delay_us(seconds), micros),
        Cell::figure(t.run_delays.as_ref().and_then(|d| d.quantile_us(0.99)), micros),
        // The figure first: it is what a narrow column has to keep.
        task(t.woken_by.iter().max_by_key(|o| (o.tid != OtherTask::REST, o.count)), names, |o| {
            seconds.map(|s| format!("{:>5}/s", rate(o.count as f64 / s)))
        }),
        task(t.preempted_by.iter().find(|o| o.tid != OtherTask::REST).or(t.preempted_by.first()), names, |o| {
            seconds.map(|s| format!("{:>4} %", percent(o.ns as f64 / (s * 1e7))))
        }),
    ]
}

fn task(task: Option<&OtherTask>, names: &TaskNames<'_>, figure: impl Fn(&OtherTask) -> Option<String>) -> Cell {
    let Some(task) = task else { return Cell::unknown() };
    let figure = figure(task).map(|f| f + " ").unwrap_or_default();
    Cell::name(format!("{figure}{}", names.name(task)))
}

/// The row of a finding has the look of its severity.
fn look((d, t): &VcpuRow<'_>, state: &AppState) -> RowLook {
    let mine = |mark: &Mark| match mark {
        Mark::Thread(tid) => *tid == t.tid,
        Mark::Vcpu(number) => t.index == Some(*number),
        _ => false,
    };
    let fired = state.findings.iter().filter(|f| f.domain.as_deref() == Some(d.name()));
    let worst = fired.filter(|f| f.marks.iter().any(mine)).map(|f| f.severity).max();
    worst.map_or(RowLook::Plain, |s| RowLook::Marked(severity_role(s)))
}
