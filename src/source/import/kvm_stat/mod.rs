//! The tables that `perf kvm stat report` and `live` print, as people paste them.
//!
//! All ages of perf are read: with and without the minimum, maximum and mean columns (tools/perf/builtin-kvm.c,
//! `print_result`), for vmexit, ioport, mmio and msr, one or many in a text, with prose around, quoted and wrapped by mail.

mod fold;
mod header;
mod row;
mod scan;

pub(super) use fold::{Folded, fold};
pub(super) use scan::{looks_like, scan};

use crate::kvm::Space;
use crate::sample::Direction;

/// One table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Table {
    /// What its rows are.
    pub kind: TableKind,
    /// The vCPU it is restricted to.
    pub vcpu: Option<u32>,
    /// The processes it is restricted to, as the heading has them.
    pub pids: Option<String>,
    /// Time of day printed above it, seconds (`live`).
    pub clock: Option<f64>,
    /// Seconds that the last command line above it states (`perf kvm stat record … sleep 10`).
    pub recorded_s: Option<f64>,
    /// Its rows.
    pub rows: Vec<Row>,
    /// `Total Samples` and `Total events handled time` (nanoseconds).
    pub total: Option<(u64, Option<f64>)>,
    /// `Lost events`.
    pub lost: u64,
}

/// What the rows of a table are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TableKind {
    /// Exits by reason.
    #[default]
    Exits,
    /// Accesses by address.
    Accesses(Space),
}

/// What a row counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// A reason by its printed name, and the code where a line above tells it (`unknown kvm exit code:N on VMX`).
    Reason(String, Option<u32>),
    /// A port, address or MSR.
    Address(u64, Direction),
}

/// One row. Times are nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// What it counts.
    pub key: Key,
    /// `Samples`.
    pub count: u64,
    /// `Time%`.
    pub time_percent: Option<f64>,
    /// `Time (ns)`: all of it.
    pub total: Option<f64>,
    /// `Min Time`.
    pub min: Option<f64>,
    /// `Max Time`.
    pub max: Option<f64>,
    /// `Avg time`.
    pub mean: Option<f64>,
    /// What stands behind `+-`: relative standard error of the mean, percent.
    pub error: Option<f64>,
}

impl Row {
    /// A row without figures.
    fn of(key: Key) -> Self {
        Self { key, count: 0, time_percent: None, total: None, min: None, max: None, mean: None, error: None }
    }
}

/// What a text holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Scan {
    /// The tables, in order.
    pub tables: Vec<Table>,
    /// Seconds that the first command line in the text states.
    pub recorded_s: Option<f64>,
    /// Seconds of one frame that a command line in the text states (`perf kvm stat live -d 2`).
    pub frame_s: Option<f64>,
    /// Rows or tables beyond the bounds were left out.
    pub cut: bool,
}

#[cfg(test)]
mod tests;
