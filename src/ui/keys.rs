//! The active keys: [`KEYMAP`] with the changes of the config file, and which binding acts in a state of the screen.

use super::action::Action;
use super::keymap::{Binding, KEYMAP, KeyPress, When};
use super::state::{AppState, Menu, Popup};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The keys of each binding of [`KEYMAP`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeysInForce(Vec<Vec<KeyPress>>);

impl Default for KeysInForce {
    fn default() -> Self {
        Self(KEYMAP.iter().map(|b| b.keys.split(' ').filter_map(KeyPress::with_name).collect()).collect())
    }
}

impl KeysInForce {
    /// Replaces the keys of an action; an empty list takes the action off the keyboard.
    ///
    /// # Errors
    /// A sentence, when the action or a key is unknown.
    pub fn set(&mut self, action: &str, keys: &[String]) -> Result<(), String> {
        let keys = keys.iter().map(|name| KeyPress::with_name(name).ok_or_else(|| unknown_key(name)));
        let keys: Vec<KeyPress> = keys.collect::<Result<_, _>>()?;
        let mut names: Vec<&str> = KEYMAP.iter().map(|b| b.name).collect();
        names.sort_unstable();
        names.dedup();
        if !names.contains(&action) {
            return Err(format!("there is no action '{action}'; there are {}", names.join(", ")));
        }
        for (_, its) in KEYMAP.iter().zip(&mut self.0).filter(|(b, _)| b.name == action) {
            its.clone_from(&keys);
        }
        Ok(())
    }

    /// The bindings and their keys.
    pub fn bindings(&self) -> impl Iterator<Item = (&'static Binding, &[KeyPress])> {
        KEYMAP.iter().zip(&self.0).map(|(b, keys)| (b, keys.as_slice()))
    }

    /// The first key of an action that acts on a live screen, or on a recording; `None` for an action without one.
    pub fn of(&self, action: Action, recorded: bool) -> Option<KeyPress> {
        let mut found = self.bindings().filter(|(b, _)| b.action == action && b.when.is_for(recorded));
        found.find_map(|(_, keys)| keys.first().copied())
    }

    /// A key that would do two things at once with one of these actions, as a sentence.
    ///
    /// # Errors
    /// The sentence.
    pub fn check(&self, action: &str) -> Result<(), String> {
        for (a, keys) in self.bindings().filter(|(b, _)| b.name == action) {
            for (b, others) in self.bindings().filter(|(b, _)| b.action != a.action && a.when.meets(b.when)) {
                if let Some(key) = keys.iter().find(|k| others.contains(k)) {
                    let (key, other) = (key.name(), b.name);
                    return Err(format!(
                        "the key {key} of {action} is the key of {other} already; give {other} another"
                    ));
                }
            }
        }
        // Without these nobody finds a way out.
        match self
            .bindings()
            .find(|(b, keys)| keys.is_empty() && [Action::Quit, Action::Back, Action::Help].contains(&b.action))
        {
            Some((needed, _)) => Err(format!("{} has no key", needed.name)),
            None => Ok(()),
        }
    }
}

fn unknown_key(name: &str) -> String {
    format!("there is no key '{name}'; write x, Ctrl-x, F5, space, Enter, Tab, Shift-Tab, PgUp, Home, Shift-Left")
}

/// The action of a key in the current state.
pub fn lookup(event: KeyEvent, state: &AppState) -> Option<Action> {
    // Terminals differ on whether they report Shift with a capital letter and with Shift-Tab.
    let mods = match event.code {
        KeyCode::Char(_) | KeyCode::BackTab => event.modifiers - KeyModifiers::SHIFT,
        _ => event.modifiers,
    };
    let key = KeyPress(event.code, mods);
    let holds = |when: When| match when {
        When::Always => true,
        When::Screen => state.popup.is_none(),
        When::Live | When::Recorded => state.popup.is_none() && when.is_for(state.session.source.is_recorded()),
        When::Columns => matches!(state.popup, Some(Popup::Menu(Menu::Columns(_), _))),
    };
    state.keys.bindings().find(|(b, keys)| holds(b.when) && keys.contains(&key)).map(|(b, _)| b.action)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::tests::{busy, draw, press, text};
    use crate::ui::theme::Theme;

    fn with(action: &str, keys: &[&str]) -> Result<KeysInForce, String> {
        let mut all = KeysInForce::default();
        let keys: Vec<String> = keys.iter().map(|k| (*k).to_string()).collect();
        all.set(action, &keys)?;
        all.check(action)?;
        Ok(all)
    }

    #[test]
    fn a_key_that_was_given_away_acts_and_is_shown() {
        let mut state = busy(120, 40);
        state.keys = with("filter", &["F3", "ctrl-l"]).unwrap();
        press(&mut state, "/");
        assert!(state.popup.is_none());
        press(&mut state, "<C-l>");
        assert!(state.popup.is_some());
        press(&mut state, "<Esc>");
        let shown = text(&draw(&state, &Theme::default()));
        assert!(shown.contains("F3 filter"), "{shown}");
        press(&mut state, "?");
        assert!(text(&draw(&state, &Theme::default())).contains("F3 Ctrl-L"));
    }

    #[test]
    fn conflicts_and_misspellings_are_said() {
        let said = |action, keys: &[&str]| with(action, keys).unwrap_err();
        assert_eq!(said("filter", &["s"]), "the key s of filter is the key of sort already; give sort another");
        assert!(said("filtre", &["x"]).starts_with("there is no action 'filtre'; there are back, column-left, "));
        assert!(said("filter", &["Hyper-x"]).starts_with("there is no key 'Hyper-x'; write x, Ctrl-x"));
        assert_eq!(said("quit", &[]), "quit has no key");
        assert!(with("record", &["["]).is_ok(), "[ acts in a recording only");
        assert!(with("record", &[]).is_ok());
    }

    #[test]
    fn capital_letters_come_with_and_without_shift() {
        let state = AppState::default();
        for mods in [KeyModifiers::NONE, KeyModifiers::SHIFT] {
            assert_eq!(lookup(KeyEvent::new(KeyCode::Char('I'), mods), &state), Some(Action::Reverse));
        }
        for mods in [KeyModifiers::NONE, KeyModifiers::SHIFT] {
            assert_eq!(lookup(KeyEvent::new(KeyCode::BackTab, mods), &state), Some(Action::PrevView));
        }
        assert_eq!(lookup(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::NONE), &state), None);
    }
}
