//! How the screen's state changes with a new sample. Keys change it in [`super::update`].

use super::layout;
use super::render;
use super::rows;
use super::state::{AppState, Held, Popup, Tick};
use super::view::ScreenView;
use judge::model::{DomainModel, Model};
use sample::{SourceId, SourceState};

/// How many intervals a message is shown.
const MESSAGE_LASTS: u8 = 5;

impl AppState {
    /// Takes in a new interval. A paused live screen keeps it for later.
    pub fn absorb(&mut self, tick: Tick) {
        if self.paused && tick.playback.is_none() {
            let mut history = self.held.take().map_or_else(|| self.history.clone(), |held| held.history);
            history.push(&tick.model);
            self.held = Some(Box::new(Held { tick, history }));
            return;
        }
        let remember = !tick.again;
        self.show(tick, remember);
    }

    fn show(&mut self, tick: Tick, remember: bool) {
        if tick.passed.is_jump {
            self.history.clear();
        }
        tick.passed.before.iter().for_each(|model| self.history.push(model));
        if remember {
            self.history.push(&tick.model);
        }
        self.message_age = self.message_age.saturating_add(1);
        if self.message_age > MESSAGE_LASTS {
            self.message = None;
        }
        // A recording that fails is reported in the line that reported its start.
        let trouble = |m: &Model| {
            let failed = m.sources.iter().find(|s| s.id == SourceId::Recording && s.state != SourceState::Ok)?;
            Some(failed.sentence())
        };
        if let Some(now) = trouble(&tick.model).filter(|_| tick.playback.is_none())
            && self.model.as_ref().and_then(trouble).as_ref() != Some(&now)
        {
            self.say(now);
        }
        if let Some(now) = new_problem(self.model.as_ref(), &tick.model) {
            self.say(now);
        }
        // A step through a recording is to show what was found at that time.
        if tick.playback.is_some() {
            self.held_findings.forget();
        }
        self.findings = self.held_findings.settle(&self.findings, tick.findings, tick.model.time_ms);
        self.watching = tick.watching;
        self.cannot_tell = tick.cannot_tell;
        self.playback = tick.playback;
        self.table.idle.watch(&tick.model);
        self.model = Some(tick.model);
        self.settle();
        if self.view.shown == ScreenView::Guests {
            self.rows.keep();
        }
    }

    /// Moves the selection of the view with its row. If that row is gone, the row now at its place is selected.
    fn settle_view(&mut self) {
        if self.view.shown == ScreenView::Guests || self.view.selected.is_none() {
            self.view.at = 0;
            return;
        }
        let ids = render::ids(self, self.view.shown);
        let moved = ids.iter().position(|id| Some(*id) == self.view.selected);
        self.view.at = moved.unwrap_or_else(|| self.view.at.min(ids.len().saturating_sub(1)));
        // A list that is empty for an interval does not lose the selection.
        self.view.selected = ids.get(self.view.at).copied().or(self.view.selected);
    }

    /// Resumes a paused screen with the newest interval.
    pub(super) fn resume(&mut self) {
        self.paused = false;
        if let Some(held) = self.held.take() {
            self.history = held.history;
            self.show(held.tick, false);
        }
    }

    /// Updates everything that is derived: rows, selection, scroll position.
    pub fn settle(&mut self) {
        let Some(model) = self.model.take() else { return };
        rows::arrange(&mut self.table, &model, &self.findings, &self.history);
        let troubled = model.troubled_sources();
        match self.view.shown {
            ScreenView::Sources => self.seen_sources = troubled,
            _ => self.seen_sources.retain(|seen| troubled.contains(seen)),
        }
        self.model = Some(model);
        let guest = self.domain().map(DomainModel::key);
        self.rows.of(guest);
        self.settle_view();
        let shown = (self.view.shown, self.view.is_of_all(), self.size);
        self.rows.measured(render::measure(self), shown);
        if let Some(Popup::Finding { key, .. }) = &self.popup
            && self.finding(key).is_none()
        {
            self.popup = None;
            self.say("the finding has cleared");
        }
        let plan = layout::plan(self);
        let height = plan.table_rows();
        (self.rows.of_all, self.rows.moved) = (plan.of_all, plan.moved);
        let t = &mut self.table;
        t.offset = t.offset.min(t.rows.len().saturating_sub(height));
        if t.at < t.offset {
            t.offset = t.at;
        } else if height > 0 && t.at >= t.offset + height {
            t.offset = t.at + 1 - height;
        }
    }
}

/// A source that is not whole and was so far: it is said once. The view of sources says it for as long as it lasts.
fn new_problem(before: Option<&Model>, now: &Model) -> Option<String> {
    let known = before.map(Model::troubled_sources).unwrap_or_default();
    let new: Vec<_> =
        now.troubled_sources().into_iter().filter(|t| !known.contains(t) && t.0 != SourceId::Recording).collect();
    let (id, _) = new.first()?;
    let source = now.sources.iter().find(|s| s.id == *id)?;
    let more = if new.len() > 1 { format!(" (and {} more)", new.len() - 1) } else { String::new() };
    let cause = source.cause.as_deref().map(|c| format!(": {c}")).unwrap_or_default();
    Some(format!("0 says how to enable what is missing{more}: {} {}{cause}", source.id.as_str(), source.state.as_str()))
}
