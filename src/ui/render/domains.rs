//! The table of guests and their threads.

use super::say;
use crate::ui::cells::{RowView, severity_role, worst_severity};
use crate::ui::draw::{highlight, put};
use crate::ui::grid::{self, Cell, ColumnLayout, RowLook, fit_columns};
use crate::ui::guest_columns::{self, GuestColumn};
use crate::ui::guest_table::{ColumnId, RowPart};
use crate::ui::marked_cells;
use crate::ui::state::AppState;
use crate::ui::text::{clean, width};
use crate::ui::theme::{Look, Theme};
use judge::figures::figure;
use judge::lint::{Finding, Mark, Severity};
use judge::model::Model;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use sample::SourceStatus;
use std::borrow::Cow;

/// How many guests are named when the filter lets none pass.
const MAX_NAMES: usize = 40;
/// Width of the marks before a row: selection, severity, threads shown or hidden.
const MARKS: u16 = 4;

/// Paints the table.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let Some(model) = &state.model else {
        say(buf, inner(area), "Waiting for the first sample …", Look::Dim, theme);
        return;
    };
    if model.domains.is_empty() {
        let (recorded, unseen) = (state.session.source.is_recorded(), model.unseen_processes());
        let text = match (recorded, unseen.map(SourceStatus::sentence)) {
            (false, None) => {
                "No KVM guest is running on this host. kvmtop keeps watching and shows one as soon as it starts.".into()
            }
            (true, None) => "No guest was running at this time.".into(),
            (false, Some(why)) => format!("No KVM guest is visible, but not every process is: {}.", clean(&why)),
            (true, Some(why)) => format!("No guest was visible, but not every process was: {}.", clean(&why)),
        };
        say(buf, inner(area), &text, Look::Text, theme);
        return;
    }
    if state.table.rows.is_empty() {
        let mut names: Vec<String> = model.domains.iter().map(|d| clean(d.name())).collect();
        names.sort_unstable();
        let more = names.len().saturating_sub(MAX_NAMES);
        names.truncate(MAX_NAMES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let text = format!(
            "None of {} guests passes the filter '{}'. There are: {}{more}. Esc clears the filter.",
            model.domains.len(),
            clean(state.table.filter.text()),
            names.join(", ")
        );
        say(buf, inner(area), &text, Look::Text, theme);
        return;
    }
    let columns: Vec<&GuestColumn> = state.table.columns().into_iter().map(guest_columns::column).collect();
    let layouts = layouts(area.width, model, &columns);
    let cells = cells(area);
    let fitted = fit_columns(&layouts, cells.width);
    let heads: Vec<String> = columns.iter().map(|c| head(c, state, theme)).collect();
    grid::header(buf, cells, &fitted, &layouts, &heads, theme);
    for (line, (at, row)) in
        state.table.rows.iter().enumerate().skip(state.table.offset).take((area.height - 1).into()).enumerate()
    {
        let Some((domain, thread)) = state.at_row(*row) else { continue };
        let y = area.y + 1 + line as u16;
        if let RowPart::Idle(n) = row.part {
            put(buf, cells.x, y, &format!("  +{n} idle"), cells.width, theme.style(Look::Dim));
        } else {
            let view = RowView { state, domain, thread };
            let cell = |column: usize| Cow::Owned(cell(columns[column], &view));
            grid::paint(buf, Rect { y, ..cells }, &fitted, &layouts, cell, (RowLook::Plain, false), theme);
            marks(buf, Rect { y, ..area }, &view, theme);
        }
        if at == state.table.at {
            // Without a cursor, a dim mark follows the worst guest.
            let look = if state.table.cursor.is_some() { Look::Strong } else { Look::Dim };
            put(buf, area.x, y, &theme.glyphs.cursor.to_string(), 1, theme.style(look));
            highlight(buf, Rect { y, height: 1, width: area.width.saturating_sub(1), ..area }, theme);
        }
    }
    scrollbar(buf, area, state, theme);
}

/// The area of the cells, right of the marks.
fn cells(area: Rect) -> Rect {
    Rect { x: area.x + MARKS, width: area.width.saturating_sub(MARKS + 1), height: 1, ..area }
}

/// The table column at column `x` of the screen.
pub fn column_at(area: Rect, state: &AppState, x: u16) -> Option<ColumnId> {
    let ids = state.table.columns();
    let columns: Vec<&GuestColumn> = ids.iter().map(|id| guest_columns::column(*id)).collect();
    let layouts = layouts(area.width, state.model.as_ref()?, &columns);
    let x = x.checked_sub(cells(area).x)?;
    let fitted = fit_columns(&layouts, cells(area).width);
    fitted.into_iter().find(|(_, left, width)| (*left..left + width).contains(&x)).map(|(i, ..)| ids[i])
}

fn inner(area: Rect) -> Rect {
    Rect {
        x: area.x + 1,
        y: area.y + u16::from(area.height > 2),
        width: area.width.saturating_sub(2),
        height: area.height.saturating_sub(1),
    }
}

/// The cell of a row: while a time is marked, the change of a guest's figure.
fn cell(column: &GuestColumn, view: &RowView<'_>) -> Cell {
    let change = || marked_cells::cell(view.state, column, view.domain);
    view.thread.is_none().then(change).flatten().unwrap_or_else(|| (column.cell)(view))
}

/// The layouts of the columns. The names take what they need, up to a sixth of the width.
fn layouts(room: u16, model: &Model, columns: &[&GuestColumn]) -> Vec<ColumnLayout> {
    let longest = model.domains.iter().map(|d| width(d.name())).max().unwrap_or(0);
    let mut layouts: Vec<ColumnLayout> = columns.iter().map(|c| c.layout).collect();
    if let Some(name) = layouts.first_mut() {
        name.width = longest.min(room / 6).max(name.width);
    }
    layouts
}

fn head(c: &GuestColumn, state: &AppState, theme: &Theme) -> String {
    let sort = state.table.sort;
    let mark = theme.glyphs.sort[usize::from(sort.reversed)];
    match c.id {
        ColumnId::Name if sort.column == ColumnId::Findings => format!("{} {mark}guilt", c.header),
        ColumnId::Trend => format!("{} {}", c.header, figure(state.table.trend_top)),
        // The mark is shown only where it moves no letter of the header.
        id if id == sort.column && c.header.len() < usize::from(c.layout.width) => format!("{mark}{}", c.header),
        _ => c.header.to_string(),
    }
}

/// Paints the marks before a row, which say without colour which guest has a finding.
fn marks(buf: &mut Buffer, area: Rect, r: &RowView<'_>, theme: &Theme) {
    let g = &theme.glyphs;
    if let Some(s) = severity(r) {
        put(buf, area.x + 1, area.y, &severity_glyph(s, theme).to_string(), 1, theme.style(severity_role(s)));
    } else if r.thread.is_none() && is_still_watched(r) {
        put(buf, area.x + 1, area.y, &g.cut.to_string(), 1, theme.style(Look::Dim));
    }
    if r.thread.is_none() && r.state.table.pinned.contains(&r.domain.key()) {
        put(buf, area.x + 3, area.y, &g.pin.to_string(), 1, theme.style(Look::Key));
    }
    if r.thread.is_none() {
        let open = r.state.table.unfolded.contains(&r.domain.key());
        put(buf, area.x + 2, area.y, &g.fold[usize::from(open)].to_string(), 1, theme.style(Look::Dim));
    }
}

/// Whether too little of a guest has been seen for "no finding" to say anything.
fn is_still_watched(r: &RowView<'_>) -> bool {
    r.state.watching.iter().any(|w| w.is_every_rule() && w.domain.as_deref() == Some(r.domain.name()))
}

/// The mark of a severity.
pub fn severity_glyph(s: Severity, theme: &Theme) -> char {
    match s {
        Severity::Critical => theme.glyphs.severity[0],
        Severity::Warning => theme.glyphs.severity[1],
        Severity::Info => theme.glyphs.severity[2],
    }
}

/// The worst finding about the guest, or on a thread's row about this thread.
fn severity(r: &RowView<'_>) -> Option<Severity> {
    let Some(t) = r.thread else { return worst_severity(&r.state.findings, r.domain.name()) };
    let name = r.domain.name();
    let here = |f: &Finding, m: &Mark| match m {
        Mark::Thread(tid) => *tid == t.tid,
        Mark::Vcpu(v) => {
            f.domain.as_deref() == Some(name) && t.role == kvm::thread_name::Role::Vcpu && t.index == Some(*v)
        }
        Mark::Exit(_) | Mark::Access(..) | Mark::Pcpu(_) => false,
    };
    let of_guest = r.state.findings.iter().filter(|f| f.concerns(name));
    of_guest.filter(|f| f.marks.iter().any(|m| here(f, m))).map(|f| f.severity).max()
}

/// Paints the scroll bar of a table that does not fit.
fn scrollbar(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let (rows, room) = (state.table.rows.len(), usize::from(area.height.saturating_sub(1)));
    if rows <= room || room < 3 {
        return;
    }
    let thumb = (room * room / rows).max(1);
    let top = (state.table.offset * (room - thumb)).div_ceil(rows - room);
    for i in 0..room {
        let on = i >= top && i < top + thumb;
        let glyph = if on { theme.glyphs.bar[0] } else { theme.glyphs.frame[5] };
        put(buf, area.right() - 1, area.y + 1 + i as u16, &glyph.to_string(), 1, theme.style(Look::Dim));
    }
}
