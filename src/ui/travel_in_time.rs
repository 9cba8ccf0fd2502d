//! Keys that move in time: through a recording, or on a live screen through what is kept in memory.

use super::action::{Effect, Replay};
use super::state::AppState;

/// Moves within the recording, or a live screen through what is kept in memory.
pub fn move_in_time(state: &mut AppState, to: Replay) -> Vec<Effect> {
    if state.session.source.is_recorded() {
        return vec![Effect::Replay(to)];
    }
    let Some(shown_ms) = state.model.as_ref().map(|m| m.time_ms) else {
        return Vec::new();
    };
    if state.kept_from_ms.is_none() {
        state.say("no earlier samples are kept in memory");
        return Vec::new();
    }
    if state.is_back {
        return vec![Effect::Replay(to)];
    }
    let is_forward = match to {
        Replay::Step(by) | Replay::Jump(by) => by > 0,
        Replay::Problem(is_next) => is_next,
        _ => false,
    };
    if is_forward && !state.paused {
        state.say("this is now: nothing later is known");
        return Vec::new();
    }
    state.go_back();
    vec![Effect::Replay(Replay::From(shown_ms)), Effect::Replay(to)]
}

/// Returns a live screen that is back in time to the newest interval.
pub fn to_now(state: &mut AppState) -> Vec<Effect> {
    if !state.is_back {
        return Vec::new();
    }
    state.resume();
    vec![Effect::Replay(Replay::Now)]
}
