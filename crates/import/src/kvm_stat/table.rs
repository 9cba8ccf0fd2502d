//! Tables and their rows as printed.

use kvm::Space;
use sample::Direction;

/// All that was found in a text.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FoundTables {
    /// The tables, in order.
    pub tables: Vec<PrintedTable>,
    /// Seconds of the first recording whose command line the text contains (`perf kvm stat record … sleep 10`).
    pub recorded_s: Option<f64>,
    /// Seconds of one frame, from a command line in the text (`perf kvm stat live -d 2`).
    pub frame_s: Option<f64>,
    /// Whether rows or tables beyond the limits were left out.
    pub cut: bool,
}

/// One table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PrintedTable {
    /// What its rows count.
    pub kind: TableKind,
    /// The vCPU it is restricted to.
    pub vcpu: Option<u32>,
    /// The processes it is restricted to, as its heading prints them.
    pub pids: Option<String>,
    /// Time of day printed above it, seconds (`live`).
    pub clock: Option<f64>,
    /// Seconds that the last command line above it states (`perf kvm stat record … sleep 10`).
    pub recorded_s: Option<f64>,
    /// Its rows.
    pub rows: Vec<PrintedRow>,
    /// `Total Samples` and `Total events handled time` (nanoseconds).
    pub total: Option<(u64, Option<f64>)>,
    /// `Lost events`.
    pub lost: u64,
}

/// What the rows of a table count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TableKind {
    /// Exits by reason.
    #[default]
    Exits,
    /// Accesses by address.
    Accesses(Space),
}

/// What a row counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowKey {
    /// A reason by its printed name, and its code if a line above states it (`unknown kvm exit code:N on VMX`).
    Reason(String, Option<u32>),
    /// A port, address or MSR.
    Address(u64, Direction),
}

/// One row. Times are nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PrintedRow {
    /// What it counts.
    pub key: RowKey,
    /// `Samples`.
    pub count: u64,
    /// `Time%`.
    pub time_percent: Option<f64>,
    /// `Time (ns)`: sum of all durations.
    pub total: Option<f64>,
    /// `Min Time`.
    pub min: Option<f64>,
    /// `Max Time`.
    pub max: Option<f64>,
    /// `Avg time`.
    pub mean: Option<f64>,
    /// The number after `+-`: relative standard error of the mean, percent.
    pub error: Option<f64>,
}

impl PrintedRow {
    /// A row without times.
    pub(super) fn new(key: RowKey, count: u64) -> Self {
        Self { key, count, time_percent: None, total: None, min: None, max: None, mean: None, error: None }
    }
}
