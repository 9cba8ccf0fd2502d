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

/// A line of a table. C's `%#llx` prints no prefix before a port 0.
static LINE: Pattern = Pattern::new(concat!(
    r"^(?:(?P<heading>Analyze events for )(?:.*pid\(s\) (?P<pid>[0-9]+), )?",
    r"(?:.*VCPU (?P<vcpu>[0-9]+):)?",
    r"|(?P<clock>[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]+)$",
    r"|(?P<title>VM-EXIT|IO Port Access|MMIO Access|MSR Access) +Samples +Samples%",
    r"|Total Samples: *(?P<total>[0-9]+)",
    r"|Lost events: *(?P<lost>[0-9]+)|unknown kvm exit code:(?P<code>[0-9]+)",
    r"|(?P<name>0(?:x[0-9a-f]+)?:[A-Z]+|[A-Za-z][A-Za-z0-9_.-]*(?: [A-Za-z0-9_.-]+){0,2})",
    r" +(?P<count>[0-9]+) +(?:[0-9.]+|-?nan)%(?: +(?:[0-9.]+|-?nan)%)?",
    r"(?: +(?P<min>[0-9.]+)us +(?P<max>[0-9.]+)us)?(?: +(?P<mean>[0-9.]+)us)?",
    r"(?: *\( *\+- *(?P<error>[0-9.]+|-?nan)%)?)",
));

/// One table.
#[derive(Debug, Default, PartialEq)]
struct PrintedTable {
    /// What its rows count: accesses of this space by address; `None`: exits by reason.
    space: Option<Space>,
    /// Time of day printed above it, seconds (`live`).
    clock: Option<f64>,
    rows: Vec<PrintedRow>,
    /// `Total Samples`.
    total: Option<u64>,
}

/// What a row counts.
#[derive(Debug, Clone, PartialEq)]
enum RowKey {
    /// A reason by its printed name, and its code if the line above states it.
    Reason(String, Option<u32>),
    /// A port, address or MSR.
    Address(Space, u64, Direction),
}

/// One row.
#[derive(Debug, PartialEq)]
struct PrintedRow {
    key: RowKey,
    time: Timing,
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
    clock: Option<f64>,
    /// The code that the line above states for the next row.
    code: Option<u32>,
}

/// Whether a text begins as such a table, or with the clock above one.
pub(crate) fn begins(text: &str) -> bool {
    let is_before =
        |line: &str| line.is_empty() || LOST.iter().any(|begin| line.starts_with(begin));
    let mut lines = text.lines().map(str::trim).filter(|line| !is_before(line));
    let Some(first) = lines.next().and_then(|line| LINE.captures(line)) else {
        return false;
    };
    ["heading", "title", "clock"]
        .iter()
        .any(|part| first.name(part).is_some())
}

/// Reads a text.
pub(crate) fn read(text: &str, files: &mut Files) {
    let mut printed = PrintedTables::default();
    for line in text.lines().take(MAX_LINES) {
        if let Some(line) = LINE.captures(line.trim()) {
            printed.read_line(&line);
        }
    }
    if text.lines().nth(MAX_LINES).is_some() {
        files.note("it has more lines than any perf prints; the last ones are left out");
    }
    let mut kinds = BTreeSet::new();
    let all = printed.tables.len();
    // The frames of `live` have clocks. A second table of one kind would be of another measurement.
    printed
        .tables
        .retain(|table| table.clock.is_some() || kinds.insert(table.space));
    if printed.tables.len() < all {
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
        events.merge(table.events(isa), MissingExtreme::Unknown);
        let sum = table.sum();
        if let Some(total) = table.total.filter(|total| *total != sum) {
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
    files.count_events(0, printed.lost, 0);
    files.has_tables = true;
    files.table_seconds = printed.seconds().or(files.table_seconds);
    files.measured.push(guest);
}

impl PrintedTables {
    fn read_line(&mut self, line: &Captures<'_>) {
        if line.name("heading").is_some() {
            self.vcpu = self.vcpu.or(number(line, "vcpu"));
            self.pid = self.pid.or(number(line, "pid"));
        } else if let Some(clock) = group(line, "clock") {
            self.clock = clock_seconds(clock);
        } else if let Some(title) = group(line, "title") {
            let space = match title {
                "IO Port Access" => Some(Space::Pio),
                "MMIO Access" => Some(Space::Mmio),
                "MSR Access" => Some(Space::Msr),
                _ => None,
            };
            self.tables.push(PrintedTable {
                space,
                clock: self.clock.take(),
                ..PrintedTable::default()
            });
        } else if let Some(lost) = number(line, "lost") {
            self.lost = self.lost.saturating_add(lost);
        } else if let Some(code) = number(line, "code") {
            self.code = Some(code);
        } else if let Some(table) = self.tables.last_mut()
            && table.total.is_none()
        {
            if let Some(total) = number(line, "total") {
                table.total = Some(total);
            } else if let Some(row) = row(line, table.space, self.code.take()) {
                table.rows.push(row);
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

/// The row of a table of this space. `code` is that of its reason.
fn row(line: &Captures<'_>, space: Option<Space>, code: Option<u32>) -> Option<PrintedRow> {
    let name = group(line, "name")?;
    let key = match space {
        Some(space) => {
            let (address, access) = name.split_once(':')?;
            let direction = match access {
                "PIN" | "R" => Direction::Read,
                "POUT" | "W" => Direction::Write,
                _ => return None,
            };
            let digits = address.strip_prefix("0x").unwrap_or(address);
            RowKey::Address(space, u64::from_str_radix(digits, 16).ok()?, direction)
        }
        None => RowKey::Reason(sanitize(name, MAX_NAME), code),
    };
    let count = number(line, "count")?;
    let mut time = Timing {
        count,
        min_ns: figure(line, "min").map(|us| (us * 1e3) as u64),
        max_ns: figure(line, "max").map(|us| (us * 1e3) as u64),
        ..Timing::default()
    };
    if let Some(mean) = figure(line, "mean").map(|us| us * 1e3) {
        let n = count as f64;
        let total = mean * n;
        time.total_ns = Some(total.round() as u64);
        // perf prints 100 * sqrt(variance / n) / mean (tools/perf/util/stat.c); that gives the sum
        // of squares.
        time.sum_sq = figure(line, "error").map(|error| {
            let spread = (error / 100.0 * mean).powi(2) * n * (n - 1.0);
            (spread + total * mean).round() as u128
        });
    }
    Some(PrintedRow { key, time })
}

/// The figure in a column; a share of no time at all is C's `-nan%`.
fn figure(line: &Captures<'_>, column: &str) -> Option<f64> {
    number(line, column).filter(|figure: &f64| figure.is_finite())
}

impl PrintedTable {
    /// The samples of its rows.
    fn sum(&self) -> u64 {
        self.rows
            .iter()
            .fold(0, |sum, row| sum.saturating_add(row.time.count))
    }

    fn events(&self, isa: Isa) -> ThreadEvents {
        // Elsewhere perf measures how long the guest ran before each exit
        // (tools/perf/util/kvm-stat-arch, `event_begin` of arm64 and RISC-V).
        let has_times = self.space.is_some() || matches!(isa, Isa::Vmx | Isa::Svm);
        let mut events = ThreadEvents::default();
        for row in &self.rows {
            let mut time = row.time.clone();
            if !has_times {
                time = Timing {
                    count: time.count,
                    ..Timing::default()
                };
            }
            match &row.key {
                RowKey::Address(space, address, direction) => {
                    events.accesses.push(AccessCell {
                        space: *space,
                        address: Some(*address),
                        direction: *direction,
                        time,
                        ..AccessCell::default()
                    });
                }
                RowKey::Reason(name, printed) => events.exits.push(exit(isa, name, *printed, time)),
            }
        }
        events
    }
}

impl PrintedRow {
    fn reason(&self) -> Option<&str> {
        match &self.key {
            RowKey::Reason(name, _) => Some(name),
            RowKey::Address(..) => None,
        }
    }
}

/// The exits of a reason, with its printed name if no built-in table has it.
fn exit(isa: Isa, name: &str, printed: Option<u32>, time: Timing) -> ExitCell {
    let (isa, code, name) = match printed.or_else(|| exit_reason::code(isa, name)) {
        // perf prints "on VMX" on every x86 host whose processor it does not recognise as AMD.
        Some(code) => (
            if isa == Isa::Other(0) { Isa::Vmx } else { isa },
            code,
            None,
        ),
        None => (Isa::Other(0), 0, Some(name.to_owned())),
    };
    ExitCell {
        isa,
        code,
        name,
        time,
        ..ExitCell::default()
    }
}

#[cfg(test)]
mod tests;
