//! All that the screen shows, as plain data. Changed by [`super::update`] (keys) and [`AppState::absorb`] (new samples), drawn by
//! [`super::render`].

use super::table::{GuestTable, TableRow};
use crate::lint::{CannotTell, Finding, Target};
use crate::model::{DomainModel, History, Model, ThreadModel};
use jiff::tz::TimeZone;
use tui_input::Input;

/// The panels that keys can go to, in the order of Tab.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Panel {
    /// The table of guests and their threads.
    #[default]
    Domains,
    /// Exits by reason.
    Exits,
    /// Ports, addresses and MSRs.
    Accesses,
    /// Who sits on which pCPU.
    Cpus,
    /// Exits to the VMM, kvm tracepoints, KVM's counters.
    Userspace,
    /// What is wrong.
    Findings,
    /// What kvmtop can see and what is missing.
    Sources,
}

impl Panel {
    /// In the order of Tab.
    pub const ALL: [Self; 7] =
        [Self::Domains, Self::Exits, Self::Accesses, Self::Cpus, Self::Userspace, Self::Findings, Self::Sources];

    /// The title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Domains => "GUESTS",
            Self::Exits => "EXITS",
            Self::Accesses => "ACCESSES",
            Self::Cpus => "PCPUS",
            Self::Userspace => "USERSPACE EXITS",
            Self::Findings => "FINDINGS",
            Self::Sources => "SOURCES",
        }
    }

    /// The panel `by` places further, round and round.
    #[must_use]
    pub fn turn(self, by: isize) -> Self {
        let at = Self::ALL.iter().position(|p| *p == self).unwrap_or(0);
        Self::ALL[(at as isize + by).rem_euclid(Self::ALL.len() as isize) as usize]
    }
}

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
    /// Whether time can be moved about in.
    pub fn is_recorded(self) -> bool {
        self != Self::Live
    }
}

/// What is the same for the whole run.
#[derive(Debug, Clone)]
pub struct ScreenSession {
    /// Where the samples come from.
    pub source: ScreenSource,
    /// What is being replayed; empty live.
    pub title: String,
    /// Seconds between samples, as asked for.
    pub interval_s: f64,
    /// The time zone that clock times are shown in.
    pub zone: TimeZone,
}

impl Default for ScreenSession {
    fn default() -> Self {
        Self { source: ScreenSource::Live, title: String::new(), interval_s: 1.0, zone: TimeZone::UTC }
    }
}

/// What lies over the screen or takes the keys.
#[derive(Debug, Clone)]
pub enum Popup {
    /// Keys and columns, scrolled.
    Help {
        /// First line in view.
        scroll: u16,
    },
    /// The sort menu.
    Sort {
        /// The selected entry.
        at: usize,
    },
    /// An opened finding.
    Finding {
        /// Which.
        key: FindingKey,
        /// First line in view.
        scroll: u16,
    },
    /// The filter is being typed.
    Filter(Input),
    /// A time to go to is being typed.
    Goto(Input),
}

/// A finding through time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FindingKey {
    /// The rule.
    pub rule: &'static str,
    /// The guest.
    pub domain: Option<String>,
    /// What of it.
    pub target: Target,
}

impl FindingKey {
    /// Of a finding.
    pub fn of(f: &Finding) -> Self {
        Self { rule: f.rule, domain: f.domain.clone(), target: f.target }
    }
}

/// Where a replay stands.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Playback {
    /// Index of the sample shown.
    pub index: usize,
    /// How many there are.
    pub len: usize,
    /// Time of the first and the last, milliseconds since the epoch.
    pub range_ms: (i64, i64),
    /// So many times as fast as it happened.
    pub speed: f64,
    /// Whether it runs.
    pub playing: bool,
    /// Where something is to be seen: milliseconds since the epoch, in order.
    pub marks: Vec<i64>,
}

/// Something new to show.
#[derive(Debug, Clone, Default)]
pub struct Tick {
    /// The interval.
    pub model: Model,
    /// What is wrong in it.
    pub findings: Vec<Finding>,
    /// What could not be judged, and why.
    pub cannot_tell: Vec<CannotTell>,
    /// Where a replay stands.
    pub playback: Option<Playback>,
    /// The intervals before, when time was jumped in: the history starts anew from these.
    pub before: Option<Vec<Model>>,
    /// The same interval once more: it enters the history no second time.
    pub again: bool,
}

/// Which panels are shown and which has the keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Panels {
    /// The keys go here.
    pub focus: Panel,
    /// This stands beneath the table.
    pub shown: Panel,
    /// The selected row of the focused panel, when it is not the table.
    pub at: usize,
    /// Whether the selected guest ever had accesses to show: a panel that came stays.
    pub accesses_seen: bool,
}

/// All that the screen shows.
#[derive(Debug, Clone, Default)]
pub struct AppState {
    /// What is the same for the whole run.
    pub session: ScreenSession,
    /// The interval shown; `None` before the first sample.
    pub model: Option<Model>,
    /// The minute before it.
    pub history: History,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// What could not be judged, and why.
    pub cannot_tell: Vec<CannotTell>,
    /// The table of guests.
    pub table: GuestTable,
    /// The panels.
    pub panels: Panels,
    /// What lies over the screen.
    pub popup: Option<Popup>,
    /// Whether a live screen stands still.
    pub paused: bool,
    /// The newest interval, held back while the screen stands still.
    pub held: Option<Box<Tick>>,
    /// Where a replay stands.
    pub playback: Option<Playback>,
    /// Something to say, until the next key or for some intervals.
    pub message: Option<String>,
    /// For how many intervals it has been there.
    pub message_age: u8,
    /// Whether every kvm tracepoint is counted.
    pub kvm_events: bool,
    /// The screen's size: columns and rows.
    pub size: (u16, u16),
}

impl AppState {
    /// A screen that waits for its first sample.
    pub fn new(session: ScreenSession, size: (u16, u16)) -> Self {
        let panels = Panels { shown: Panel::Exits, ..Panels::default() };
        Self { session, panels, size, ..Self::default() }
    }

    /// Says something in the last line.
    pub fn say(&mut self, text: impl Into<String>) {
        self.message = Some(text.into());
        self.message_age = 0;
    }

    /// The guest and thread of a row.
    pub fn at_row(&self, row: TableRow) -> Option<(&DomainModel, Option<&ThreadModel>)> {
        let domain = self.model.as_ref()?.domains.get(row.domain)?;
        match row.thread {
            Some(t) => Some((domain, Some(domain.threads.get(t)?))),
            None => Some((domain, None)),
        }
    }

    /// What is selected.
    pub fn selected(&self) -> Option<(&DomainModel, Option<&ThreadModel>)> {
        self.at_row(*self.table.rows.get(self.table.at)?)
    }

    /// The guest that the panels speak of.
    pub fn domain(&self) -> Option<&DomainModel> {
        self.selected().map(|(d, _)| d)
    }

    /// The vCPU that the panels speak of, when a vCPU's row is selected.
    pub fn vcpu(&self) -> Option<u32> {
        let (_, thread) = self.selected()?;
        thread.filter(|t| t.role == crate::kvm::thread_name::Role::Vcpu)?.index
    }

    /// A finding by its key.
    pub fn finding(&self, key: &FindingKey) -> Option<&Finding> {
        self.findings.iter().find(|f| FindingKey::of(f) == *key)
    }
}
