//! Finds the key binding that acts in the current state.

use super::action::Action;
use super::keymap::{Binding, KeyPress, When};
use super::state::{AppState, Popup};
use super::view::ScreenView;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Whether bindings of this kind act in the current state.
fn holds(when: When, state: &AppState) -> bool {
    if !when.is_for(state.session.source.is_recorded()) {
        return false;
    }
    let popup = state.popup.is_some();
    match when {
        When::Always => true,
        When::Screen | When::Live | When::Recorded => !popup,
        When::Table | When::LiveTable => !popup && state.view.shown == ScreenView::Guests,
        When::Scoped => !popup && state.view.shown.has_scope(),
        When::Ordered => !popup && !state.view.shown.orders().is_empty(),
        When::Latency => !popup && state.view.shown == ScreenView::Latency,
        When::Exits => !popup && state.view.shown == ScreenView::Exits,
        When::Finding => matches!(state.popup, Some(Popup::Finding { .. })),
        When::Columns => matches!(state.popup, Some(Popup::Columns { .. })),
    }
}

/// The action of a key in the current state.
pub fn lookup(event: KeyEvent, state: &AppState) -> Option<Action> {
    // Terminals differ on whether they report Shift with a capital letter.
    let mods = match event.code {
        KeyCode::Char(_) => event.modifiers - KeyModifiers::SHIFT,
        _ => event.modifiers,
    };
    let key = KeyPress(event.code, mods);
    state.keys.bindings().find(|(b, keys)| holds(b.when, state) && keys.contains(&key)).map(|(b, _)| b.action)
}

/// The bindings for the footer in the current state, each with its first key.
pub fn footer(state: &AppState) -> impl Iterator<Item = (&'static Binding, KeyPress)> {
    let shown = state.keys.bindings().filter(|(b, _)| !b.short.is_empty() && holds(b.when, state));
    shown.filter_map(|(b, keys)| Some((b, *keys.first()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capital_letters_come_with_and_without_shift() {
        let state = AppState::default();
        for mods in [KeyModifiers::NONE, KeyModifiers::SHIFT] {
            assert_eq!(lookup(KeyEvent::new(KeyCode::Char('I'), mods), &state), Some(Action::SortReverse));
        }
        assert_eq!(lookup(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), &state), Some(Action::Quit));
        assert_eq!(lookup(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::NONE), &state), None);
    }
}
