//! The views: what fills the screen, chosen by number, Tab or mouse.

use super::list_row_id::ListRowId;
use std::collections::{BTreeMap, BTreeSet};

/// What fills the screen below the header. The first view shows short forms of some of the others below its table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScreenView {
    /// The table of guests, and what fits of the selected guest.
    #[default]
    Guests,
    /// Threads.
    Threads,
    /// Exits by reason, exits to the VMM, kvm tracepoints, KVM's counters.
    Exits,
    /// Ports, addresses and MSRs.
    Accesses,
    /// Which threads run on which host CPU.
    Cpus,
    /// How long vCPUs wait for a CPU.
    Latency,
    /// Disks and network interfaces.
    Disks,
    /// Memory.
    Memory,
    /// The findings.
    Findings,
    /// Which sources work and which are missing.
    Sources,
}

impl ScreenView {
    /// In the order of their keys and of Tab.
    pub const ALL: [Self; 10] = [
        Self::Guests,
        Self::Threads,
        Self::Exits,
        Self::Accesses,
        Self::Cpus,
        Self::Latency,
        Self::Disks,
        Self::Memory,
        Self::Findings,
        Self::Sources,
    ];

    /// The title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Guests => "GUESTS",
            Self::Threads => "THREADS",
            Self::Exits => "EXITS",
            Self::Accesses => "ACCESSES",
            Self::Cpus => "PCPUS",
            Self::Latency => "LATENCY",
            Self::Disks => "DISKS AND NICS",
            Self::Memory => "MEMORY",
            Self::Findings => "FINDINGS",
            Self::Sources => "SOURCES",
        }
    }

    /// Its name in the config file and in names of files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Guests => "guests",
            Self::Threads => "threads",
            Self::Exits => "exits",
            Self::Accesses => "accesses",
            Self::Cpus => "pcpus",
            Self::Latency => "latency",
            Self::Disks => "disks",
            Self::Memory => "memory",
            Self::Findings => "findings",
            Self::Sources => "sources",
        }
    }

    /// The view of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|v| v.name() == name)
    }

    /// Its name in the line of views.
    pub fn tab(self) -> &'static str {
        match self {
            Self::Guests => "Guests",
            Self::Threads => "Threads",
            Self::Exits => "Exits",
            Self::Accesses => "Accesses",
            Self::Cpus => "pCPUs",
            Self::Latency => "Latency",
            Self::Disks => "Disks",
            Self::Memory => "Memory",
            Self::Findings => "Findings",
            Self::Sources => "Sources",
        }
    }

    /// The same on a narrow screen.
    pub fn short_tab(self) -> &'static str {
        match self {
            Self::Accesses => "Access",
            Self::Memory => "Mem",
            Self::Findings => "Finds",
            other => other.tab(),
        }
    }

    /// The key that shows it.
    pub fn key(self) -> char {
        match self {
            Self::Guests => '1',
            Self::Threads => '2',
            Self::Exits => '3',
            Self::Accesses => '4',
            Self::Cpus => '5',
            Self::Latency => '6',
            Self::Disks => '7',
            Self::Memory => '8',
            Self::Findings => '9',
            Self::Sources => '0',
        }
    }

    /// Whether it can show one guest as well as all.
    pub fn has_scope(self) -> bool {
        !matches!(self, Self::Guests | Self::Sources)
    }

    /// The view `by` places further; after the last comes the first.
    #[must_use]
    pub fn turn(self, by: isize) -> Self {
        let at = Self::ALL.iter().position(|v| *v == self).unwrap_or(0);
        Self::ALL[(at as isize + by).rem_euclid(Self::ALL.len() as isize) as usize]
    }
}

/// Over which time the view of exits counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExitSpan {
    /// Per second of the interval.
    #[default]
    Second,
    /// In the interval.
    Interval,
    /// Since kvmtop began to watch the guest, or since a jump through a recording.
    Start,
}

impl ExitSpan {
    /// The one after it; after the last comes the first.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Second => Self::Interval,
            Self::Interval => Self::Start,
            Self::Start => Self::Second,
        }
    }
}

/// What the view of exits counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExitsShown {
    /// Over which time.
    pub span: ExitSpan,
    /// Whether the map counts the exits in which a guest sleeps.
    pub with_sleep: bool,
}

/// What the picture of latencies shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LatenciesShown {
    /// Each time that the vCPU had to wait for a CPU.
    #[default]
    RunDelays,
    /// Those times that began with a wake-up.
    Wakeups,
}

impl LatenciesShown {
    /// The other one.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::RunDelays => Self::Wakeups,
            Self::Wakeups => Self::RunDelays,
        }
    }

    /// What the picture of latencies draws.
    pub fn description(self) -> &'static str {
        match self {
            Self::RunDelays => "drawn: all waits for a CPU",
            Self::Wakeups => "drawn: waits for a CPU after a wake-up",
        }
    }
}

/// Which view is shown, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewState {
    /// The view.
    pub shown: ScreenView,
    /// Index of its selected row; for the table of guests, `AppState::table` has the index.
    pub at: usize,
    /// What the selected row is about: the selection stays with it. `None` until a key selects a row; the first one is
    /// selected then.
    pub selected: Option<ListRowId>,
    /// The views that show all guests instead of the selected one.
    pub of_all: BTreeSet<ScreenView>,
    /// The views' orders by place in [`ScreenView::orders`], where it is not the usual one.
    pub orders: BTreeMap<ScreenView, usize>,
    /// What the view of exits counts.
    pub exits: ExitsShown,
    /// What the picture of latencies shows.
    pub latencies: LatenciesShown,
}

impl Default for ViewState {
    fn default() -> Self {
        let of_all = BTreeSet::from([ScreenView::Cpus, ScreenView::Disks, ScreenView::Memory, ScreenView::Findings]);
        let (exits, latencies) = Default::default();
        Self { shown: ScreenView::Guests, at: 0, selected: None, of_all, orders: BTreeMap::new(), exits, latencies }
    }
}

impl ViewState {
    /// Whether the view on the screen shows all guests.
    pub fn is_of_all(&self) -> bool {
        self.of_all.contains(&self.shown)
    }

    /// Shows another view, from its first row.
    pub fn show(&mut self, view: ScreenView) {
        if self.shown != view {
            self.shown = view;
            self.select_first();
        }
    }

    /// Selects the first row, whatever it is about.
    pub fn select_first(&mut self) {
        (self.at, self.selected) = (0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_turn_in_a_circle() {
        assert_eq!(ScreenView::Guests.turn(1), ScreenView::Threads);
        assert_eq!(ScreenView::Guests.turn(-1), ScreenView::Sources);
        assert_eq!(ScreenView::Sources.turn(1), ScreenView::Guests);
    }
}
