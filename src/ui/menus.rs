//! The menus of columns and of formats: what their keys do. Pure.

use super::action::{Action, Effect};
use super::guest_columns::COLUMNS;
use super::guest_table::{ColumnId, GuestTable};
use super::save_format::SaveFormat;
use super::state::{AppState, Popup};

/// Opens the menu of formats. An open finding stays below it.
pub fn open_save(state: &mut AppState) {
    let under = state.popup.take().map(Box::new);
    state.popup = Some(Popup::Save { at: 0, under });
}

/// Handles an action in the menu of formats.
pub fn save(state: &mut AppState, action: Action) -> Vec<Effect> {
    let Some(Popup::Save { at, under }) = &mut state.popup else { return Vec::new() };
    let last = SaveFormat::ALL.len() - 1;
    match action {
        Action::Up => *at = at.saturating_sub(1),
        Action::Down => *at = (*at + 1).min(last),
        Action::First | Action::PageUp => *at = 0,
        Action::Last | Action::PageDown => *at = last,
        Action::Open | Action::Back => {
            let format = SaveFormat::ALL[(*at).min(last)];
            state.popup = under.take().map(|popup| *popup);
            if action == Action::Open {
                return vec![Effect::SaveView(format)];
            }
        }
        _ => {}
    }
    Vec::new()
}

/// Handles an action in the menu of columns: it lists the chosen ones in their order, then the others.
pub fn columns(state: &mut AppState, action: Action) -> Vec<Effect> {
    let Some(Popup::Columns { at }) = &mut state.popup else { return Vec::new() };
    let listed = listed(&state.table);
    let last = listed.len() - 1;
    *at = (*at).min(last);
    let (id, is_chosen) = listed[*at];
    match action {
        Action::Up => *at = at.saturating_sub(1),
        Action::Down => *at = (*at + 1).min(last),
        Action::First | Action::PageUp => *at = 0,
        Action::Last | Action::PageDown => *at = last,
        Action::Toggle if id == ColumnId::Name => {}
        Action::Toggle => {
            let mut chosen = state.table.columns();
            if is_chosen {
                chosen.retain(|c| *c != id);
            } else {
                chosen.push(id);
            }
            state.table.columns = Some(chosen);
            *at = self::listed(&state.table).iter().position(|(c, _)| *c == id).unwrap_or(*at);
        }
        Action::MoveUp | Action::MoveDown => {
            let mut chosen = state.table.columns();
            let to = if action == Action::MoveUp { at.checked_sub(1) } else { Some(*at + 1) };
            // The names stay on the left.
            if let Some(to) = to.filter(|to| is_chosen && *at > 0 && *to > 0 && *to < chosen.len()) {
                chosen.swap(*at, to);
                *at = to;
                state.table.columns = Some(chosen);
            }
        }
        Action::Reset => state.table.columns = None,
        Action::Open | Action::Back | Action::Columns => state.popup = None,
        _ => {}
    }
    Vec::new()
}

/// All columns as the menu lists them, and whether each is shown.
pub fn listed(table: &GuestTable) -> Vec<(ColumnId, bool)> {
    let chosen = table.columns();
    let others = COLUMNS.iter().map(|c| c.id).filter(|id| !chosen.contains(id));
    chosen.iter().map(|id| (*id, true)).chain(others.map(|id| (id, false))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::tests::{busy, draw, press, text};
    use crate::ui::theme::Theme;

    #[test]
    fn columns_are_chosen_and_ordered() {
        let mut state = busy(120, 40);
        let head = |s: &AppState| {
            let shown = text(&draw(s, &Theme::default()));
            shown
                .lines()
                .find(|l| l.contains("GUEST "))
                .unwrap()
                .split_whitespace()
                .map(String::from)
                .collect::<Vec<_>>()
        };
        press(&mut state, "C<Down><Down>");
        assert!(text(&draw(&state, &Theme::default())).contains("columns"));
        let second = listed(&state.table)[2].0;
        press(&mut state, " <Esc>");
        assert!(!state.table.columns().contains(&second));
        press(&mut state, "C<End><Up> <S-Up><S-Up>");
        let n = state.table.columns().len();
        assert_eq!(
            state.table.columns().iter().position(|c| *c == second),
            Some(n - 3),
            "shown again, two to the left"
        );
        press(&mut state, "<Home> <S-Down>");
        assert_eq!(state.table.columns()[0], ColumnId::Name, "names stay");
        press(&mut state, "<Enter>");
        assert!(head(&state).contains(&"CPU%".to_string()) || head(&state).iter().any(|w| w.ends_with("CPU%")));
        press(&mut state, "Cr");
        assert_eq!(state.table.columns, None);
    }

    #[test]
    fn the_view_is_saved_in_the_chosen_format() {
        let mut state = busy(120, 40);
        assert_eq!(press(&mut state, "S<Enter>"), [Effect::SaveView(SaveFormat::Svg)]);
        assert!(state.popup.is_none());
        assert_eq!(press(&mut state, "S<Down><Down><Enter>"), [Effect::SaveView(SaveFormat::Csv)]);
        assert_eq!(press(&mut state, "S<End><Enter>"), [Effect::SaveView(SaveFormat::Json)]);
        assert!(press(&mut state, "S<Esc>").is_empty() && state.popup.is_none());
        press(&mut state, "9<Enter>");
        assert_eq!(press(&mut state, "S<Enter>"), [Effect::SaveView(SaveFormat::Svg)]);
        assert!(matches!(state.popup, Some(Popup::Finding { .. })), "the picture shows the open finding");
    }
}
