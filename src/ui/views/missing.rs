//! Why a view or a part of it is empty, and where it says what would fill it.

use crate::ui::action::Action;
use crate::ui::screen_view::ScreenView;
use crate::ui::state::AppState;
use sample::{SourceId, SourceState};

/// What is not there, and the first of `sources` that does not work: `none is known (libvirt
/// missing: see 5)`.
pub fn because(state: &AppState, nothing: &str, sources: &[SourceId]) -> String {
    let Some(model) = &state.model else {
        return "waiting for the first sample".into();
    };
    if model.interval_s.is_none() {
        return "measuring the first interval".into();
    }
    if model.domains.is_empty() {
        return "no guest runs".into();
    }
    let broken = sources.iter().find_map(|id| broken(state, *id));
    broken.map_or_else(
        || nothing.to_string(),
        |broken| format!("{nothing} ({broken})"),
    )
}

/// That a source does not give everything, and where the screen says why: `libvirt missing: see 5`.
fn broken(state: &AppState, id: SourceId) -> Option<String> {
    let source = state
        .model
        .as_ref()?
        .sources
        .iter()
        .find(|s| s.id == id && s.state != SourceState::Ok)?;
    let key = state.key_name(Action::Show(ScreenView::Sources));
    Some(format!(
        "{} {}: see {key}",
        source.id.as_str(),
        source.state.as_str()
    ))
}
