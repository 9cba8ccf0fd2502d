//! The table of guests as plain data: its rows, their order, and what is selected. [`super::rows`] arranges them.

use crate::model::{DomainModel, Key};
use std::collections::BTreeSet;

/// A column by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ColumnId {
    /// Name of the guest or thread.
    Name,
    /// Number of vCPUs.
    Vcpus,
    /// CPU time.
    #[default]
    Cpu,
    /// The same as a bar.
    Bar,
    /// Guest time.
    Guest,
    /// User time.
    Usr,
    /// Kernel time.
    Sys,
    /// Wait of the vCPUs.
    Wait,
    /// Where it runs.
    Place,
    /// Exits per second.
    Exits,
    /// The last minute of that.
    Trend,
    /// The costliest exit reason.
    TopExit,
    /// Its share of work.
    TopShare,
    /// The costliest access.
    HotDevice,
    /// Its rate.
    HotRate,
    /// Moves between pCPUs.
    Migrations,
    /// Findings.
    Findings,
}

/// A row: indices into [`Model::domains`] and that guest's threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableRow {
    /// The guest.
    pub domain: usize,
    /// Its thread; `None` for the guest's own row.
    pub thread: Option<usize>,
}

/// What tells one guest from the next through time.
pub fn key(d: &DomainModel) -> Key {
    (d.facts.pid, d.facts.start_ticks, d.facts.name.value.clone())
}

/// A row of the table, by what it shows and not by where it stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey {
    /// The guest.
    pub domain: Key,
    /// The thread, for a row of a thread.
    pub thread: Option<i32>,
}

/// The table of guests.
#[derive(Debug, Clone, Default)]
pub struct GuestTable {
    /// What stands in it, top to bottom.
    pub rows: Vec<TableRow>,
    /// The guests in the order of the last sample; keeps near-equal ones from changing places.
    pub order: Vec<Key>,
    /// The selected row; `None` until a key chose one: then the top row is.
    pub cursor: Option<RowKey>,
    /// Where the selected row stands.
    pub at: usize,
    /// The first row in view.
    pub offset: usize,
    /// Guests whose threads are shown.
    pub unfolded: BTreeSet<Key>,
    /// What it is sorted by.
    pub sort: Sort,
    /// Only guests whose name matches.
    pub filter: String,
}

/// An order of the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sort {
    /// By this column.
    pub column: ColumnId,
    /// Turned round.
    pub reversed: bool,
}
