//! Draws the screen from its state alone. One file for each panel.

mod accesses;
mod cpu_map;
mod cpus;
mod disks;
mod domains;
mod esxtop;
mod exit_map;
mod exits;
mod finding;
mod finding_lines;
mod findings;
mod footer;
mod header;
mod help;
mod histogram;
mod host_disks;
mod interrupts;
mod latency;
mod latency_strip;
mod memory;
mod menus;
mod missing;
mod popup;
mod scrolled;
mod sort_menu;
mod sources;
mod stacks;
mod tabs;
mod task_names;
mod threads;
mod timeline;
mod userspace;

use super::draw::put;
use super::grid::Cell;
use super::layout::{self, SMALLEST};
use super::list_row_id::ListRowId;
use super::panel_rows::PanelSizes;
use super::state::{AppState, Popup};
use super::text::{fit_words, width};
use super::theme::{Look, Theme};
use super::view::ScreenView;
pub use cpus::PANEL_CPUS;
pub use domains::column_at;
pub use header::clock_area;
use judge::model::{DomainModel, ThreadModel};
pub use latency_strip::MOST as LATENCY_PICTURE;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Modifier;
use sample::{SourceId, SourceState};
pub use tabs::at as tab_at;

/// Columns of the left text of a title that its right text leaves alone.
const MIN_LEFT: u16 = 16;

/// Draws the whole screen.
pub fn render(frame: &mut Frame<'_>, state: &AppState, theme: &Theme) {
    if let Some(at) = paint(frame.buffer_mut(), state, theme) {
        frame.set_cursor_position(at);
    }
}

/// Draws the whole screen into a buffer. Returns the position of the text cursor while text is typed.
pub fn paint(buf: &mut Buffer, state: &AppState, theme: &Theme) -> Option<Position> {
    let plan = layout::plan(state);
    let area = buf.area;
    if plan.too_small || area.width < state.size.0 || area.height < state.size.1 {
        too_small(buf, area, theme);
        return None;
    }
    header::paint(buf, plan.header, state, theme);
    if !plan.tabs.is_empty() {
        tabs::paint(buf, plan.tabs, state, theme);
    }
    if !plan.table.is_empty() {
        domains::paint(buf, plan.table, state, theme);
    }
    for (view, area) in &plan.panels {
        view_at(buf, *view, *area, state, theme);
    }
    if !plan.strip.is_empty() {
        findings::strip(buf, plan.strip, state, theme);
    }
    if !plan.worst.is_empty() {
        finding::worst(buf, plan.worst, state, theme);
    }
    if !plan.timeline.is_empty() {
        timeline::paint(buf, plan.timeline, state, theme);
    }
    let cursor = footer::paint(buf, plan.footer, state, theme);
    match &state.popup {
        Some(Popup::Help { scroll }) => help::paint(buf, area, *scroll, state, theme),
        Some(Popup::Sort { at }) => sort_menu::paint(buf, area, *at, state, theme),
        Some(Popup::Finding { key, scroll }) => {
            if let Some(f) = state.finding(key) {
                finding::paint(buf, plan.opened, f, *scroll, state, theme);
            }
        }
        Some(Popup::Stacks { guest, tid, asked_ms, scroll }) => {
            let shown = stacks::StacksShown { guest, tid: *tid, asked_ms: *asked_ms };
            stacks::paint(buf, plan.opened, shown, *scroll, state, theme);
        }
        Some(Popup::Columns { at }) => menus::columns(buf, area, *at, state, theme),
        Some(Popup::Save { at, .. }) => menus::save(buf, area, *at, theme),
        Some(Popup::Filter(_) | Popup::Goto(_)) | None => {}
    }
    if theme.is_ascii() {
        only_ascii(buf);
    }
    if theme.is_plain() {
        buf.content.iter_mut().for_each(|cell| cell.modifier = Modifier::empty());
    }
    cursor
}

/// Replaces what a terminal without Unicode cannot show: names of guests may be in any script.
fn only_ascii(buf: &mut Buffer) {
    for cell in buf.content.iter_mut().filter(|c| !c.symbol().is_ascii()) {
        cell.set_symbol("?");
    }
}

fn view_at(buf: &mut Buffer, view: ScreenView, area: Rect, state: &AppState, theme: &Theme) {
    match view {
        ScreenView::Guests => domains::paint(buf, area, state, theme),
        ScreenView::Threads => threads::paint(buf, area, state, theme),
        ScreenView::Exits => exits::paint(buf, area, state, theme),
        ScreenView::Accesses => accesses::paint(buf, area, state, theme),
        ScreenView::Cpus => cpus::paint(buf, area, state, theme),
        ScreenView::Latency => latency::paint(buf, area, state, theme),
        ScreenView::Disks => disks::paint(buf, area, state, theme),
        ScreenView::Memory => memory::paint(buf, area, state, theme),
        ScreenView::Findings => findings::paint(buf, area, state, theme),
        ScreenView::Sources => sources::paint(buf, area, state, theme),
    }
}

/// Number of rows of a view through which the selection can move.
pub fn len(state: &AppState, view: ScreenView) -> usize {
    match view {
        ScreenView::Guests => state.table.rows.len(),
        ScreenView::Threads => threads::len(state),
        ScreenView::Exits => exits::len(state),
        ScreenView::Accesses => accesses::len(state),
        ScreenView::Cpus => cpus::len(state),
        ScreenView::Latency => latency::len(state),
        ScreenView::Disks => disks::len(state),
        ScreenView::Memory => memory::len(state),
        ScreenView::Findings => state.findings_in_view().len(),
        ScreenView::Sources => sources::len(state),
    }
}

/// What the rows of a view are about, in their order. Lines of text are about nothing that could move.
pub fn ids(state: &AppState, view: ScreenView) -> Vec<ListRowId> {
    match view {
        ScreenView::Guests => Vec::new(),
        ScreenView::Threads => threads::ids(state),
        ScreenView::Exits => exits::ids(state),
        ScreenView::Accesses => accesses::ids(state),
        ScreenView::Cpus => cpus::ids(state),
        ScreenView::Latency => latency::ids(state),
        ScreenView::Disks => disks::ids(state),
        ScreenView::Memory => memory::ids(state),
        ScreenView::Findings => state.findings_in_view().iter().map(|f| ListRowId::of(f.id())).collect(),
        ScreenView::Sources => (0..sources::len(state)).map(ListRowId::of).collect(),
    }
}

/// The screen line of the view's selected row.
pub fn selected_line(state: &AppState) -> Option<u16> {
    let theme = Theme::default();
    let background = theme.selected().bg?;
    let (_, area) = layout::plan(state).panels.into_iter().find(|(view, _)| *view == state.view.shown)?;
    let mut buf = Buffer::empty(Rect::new(0, 0, state.size.0, state.size.1));
    view_at(&mut buf, state.view.shown, area, state, &theme);
    (area.y..area.bottom()).find(|y| buf[(area.x + 1, *y)].bg == background)
}

/// What there is to show on the first screen.
pub fn measure(state: &AppState) -> PanelSizes {
    use ScreenView as V;
    let panels = [V::Exits, V::Accesses, V::Threads, V::Cpus, V::Latency, V::Disks, V::Memory, V::Findings];
    let wide = state.size.0 >= layout::RIGHT_OF_TABLE.0;
    let half = if wide { layout::right_width(state.size.0) } else { state.size.0 };
    let rows = |view| if view == V::Findings { findings::strip_len(state) } else { len(state, view) };
    PanelSizes {
        rows: panels.into_iter().map(|view| (view, rows(view))).collect(),
        lines_of_all: [(V::Disks, disks::lines_of_all(state)), (V::Memory, memory::lines_of_all(state))].into(),
        view_lines: view_lines(state),
        cpu_map: cpu_map::height(state, state.size.0 - if wide { half } else { 0 }).into(),
        worst: state.worst_finding().map_or((0, 0), |f| {
            let lines = |width| finding::brief(f, state, width, usize::MAX).len();
            (lines(half), lines(state.size.0 - if wide { half + 1 } else { 0 }))
        }),
    }
}

/// How many lines the view on the screen needs: what it leaves below has room for others.
fn view_lines(state: &AppState) -> usize {
    let (view, area) = (state.view.shown, layout::view_area(state));
    let all = usize::from(area.height);
    if view == ScreenView::Guests || area.width < SMALLEST.0 || len(state, view) + 2 >= all {
        return all;
    }
    let theme = Theme::default();
    let written = |lines: usize| -> Vec<u16> {
        let mut buf = Buffer::empty(Rect::new(0, 0, state.size.0, state.size.1));
        view_at(&mut buf, view, Rect { height: lines as u16, ..area }, state, &theme);
        let is_written = |y: &u16| (area.x..area.right()).any(|x| buf[(x, *y)].symbol() != " ");
        (area.y..area.bottom()).filter(is_written).collect()
    };
    let whole = written(all);
    let needed = whole.last().map_or(0, |y| usize::from(y + 1 - area.y));
    // With less room some views leave out what they have.
    (needed..all).step_by(2).take(4).find(|lines| written(*lines).len() >= whole.len()).unwrap_or(all)
}

/// Number of lines of the open popup.
pub fn popup_len(state: &AppState) -> usize {
    match &state.popup {
        Some(Popup::Help { .. }) => help::lines(state, state.size.0).len(),
        Some(Popup::Finding { key, .. }) => state.finding(key).map_or(0, |f| finding::opened_len(f, state)),
        Some(Popup::Stacks { guest, tid, asked_ms, .. }) => {
            stacks::lines(stacks::StacksShown { guest, tid: *tid, asked_ms: *asked_ms }, state).len()
        }
        _ => 0,
    }
}

/// The guest and thread of the selected row of a view of threads.
pub fn thread_at(state: &AppState) -> Option<(&DomainModel, &ThreadModel)> {
    match state.view.shown {
        ScreenView::Threads => threads::at(state),
        ScreenView::Latency => latency::at(state),
        _ => None,
    }
}

/// The text of the help.
#[cfg(test)]
pub fn help_text(state: &AppState) -> String {
    help::lines(state, 250).into_iter().flatten().map(|(text, _)| text).collect()
}

/// Whether a recording is being written: the feed reports it as a source.
pub fn recording(state: &AppState) -> bool {
    let sources = state.model.as_ref().map(|m| m.sources.as_slice()).unwrap_or_default();
    sources.iter().any(|s| s.id == SourceId::Recording && s.state != SourceState::Missing)
}

/// Paints the title of a view or panel on a rule, with text at both ends. Returns the area below.
fn title(buf: &mut Buffer, area: Rect, name: &str, left: &str, right: &str, theme: &Theme) -> Rect {
    put(
        buf,
        area.x,
        area.y,
        &theme.glyphs.rule.to_string().repeat(area.width.into()),
        area.width,
        theme.style(Look::Dim),
    );
    let mut x = area.x + 1;
    let name = format!(" {name} ");
    put(buf, x, area.y, &name, area.width.saturating_sub(1), theme.style(Look::Head));
    x += width(&name);
    let room = area.right().saturating_sub(x + 1);
    let right_width = width(right) + 2;
    // Whom a view is about matters more than its sums.
    let left_width = width(left).min(MIN_LEFT);
    let right_fits = !right.is_empty() && right_width + left_width + 1 < room;
    let left_room = if right_fits { room - right_width } else { room };
    if !left.is_empty() {
        put(
            buf,
            x,
            area.y,
            &format!("{} ", fit_words(left, left_room.saturating_sub(1), theme.glyphs.cut)),
            left_room,
            theme.style(Look::Text),
        );
    }
    if right_fits {
        put(buf, area.right() - 1 - right_width, area.y, &format!(" {right} "), right_width, theme.style(Look::Dim));
    }
    Rect { x: area.x + 1, y: area.y + 1, width: area.width.saturating_sub(2), height: area.height.saturating_sub(1) }
}

/// Whom the view or panel is about: `win10-2`, `win10-2 vcpu 3`, `5 guests`.
fn scope(state: &AppState) -> String {
    if state.view.is_of_all() {
        let n = state.guests_in_view().len();
        return format!("{n} guest{}", if n == 1 { "" } else { "s" });
    }
    let Some(d) = state.domain() else { return String::new() };
    let name = super::text::clean(d.name());
    state.vcpu().map_or_else(|| name.clone(), |v| format!("{name} vcpu {v}"))
}

/// The same for a view or panel that shows whole guests only.
fn guests(state: &AppState, view: ScreenView) -> String {
    if state.is_of_all(view) {
        return judge::figures::count(state.guests_of(view).len(), "guest");
    }
    state.domain().map(|d| super::text::clean(d.name())).unwrap_or_default()
}

/// The selected row of a view; `None` for a panel of the first screen.
fn row_of(state: &AppState, view: ScreenView) -> Option<usize> {
    (state.view.shown == view).then_some(state.view.at)
}

/// The guest's name where a view shows all guests.
fn guest_cell(state: &AppState, view: ScreenView, d: &DomainModel) -> Cell {
    if state.is_of_all(view) { Cell::text(super::text::clean(d.name())) } else { Cell::blank() }
}

/// Paints sentences in a panel without a table. Returns the number of lines.
fn say(buf: &mut Buffer, area: Rect, text: &str, role: Look, theme: &Theme) -> u16 {
    let lines = super::text::wrap(text, area.width);
    let n = lines.len().min(area.height.into());
    for (i, line) in lines.iter().take(n).enumerate() {
        put(buf, area.x, area.y + i as u16, line, area.width, theme.style(role));
    }
    n as u16
}

fn too_small(buf: &mut Buffer, area: Rect, theme: &Theme) {
    let text = format!(
        "kvmtop needs at least {} columns and {} rows; this terminal has {} x {}. Please enlarge it.",
        SMALLEST.0, SMALLEST.1, area.width, area.height
    );
    say(buf, area, &text, Look::Text, theme);
}
