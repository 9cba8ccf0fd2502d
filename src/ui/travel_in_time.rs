//! Keys that move in time: through a recording, or on a live screen through what is kept in memory.

use super::action::{Effect, Replay};
use super::state::AppState;

/// Moves to another interval: of the recording, or on a live screen of those kept in memory.
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
    let is_forward = matches!(
        to,
        Replay::Step(1..) | Replay::Jump(1..) | Replay::Problem(true)
    );
    if is_forward && !state.paused {
        state.say("this is now: nothing later is known");
        return Vec::new();
    }
    state.go_back();
    vec![Effect::Replay(Replay::From(shown_ms)), Effect::Replay(to)]
}

/// Leaves the past: a live screen shows the newest interval again.
pub fn to_now(state: &mut AppState) -> Vec<Effect> {
    if !state.is_back {
        return Vec::new();
    }
    state.resume();
    vec![Effect::Replay(Replay::Now)]
}
