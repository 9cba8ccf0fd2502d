//! The line of input: the filter of the list, or the time to go to. Pure.

use super::filter::{self, MAX_LENGTH};
use super::views::guests::filter_fields;
use super::{AppState, Effect, Popup, Prompt, Replay, TableFilter, clean, travel_in_time};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use judge::analysis::{RecordingTime, is_within};
use tui_input::InputRequest;

/// Handles a key while text is typed.
pub fn key(state: &mut AppState, event: KeyEvent) {
    let ctrl = event.modifiers.contains(KeyModifiers::CONTROL);
    let request = match event.code {
        KeyCode::Char('z') if ctrl => return state.ask(Effect::Suspend),
        KeyCode::Char('w') if ctrl => InputRequest::DeletePrevWord,
        KeyCode::Char('u') if ctrl => InputRequest::DeleteLine,
        KeyCode::Char('a') if ctrl => InputRequest::GoToStart,
        KeyCode::Char('e') if ctrl => InputRequest::GoToEnd,
        KeyCode::Char(_) if ctrl => return,
        KeyCode::Char(c) => InputRequest::InsertChar(c),
        KeyCode::Backspace => InputRequest::DeletePrevChar,
        KeyCode::Delete => InputRequest::DeleteNextChar,
        KeyCode::Left => InputRequest::GoToPrevChar,
        KeyCode::Right => InputRequest::GoToNextChar,
        KeyCode::Home => InputRequest::GoToStart,
        KeyCode::End => InputRequest::GoToEnd,
        KeyCode::Enter | KeyCode::Esc => {
            end(state, event.code == KeyCode::Enter);
            return state.settle();
        }
        _ => return,
    };
    if let Some(Popup::Input(_, input)) = &mut state.popup {
        input.handle(request);
    }
    typed(state);
}

/// Takes pasted text into the open input, without control characters. It is never keys.
pub fn paste(state: &mut AppState, text: &str) {
    if let Some(Popup::Input(_, input)) = &mut state.popup {
        for c in text.chars().filter(|c| !c.is_control()).take(MAX_LENGTH) {
            input.handle(InputRequest::InsertChar(c));
        }
        typed(state);
    }
}

/// Applies a filter that is valid. One that is half typed changes nothing, nor does the beginning
/// of a column's name.
fn typed(state: &mut AppState) {
    let Some(Popup::Input(Prompt::Filter { before, error }, input)) = &mut state.popup else {
        return;
    };
    let text = input.value();
    let fields = filter_fields();
    let is_open = !text.is_empty() && !filter::suggestions(text, &fields).is_empty();
    match TableFilter::read(text, &fields) {
        Ok(filter) if !is_open => (state.list.filter, *error) = (filter, None),
        read => {
            *error = read.err();
            // The name of a column was a filter of names before its operator.
            if state.list.filter.is_name() {
                state.list.filter = (**before).clone();
            }
        }
    }
    state.settle();
}

/// Ends the typing: takes what was typed, or leaves everything as it was before.
fn end(state: &mut AppState, accept: bool) {
    match state.popup.take() {
        Some(Popup::Input(Prompt::Filter { before, .. }, input)) => {
            let read = if accept {
                TableFilter::read(input.value(), &filter_fields())
            } else {
                Ok((*before).clone())
            };
            state.list.filter = read.unwrap_or_else(|error| {
                state.say(format!("{error}; the filter is as before"));
                *before
            });
        }
        Some(Popup::Input(Prompt::Time, input)) if accept => go_to(state, input.value()),
        _ => {}
    }
}

fn go_to(state: &mut AppState, text: &str) {
    let range = state.time_range();
    let time = RecordingTime::parse(text)
        .ok()
        .and_then(|time| time.time_ms(range, &state.session.zone));
    let Some(ms) = time else {
        return state.say(format!(
            "invalid time '{}'; use 14:03, 14:03:22, 90s, 12m or 2h",
            clean(text)
        ));
    };
    if !is_within(ms, range) {
        let place = if state.is_recorded() {
            "the recording"
        } else {
            "what is kept in memory"
        };
        state.say(format!("'{}' is outside {place}", clean(text)));
    }
    let to = Replay::Seek(ms.clamp(range.0, range.1.max(range.0)));
    travel_in_time::move_in_time(state, to);
}
