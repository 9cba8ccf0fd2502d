//! From printed tables to counters: what perf rounded is put back as well as the figures allow.

use super::{Key, Row, Scan, Table, TableKind};
use crate::kvm::exit_reason;
use crate::kvm::isa::Isa;
use crate::kvm::sanitize;
use crate::sample::{AccessCell, ExitCell, ThreadEvents, Timing};
use crate::source::import::merge;
use std::collections::{BTreeMap, BTreeSet};

/// What the tables of one guest say.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::source::import) struct Folded {
    /// The sums over all vCPUs, less what the tables of single vCPUs hold.
    pub all: ThreadEvents,
    /// The tables of single vCPUs.
    pub vcpus: BTreeMap<u32, ThreadEvents>,
    /// Seconds that the text itself states, by its clock or its command lines.
    pub seconds: Option<f64>,
    /// Events that perf said it lost.
    pub lost: u64,
    /// What is worth saying: rows that are missing, frames that were added up.
    pub notes: Vec<String>,
}

type Cells = BTreeMap<(TableKind, Key), Timing>;

/// Adds up the tables of one text, by the processes that they are restricted to (`None`: not restricted).
pub(in crate::source::import) fn fold(scan: &Scan) -> BTreeMap<Option<String>, Folded> {
    let mut guests: BTreeMap<Option<String>, Vec<&Table>> = BTreeMap::new();
    for table in &scan.tables {
        guests.entry(table.pids.clone()).or_default().push(table);
    }
    guests.into_iter().map(|(pids, tables)| (pids, fold_guest(scan, &tables))).collect()
}

fn fold_guest(scan: &Scan, tables: &[&Table]) -> Folded {
    let mut folded = Folded::default();
    let names = tables.iter().flat_map(|t| &t.rows).filter_map(|r| match &r.key {
        Key::Reason(name, _) => Some(name.as_str()),
        Key::Address(..) => None,
    });
    let isa = exit_reason::guess_isa(names);
    let mut scopes: BTreeMap<Option<u32>, Cells> = BTreeMap::new();
    for table in tables {
        folded.lost = folded.lost.saturating_add(table.lost);
        let cells = scopes.entry(table.vcpu).or_default();
        for row in &table.rows {
            merge::timing(
                cells.entry((table.kind, row.key.clone())).or_default(),
                &timing(row, table.total.and_then(|t| t.1)),
            );
        }
        let held = table.rows.iter().fold(0u64, |sum, r| sum.saturating_add(r.count));
        if let Some((stated, _)) = table.total.filter(|(stated, _)| *stated != held) {
            folded
                .notes
                .push(format!("the table's rows hold {held} of the {stated} samples that it states: rows are missing"));
        }
    }
    folded.notes.dedup();
    folded.seconds = scan.recorded_s.or_else(|| frames(scan, tables, &mut folded.notes));
    // A text may hold the sum and its parts; the parts are not counted twice.
    let kinds_of_sum: BTreeSet<TableKind> = tables.iter().filter(|t| t.vcpu.is_none()).map(|t| t.kind).collect();
    let mut all = scopes.remove(&None).unwrap_or_default();
    for (key, part) in scopes.values().flatten().filter(|((kind, _), _)| kinds_of_sum.contains(kind)) {
        if let Some(sum) = all.get_mut(key) {
            subtract(sum, part);
        }
    }
    all.retain(|_, timing| timing.count > 0);
    folded.all = events(all, isa);
    folded.vcpus = scopes.into_iter().filter_map(|(vcpu, cells)| Some((vcpu?, events(cells, isa)))).collect();
    folded
}

/// The time that repeated tables of `live` cover.
fn frames(scan: &Scan, tables: &[&Table], notes: &mut Vec<String>) -> Option<f64> {
    let mut counts: BTreeMap<(TableKind, Option<u32>), Vec<Option<f64>>> = BTreeMap::new();
    for t in tables {
        counts.entry((t.kind, t.vcpu)).or_default().push(t.clock);
    }
    let clocks = counts.into_values().max_by_key(Vec::len)?;
    let frames = clocks.len();
    let times: Vec<f64> = clocks.into_iter().flatten().collect();
    let steps: f64 = times
        .windows(2)
        .map(|w| w.iter().rev().copied().reduce(|b, a| b - a).unwrap_or(0.0).rem_euclid(86_400.0))
        .sum();
    if frames > 1 {
        notes.push(format!("{frames} tables of the same kind were added up, as the frames of 'perf kvm stat live'"));
    }
    if frames > 1 && times.len() == frames && steps > 0.0 {
        return Some(steps * frames as f64 / (frames - 1) as f64);
    }
    scan.frame_s.map(|s| s * frames as f64)
}

/// A row's durations. Where the printed share of the printed total tells its time closer than the printed mean does (many short
/// exits), that is taken, within what the mean allows.
fn timing(row: &Row, handled: Option<f64>) -> Timing {
    /// Half of the last digit of a printed time, and of a printed percentage.
    const HALF_DIGIT_NS: f64 = 5.0;
    const HALF_DIGIT_SHARE: f64 = 0.000_05;
    let mut timing = Timing { count: row.count, ..Timing::default() };
    timing.min_ns = row.min.map(|ns| ns as u64);
    timing.max_ns = row.max.map(|ns| ns as u64);
    if row.count == 0 {
        return timing;
    }
    let n = row.count as f64;
    let by_mean = row.mean.map(|mean| mean * n);
    let by_share = row.time_percent.zip(handled).map(|(p, all)| p / 100.0 * all);
    let total = match (by_mean, by_share, handled) {
        (Some(mean), Some(share), Some(all)) if all * HALF_DIGIT_SHARE < n * HALF_DIGIT_NS => {
            // A little less, so that the mean is printed as it was.
            let room = 0.99 * n * HALF_DIGIT_NS;
            share.clamp((mean - room).max(0.0), mean + room)
        }
        (Some(mean), ..) => mean,
        (None, share, _) => match share {
            Some(share) => share,
            None => return timing,
        },
    };
    let total = total.round();
    timing.total_ns = Some(total as u64);
    // perf prints 100 * sqrt(variance / n) / mean (tools/perf/util/stat.c); the sum of squares is put back from that.
    let mean = total / n;
    let spread = row.error.or((row.count == 1).then_some(0.0)).map(|e| (e / 100.0 * mean).powi(2) * n * (n - 1.0));
    timing.sum_sq = spread.map(|s| (s + total * mean).round() as u128);
    timing
}

/// Takes a part off a sum.
fn subtract(sum: &mut Timing, part: &Timing) {
    sum.count = sum.count.saturating_sub(part.count);
    sum.total_ns = sum.total_ns.zip(part.total_ns).map(|(a, b)| a.saturating_sub(b));
    sum.sum_sq = sum.sum_sq.zip(part.sum_sq).map(|(a, b)| a.saturating_sub(b));
}

fn events(cells: Cells, isa: Isa) -> ThreadEvents {
    let mut events = ThreadEvents::default();
    for ((kind, key), time) in cells {
        match (kind, key) {
            (TableKind::Accesses(space), Key::Address(address, direction)) => {
                events.accesses.push(AccessCell {
                    space,
                    address: Some(address),
                    direction,
                    time,
                    ..AccessCell::default()
                });
            }
            (_, Key::Reason(name, printed)) => {
                let (isa, code, name) = reason(isa, &name, printed);
                match events.exits.iter_mut().find(|c| (c.isa, c.code) == (isa, code) && c.name == name) {
                    // Two spellings of one reason.
                    Some(cell) => merge::timing(&mut cell.time, &time),
                    None => events.exits.push(ExitCell {
                        isa,
                        code,
                        name,
                        time,
                        userspace_ns: None,
                        halted_ns: None,
                        preempted_ns: None,
                    }),
                }
            }
            (TableKind::Exits, Key::Address(..)) => {}
        }
    }
    events
}

/// Instruction set, code and, where no table has it, the printed name of a reason.
fn reason(isa: Isa, name: &str, printed: Option<u32>) -> (Isa, u32, Option<String>) {
    // perf says "on VMX" of every x86 host whose processor it does not take for an AMD one.
    if let Some(code) = printed {
        return (if isa == Isa::Other(0) { Isa::Vmx } else { isa }, code, None);
    }
    match exit_reason::code(isa, name) {
        Some(code) => (isa, code, None),
        None => (Isa::Other(0), 0, Some(sanitize(name, 64))),
    }
}
