//! Keys that move in time: through a recording, or on a live screen through what is kept in memory.

use super::{AppState, Effect, Replay};

/// Moves to another interval: of the recording, or on a live screen of those kept in memory.
pub fn move_in_time(state: &mut AppState, to: Replay) {
    if state.is_recorded() {
        return state.ask(Effect::Replay(to));
    }
    let Some(shown_ms) = state.model.as_ref().map(|m| m.time_ms) else {
        return;
    };
    if state.kept_from_ms.is_none() {
        return state.say("no earlier samples are kept in memory");
    }
    if state.is_back {
        return state.ask(Effect::Replay(to));
    }
    let is_forward = matches!(
        to,
        Replay::Step(1..) | Replay::Jump(1..) | Replay::Problem(true)
    );
    if is_forward && !state.paused {
        return state.say("this is now: nothing later is known");
    }
    state.go_back();
    state.ask(Effect::Replay(Replay::From(shown_ms)));
    state.ask(Effect::Replay(to));
}

/// Leaves the past: a live screen shows the newest interval again.
pub fn to_now(state: &mut AppState) {
    if state.is_back {
        state.resume();
        state.ask(Effect::Replay(Replay::Now));
    }
}
