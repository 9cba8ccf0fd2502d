//! What the mouse does: a click shows a view, selects a row or sorts by a column; a click on the selected row opens it;
//! the wheel moves the selection. Pure.

use super::action::{Action, Effect};
use super::layout;
use super::render;
use super::state::AppState;
use super::update;
use super::view::ScreenView;
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
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
            if line == state.table.at && state.table.cursor.is_some() {
                return update::update(state, Action::Open);
            }
            update::select(state, line);
            state.settle();
        }
        return Vec::new();
    }
    match plan.panels.first() {
        Some((view, area)) if *view == state.view.shown && area.contains(at) && state.popup.is_none() => {
            click_in_view(state, row, area.y)
        }
        _ => Vec::new(),
    }
}

/// A click below the title of a view selects the row there; a click on the title sorts by what comes next.
fn click_in_view(state: &mut AppState, row: u16, title: u16) -> Vec<Effect> {
    if row == title {
        return update::update(state, Action::Order);
    }
    let Some(line) = render::selected_line(state) else { return Vec::new() };
    let rows = render::ids(state, state.view.shown).len();
    let mut to = state.view.at.checked_add_signed(isize::from(row as i16 - line as i16));
    // The second list of a view is below a rule and its headers.
    for _ in 0..2 {
        let Some(at) = to.filter(|at| *at < rows) else { return Vec::new() };
        let mut there = state.clone();
        update::select_in_view(&mut there, at);
        match render::selected_line(&there) {
            Some(now) if now == row || now == line => {
                let opens = at == state.view.at && state.view.selected.is_some();
                if opens {
                    return update::update(state, Action::Open);
                }
                update::select_in_view(state, at);
                state.settle();
                return Vec::new();
            }
            Some(now) => to = at.checked_add_signed(isize::from(row as i16 - now as i16)),
            None => return Vec::new(),
        }
    }
    Vec::new()
}
