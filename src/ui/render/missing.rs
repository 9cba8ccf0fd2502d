//! Why a view or a part of it is empty, and what would fill it.

use crate::ui::state::AppState;
use crate::ui::text::clean_lines;
use sample::{SourceId, SourceState};

/// One sentence or two: what is not there, and the first of `sources` that does not work, with its cause and fix.
pub fn because(state: &AppState, nothing: &str, sources: &[SourceId]) -> String {
    let Some(model) = &state.model else { return "Waiting for the first sample.".into() };
    if model.interval_s.is_none() {
        return "Measuring the first interval.".into();
    }
    if model.domains.is_empty() {
        return "No guest runs.".into();
    }
    let broken = sources.iter().find_map(|id| model.sources.iter().find(|s| s.id == *id && s.state != SourceState::Ok));
    match broken {
        Some(source) => {
            let (id, why) = (source.id.as_str(), clean_lines(&source.sentence()));
            if why.starts_with(id) { format!("{nothing} {why}") } else { format!("{nothing} {id}: {why}") }
        }
        None => nothing.to_string(),
    }
}
