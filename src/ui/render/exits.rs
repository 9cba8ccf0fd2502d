//! Exits by reason: of the selected guest or vCPU, in the view also of all guests, with a map of who has them.

use super::{exit_map, histogram, missing, say, scope, title, userspace};
use crate::ui::cells::severity_role;
use crate::ui::draw::put;
use crate::ui::grid::{Cell, ColumnLayout, List, RowLook};
use crate::ui::list_row_id::ListRowId;
use crate::ui::order;
use crate::ui::state::AppState;
use crate::ui::text::{clean, fit_words, wrap};
use crate::ui::theme::{Look, Theme};
use crate::ui::view::{ExitSpan, ScreenView};
use judge::figures::{figure, micros, percent, rate, share};
use judge::lint::Mark;
use judge::model::{ExitRateSource, ExitRow, ExitTable};
use kvm::exit_reason;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use sample::{EngineLevel, SourceId};
use std::borrow::Cow;
use std::cmp::Reverse;

/// From this width on, exits to the VMM are beside the list.
const WIDE: u16 = 150;
/// Lines below the list for the distribution and the meaning of the selected reason.
const FOOT: u16 = histogram::LINES + 1 + MEANING;
/// The maximum number of lines of the meaning.
const MEANING: u16 = 2;

/// Headers and layout.
pub const COLUMNS: [(&str, ColumnLayout); 12] = [
    ("REASON", ColumnLayout::left(16, 8, 0)),
    ("/s", ColumnLayout::right(6, 0, 0)),
    ("COUNT", ColumnLayout::right(7, 0, 6)),
    ("%CNT", ColumnLayout::right(4, 0, 1)),
    ("%WORK", ColumnLayout::right(5, 0, 0)),
    ("%CPU", ColumnLayout::right(5, 0, 2)),
    ("MIN us", ColumnLayout::right(6, 0, 8)),
    ("MEAN us", ColumnLayout::right(7, 0, 3)),
    ("P99 us", ColumnLayout::right(6, 0, 4)),
    ("MAX us", ColumnLayout::right(6, 0, 5)),
    ("%VMM", ColumnLayout::right(4, 0, 7)),
    ("%STOLEN", ColumnLayout::right(7, 0, 9)),
];

/// What the columns mean.
pub const HELP: [(&str, &str); 12] = [
    (
        "map",
        "Reasons by vCPU, or guests by reason: the darker, the more. Key o: by time or by count; u: per second, in \
         this interval or since the start; z: with or without the exits in which the guest sleeps.",
    ),
    ("REASON", "Exit reason as the kernel names it. Idle reasons (HLT, WFx) are dim and come last."),
    ("/s", "Exits per second."),
    ("COUNT", "How many there were, in the interval or since the start."),
    ("%CNT", "Share of the exits of the guest or vCPU."),
    ("%WORK", "Share of the time in all exits but idle ones."),
    ("%CPU", "Time in these exits, percent of one host CPU over the interval."),
    ("MIN us MEAN us", "From kvm_exit to the next kvm_entry of the vCPU, microseconds."),
    ("P99 us", "99 of 100 exits were shorter (from a histogram by powers of two)."),
    ("MAX us", "The longest of the interval."),
    ("%VMM", "Part of the time that was spent outside the kernel, in the VMM."),
    ("%STOLEN", "Part of the time in which the vCPU was runnable while another task had its CPU."),
];

/// The table that the view or the panel shows.
pub fn table(state: &AppState) -> Option<Cow<'_, ExitTable>> {
    let in_view = state.view.shown == ScreenView::Exits;
    if in_view && state.view.is_of_all() {
        let tables: Vec<_> = state.guests_in_view().into_iter().map(|d| exit_map::tables(state, d)).collect();
        let seconds = tables.iter().filter_map(|(_, _, seconds)| *seconds).reduce(f64::max);
        return Some(Cow::Owned(ExitTable::sum(tables.iter().map(|(all, ..)| *all), seconds)));
    }
    let d = state.domain()?;
    let (all, vcpus) = if in_view {
        let (all, vcpus, _) = exit_map::tables(state, d);
        (all, vcpus)
    } else {
        (&d.exits, d.vcpu_exits.iter().map(|(v, t)| (*v, t)).collect())
    };
    match state.vcpu() {
        Some(v) => vcpus.into_iter().find(|(n, _)| *n == v).map(|(_, t)| Cow::Borrowed(t)),
        None => Some(Cow::Borrowed(all)),
    }
}

/// How many rows it has.
pub fn len(state: &AppState) -> usize {
    let rows = table(state).map_or(0, |t| t.rows.len());
    // An empty list shows a sentence of two lines with the reason.
    let userspace = if instead(state) { userspace::exits(state).len() } else { 0 };
    match rows.max(userspace) {
        0 if instead(state) => 2,
        n => n,
    }
}

/// What the rows are about, in their order.
pub fn ids(state: &AppState) -> Vec<ListRowId> {
    if instead(state) {
        return userspace::exits(state).iter().map(|(reason, _)| ListRowId::of(reason)).collect();
    }
    rows(table(state).as_deref(), state).iter().map(|row| ListRowId::of(&row.reason)).collect()
}

/// Whether exits to the VMM are shown instead.
fn instead(state: &AppState) -> bool {
    state.model.as_ref().is_some_and(judge::model::Model::no_kvm_exit)
}

/// Paints the view, or the panel of the first screen. The view begins with the map and ends with exits to the VMM and
/// KVM's counters.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let in_view = state.view.shown == ScreenView::Exits;
    let Some(m) = state.model.as_ref().filter(|_| in_view) else {
        by_reason(buf, area, state, theme);
        return;
    };
    let mut rest = area;
    let map = exit_map::map(state).filter(|_| m.interval_s.is_some());
    if let Some(map) = map {
        let sleep = if state.view.exits.with_sleep { "sleep counted" } else { "sleep not counted" };
        let sleep = if instead(state) { "" } else { sleep };
        let left = format!("{}  {}", scope(state), map.unit);
        let inner = title(buf, rest, ScreenView::Exits.title(), &left, sleep, theme);
        let lines = map.lines().min(inner.height / 2);
        map.paint(buf, Rect { height: lines, ..inner }, theme);
        rest = Rect { y: inner.y + lines, height: inner.height - lines, ..rest };
    }
    let vmm = userspace::lines(state);
    if rest.width >= WIDE && vmm > 2 {
        let left = rest.width * 11 / 20;
        by_reason(buf, Rect { width: left - 1, ..rest }, state, theme);
        let right = Rect { x: rest.x + left, width: rest.width - left, ..rest };
        userspace::paint(buf, right, state, theme);
        return;
    }
    let wanted = len(state) as u16 + 2 + FOOT;
    if vmm <= 2 && instead(state) {
        by_reason(buf, rest, state, theme);
        return;
    }
    let vmm = vmm.min(rest.height * 3 / 10).max(rest.height.saturating_sub(wanted)).min(rest.height);
    let above = Rect { height: rest.height - vmm, ..rest };
    by_reason(buf, above, state, theme);
    if vmm >= 3 {
        userspace::paint(buf, Rect { y: above.bottom(), height: vmm, ..rest }, state, theme);
    }
}

fn by_reason(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let Some(m) = &state.model else { return };
    let in_view = state.view.shown == ScreenView::Exits;
    let table = table(state);
    let seconds = match table.as_ref().and_then(|t| t.rows.first()) {
        // The table says over which time it is.
        Some(row) => row.rate.filter(|r| *r > 0.0).map(|r| row.span.count as f64 / r),
        None => m.interval_s,
    };
    let total = table.as_ref().and_then(|t| Some(format!("{}/s", rate(t.count as f64 / seconds?))));
    let work =
        table.as_ref().and_then(|t| Some(format!("work {} % of a cpu", percent(t.work_ns? as f64 / (seconds? * 1e7)))));
    let right = [total, work].into_iter().flatten().collect::<Vec<_>>().join("  ");
    let right = if table.as_ref().is_some_and(|t| t.count > 0) { right } else { String::new() };
    let name = if in_view { "BY REASON" } else { ScreenView::Exits.title() };
    let left = match state.view.exits.span {
        ExitSpan::Start if in_view => {
            format!("{}  the last {}", scope(state), judge::figures::seconds(seconds.unwrap_or(0.0)))
        }
        _ => scope(state),
    };
    let mut inner = title(buf, area, name, &left, &right, theme);
    if inner.is_empty() || state.domain().is_none() {
        return;
    }
    let rows = rows(table.as_deref(), state);
    if rows.is_empty() {
        let to_vmm = instead(state) && !userspace::exits(state).is_empty();
        // On the first screen the header of the list says as much.
        let used = if to_vmm && !in_view { 0 } else { say(buf, inner, &nothing(state), Look::Dim, theme) };
        if to_vmm {
            inner.y += used;
            inner.height -= used;
            userspace::exits_list(state, in_view).paint(buf, inner, theme);
        }
        return;
    }
    let of = rows.get(if in_view { state.view.at.min(rows.len() - 1) } else { 0 }).copied();
    if in_view {
        inner.height = inner.height.min(rows.len() as u16 + 1 + FOOT);
    }
    let used = foot(buf, inner, rows.len() as u16 + 1, in_view, of, theme);
    inner.height -= used;
    let list: List<'_> = List {
        columns: &COLUMNS,
        rows: rows.iter().map(|r| (cells(r, seconds, state), look(r, state))).collect(),
        at: in_view.then_some(state.view.at),
    };
    list.paint(buf, inner, theme);
}

/// The rows: by time as the table has them, or by count.
fn rows<'a>(table: Option<&'a ExitTable>, state: &AppState) -> Vec<&'a ExitRow> {
    let mut rows: Vec<&ExitRow> = table.map(|t| t.rows.iter().collect()).unwrap_or_default();
    if state.view.shown == ScreenView::Exits && state.view.order() == order::COUNT {
        rows.sort_by_key(|r| (r.idle, Reverse(r.span.count)));
    }
    rows
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
        let whole = wrap(text, area.width).len() as u16;
        let at = below(whole.min(spare).clamp(1, MEANING));
        if whole <= at.height {
            say(buf, at, text, Look::Dim, theme);
        } else {
            put(buf, at.x, at.y, &fit_words(text, at.width, theme.glyphs.cut), at.width, theme.style(Look::Dim));
        }
    }
    if spare > histogram::LINES + MEANING {
        histogram::paint(buf, below(histogram::LINES), row, theme);
    }
    lines
}

fn meaning(r: &ExitRow) -> Option<&'static str> {
    r.id.and_then(|(isa, code)| exit_reason::meaning(isa, code))
}

fn cells(r: &ExitRow, interval_s: Option<f64>, state: &AppState) -> Vec<Cell> {
    let in_view = state.view.shown == ScreenView::Exits;
    let counted = in_view && state.view.exits.span != ExitSpan::Second;
    let part = |ns: Option<u64>| {
        let all = r.span.total_ns.filter(|t| *t > 0)?;
        Some(100.0 * ns? as f64 / all as f64)
    };
    let cpu = r.span.total_ns.zip(interval_s).map(|(t, s)| t as f64 / (s * 1e7));
    vec![
        Cell::text(clean(&r.reason)),
        Cell::figure(r.rate, rate),
        if counted { Cell::text(figure(r.span.count as f64)) } else { Cell::blank() },
        Cell::figure(r.count_percent, share),
        Cell::figure(r.work_percent, share),
        Cell::figure(cpu.filter(|_| !r.idle), percent),
        Cell::figure(r.span.min_ns.map(|n| n as f64 / 1e3).filter(|_| in_view), micros),
        Cell::figure(r.span.mean_us(), micros),
        Cell::figure(r.span.quantile_us(0.99), micros),
        Cell::figure(r.span.max_ns.map(|n| n as f64 / 1e3), micros),
        Cell::figure(part(r.userspace_ns), share),
        Cell::figure(part(r.preempted_ns), share),
    ]
}

/// The row of a finding has the look of its severity; idle reasons are dim.
fn look(r: &ExitRow, state: &AppState) -> RowLook {
    let all = state.view.shown == ScreenView::Exits && state.view.is_of_all();
    let name = state.domain().map(judge::model::DomainModel::name);
    let fired = state.findings.iter().filter(|f| all || f.domain.as_deref() == name);
    let worst = fired.filter(|f| f.marks.contains(&Mark::Exit(r.reason.clone()))).map(|f| f.severity).max();
    match worst {
        Some(s) => RowLook::Marked(severity_role(s)),
        None if r.idle => RowLook::Dim,
        None => RowLook::Plain,
    }
}

/// Why the list of exits is empty, and the source of the rate beside it.
fn nothing(state: &AppState) -> String {
    let Some(m) = &state.model else { return String::new() };
    if m.interval_s.is_none() {
        return "Measuring the first interval …".into();
    }
    let counted = state.domain().is_some_and(|d| d.exit_rate.0.is_some_and(|r| r > 0.0));
    let rate = match state.domain().map(|d| d.exit_rate.1) {
        Some(ExitRateSource::Counters) if counted => " EXITS/s is KVM's own counter, which knows no reasons.",
        Some(ExitRateSource::Nothing) => " EXITS/s has no source: KVM's own counters are missing as well.",
        _ => "",
    };
    if m.no_kvm_exit() {
        let flavour = m.host.facts.kvm_flavour.as_deref().map(|f| format!(" ({})", clean(f))).unwrap_or_default();
        let instead = if userspace::exits(state).is_empty() {
            "and no exit to the VMM was seen in this interval."
        } else {
            "accesses and exits to the VMM are shown instead."
        };
        let joint = if instead.starts_with("and") { "," } else { ":" };
        return format!("This kernel{flavour} fires no kvm_exit{joint} {instead}{rate}");
    }
    if m.engine.level == EngineLevel::None || m.engine.kind == sample::EngineKind::None {
        let text = format!("Exits are not being traced.{rate} Press e to trace, 0 to see what is missing.");
        return missing::because(state, &text, &[SourceId::Tracepoints]);
    }
    missing::because(state, &format!("No exit was traced in this interval.{rate}"), &[SourceId::Tracepoints])
}
