//! The table that `perf kvm stat report` prints, and those of `live`, of every perf version: with
//! and without the minimum, maximum and mean columns (tools/perf/builtin-kvm.c, `print_result`),
//! for vmexit, ioport, mmio and msr.

use super::files::Files;
use super::guest::{measured, vcpu_thread};
use kvm::exit_reason::{self, guess_isa};
use kvm::isa::Isa;
use kvm::pattern::{Captures, Pattern, group, number};
use kvm::{Space, clock_seconds, sanitize};
use sample::{AccessCell, Direction, ExitCell, MissingExtreme, ThreadEvents, Timing};
use std::collections::BTreeSet;

/// Lines of a text that are read. A guest has 65 536 ports, each in two directions.
const MAX_LINES: usize = 500_000;
/// Lines that perf prints before the table if events were lost.
const LOST: [&str; 3] = ["Warning:", "Processed ", "Check IO/CPU overload!"];
/// Longest name of a reason, in characters. perf's own names are shorter than 30.
const MAX_NAME: usize = 64;

/// What a line of a text is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum LineKind {
    /// Says which guests and vCPUs the tables below are of.
    Heading,
    /// The time of day above a table of `live`.
    Clock,
    /// Names the columns of a table, which begins here.
    Title,
    /// Ends a table.
    Total,
    Lost,
    /// The code of the reason in the next row, whose name perf does not know.
    ExitCode,
    Row,
}

/// How each kind of line looks.
static KINDS: [(LineKind, Pattern); 7] = [
    (
        LineKind::Heading,
        Pattern::new(concat!(
            r"^Analyze events for (?:.*pid\(s\) (?P<pid>[0-9]+), )?",
            r"(?:.*VCPU (?P<vcpu>[0-9]+):)?",
        )),
    ),
    (
        LineKind::Clock,
        Pattern::new(r"^(?P<clock>[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]+)$"),
    ),
    (
        LineKind::Title,
        Pattern::new(
            "^(?P<title>VM-EXIT|IO Port Access|MMIO Access|MSR Access) +Samples +Samples%",
        ),
    ),
    (
        LineKind::Total,
        Pattern::new("^Total Samples: *(?P<total>[0-9]+)"),
    ),
    (
        LineKind::Lost,
        Pattern::new("^Lost events: *(?P<lost>[0-9]+)"),
    ),
    (
        LineKind::ExitCode,
        Pattern::new("^unknown kvm exit code:(?P<code>[0-9]+)"),
    ),
    // C's `%#llx` prints no prefix before a port 0.
    (
        LineKind::Row,
        Pattern::new(concat!(
            r"^(?P<name>0(?:x[0-9a-f]+)?:[A-Z]+",
            r"|[A-Za-z][A-Za-z0-9_.-]*(?: [A-Za-z0-9_.-]+){0,2})",
            r" +(?P<count>[0-9]+) +(?:[0-9.]+|-?nan)%(?: +(?:[0-9.]+|-?nan)%)?",
            r"(?: +(?P<min>[0-9.]+)us +(?P<max>[0-9.]+)us)?(?: +(?P<mean>[0-9.]+)us)?",
            r"(?: *\( *\+- *(?P<error>[0-9.]+|-?nan)%)?",
        )),
    ),
];

/// The kind of a line and the groups of its pattern; `None` for any other line.
fn parse(line: &str) -> Option<(LineKind, Captures<'_>)> {
    KINDS
        .iter()
        .find_map(|(kind, pattern)| Some((*kind, pattern.captures(line.trim())?)))
}

/// One table.
#[derive(Debug, Default)]
struct PrintedTable {
    /// What its rows count: accesses of this space by address; `None`: exits by reason.
    space: Option<Space>,
    /// Time of day printed above it, seconds (`live`).
    clock: Option<f64>,
    rows: Vec<PrintedRow>,
    /// `Total Samples`.
    total: Option<u64>,
}

/// One row.
#[derive(Debug)]
enum PrintedRow {
    /// Accesses to a port, address or MSR.
    Access(AccessCell),
    /// Exits of a reason.
    Exits {
        /// The reason's printed name.
        name: String,
        /// Its code, if the line above states it.
        code: Option<u32>,
        time: Timing,
    },
}

/// The tables of a text.
#[derive(Debug, Default)]
struct PrintedTables {
    tables: Vec<PrintedTable>,
    /// The vCPU that they are restricted to.
    vcpu: Option<u32>,
    /// The process that they are restricted to.
    pid: Option<i32>,
    /// `Lost events`.
    lost: u64,
    /// The clock above the next table.
    next_clock: Option<f64>,
    /// The code that the line above states for the next row.
    next_code: Option<u32>,
}

/// Whether a text begins as a table of perf, or with the clock above one.
pub(crate) fn begins(text: &str) -> bool {
    let is_before =
        |line: &str| line.is_empty() || LOST.iter().any(|begin| line.starts_with(begin));
    let mut lines = text.lines().map(str::trim).filter(|line| !is_before(line));
    matches!(
        lines.next().and_then(parse),
        Some((LineKind::Heading | LineKind::Title | LineKind::Clock, _))
    )
}

/// Reads a text.
pub(crate) fn read(text: &str, files: &mut Files) {
    let mut printed = PrintedTables::default();
    for line in text.lines().take(MAX_LINES) {
        printed.read_line(line);
    }
    if text.lines().nth(MAX_LINES).is_some() {
        files.note("it has more lines than any perf prints; the last ones are left out");
    }
    let mut spaces = BTreeSet::new();
    let table_count = printed.tables.len();
    // The frames of `live` have clocks, and all of them count. Without a clock, a second table of
    // one kind would be of another measurement.
    printed
        .tables
        .retain(|table| table.clock.is_some() || spaces.insert(table.space));
    if printed.tables.len() < table_count {
        files.note("several tables of one kind are several measurements: the first is read");
    }
    let isa = guess_isa(
        printed
            .tables
            .iter()
            .flat_map(|table| &table.rows)
            .filter_map(PrintedRow::reason),
    );
    let mut events = ThreadEvents::default();
    for table in &printed.tables {
        events.merge(table.thread_events(isa), MissingExtreme::Unknown);
        let sum = table.sum();
        if let Some(total) = table.total
            && total != sum
        {
            files.note(&format!(
                "the table states {total} samples and its rows hold {sum}"
            ));
        }
    }
    let mut guest = measured(printed.pid);
    match printed.vcpu {
        Some(vcpu) => {
            guest.threads.push(vcpu_thread(vcpu));
            guest.threads[0].events = events;
        }
        None => guest.unattributed = events,
    }
    files.count_lost(printed.lost);
    files.has_tables = true;
    files.table_seconds = printed.seconds().or(files.table_seconds);
    files.measured.push(guest);
}

impl PrintedTables {
    fn read_line(&mut self, line: &str) {
        let Some((kind, groups)) = parse(line) else {
            return;
        };
        match kind {
            LineKind::Heading => {
                self.vcpu = self.vcpu.or(number(&groups, "vcpu"));
                self.pid = self.pid.or(number(&groups, "pid"));
            }
            LineKind::Clock => self.next_clock = clock_seconds(&groups["clock"]),
            LineKind::Title => {
                let space = match &groups["title"] {
                    "IO Port Access" => Some(Space::Pio),
                    "MMIO Access" => Some(Space::Mmio),
                    "MSR Access" => Some(Space::Msr),
                    _ => None,
                };
                self.tables.push(PrintedTable {
                    space,
                    clock: self.next_clock.take(),
                    ..PrintedTable::default()
                });
            }
            LineKind::Lost => {
                self.lost = self
                    .lost
                    .saturating_add(number(&groups, "lost").unwrap_or(0));
            }
            LineKind::ExitCode => self.next_code = number(&groups, "code"),
            LineKind::Total | LineKind::Row => {
                // A row below a total is of no table.
                let Some(table) = self.tables.last_mut().filter(|last| last.total.is_none()) else {
                    return;
                };
                if kind == LineKind::Total {
                    table.total = number(&groups, "total");
                } else {
                    // A code is of one row alone.
                    let code = self.next_code.take();
                    table.rows.extend(parse_row(&groups, table.space, code));
                }
            }
        }
    }

    /// The seconds that frames of `live` cover: each the mean time from one to the next, or the
    /// default of a second.
    fn seconds(&self) -> Option<f64> {
        let clocks: Vec<f64> = self.tables.iter().filter_map(|table| table.clock).collect();
        let steps: f64 = clocks
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).rem_euclid(86_400.0))
            .sum();
        match clocks.len() {
            0 => None,
            1 => Some(1.0),
            frames => Some(steps * frames as f64 / (frames - 1) as f64),
        }
    }
}

/// The row of a table of this space. `code` is the one of its exit reason, where perf states it.
fn parse_row(groups: &Captures<'_>, space: Option<Space>, code: Option<u32>) -> Option<PrintedRow> {
    let name = group(groups, "name")?;
    let count = number(groups, "count")?;
    let ns = |column| Some(finite(groups, column)? * 1e3);
    let mut time = Timing {
        count,
        min_ns: ns("min").map(|ns| ns as u64),
        max_ns: ns("max").map(|ns| ns as u64),
        ..Timing::default()
    };
    if let Some(mean) = ns("mean") {
        let n = count as f64;
        let total = mean * n;
        time.total_ns = Some(total.round() as u64);
        // perf prints 100 * sqrt(variance / n) / mean (tools/perf/util/stat.c); that gives the sum
        // of squares.
        time.sum_sq = finite(groups, "error").map(|error| {
            let spread = (error / 100.0 * mean).powi(2) * n * (n - 1.0);
            (spread + total * mean).round() as u128
        });
    }
    let Some(space) = space else {
        let name = sanitize(name, MAX_NAME);
        return Some(PrintedRow::Exits { name, code, time });
    };
    let (address, access) = name.split_once(':')?;
    let direction = match access {
        "PIN" | "R" => Direction::Read,
        "POUT" | "W" => Direction::Write,
        _ => return None,
    };
    let digits = address.strip_prefix("0x").unwrap_or(address);
    Some(PrintedRow::Access(AccessCell {
        space,
        address: Some(u64::from_str_radix(digits, 16).ok()?),
        direction,
        time,
        ..AccessCell::default()
    }))
}

/// The number in a column. C prints a share of no time at all as `-nan%`: it is none.
fn finite(groups: &Captures<'_>, column: &str) -> Option<f64> {
    number(groups, column).filter(|value: &f64| value.is_finite())
}

impl PrintedTable {
    /// The samples of its rows.
    fn sum(&self) -> u64 {
        self.rows
            .iter()
            .fold(0, |sum, row| sum.saturating_add(row.time().count))
    }

    fn thread_events(&self, isa: Isa) -> ThreadEvents {
        // On arm64 and RISC-V the times of exits are how long the guest ran before each
        // (tools/perf/util/kvm-stat-arch, `event_begin`), not how long the exit took: they are left
        // out.
        let has_times = matches!(isa, Isa::Vmx | Isa::Svm);
        let mut events = ThreadEvents::default();
        for row in &self.rows {
            match row {
                PrintedRow::Access(cell) => events.accesses.push(cell.clone()),
                PrintedRow::Exits { name, code, time } => {
                    let mut time = time.clone();
                    if !has_times {
                        time = Timing {
                            count: time.count,
                            ..Timing::default()
                        };
                    }
                    events.exits.push(exit_cell(isa, name, *code, time));
                }
            }
        }
        events
    }
}

impl PrintedRow {
    fn reason(&self) -> Option<&str> {
        match self {
            Self::Exits { name, .. } => Some(name),
            Self::Access(_) => None,
        }
    }

    fn time(&self) -> &Timing {
        match self {
            Self::Exits { time, .. } | Self::Access(AccessCell { time, .. }) => time,
        }
    }
}

/// The exits of a reason, with its printed name if no built-in table has it.
fn exit_cell(isa: Isa, name: &str, printed: Option<u32>, time: Timing) -> ExitCell {
    let mut exit = ExitCell {
        isa,
        time,
        ..ExitCell::default()
    };
    if let Some(code) = printed.or_else(|| exit_reason::code(isa, name)) {
        exit.code = code;
        // perf prints "on VMX" on every x86 host whose processor it does not recognise as AMD.
        if isa == Isa::UNKNOWN {
            exit.isa = Isa::Vmx;
        }
    } else {
        exit.isa = Isa::UNKNOWN;
        exit.name = Some(name.to_owned());
    }
    exit
}

#[cfg(test)]
mod tests;
