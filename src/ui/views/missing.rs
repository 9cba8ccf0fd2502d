//! Why a view or a part of it is empty, and where it says what would fill it.

use crate::ui::{Action, AppState, ScreenView};
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
    for id in sources {
        let mut all = model.sources.iter();
        if let Some(source) = all.find(|s| s.id == *id && s.state != SourceState::Ok) {
            let name = source.id.as_str();
            let key = state.key_name(Action::Show(ScreenView::Sources));
            return format!("{nothing} ({name} {}: see {key})", source.state.as_str());
        }
    }
    nothing.into()
}
