//! All that the screen shows, as plain data. [`super::update`] (keys) and [`AppState::absorb`] (new samples) change it,
//! [`super::render`] draws it.

use super::guest_table::{GuestTable, RowPart, TableRow};
use super::held_findings::HeldFindings;
use super::keys_in_force::KeysInForce;
use super::panel_rows::PanelRows;
use super::screen_settings::ScreenSettings;
use super::table_marks::TableMarks;
use super::terminal_traits::ThemeChoice;
use super::view::{ScreenView, ViewState};
use jiff::tz::TimeZone;
use judge::lint::{CannotTell, Finding, FindingId, StillWatched};
use judge::model::{DomainModel, GuestId, History, Model, ThreadModel};
use kvm::thread_name::Role;
use sample::{SourceId, SourceState};
use tui_input::Input;

/// Where the samples come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ScreenSource {
    /// This host, now.
    #[default]
    Live,
    /// A recording.
    Replay,
    /// The recording inside the binary.
    Demo,
}

impl ScreenSource {
    /// Whether the screen shows recorded samples, so that keys can move through time.
    pub fn is_recorded(self) -> bool {
        self != Self::Live
    }
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
}

impl Default for ScreenSession {
    fn default() -> Self {
        Self { source: ScreenSource::Live, title: String::new(), interval_s: 1.0, zone: TimeZone::UTC }
    }
}

/// A popup, or a line of input.
#[derive(Debug, Clone)]
pub enum Popup {
    /// The help text.
    Help {
        /// First visible line.
        scroll: u16,
    },
    /// The sort menu.
    Sort {
        /// The selected entry.
        at: usize,
    },
    /// An opened finding.
    Finding {
        /// The finding.
        key: FindingId,
        /// First visible line.
        scroll: u16,
    },
    /// Stacks of a guest's threads.
    Stacks {
        /// The guest.
        guest: GuestId,
        /// Its thread; `None` for all.
        tid: Option<i32>,
        /// When they were asked for, milliseconds since the epoch: older ones are not shown. `None` in a recording.
        asked_ms: Option<i64>,
        /// First visible line.
        scroll: u16,
    },
    /// The filter, while it is typed.
    Filter(Input),
    /// The time to go to, while it is typed.
    Goto(Input),
    /// The menu of columns.
    Columns {
        /// The selected entry.
        at: usize,
    },
    /// The menu of formats in which the view is written.
    Save {
        /// The selected entry.
        at: usize,
        /// The popup below it, which the picture shows.
        under: Option<Box<Popup>>,
    },
}

/// Position of a replay.
#[derive(Debug, Clone, Default, PartialEq)]
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
    /// Times of samples worth a look: milliseconds since the Unix epoch, in order.
    pub marks: Vec<i64>,
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
    /// Its findings.
    pub findings: Vec<Finding>,
    /// The rules that could not be judged, and why.
    pub cannot_tell: Vec<CannotTell>,
    /// Position of a replay.
    pub playback: Option<Playback>,
    /// Where not enough has been seen yet.
    pub watching: Vec<StillWatched>,
    /// Intervals that a replay judged on its way here.
    pub passed: Passed,
    /// The interval shown before, once more: it is not added to the history again.
    pub again: bool,
}

/// What a paused screen keeps until it is resumed: nothing of it is drawn.
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
    /// The findings of the interval; on a live screen they say for some seconds the same.
    pub findings: Vec<Finding>,
    /// When they were taken over.
    pub held_findings: HeldFindings,
    /// The rules that could not be judged, and why.
    pub cannot_tell: Vec<CannotTell>,
    /// Where not enough has been seen yet.
    pub watching: Vec<StillWatched>,
    /// The table of guests.
    pub table: GuestTable,
    /// The view.
    pub view: ViewState,
    /// How much there is to show in the panels of the first screen.
    pub rows: PanelRows,
    /// The open popup.
    pub popup: Option<Popup>,
    /// The keys.
    pub keys: KeysInForce,
    /// The colours asked for.
    pub theme: ThemeChoice,
    /// Whether kvmtop has the mouse.
    pub mouse: bool,
    /// Two times whose figures the table compares.
    pub marks: TableMarks,
    /// Whether a live screen is paused.
    pub paused: bool,
    /// What came while the screen was paused.
    pub held: Option<Box<Held>>,
    /// Position of a replay.
    pub playback: Option<Playback>,
    /// A message in the last line, until the next key or for some intervals.
    pub message: Option<String>,
    /// How many intervals the message has been shown.
    pub message_age: u8,
    /// Whether every kvm tracepoint is counted.
    pub kvm_events: bool,
    /// What is missing and was looked at in the view of sources: it is not announced any more.
    pub seen_sources: Vec<(SourceId, SourceState)>,
    /// The screen's size: columns and rows.
    pub size: (u16, u16),
}

impl AppState {
    /// The settings as they are now.
    pub fn settings(&self) -> ScreenSettings {
        ScreenSettings {
            theme: self.theme,
            mouse: self.mouse,
            view: self.view.shown,
            sort: self.table.sort,
            columns: self.table.columns.clone(),
        }
    }

    /// Takes settings over.
    pub fn apply(&mut self, settings: &ScreenSettings) {
        (self.theme, self.mouse) = (settings.theme, settings.mouse);
        self.view.show(settings.view);
        self.table.sort = settings.sort;
        self.table.columns.clone_from(&settings.columns);
    }

    /// A screen that waits for its first sample.
    pub fn new(session: ScreenSession, size: (u16, u16)) -> Self {
        Self { session, size, ..Self::default() }
    }

    /// Shows a message in the last line.
    pub fn say(&mut self, text: impl Into<String>) {
        self.message = Some(text.into());
        self.message_age = 0;
    }

    /// The guest and thread of a row.
    pub fn at_row(&self, row: TableRow) -> Option<(&DomainModel, Option<&ThreadModel>)> {
        let domain = self.model.as_ref()?.domains.get(row.domain)?;
        match row.part {
            RowPart::Thread(t) => Some((domain, Some(domain.threads.get(t)?))),
            RowPart::Guest | RowPart::Idle(_) => Some((domain, None)),
        }
    }

    /// The guests that the view is about, in the order of the table: all that pass the filter, or the selected one.
    pub fn guests_in_view(&self) -> Vec<&DomainModel> {
        self.guests_of(self.view.shown)
    }

    /// Whether a view, or a panel of the first screen, shows all guests instead of the selected one.
    pub fn is_of_all(&self, view: ScreenView) -> bool {
        if self.view.shown == ScreenView::Guests { self.rows.of_all.contains(&view) } else { self.view.is_of_all() }
    }

    /// The guests that a view, or a panel of the first screen, is about.
    pub fn guests_of(&self, view: ScreenView) -> Vec<&DomainModel> {
        if self.is_of_all(view) { self.guests() } else { self.domain().into_iter().collect() }
    }

    /// All guests that pass the filter, in the order of the table.
    pub fn guests(&self) -> Vec<&DomainModel> {
        self.table.rows.iter().filter(|r| r.is_guest()).filter_map(|r| Some(self.at_row(*r)?.0)).collect()
    }

    /// The findings that the view of findings lists.
    pub fn findings_in_view(&self) -> Vec<&Finding> {
        let guest = self.domain().filter(|_| !self.view.of_all.contains(&ScreenView::Findings)).map(DomainModel::name);
        self.findings.iter().filter(|f| guest.is_none_or(|name| f.concerns(name))).collect()
    }

    /// The selected guest, and the thread on a thread's row.
    pub fn selected(&self) -> Option<(&DomainModel, Option<&ThreadModel>)> {
        self.at_row(*self.table.rows.get(self.table.at)?)
    }

    /// The guest that the views show.
    pub fn domain(&self) -> Option<&DomainModel> {
        self.selected().map(|(d, _)| d)
    }

    /// The vCPU that the views show, if a vCPU's row is selected.
    pub fn vcpu(&self) -> Option<u32> {
        let (_, thread) = self.selected()?;
        thread.filter(|t| t.role == Role::Vcpu)?.index
    }

    /// The worst finding about the selected guest.
    pub fn worst_finding(&self) -> Option<&Finding> {
        let name = self.domain()?.name();
        self.findings.iter().find(|f| f.concerns(name))
    }

    /// A finding by its key.
    pub fn finding(&self, key: &FindingId) -> Option<&Finding> {
        self.findings.iter().find(|f| f.id() == *key)
    }
}
