//! From printed tables to counters: what perf rounded is put back as well as the figures allow.

use super::{Key, Row, Scan, Table, TableKind};
use crate::kvm::exit_reason;
use crate::kvm::isa::Isa;
use crate::kvm::sanitize;
use crate::sample::{AccessCell, ExitCell, MissingExtreme, ThreadEvents, Timing};
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

/// Said once where perf's times are not those of the exits.
const GUEST_TIMES: &str = "on this architecture perf measures how long the guest ran before each exit, not how long the exit took: \
    the table's times are left out";

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
    let tables = &if scan.frame_s.is_none() { distinct(tables) } else { tables.to_vec() };
    let names = tables.iter().flat_map(|t| &t.rows).filter_map(|r| match &r.key {
        Key::Reason(name, _) => Some(name.as_str()),
        Key::Address(..) => None,
    });
    let isa = exit_reason::guess_isa(names);
    // There perf counts from the entry to the exit (tools/perf/util/kvm-stat-arch/kvm-stat-arm64.c and -riscv.c, `event_begin`).
    let guest_times = isa == Isa::Arm64 || tables.iter().flat_map(|t| &t.rows).any(riscv);
    if guest_times && tables.iter().flat_map(|t| &t.rows).any(|r| r.mean.is_some() || r.total.is_some()) {
        folded.notes.push(GUEST_TIMES.into());
    }
    let mut scopes: BTreeMap<Option<u32>, Cells> = BTreeMap::new();
    for table in tables {
        folded.lost = folded.lost.saturating_add(table.lost);
        let cells = scopes.entry(table.vcpu).or_default();
        for row in &table.rows {
            let time = if guest_times {
                Timing { count: row.count, ..Timing::default() }
            } else {
                timing(row, table.total.and_then(|t| t.1))
            };
            cells.entry((table.kind, row.key.clone())).or_default().merge(&time, MissingExtreme::Unknown);
        }
        if table.rows.is_empty() && table.total.is_none() {
            let why = "it is cut off, or its numbers are not written as perf writes them (12.5, not 12,5)";
            folded.notes.push(format!("a table without any row that can be read: {why}"));
        }
        let held = table.rows.iter().fold(0u64, |sum, r| sum.saturating_add(r.count));
        if let Some((stated, _)) = table.total.filter(|(stated, _)| *stated != held) {
            folded.notes.push(if held < stated {
                format!("the table's rows hold {held} of the {stated} samples that it states: rows are missing")
            } else {
                format!("the table's rows hold {held} samples, and it states {stated}: a row or the total is wrong")
            });
        }
    }
    folded.notes.dedup();
    folded.seconds = covered(scan, tables, &mut folded.notes);
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

/// Without the tables that repeat another: sorted by another column, or quoted by an answer. Frames of `live` have clocks.
fn distinct<'a>(tables: &[&'a Table]) -> Vec<&'a Table> {
    let mut kept: Vec<&Table> = Vec::with_capacity(tables.len());
    for &table in tables {
        let same = |other: &&Table| {
            let of = |t: &Table| (t.kind, t.vcpu, t.total.map(|t| t.0), t.rows.len());
            of(other) == of(table) && table.rows.iter().all(|r| other.rows.contains(r))
        };
        // Looking for repetitions among thousands of frames would take long, and there are none.
        let repeated = table.clock.is_none() && !table.rows.is_empty() && kept.iter().take(64).any(same);
        if !repeated {
            kept.push(table);
        }
    }
    kept
}

/// The seconds that the tables cover, by the clocks of `live` or by the command lines in the text.
fn covered(scan: &Scan, tables: &[&Table], notes: &mut Vec<String>) -> Option<f64> {
    let mut groups: BTreeMap<(TableKind, Option<u32>), Vec<&Table>> = BTreeMap::new();
    for t in tables.iter().filter(|t| !t.rows.is_empty()) {
        groups.entry((t.kind, t.vcpu)).or_default().push(t);
    }
    let largest = groups.into_values().max_by_key(Vec::len)?;
    let frames = largest.len();
    let clocks: Vec<f64> = largest.iter().filter_map(|t| t.clock).collect();
    let live = clocks.len() == frames || scan.frame_s.is_some();
    if frames > 1 {
        let why = if live {
            "as the frames of 'perf kvm stat live'"
        } else {
            "if they were measured before and after a change, put each into a file of its own and let 'kvmtop diff' compare them"
        };
        notes.push(format!("{frames} tables of the same kind were added up{}{why}", if live { ", " } else { "; " }));
    }
    let recorded = |t: &&Table| t.recorded_s.or(scan.recorded_s);
    if !live && let Some(first) = largest.iter().find_map(recorded) {
        // Each of several tables is of a recording of its own; a command line that is shown once stands for all.
        return Some(largest.iter().map(|t| recorded(t).unwrap_or(first)).sum());
    }
    let steps: f64 = clocks
        .windows(2)
        .map(|w| w.iter().rev().copied().reduce(|b, a| b - a).unwrap_or(0.0).rem_euclid(86_400.0))
        .sum();
    if frames > 1 && clocks.len() == frames && steps > 0.0 {
        return Some(steps * frames as f64 / (frames - 1) as f64);
    }
    if frames == 1 && live && scan.frame_s.is_none() && scan.recorded_s.is_none() {
        notes.push(
            "'perf kvm stat live' prints a frame a second unless asked otherwise: without --duration it is taken for one".into(),
        );
        return Some(1.0);
    }
    scan.frame_s.map(|s| s * frames as f64).or(scan.recorded_s)
}

/// Whether a row is one of perf's for RISC-V, which names its exits by their `scause`.
fn riscv(row: &Row) -> bool {
    const NAMES: &[&str] = &["GUEST_PAGE_FAULT", "VIRTUAL_INST_FAULT", "SUPERVISOR_SYSCALL", "HYPERVISOR_SYSCALL"];
    matches!(&row.key, Key::Reason(name, _) if NAMES.iter().any(|n| name.ends_with(n)) || name.starts_with("IRQ_"))
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
        _ if row.total.is_some() => row.total.unwrap_or_default(),
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
                    Some(cell) => cell.time.merge(&time, MissingExtreme::Unknown),
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
