//! How the screen's state changes with a new sample. Keys change it in [`super::update`].

use super::held_findings::HeldFindings;
use super::state::Held;
use super::table::RowOrder;
use super::views::guests;
use super::views::{disks, threads};
use super::{Action, AppState, ListRow, RowKey, ScreenView, TableId, Tick, layout, update};
use judge::model::Model;
use sample::{SourceId, SourceState, SourceStatus};

/// How many intervals a message is shown.
const MESSAGE_LASTS: u8 = 5;

impl AppState {
    /// Takes in a new interval. A live screen that is paused or back in time keeps it for later.
    pub fn absorb(&mut self, tick: Tick) {
        if !self.is_recorded() {
            let is_kept = tick.playback.is_some();
            if is_kept && !self.is_back {
                // The user returned to now before it came.
                return;
            }
            if !is_kept {
                self.kept_from_ms = tick.kept_from_ms;
            }
        }
        if (self.paused || self.is_back) && tick.playback.is_none() {
            let mut history = self
                .held
                .take()
                .map_or_else(|| self.history.clone(), |held| held.history);
            history.push(&tick.model);
            self.held = Some(Box::new(Held { tick, history }));
            return;
        }
        self.take_in(tick);
    }

    fn take_in(&mut self, tick: Tick) {
        if tick.passed.is_jump {
            self.history.clear();
        }
        tick.passed
            .before
            .iter()
            .for_each(|model| self.history.push(model));
        if !tick.again {
            self.history.push(&tick.model);
        }
        self.message_age = self.message_age.saturating_add(1);
        if self.message_age > MESSAGE_LASTS {
            self.message = None;
        }
        if tick.playback.is_none()
            && let Some(now) = self.new_trouble(&tick.model)
        {
            self.say(now);
        }
        // A step through a recording is to show what was found at that time.
        if tick.playback.as_ref().is_some_and(|p| !p.playing) {
            self.held_findings = HeldFindings::default();
        }
        let shown = std::mem::replace(&mut self.report, tick.report);
        let now = std::mem::take(&mut self.report.findings);
        self.report.findings = self
            .held_findings
            .settle(&shown.findings, now, tick.model.time_ms);
        self.playback = tick.playback;
        let busy = guests::busy(&tick.model).chain(threads::busy(&tick.model));
        self.awake.watch(busy.chain(disks::busy(&tick.model)));
        self.list.watch(self.model.as_ref(), &tick.model);
        let now_ms = tick.model.time_ms;
        let has_rates = tick.model.interval_s.is_some();
        self.model = Some(tick.model);
        self.release_places(now_ms);
        guests::arrange(self);
        // The first sample has no rates: its order is held by nothing.
        if has_rates {
            self.keep_places(now_ms);
        }
        if let Some(problem) = &tick.new_problem {
            update::select_problem(self, problem);
        }
        self.settle_positions();
    }

    /// Lets the rows of tables change places, where they kept them for long enough.
    fn release_places(&mut self, now_ms: i64) {
        for table in self.tables.values_mut() {
            if table.order.is_due(now_ms) {
                table.order = RowOrder::default();
            }
        }
    }

    /// Keeps the places that the rows of the list and of the view's tables have now.
    fn keep_places(&mut self, now_ms: i64) {
        let mut places: Vec<(TableId, Vec<RowKey>)> = Vec::new();
        for table in self.shown_page().tables() {
            let keys = (0..table.len()).map(|row| table.key(row)).collect();
            places.push((table.id(), keys));
        }
        let guests = self.list.guests.iter();
        let guests = guests.map(|at| guests::key(self, ListRow::Guest(*at)));
        places.push((TableId::Guests, guests.collect()));
        for (id, rows) in places {
            let order = &mut self.tables.entry(id).or_default().order;
            if order.is_due(now_ms) {
                order.keep(rows, now_ms);
            }
        }
    }

    /// A live screen goes back in time: what it shows is kept until it returns.
    pub(super) fn go_back(&mut self) {
        self.is_back = true;
        self.paused = false;
        if self.held.is_none()
            && let Some(model) = &self.model
        {
            let tick = Tick {
                model: model.clone(),
                report: self.report.clone(),
                ..Tick::default()
            };
            let history = self.history.clone();
            self.held = Some(Box::new(Held { tick, history }));
        }
    }

    /// Resumes a screen that is paused or back in time with the newest interval.
    pub(super) fn resume(&mut self) {
        if self.is_back {
            self.held_findings = HeldFindings::default();
        }
        self.is_back = false;
        self.paused = false;
        if let Some(held) = self.held.take() {
            self.history = held.history;
            self.take_in(Tick {
                again: true,
                ..held.tick
            });
        }
    }

    /// Updates everything that is derived: rows, selection, scroll position.
    pub fn settle(&mut self) {
        if self.model.is_some() {
            guests::arrange(self);
            self.settle_positions();
        }
    }

    /// Updates what follows from the rows: selection, scroll position.
    fn settle_positions(&mut self) {
        let plan = layout::plan(self);
        if self.view != ScreenView::Guests {
            let settled = self.page_of(self.view).settled(self.page, plan.page.height);
            self.page = settled;
        }
        let height = plan.list_rows();
        let list = &mut self.list;
        list.top = list.top.min(list.rows.len().saturating_sub(height));
        if list.at < list.top {
            list.top = list.at;
        } else if height > 0 && list.at >= list.top + height {
            list.top = list.at + 1 - height;
        }
    }
    /// A source that is not whole and was so far: it is said once. The view of sources says it for
    /// as long as it lasts.
    fn new_trouble(&self, now: &Model) -> Option<String> {
        let known = self
            .model
            .as_ref()
            .map(Model::troubled_sources)
            .unwrap_or_default();
        let is_new =
            |s: &&SourceStatus| s.state != SourceState::Ok && !known.contains(&(s.id, s.state));
        let new: Vec<&SourceStatus> = now.sources.iter().filter(is_new).collect();
        // A recording that fails is reported in the line that reported its start.
        if let Some(recording) = new.iter().find(|s| s.id == SourceId::Recording) {
            if self.is_recorded() {
                return None;
            }
            return Some(recording.sentence());
        }
        let source = new.first()?;
        let more = if new.len() > 1 {
            format!(" (and {} more)", new.len() - 1)
        } else {
            String::new()
        };
        let key = self.key_name(Action::Show(ScreenView::Sources));
        let id = source.id.as_str();
        let cause = source.cause.as_deref().unwrap_or_default();
        let named = if cause.starts_with(id) {
            cause.to_owned()
        } else {
            format!("{id} {}: {cause}", source.state.as_str())
        };
        Some(format!("{key} says what to do{more}: {named}"))
    }
}
