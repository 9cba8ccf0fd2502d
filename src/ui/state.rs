//! All that the screen shows, as plain data. [`super::update`] (keys) and [`AppState::absorb`] (new
//! samples) change it, [`super::render`] draws it.

use super::awake::Awake;
use super::filter::FilterError;
use super::guest_list::GuestList;
use super::held_findings::HeldFindings;
use super::{
    Action, Effect, Lens, ListRow, PageState, ScreenChoices, ScreenView, TableFilter, TableId,
    TableState, ThemeChoice, keymap,
};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use judge::lint::{Finding, FindingId, Report};
use judge::model::{DomainModel, History, Model};
use sample::{DomainState, Origin};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use tui_input::Input;

/// Where the samples come from.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum ScreenSource {
    /// This host, now.
    #[default]
    Live,
    /// A recording.
    Replay,
    /// The recording inside the binary.
    Demo,
}

/// What stays the same for the whole run.
#[derive(Debug, Clone)]
pub struct ScreenSession {
    /// Where the samples come from.
    pub source: ScreenSource,
    /// Name of the recording; empty on a live screen.
    pub title: String,
    /// Seconds between samples, as requested.
    pub interval_s: f64,
    /// The time zone that clock times are shown in.
    pub zone: TimeZone,
    /// Whether the QEMU monitors of guests may be asked on request.
    pub may_ask_monitors: bool,
}

impl Default for ScreenSession {
    fn default() -> Self {
        Self {
            source: ScreenSource::Live,
            title: String::new(),
            interval_s: 1.0,
            zone: TimeZone::UTC,
            may_ask_monitors: true,
        }
    }
}

/// What the options and the config file say of the screen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScreenSettings {
    /// Only ASCII characters.
    pub ascii: bool,
    /// The colours.
    pub theme: ThemeChoice,
    /// How the list of guests looks at first.
    pub choices: ScreenChoices,
}

/// A popup, or a line of input.
#[derive(Debug, Clone)]
pub enum Popup {
    /// The help text from a line on.
    Help(u16),
    /// A menu, and its selected entry.
    Menu(Menu, usize),
    /// A line of input, while it is typed.
    Input(Prompt, Input),
}

/// What a key does when it is pressed again, after it said so.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unconfirmed {
    /// Ask the monitor of the guest with this process.
    AskMonitor(i32),
    /// Write the choices into the config file.
    KeepChoices,
}

/// What a menu offers.
#[derive(Debug, Clone, Copy)]
pub enum Menu {
    /// The columns that a table can be sorted by.
    Sort(TableId),
    /// The columns of a table, to show and to order.
    Columns(TableId),
    /// The formats in which the view is written.
    Save,
}

/// What is typed.
#[derive(Debug, Clone)]
pub enum Prompt {
    /// The filter.
    Filter {
        /// The filter before it was typed.
        before: Box<TableFilter>,
        /// What is wrong with the text.
        error: Option<FilterError>,
    },
    /// The time to go to.
    Time,
}

/// Position of a replay.
#[derive(Debug, Clone, Default)]
pub struct Playback {
    /// Index of the sample shown.
    pub index: usize,
    /// The number of samples.
    pub len: usize,
    /// Time of the first and the last, milliseconds since the epoch.
    pub range_ms: (i64, i64),
    /// This many times as fast as it happened.
    pub speed: f64,
    /// Whether it plays.
    pub playing: bool,
}

/// Intervals that are not shown themselves.
#[derive(Debug, Clone, Default)]
pub struct Passed {
    /// Those right before the one shown.
    pub before: Vec<Model>,
    /// Whether they do not continue what was shown before: they replace the history.
    pub is_jump: bool,
}

/// A new interval to show.
#[derive(Debug, Clone, Default)]
pub struct Tick {
    /// The interval.
    pub model: Model,
    /// What the rules say of it.
    pub report: Report,
    /// Position of a replay.
    pub playback: Option<Playback>,
    /// Intervals that a replay judged on its way here.
    pub passed: Passed,
    /// The interval shown before, once more: it is not added to the history again.
    pub again: bool,
    /// The problem that begins with this interval, where that was asked for: it is selected.
    pub new_problem: Option<FindingId>,
    /// Time of the oldest sample that a live screen can go back to, milliseconds since the epoch.
    pub kept_from_ms: Option<i64>,
}

/// What a screen that is paused or back in time keeps until it is resumed: nothing of it is drawn.
#[derive(Debug, Clone)]
pub struct Held {
    /// The newest interval.
    pub tick: Tick,
    /// The minute before it.
    pub history: History,
}

/// All that the screen shows.
#[derive(Debug, Clone, Default)]
pub struct AppState {
    /// What stays the same for the whole run.
    pub session: ScreenSession,
    /// The interval shown; `None` before the first sample.
    pub model: Option<Model>,
    /// The minute before it.
    pub history: History,
    /// What the rules say of it; on a live screen the findings say for some seconds the same.
    pub report: Report,
    /// When the findings were taken over.
    pub held_findings: HeldFindings,
    /// The list of guests: its rows, what is selected, the filter.
    pub list: GuestList,
    /// The view.
    pub view: ScreenView,
    /// What the list of guests is looked at for.
    pub lens: Lens,
    /// What the user chose for the list in other lenses.
    pub other_lenses: BTreeMap<Lens, TableState>,
    /// The cursor in the view, where the view is a page.
    pub page: PageState,
    /// What the user chose for each table, and where the rows are.
    pub tables: BTreeMap<TableId, TableState>,
    /// What keeps its row though it is idle.
    pub awake: Awake,
    /// Whether each idle helper thread has a row.
    pub shows_idle_helpers: bool,
    /// The problem that is shown in full; `None` for the worst one.
    pub open_problem: Option<FindingId>,
    /// What a key does if it is pressed again.
    pub unconfirmed: Option<Unconfirmed>,
    /// The open popup.
    pub popup: Option<Popup>,
    /// Whether a live screen is paused.
    pub paused: bool,
    /// Whether a live screen shows an interval of before.
    pub is_back: bool,
    /// Time of the oldest sample that a live screen can go back to, milliseconds since the epoch.
    pub kept_from_ms: Option<i64>,
    /// What came while the screen was paused or back in time.
    pub held: Option<Box<Held>>,
    /// Position of a replay.
    pub playback: Option<Playback>,
    /// What the last key asks of the rest of the program, until the event loop takes it.
    pub effects: Vec<Effect>,
    /// A message in the last line, until the next key or for some intervals.
    pub message: Option<String>,
    /// How many intervals the message has been shown.
    pub message_age: u8,
    /// The screen's size: columns and rows.
    pub size: (u16, u16),
}

/// A table about which the user chose nothing.
static AS_AT_FIRST: LazyLock<TableState> = LazyLock::new(TableState::default);

impl AppState {
    /// A screen that waits for its first sample.
    pub fn new(session: ScreenSession, size: (u16, u16)) -> Self {
        Self {
            session,
            size,
            ..Self::default()
        }
    }

    /// Whether the screen shows recorded samples, so that keys can move through time.
    pub fn is_recorded(&self) -> bool {
        self.session.source != ScreenSource::Live
    }

    /// Clock time of an instant, milliseconds since the epoch.
    pub fn clock(&self, ms: i64) -> String {
        match Timestamp::from_millisecond(ms) {
            Ok(t) => {
                let zoned = t.to_zoned(self.session.zone.clone());
                zoned.strftime("%H:%M:%S").to_string()
            }
            Err(_) => "--:--:--".into(),
        }
    }

    /// Shows a message in the last line.
    pub fn say(&mut self, text: impl Into<String>) {
        self.message = Some(text.into());
        self.message_age = 0;
        self.unconfirmed = None;
    }

    /// Asks the rest of the program for something.
    pub fn ask(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// The name of an action's first key.
    pub fn key_name(&self, action: Action) -> &'static str {
        keymap::key_name(action, self.is_recorded()).unwrap_or_default()
    }

    /// The newest interval; a screen that is paused or back in time shows an older one.
    pub fn newest_model(&self) -> Option<&Model> {
        self.held
            .as_ref()
            .map(|held| &held.tick.model)
            .or(self.model.as_ref())
    }

    /// The times that the screen can go to: of the recording, or of the samples kept in memory.
    pub fn time_range(&self) -> (i64, i64) {
        if self.is_recorded() {
            return self.playback.as_ref().map_or((0, 0), |p| p.range_ms);
        }
        let newest = self.newest_model().map_or(0, |m| m.time_ms);
        (self.kept_from_ms.unwrap_or(newest), newest)
    }

    /// Shows another view, from its top.
    pub fn show(&mut self, view: ScreenView) {
        if self.view != view {
            (self.view, self.page) = (view, PageState::default());
        }
    }

    /// What the user chose for a table.
    pub fn table(&self, id: TableId) -> &TableState {
        self.tables.get(&id).unwrap_or(&AS_AT_FIRST)
    }

    /// The guest of a row of the list.
    pub fn guest_at(&self, row: ListRow) -> Option<&DomainModel> {
        let ListRow::Guest(at) = row else { return None };
        self.model.as_ref()?.domains.get(at)
    }

    /// The guests that pass the filter, in the order of the list.
    pub fn guests(&self) -> Vec<&DomainModel> {
        self.list
            .guests
            .iter()
            .filter_map(|at| self.model.as_ref()?.domains.get(*at))
            .collect()
    }

    /// The selected guest; `None` where the row is about the host.
    pub fn domain(&self) -> Option<&DomainModel> {
        self.guest_at(*self.list.rows.get(self.list.at)?)
    }

    /// Whether only QEMU's monitor, asked through libvirt, can name what the built-in tables do
    /// not: a live guest of libvirt that was not asked.
    pub fn may_ask_monitor_of(&self, guest: &DomainModel) -> bool {
        let is_libvirts = guest
            .facts
            .uuid
            .as_ref()
            .is_some_and(|uuid| uuid.from == Origin::Libvirt);
        let was_asked = guest
            .facts
            .devices
            .as_ref()
            .is_some_and(|map| map.from == Origin::Monitor);
        let is_live = !self.is_recorded() && guest.state != DomainState::Ended;
        is_live && self.session.may_ask_monitors && is_libvirts && !was_asked
    }

    /// The findings about a guest, worst first; about the host itself for `None`.
    pub fn findings_about<'a>(
        &'a self,
        guest: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Finding> {
        self.report.findings.iter().filter(move |f| match guest {
            Some(name) => f.domain.is_some() && f.concerns(name),
            None => f.domain.is_none(),
        })
    }

    /// The findings about the selected row, worst first; none about the row of idle guests.
    pub fn problems(&self) -> Vec<&Finding> {
        self.problems_of(self.list.selected())
    }

    /// The findings about a row, worst first; none about the row of idle guests.
    pub fn problems_of(&self, row: ListRow) -> Vec<&Finding> {
        if let ListRow::Idle(_) = row {
            return Vec::new();
        }
        self.findings_about(self.guest_at(row).map(DomainModel::name))
            .collect()
    }

    /// The problem of the selected row that is shown in full.
    pub fn problem(&self) -> Option<&Finding> {
        let problems = self.problems();
        let open = problems.iter().find(|f| Some(f.id()) == self.open_problem);
        open.or(problems.first()).copied()
    }
}
