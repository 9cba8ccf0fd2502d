//! What the mouse does: a click shows a view, selects a row or sorts by a column; the wheel moves the selection. Pure.

use super::action::{Action, Effect};
use super::layout;
use super::render;
use super::state::AppState;
use super::update;
use super::view::ScreenView;
use ratatui::crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

/// Handles an event of the mouse.
pub fn mouse(state: &mut AppState, event: MouseEvent) -> Vec<Effect> {
    match event.kind {
        MouseEventKind::ScrollUp => update::update(state, Action::Up),
        MouseEventKind::ScrollDown => update::update(state, Action::Down),
        MouseEventKind::Down(MouseButton::Left) if state.popup.is_none() => click(state, event.column, event.row),
        _ => Vec::new(),
    }
}

fn click(state: &mut AppState, column: u16, row: u16) -> Vec<Effect> {
    let plan = layout::plan(state);
    let at = Position::new(column, row);
    if plan.tabs.contains(at) {
        return match render::tab_at(plan.tabs, state, column) {
            Some(view) => update::update(state, Action::Show(view)),
            None => Vec::new(),
        };
    }
    if plan.table.contains(at) && row == plan.table.y && state.view.shown == ScreenView::Guests {
        if let Some(id) = render::column_at(plan.table, state, column) {
            state.table.sort_by(id);
            state.settle();
        }
        return Vec::new();
    }
    if plan.table.contains(at) && row > plan.table.y && state.view.shown == ScreenView::Guests {
        let line = state.table.offset + usize::from(row - plan.table.y - 1);
        if line < state.table.rows.len() {
            update::select(state, line);
            state.settle();
        }
    }
    Vec::new()
}
