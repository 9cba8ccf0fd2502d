//! The active keys: [`KEYMAP`] with the changes of the config file.

use super::action::Action;
use super::keymap::{Binding, KEYMAP, KeyPress};
use std::collections::BTreeSet;

/// The keys of each binding of [`KEYMAP`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeysInForce(Vec<Vec<KeyPress>>);

impl Default for KeysInForce {
    fn default() -> Self {
        Self(KEYMAP.iter().map(|b| b.keys.to_vec()).collect())
    }
}

impl KeysInForce {
    /// Replaces the keys of an action; an empty list takes the action off the keyboard.
    ///
    /// # Errors
    /// A sentence, when the action or a key is unknown.
    pub fn set(&mut self, action: &str, keys: &[String]) -> Result<(), String> {
        let keys = keys.iter().map(|name| KeyPress::named(name).ok_or_else(|| unknown_key(name)));
        let keys: Vec<KeyPress> = keys.collect::<Result<_, _>>()?;
        let mut found = false;
        for (binding, its) in KEYMAP.iter().zip(&mut self.0).filter(|(b, _)| b.action.name() == action) {
            its.clone_from(&keys);
            found |= !binding.help.is_empty();
        }
        let names = || KEYMAP.iter().map(|b| b.action.name()).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
        if found { Ok(()) } else { Err(format!("there is no action '{action}'; there are {}", names().join(", "))) }
    }

    /// The bindings and their keys.
    pub fn bindings(&self) -> impl Iterator<Item = (&'static Binding, &[KeyPress])> {
        KEYMAP.iter().zip(&self.0).map(|(b, keys)| (b, keys.as_slice()))
    }

    /// The first key of an action; `None` for an action without keys.
    pub fn of(&self, action: Action) -> Option<KeyPress> {
        self.bindings().find(|(b, _)| b.action == action).and_then(|(_, keys)| keys.first().copied())
    }

    /// A key that would do two things at once with one of these actions, as a sentence.
    ///
    /// # Errors
    /// The sentence.
    pub fn check(&self, action: &str) -> Result<(), String> {
        for (a, keys) in self.bindings().filter(|(b, _)| b.action.name() == action) {
            for (b, others) in self.bindings().filter(|(b, _)| b.action != a.action && a.when.meets(b.when)) {
                if let Some(key) = keys.iter().find(|k| others.contains(k)) {
                    let (key, other) = (key.name(), b.action.name());
                    return Err(format!(
                        "the key {key} of {action} is the key of {other} already; give {other} another"
                    ));
                }
            }
        }
        // Without these nobody finds a way out.
        for needed in [Action::Quit, Action::Back, Action::Help] {
            if self.of(needed).is_none() {
                return Err(format!("{} has no key", needed.name()));
            }
        }
        Ok(())
    }
}

fn unknown_key(name: &str) -> String {
    format!("there is no key '{name}'; write x, Ctrl-x, F5, space, Enter, Tab, Shift-Tab, PgUp, Home, Shift-Left")
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
        assert!(said("filtre", &["x"]).starts_with("there is no action 'filtre'; there are accesses, back, "));
        assert!(said("filter", &["Hyper-x"]).starts_with("there is no key 'Hyper-x'; write x, Ctrl-x"));
        assert_eq!(said("quit", &[]), "quit has no key");
        assert!(with("record", &["["]).is_ok(), "[ acts in a recording only");
        assert!(with("record", &[]).is_ok());
    }

    #[test]
    fn an_action_has_one_name_and_a_name_one_action() {
        for a in KEYMAP {
            assert!(a.action.name().chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{}", a.action.name());
            for b in KEYMAP {
                assert_eq!(a.action == b.action, a.action.name() == b.action.name(), "{}", a.help);
            }
        }
    }
}
