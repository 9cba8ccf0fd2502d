//! What the mouse does: a click selects a row, sorts by a column or opens what is selected; the wheel moves the
//! selection. Pure.

use super::action::{Action, Effect};
use super::layout;
use super::state::AppState;
use super::table::{AnyTable, ColumnId, RowKey, TableId, TablePainter};
use super::theme::Theme;
use super::update;
use super::views::page::PageLine;
use super::views::{Body, ScreenView, Section, guests};
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

/// Handles an event of the mouse.
pub fn mouse(state: &mut AppState, event: MouseEvent) -> Vec<Effect> {
    match event.kind {
        MouseEventKind::ScrollUp => update::update(state, Action::Up),
        MouseEventKind::ScrollDown => update::update(state, Action::Down),
        MouseEventKind::Down(MouseButton::Left) if state.popup.is_none() => {
            click(state, Position::new(event.column, event.row))
        }
        _ => Vec::new(),
    }
}

fn click(state: &mut AppState, at: Position) -> Vec<Effect> {
    let plan = layout::plan(state);
    // The lines above the clicked one, counted from the list's header or the top of the page.
    let line = |area: Rect| usize::from(at.y - area.y);
    let (mut opens, mut sorts) = (false, None);
    if plan.list.contains(at) {
        match line(plan.list).checked_sub(1).map(|line| state.list.top + line) {
            None => sorts = column_at(&guests::table(state), state, plan.list, at.x),
            Some(row) => {
                opens = row == state.list.at && state.list.cursor.is_some();
                update::select(state, row);
            }
        }
    } else if state.view == ScreenView::Guests {
        opens = plan.detail.contains(at) || plan.page.contains(at);
    } else if plan.page.contains(at) {
        let page = state.page_of(state.view);
        let clicked = state.page.top + line(plan.page);
        if let Some((Section { body: Body::Table(table), .. }, PageLine::Head)) = page.line(clicked) {
            sorts = column_at(table.as_ref(), state, plan.page, at.x);
        } else {
            let moved = page.moved(state.page, clicked);
            let row = moved.cursor.and_then(|key| key.row);
            let is_problem = state.problems().iter().any(|f| row == Some(RowKey::of(f.id())));
            opens = is_problem || state.page.cursor.is_some() && moved.at == state.page.at;
            drop(page);
            state.page = moved;
        }
    }
    if let Some((table, column)) = sorts {
        state.tables.entry(table).or_default().sort_by(column);
    }
    if opens {
        return update::update(state, Action::Open);
    }
    state.settle();
    Vec::new()
}

/// The table's column at a column of the screen.
fn column_at(table: &dyn AnyTable, state: &AppState, area: Rect, x: u16) -> Option<(TableId, ColumnId)> {
    let theme = Theme::default();
    let painter = TablePainter::new(table, state.table(table.id()), area.width.saturating_sub(1), &theme);
    Some((table.id(), painter.column_at(x - area.x)?))
}
