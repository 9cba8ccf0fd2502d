//! The table of guests as plain data: its rows, their order, and what is selected. [`super::rows`] arranges them.

use super::filter::TableFilter;
use super::idle_threads::IdleThreads;
use judge::model::GuestId;
use std::collections::BTreeSet;

/// Identifies a column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ColumnId {
    /// Name of the guest or thread.
    Name,
    /// Number of vCPUs.
    Vcpus,
    /// CPU time.
    Cpu,
    /// CPU time and wait as a bar.
    Bar,
    /// Guest time.
    Guest,
    /// User time.
    Usr,
    /// Kernel time.
    Sys,
    /// Wait of the vCPUs.
    Wait,
    /// The host CPU, or the NUMA nodes.
    Place,
    /// Exits per second.
    Exits,
    /// Exits per second over the last minute.
    Trend,
    /// The exit reason that took the most time.
    TopExit,
    /// Its share of work.
    TopShare,
    /// The device or MSR whose accesses took the most time.
    HotDevice,
    /// Rate of those accesses.
    HotRate,
    /// Moves between pCPUs.
    Migrations,
    /// Process id, or thread id.
    Pid,
    /// Whether the guest runs.
    State,
    /// The guest's operating system.
    Os,
    /// Findings.
    #[default]
    Findings,
}

/// A row: indices into [`Model::domains`] and that guest's threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableRow {
    /// The guest.
    pub domain: usize,
    /// Which of its rows.
    pub part: RowPart,
}

/// Which row of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowPart {
    /// The guest's own.
    Guest,
    /// A thread: its index.
    Thread(usize),
    /// So many idle helper threads.
    Idle(usize),
}

impl TableRow {
    /// Whether it is the guest's own row.
    pub fn is_guest(self) -> bool {
        self.part == RowPart::Guest
    }
}

/// Identifies a row by its content, independent of its position.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableRowKey {
    /// The guest.
    pub domain: GuestId,
    /// The thread, for a row of a thread; [`IDLE_THREADS`] for the row of idle helper threads.
    pub thread: Option<i32>,
}

/// Stands for the row of idle helper threads: no thread has this id.
pub const IDLE_THREADS: i32 = -1;

/// The table of guests.
#[derive(Debug, Clone, Default)]
pub struct GuestTable {
    /// The rows, top to bottom.
    pub rows: Vec<TableRow>,
    /// The guests in the order of the last interval, so that those with similar figures keep their places.
    pub order: Vec<GuestId>,
    /// The selected row. `None` until a key selects one; the first row is selected then.
    pub cursor: Option<TableRowKey>,
    /// Index of the selected row.
    pub at: usize,
    /// Index of the first visible row.
    pub offset: usize,
    /// Guests whose threads are shown.
    pub unfolded: BTreeSet<GuestId>,
    /// Which helper threads share a row.
    pub idle: IdleThreads,
    /// Top of the scale of all guests' sparklines.
    pub trend_top: f64,
    /// Its order.
    pub sort: Sort,
    /// Which guests are shown.
    pub filter: TableFilter,
    /// The columns, left to right; `None` for those that it has at first.
    pub columns: Option<Vec<ColumnId>>,
    /// Guests that stay on top, in their order among each other.
    pub pinned: BTreeSet<GuestId>,
}

impl GuestTable {
    /// Sorts by a column; by the same one again in the reverse order.
    pub fn sort_by(&mut self, column: ColumnId) {
        self.sort = Sort { column, reversed: self.sort.column == column && !self.sort.reversed };
        self.order.clear();
    }
}

/// An order of the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sort {
    /// The column to sort by.
    pub column: ColumnId,
    /// Whether the order is reversed.
    pub reversed: bool,
}
