//! Exits by reason, per vCPU and summed over the domain.

use super::earlier::GuestPair;
use super::total;
use kvm::exit_reason::{self, ReasonNames};
use kvm::isa::Isa;
use sample::{ExitCell, Growing as _, Joining, MissingExtreme, Sum, Timing, sum_of_known};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Limit of the reasons that are added up over time; no instruction set has more.
const MAX_REASONS: usize = 1024;

/// Exits of one reason within an interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExitRow {
    /// The reason's name, or its number if nobody names it.
    pub reason: String,
    /// Instruction set and code without flag bits, if the source has them.
    pub id: Option<(Isa, u32)>,
    /// The vCPU; `None` for the domain's sum.
    pub vcpu: Option<u32>,
    /// Whether the guest sleeps in it (HLT, `WFx` and other idle exits).
    pub idle: bool,
    /// Exit to entry.
    pub span: Timing,
    /// Per second.
    pub rate: Option<f64>,
    /// Percent of the exits of the same scope (domain or vCPU).
    pub count_percent: Option<f64>,
    /// Percent of the time in all exits of the scope.
    pub time_percent: Option<f64>,
    /// Percent of that time without idle reasons; `None` for an idle reason.
    pub work_percent: Option<f64>,
    /// The vCPUs' own time in it, percent of one CPU: without the time that they slept, or that
    /// another task had their CPU. `None` for an idle reason, and without times.
    pub cpu_percent: Option<f64>,
    /// Part of its time in the VMM, nanoseconds.
    pub userspace_ns: Option<u64>,
    /// Part of its time halted, nanoseconds.
    pub halted_ns: Option<u64>,
    /// Part of its time runnable while another task had the pCPU, nanoseconds.
    pub preempted_ns: Option<u64>,
}

/// The exits of one scope: reasons with most time first, then idle reasons, last what a cut table
/// leaves out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExitTable {
    /// One row for each reason.
    pub rows: Vec<ExitRow>,
    /// All exits.
    pub count: u64,
    /// Time in all of them, nanoseconds, where measured.
    pub total_ns: Option<u64>,
    /// The same without idle reasons.
    pub work_ns: Option<u64>,
}

impl ExitRow {
    /// Its time without the time that the vCPUs slept, or that another task had their CPU,
    /// nanoseconds.
    pub(super) fn own_ns(&self) -> Option<u64> {
        let elsewhere = self
            .halted_ns
            .unwrap_or(0)
            .saturating_add(self.preempted_ns.unwrap_or(0));
        self.span.total_ns.map(|all| all.saturating_sub(elsewhere))
    }

    /// Adds exits of the same reason.
    fn merge(&mut self, row: &Self) {
        let counts = (self.span.count, row.span.count);
        for (own, more) in [
            (&mut self.userspace_ns, row.userspace_ns),
            (&mut self.halted_ns, row.halted_ns),
            (&mut self.preempted_ns, row.preempted_ns),
        ] {
            *own = sum_of_known(counts, *own, more, u64::saturating_add);
        }
        self.span.merge(&row.span, missing_extreme(&row.span));
    }
}

/// The engine reports the extremes of an interval at times with the next one.
pub(super) fn missing_extreme(span: &Timing) -> MissingExtreme {
    if span.total_ns.is_some() {
        MissingExtreme::NothingInInterval
    } else {
        MissingExtreme::Unknown
    }
}

impl ExitTable {
    /// The reason with most time that is not idle; by count if times are not known.
    pub fn top(&self) -> Option<&ExitRow> {
        self.rows
            .iter()
            .filter(|r| !r.idle)
            .max_by_key(|r| (r.span.total_ns, r.span.count))
    }

    /// The vCPUs' own time in all of them but idle ones, percent of one CPU.
    pub fn cpu_percent(&self) -> Option<f64> {
        self.rows
            .iter()
            .filter_map(|r| r.cpu_percent)
            .reduce(|a, b| a + b)
    }

    /// Share of a time in the time of all exits but idle ones, percent.
    pub fn work_percent(&self, ns: u64) -> Option<f64> {
        share(ns, self.work_ns)
    }

    /// Builds the table; counts and times cover `seconds`.
    pub(super) fn build(mut rows: Vec<ExitRow>, seconds: Option<f64>) -> Self {
        rows.retain(|r| r.span.count > 0);
        let count = total(rows.iter().map(|r| r.span.count));
        let total_ns = total_time(rows.iter());
        let work_ns = total_time(rows.iter().filter(|r| !r.idle));
        for r in &mut rows {
            r.rate = seconds.map(|s| r.span.count as f64 / s);
            r.count_percent = share(r.span.count, count);
            r.time_percent = share(r.span.total_ns, total_ns);
            r.cpu_percent = None;
            r.work_percent = None;
            if !r.idle {
                let own_ns = r.own_ns().zip(seconds);
                r.cpu_percent = own_ns.map(|(ns, s)| ns as f64 / (s * 1e7));
                r.work_percent = share(r.span.total_ns, work_ns);
            }
        }
        // First by reason: equal ones keep that order.
        rows.sort_by(|a, b| a.reason.cmp(&b.reason));
        rows.sort_by_key(|r| (r.idle, Reverse((r.span.total_ns, r.span.count))));
        Self {
            rows,
            count,
            total_ns,
            work_ns,
        }
    }
}

impl Sum for ExitTable {
    /// Adds the rows of another interval. `ExitTable::build` then computes totals and shares
    /// again.
    fn join(&mut self, more: Self, _: &mut Joining) {
        let mut rows = BTreeMap::new();
        for row in self.rows.drain(..) {
            rows.insert(row.reason.clone(), row);
        }
        more.rows.into_iter().for_each(|row| merge(&mut rows, row));
        self.rows = rows.into_values().collect();
    }
}

/// The time of rows together; `None` without rows, or if the time of one is not known.
fn total_time<'a>(rows: impl Iterator<Item = &'a ExitRow>) -> Option<u64> {
    let times = rows.map(|row| row.span.total_ns);
    times.reduce(|a, b| Some(a?.saturating_add(b?))).flatten()
}

/// `part` of `all` in percent; `None` where one is not known, or `all` is 0.
pub fn share(part: impl Into<Option<u64>>, all: impl Into<Option<u64>>) -> Option<f64> {
    let all = all.into().filter(|all| *all > 0)?;
    Some(100.0 * part.into()? as f64 / all as f64)
}

/// The domain's table, and one table for each vCPU.
pub(crate) fn tables(pair: &GuestPair<'_>) -> (ExitTable, Vec<(u32, ExitTable)>) {
    let mut sums: BTreeMap<Option<u32>, BTreeMap<String, ExitRow>> = BTreeMap::new();
    for (vcpu, cell, before) in pair.cells(|events| &events.exits, identity) {
        let row = row(cell, before);
        if vcpu.is_some() {
            merge(
                sums.entry(vcpu).or_default(),
                ExitRow {
                    vcpu,
                    ..row.clone()
                },
            );
        }
        merge(sums.entry(None).or_default(), row);
    }
    let mut all = ExitTable::default();
    let mut vcpus = Vec::new();
    for (vcpu, rows) in sums {
        let table = ExitTable::build(rows.into_values().collect(), pair.interval.seconds);
        match vcpu {
            Some(vcpu) => vcpus.push((vcpu, table)),
            None => all = table,
        }
    }
    (all, vcpus)
}

fn identity(cell: &ExitCell) -> (Isa, u32, Option<&str>) {
    (cell.isa, cell.code, cell.name.as_deref())
}

fn row(cell: &ExitCell, old: Option<&ExitCell>) -> ExitRow {
    let reason = cell
        .name
        .clone()
        .unwrap_or_else(|| exit_reason::display(cell.isa, cell.code, &ReasonNames::default()));
    let idle = exit_reason::is_idle(cell.isa, cell.code) || exit_reason::is_idle_name(&reason);
    ExitRow {
        reason,
        id: Some((cell.isa, exit_reason::basic(cell.isa, cell.code))),
        idle,
        span: cell.time.since(old.map(|o| &o.time)),
        userspace_ns: cell.userspace_ns.since(old.map(|o| &o.userspace_ns)),
        halted_ns: cell.halted_ns.since(old.map(|o| &o.halted_ns)),
        preempted_ns: cell.preempted_ns.since(old.map(|o| &o.preempted_ns)),
        ..ExitRow::default()
    }
}

fn merge(rows: &mut BTreeMap<String, ExitRow>, row: ExitRow) {
    if rows.len() < MAX_REASONS || rows.contains_key(&row.reason) {
        rows.entry(row.reason.clone())
            .and_modify(|sum| sum.merge(&row))
            .or_insert(row);
    }
}
