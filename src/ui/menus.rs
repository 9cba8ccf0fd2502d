//! The menus of sort columns, columns and formats: what their keys do. Pure.

use super::{Action, AppState, ColumnId, Effect, Menu, Popup, SaveFormat, TableId, views};

/// Handles an action in a menu.
pub fn update(state: &mut AppState, (menu, at): (Menu, usize), action: Action) {
    let last = match menu {
        Menu::Sort(table) | Menu::Columns(table) => views::heads(table).len().saturating_sub(1),
        Menu::Save => SaveFormat::ALL.len() - 1,
    };
    let to = match (action, menu) {
        (Action::Back | Action::Quit | Action::Open, _) => {
            state.popup = None;
            return match (action, menu) {
                (Action::Open, Menu::Sort(table)) => {
                    state.tables.entry(table).or_default().sort_by(ColumnId(at));
                }
                (Action::Open, Menu::Save) => {
                    state.ask(Effect::SaveView(SaveFormat::ALL[at].0));
                }
                _ => {}
            };
        }
        (_, Menu::Columns(table)) => columns(state, table, action, at),
        _ => at,
    };
    let by = action.motion(last as isize).unwrap_or(0);
    let to = to.saturating_add_signed(by).min(last);
    state.popup = Some(Popup::Menu(menu, to));
}

/// Handles an action in the menu of columns, which lists the chosen ones in their order, then the
/// others. Returns the entry that is selected then.
fn columns(state: &mut AppState, table: TableId, action: Action, at: usize) -> usize {
    let listed = listed(state, table);
    let Some(&(id, is_chosen)) = listed.get(at) else {
        return at;
    };
    let mut chosen: Vec<ColumnId> = listed
        .iter()
        .filter(|(_, chosen)| *chosen)
        .map(|(id, _)| *id)
        .collect();
    match action {
        Action::Toggle if id == ColumnId(0) => {
            state.say("the first column stays: it says what a row is about");
            return at;
        }
        Action::Toggle if is_chosen => chosen.retain(|c| *c != id),
        Action::Toggle => chosen.push(id),
        Action::MoveUp if is_chosen && at > 1 => chosen.swap(at, at - 1),
        Action::MoveDown if is_chosen && at > 0 && at + 1 < chosen.len() => chosen.swap(at, at + 1),
        Action::Reset => {
            state.tables.entry(table).or_default().columns = None;
            return at;
        }
        _ => return at,
    }
    state.tables.entry(table).or_default().columns = Some(chosen);
    self::listed(state, table)
        .iter()
        .position(|(c, _)| *c == id)
        .unwrap_or(at)
}

/// All columns as the menu lists them, and whether each is shown.
pub fn listed(state: &AppState, table: TableId) -> Vec<(ColumnId, bool)> {
    let heads = state.heads(table);
    let all: Vec<ColumnId> = (0..heads.len()).map(ColumnId).collect();
    let mut chosen = all.clone();
    match &state.table(table).columns {
        Some(columns) => chosen.clone_from(columns),
        None => chosen.retain(|id| !heads[id.0].is_hidden),
    }
    let others = all.iter().filter(|id| !chosen.contains(id));
    let others = others.map(|id| (*id, false));
    chosen.iter().map(|id| (*id, true)).chain(others).collect()
}
