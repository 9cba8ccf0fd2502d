//! Draws the screen from its state alone. One file for each panel.

mod accesses;
mod cpus;
mod domains;
mod exits;
mod finding;
mod findings;
mod footer;
mod header;
mod help;
mod histogram;
mod popup;
mod sort_menu;
mod sources;
mod timeline;
mod userspace;

use super::draw::put;
use super::layout::{self, SMALLEST};
use super::state::{AppState, Panel, Popup};
use super::text::{fit, width};
use super::theme::{Look, Theme};
use crate::sample::{SourceId, SourceState};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Draws the whole screen.
pub fn render(frame: &mut Frame<'_>, state: &AppState, theme: &Theme) {
    let plan = layout::plan(state);
    let area = frame.area();
    let buf = frame.buffer_mut();
    if plan.too_small || area.width < state.size.0 || area.height < state.size.1 {
        too_small(buf, area, theme);
        return;
    }
    header::paint(buf, plan.header, state, theme);
    if !plan.table.is_empty() {
        domains::paint(buf, plan.table, state, theme);
    }
    for (panel, area) in &plan.panels {
        panel_at(buf, *panel, *area, state, theme);
    }
    if !plan.strip.is_empty() {
        findings::strip(buf, plan.strip, state, theme);
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
                finding::paint(buf, area, f, *scroll, state, theme);
            }
        }
        Some(Popup::Filter(_) | Popup::Goto(_)) | None => {}
    }
    if let Some(at) = cursor {
        frame.set_cursor_position(at);
    }
}

fn panel_at(buf: &mut Buffer, panel: Panel, area: Rect, state: &AppState, theme: &Theme) {
    match panel {
        Panel::Domains => {}
        Panel::Exits => exits::paint(buf, area, state, theme),
        Panel::Accesses => accesses::paint(buf, area, state, theme),
        Panel::Cpus => cpus::paint(buf, area, state, theme),
        Panel::Userspace => userspace::paint(buf, area, state, theme),
        Panel::Findings => findings::paint(buf, area, state, theme),
        Panel::Sources => sources::paint(buf, area, state, theme),
    }
}

/// Number of rows of a panel through which the selection can move.
pub fn panel_len(state: &AppState, panel: Panel) -> usize {
    match panel {
        Panel::Domains => state.table.rows.len(),
        Panel::Exits => exits::len(state),
        Panel::Accesses => accesses::rows(state).len(),
        Panel::Cpus => cpus::len(state),
        Panel::Userspace => userspace::len(state),
        Panel::Findings => state.findings.len(),
        Panel::Sources => sources::lines(state, state.size.0, &Theme::default()).len(),
    }
}

/// Number of lines of the open popup.
pub fn popup_len(state: &AppState) -> usize {
    match &state.popup {
        Some(Popup::Help { .. }) => help::lines(state, state.size.0).len(),
        Some(Popup::Finding { key, .. }) => {
            state.finding(key).map_or(0, |f| finding::lines(f, state, state.size.0).len())
        }
        _ => 0,
    }
}

/// Whether a recording is being written: the feed reports it as a source.
pub fn recording(state: &AppState) -> bool {
    let sources = state.model.as_ref().map(|m| m.sources.as_slice()).unwrap_or_default();
    sources.iter().any(|s| s.id == SourceId::Recording && s.state != SourceState::Missing)
}

/// Paints a panel's title on a rule, with text at both ends. Returns the area below.
fn title(buf: &mut Buffer, area: Rect, panel: Panel, left: &str, right: &str, state: &AppState, theme: &Theme) -> Rect {
    let focused = state.panels.focus == panel;
    put(
        buf,
        area.x,
        area.y,
        &theme.glyphs.rule.to_string().repeat(area.width.into()),
        area.width,
        theme.style(Look::Dim),
    );
    let mut x = area.x + 1;
    let name = format!(" {} ", panel.title());
    let style = theme.style(Look::Head);
    put(
        buf,
        x,
        area.y,
        &name,
        area.width.saturating_sub(1),
        if focused { style.patch(theme.selected()) } else { style },
    );
    x += width(&name);
    let room = area.right().saturating_sub(x + 1);
    let right_width = width(right) + 2;
    let right_fits = !right.is_empty() && right_width < room;
    let left_room = if right_fits { room - right_width } else { room };
    if !left.is_empty() {
        put(
            buf,
            x,
            area.y,
            &format!("{} ", fit(left, left_room.saturating_sub(1), theme.glyphs.cut)),
            left_room,
            theme.style(Look::Text),
        );
    }
    if right_fits {
        put(buf, area.right() - 1 - right_width, area.y, &format!(" {right} "), right_width, theme.style(Look::Dim));
    }
    Rect { x: area.x + 1, y: area.y + 1, width: area.width.saturating_sub(2), height: area.height.saturating_sub(1) }
}

/// Name of what the panels show: `win10-2`, `win10-2 vcpu 3`.
fn scope(state: &AppState) -> String {
    let Some(d) = state.domain() else { return String::new() };
    let name = super::text::clean(d.name());
    state.vcpu().map_or_else(|| name.clone(), |v| format!("{name} vcpu {v}"))
}

/// Paints sentences in a panel that has no table to show. Returns the number of lines.
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
