//! The tables that `perf kvm stat report` and `live` print, of every perf version: with and without the minimum,
//! maximum and mean columns (tools/perf/builtin-kvm.c, `print_result`), for vmexit, ioport, mmio and msr.

mod tables;

pub(super) use tables::{begins, find_tables};

use kvm::exit_reason::{self, ESTIMATED, NOT_SHOWN};
use kvm::{Isa, Space, sanitize};
use sample::{AccessCell, ExitCell, MissingExtreme, ThreadEvents, Timing};
use std::collections::{BTreeMap, BTreeSet};
use tables::PrintedColumn::{Error, Max, Mean, Min, SamplesPercent, TimePercent, Total};
use tables::{PrintedRow, PrintedTable, RowKey};

/// The counters of one guest.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TableCounters {
    /// Sums over all vCPUs, without what the tables of single vCPUs hold.
    pub all: ThreadEvents,
    /// Counters of single vCPUs.
    pub vcpus: BTreeMap<u32, ThreadEvents>,
    /// Seconds that the text states by its clock.
    pub seconds: Option<f64>,
    /// Events that perf reported as lost.
    pub lost: u64,
    /// Remarks: rows that are missing, frames that were added up.
    pub notes: Vec<String>,
}

/// The remark on tables whose times do not measure the exits.
const GUEST_TIMES: &str = "on this architecture perf measures how long the guest ran before each exit, not how long \
    the exit took: the table's times are left out";

type Cells = BTreeMap<RowKey, Timing>;

/// Adds up the tables of one text by the processes that they are restricted to (`None`: not restricted).
pub(crate) fn guest_counters(tables: &[PrintedTable]) -> BTreeMap<Option<String>, TableCounters> {
    let mut guests: BTreeMap<Option<String>, Vec<&PrintedTable>> = BTreeMap::new();
    for table in tables {
        guests.entry(table.pids.clone()).or_default().push(table);
    }
    // A table of all guests beside one guest's tables describes this guest, too.
    if guests.len() == 2
        && let Some(of_all) = guests.remove(&None)
    {
        guests.values_mut().for_each(|tables| tables.extend(&of_all));
    }
    guests.into_iter().map(|(pids, tables)| (pids, add_up(&tables))).collect()
}

fn add_up(tables: &[&PrintedTable]) -> TableCounters {
    let mut counters = TableCounters::default();
    let tables = &one_of_each_kind(tables, &mut counters.notes);
    let rows = || tables.iter().flat_map(|t| &t.rows);
    let names = || {
        rows().filter_map(|row| match &row.key {
            RowKey::Reason(name, _) => Some(name.as_str()),
            RowKey::Address(..) => None,
        })
    };
    let isa = exit_reason::guess_isa(names());
    // There perf counts from the entry to the exit (tools/perf/util/kvm-stat-arch/kvm-stat-arm64.c and -riscv.c,
    // `event_begin`).
    let guest_times = isa == Isa::Arm64 || names().any(is_riscv);
    let is_timed = |r: &PrintedRow| r.figures.contains_key(&Mean) || r.figures.contains_key(&Total);
    if guest_times && rows().any(is_timed) {
        counters.notes.push(GUEST_TIMES.into());
    }
    let mut scopes: BTreeMap<(Option<u32>, Option<Space>), Cells> = BTreeMap::new();
    for table in tables {
        counters.lost = counters.lost.saturating_add(table.lost);
        let cells = scopes.entry((table.vcpu, table.space)).or_default();
        for row in &table.rows {
            let time = if guest_times {
                Timing { count: row.count, ..Timing::default() }
            } else {
                timing(row, table.total.and_then(|t| t.1))
            };
            cells.entry(row.key.clone()).or_default().merge(&time, MissingExtreme::Unknown);
        }
        if table.space.is_none()
            && let Some(mut rest) = rows_not_shown(table)
        {
            rest.total_ns = rest.total_ns.filter(|_| !guest_times);
            let name = if table.total.is_some() { NOT_SHOWN } else { ESTIMATED };
            cells.entry(RowKey::Reason(name.into(), None)).or_default().merge(&rest, MissingExtreme::Unknown);
        }
        if table.rows.is_empty() && table.total.is_none() {
            let why = "it is cut off, or its numbers do not have perf's format (12.5, not 12,5)";
            counters.notes.push(format!("a table without any readable row: {why}"));
        }
        let held = table.samples();
        if let Some((stated, _)) = table.total.filter(|(stated, _)| *stated != held) {
            let what = if held < stated { "rows are missing" } else { "a row or the total is wrong" };
            counters.notes.push(format!("the table states {stated} samples and its rows hold {held}: {what}"));
        }
    }
    counters.notes.dedup();
    counters.seconds = covered_seconds(tables, &mut counters.notes);
    // A text can hold a sum and its parts. The parts must not count twice.
    let (mut sums, parts): (BTreeMap<_, _>, BTreeMap<_, _>) =
        scopes.into_iter().partition(|((vcpu, _), _)| vcpu.is_none());
    for ((vcpu, space), cells) in parts {
        for (key, part) in &cells {
            if let Some(sum) = sums.get_mut(&(None, space)).and_then(|sums| sums.get_mut(key)) {
                subtract(sum, part);
            }
        }
        let vcpu = counters.vcpus.entry(vcpu.unwrap_or_default()).or_default();
        vcpu.merge(events(cells, isa), MissingExtreme::Unknown);
    }
    counters.all = events(sums.into_values().flatten().filter(|(_, time)| time.count > 0), isa);
    counters
}

/// The frames of `live`, which have clocks, and the first of other tables of each kind: a second one would be of
/// another measurement, and their sum of a guest that never was.
fn one_of_each_kind<'a>(tables: &[&'a PrintedTable], notes: &mut Vec<String>) -> Vec<&'a PrintedTable> {
    let mut known = BTreeSet::new();
    let mut kept = Vec::new();
    for table in tables {
        if table.clock.is_some() || known.insert((table.space, table.vcpu)) {
            kept.push(*table);
        }
    }
    if kept.len() < tables.len() {
        notes.push("several tables of one kind are several measurements: the first is read".to_owned());
    }
    kept
}

/// What a table leaves out, by its total or by the shares that its rows state, so that shares stay those that perf
/// printed.
fn rows_not_shown(table: &PrintedTable) -> Option<Timing> {
    let sum = |column| {
        let shares = || table.rows.iter().filter_map(|row| row.figures.get(&column));
        // perf's terminal browser cuts shares to whole numbers.
        let rounding = if shares().all(|share| share.fract() == 0.0) { table.rows.len() as f64 } else { 1.0 };
        Some(shares().sum::<f64>()).filter(|sum| *sum > 0.0 && *sum < 100.0 - rounding)
    };
    let rest = |held: f64, percent: f64| (held * (100.0 / percent - 1.0)).round() as u64;
    let held = table.samples();
    let count = match table.total {
        Some((stated, _)) => stated.saturating_sub(held),
        None => rest(held as f64, sum(SamplesPercent)?),
    };
    let handled = table.total.and_then(|(_, ns)| ns);
    let held_ns: f64 = table.rows.iter().filter_map(|row| timing(row, handled).total_ns).map(|ns| ns as f64).sum();
    let total_ns = match handled {
        Some(ns) => Some((ns - held_ns).max(0.0).round() as u64),
        None => (held_ns > 0.0).then(|| sum(TimePercent).map_or(0, |percent| rest(held_ns, percent))),
    };
    (count > 0).then_some(Timing { count, total_ns, ..Timing::default() })
}

/// Two frames as far apart as this, seconds, are neighbours.
const SHORT_STEP_S: f64 = 3.0;

/// The seconds that the tables cover, by the clocks of `live`.
fn covered_seconds(tables: &[&PrintedTable], notes: &mut Vec<String>) -> Option<f64> {
    let mut groups: BTreeMap<(Option<Space>, Option<u32>), Vec<&PrintedTable>> = BTreeMap::new();
    for t in tables.iter().filter(|t| !t.rows.is_empty()) {
        groups.entry((t.space, t.vcpu)).or_default().push(t);
    }
    let largest = groups.into_values().max_by_key(Vec::len)?;
    let frames = largest.len();
    let clocks: Vec<f64> = largest.iter().filter_map(|t| t.clock).collect();
    if frames > 1 {
        notes.push(format!("{frames} frames of 'perf kvm stat live' were added up"));
    } else if !clocks.is_empty() {
        notes.push(
            "'perf kvm stat live' prints one frame a second by default: one second is assumed without --duration"
                .into(),
        );
        return Some(1.0);
    }
    // A text may quote a few of many frames. Each is one interval, as long as steps that agree or are short,
    // else 1 s.
    let steps = || clocks.windows(2).map(|w| (w[1] - w[0]).rem_euclid(86_400.0)).filter(|s| *s > 0.0);
    let shortest = steps().reduce(f64::min)?;
    let (sum, alike) = steps().filter(|s| *s <= 1.2 * shortest).fold((0.0, 0), |(sum, n), s| (sum + s, n + 1));
    let frame = if alike > 1 || shortest <= SHORT_STEP_S { sum / f64::from(alike) } else { 1.0 };
    Some(frame * frames as f64)
}

/// Whether perf printed this reason on RISC-V, where it names exits by their `scause`.
fn is_riscv(name: &str) -> bool {
    const NAMES: &[&str] = &["GUEST_PAGE_FAULT", "VIRTUAL_INST_FAULT", "SUPERVISOR_SYSCALL", "HYPERVISOR_SYSCALL"];
    NAMES.iter().any(|n| name.ends_with(n)) || name.starts_with("IRQ_")
}

/// A row's durations. The sum comes from the printed mean, or from the printed share of the total where that is more
/// exact (many short exits), within the range that the mean allows.
fn timing(row: &PrintedRow, handled: Option<f64>) -> Timing {
    /// Half of the last digit of a printed time, and of a printed percentage.
    const HALF_DIGIT_NS: f64 = 5.0;
    const HALF_DIGIT_SHARE: f64 = 0.000_05;
    let figure = |column| row.figures.get(&column).copied();
    let ns = |column| figure(column).map(|ns| ns as u64);
    let mut timing = Timing { count: row.count, min_ns: ns(Min), max_ns: ns(Max), ..Timing::default() };
    if row.count == 0 {
        return timing;
    }
    let n = row.count as f64;
    let by_mean = figure(Mean).map(|mean| mean * n);
    let by_share = figure(TimePercent).zip(handled).map(|(p, all)| p / 100.0 * all);
    let total = figure(Total).or(match (by_mean, by_share, handled) {
        (Some(mean), Some(share), Some(all)) if all * HALF_DIGIT_SHARE < n * HALF_DIGIT_NS => {
            // A little less than half a digit, so that the mean is printed as it was.
            let room = 0.99 * n * HALF_DIGIT_NS;
            Some(share.clamp((mean - room).max(0.0), mean + room))
        }
        (mean, share, _) => mean.or(share),
    });
    let Some(total) = total else { return timing };
    let total = total.round();
    timing.total_ns = Some(total as u64);
    // perf prints 100 * sqrt(variance / n) / mean (tools/perf/util/stat.c); that gives the sum of squares.
    let mean = total / n;
    let spread = figure(Error).or((row.count == 1).then_some(0.0)).map(|e| (e / 100.0 * mean).powi(2) * n * (n - 1.0));
    timing.sum_sq = spread.map(|s| (s + total * mean).round() as u128);
    timing
}

/// Subtracts a part from a sum.
fn subtract(sum: &mut Timing, part: &Timing) {
    sum.count = sum.count.saturating_sub(part.count);
    sum.total_ns = sum.total_ns.zip(part.total_ns).map(|(a, b)| a.saturating_sub(b));
    sum.sum_sq = sum.sum_sq.zip(part.sum_sq).map(|(a, b)| a.saturating_sub(b));
}

fn events(cells: impl IntoIterator<Item = (RowKey, Timing)>, isa: Isa) -> ThreadEvents {
    let mut events = ThreadEvents::default();
    for (key, time) in cells {
        match key {
            RowKey::Address(space, address, direction) => {
                let address = Some(address);
                events.accesses.push(AccessCell { space, address, direction, time, ..AccessCell::default() });
            }
            RowKey::Reason(name, printed) => {
                let (isa, code, name) = reason(isa, &name, printed);
                events.exits.push(ExitCell { isa, code, name, time, ..ExitCell::default() });
            }
        }
    }
    // A table can spell the same reason in two ways.
    let mut merged = ThreadEvents::default();
    merged.merge(events, MissingExtreme::Unknown);
    merged
}

/// Instruction set and code of a reason, and its printed name if no built-in table has it.
fn reason(isa: Isa, name: &str, printed: Option<u32>) -> (Isa, u32, Option<String>) {
    // perf prints "on VMX" on every x86 host whose processor it does not recognise as AMD.
    if let Some(code) = printed {
        return (if isa == Isa::Other(0) { Isa::Vmx } else { isa }, code, None);
    }
    match exit_reason::code(isa, name) {
        Some(code) => (isa, code, None),
        None => (Isa::Other(0), 0, Some(sanitize(name, 64))),
    }
}

#[cfg(test)]
mod tests;
