//! Finds the tables in a text: headings, titles, rows and totals, each in a line.

use kvm::exit_reason::guess_isa;
use kvm::isa::Isa;
use kvm::pattern::{Captures, Pattern, group, number};
use kvm::{Space, msr, sanitize};
use sample::Direction;
use std::collections::BTreeMap;

/// Limit of rows in a text. A guest has 65 536 ports, each in two directions.
const MAX_ROWS: usize = 200_000;
/// Limit of tables: an hour of `live`, with a table for each vCPU of a small guest.
const MAX_TABLES: usize = 20_000;
/// Longest line in characters.
const MAX_LINE: usize = 4096;
/// Longest name of a reason, in characters. perf's own names are shorter than 30.
const MAX_NAME: usize = 64;
/// Limit of the values of a row.
const MAX_VALUES: usize = 24;

/// One table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PrintedTable {
    /// What its rows count: accesses of this space by address; `None`: exits by reason.
    pub space: Option<Space>,
    /// The columns after `Samples`.
    pub columns: Vec<PrintedColumn>,
    /// The vCPU it is restricted to.
    pub vcpu: Option<u32>,
    /// The processes it is restricted to, as its heading prints them.
    pub pids: Option<String>,
    /// Time of day printed above it, seconds (`live`).
    pub clock: Option<f64>,
    /// Its rows.
    pub rows: Vec<PrintedRow>,
    /// `Total Samples` and `Total events handled time` (nanoseconds).
    pub total: Option<(u64, Option<f64>)>,
    /// `Lost events`.
    pub lost: u64,
}

/// What a row counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowKey {
    /// A reason by its printed name, and its code if a line above states it (`unknown kvm exit code:N on VMX`).
    Reason(String, Option<u32>),
    /// A port, address or MSR.
    Address(Space, u64, Direction),
}

/// One row. Times are nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PrintedRow {
    /// What it counts.
    pub key: RowKey,
    /// `Samples`.
    pub count: u64,
    /// The figures of its columns.
    pub figures: BTreeMap<PrintedColumn, f64>,
}

/// A column after `Samples`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PrintedColumn {
    SamplesPercent,
    TimePercent,
    /// `Time (ns)`: sum of the row's durations.
    Total,
    Min,
    Max,
    Mean,
    /// The number after `+-`: relative standard error of the mean, percent.
    Error,
}

/// A line of a table, without parentheses. C's `%#llx` prints no prefix before a port 0. Times of perf's terminal
/// browser (6.4 and newer) have no units.
static LINE: Pattern = Pattern::new(concat!(
    r"^Analyze events for(?P<heading>(?:.*pid s +(?P<pids>[0-9](?:[0-9,]{0,62}[0-9])?))?",
    r"(?:.*VCPU +(?P<vcpu>[0-9]+))?)|",
    r"^(?P<clock>[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]+)$|",
    r"^(?P<title>(?i-u:vm-?exit|kvm-exit|hcall-event|event name|(?:io ?port|mmio|msr) access)) +Samples",
    r"(?P<columns>(?: +(?i-u:samples?%|time%|(?:(?:min|max|avg|mean) +)?time(?: *ns)?))*)|",
    r"^Total Samples: *(?P<total>[0-9]+)(?:, *Total +events +handled +time: *(?P<handled>[0-9.]+us))?|",
    r"Lost events: *(?P<lost>[0-9]+)|unknown kvm exit code:(?P<code>[0-9]+)|",
    r"^(?P<name>0(?:[xX][0-9a-fA-F]+)?:[A-Z]+|[A-Za-z][A-Za-z0-9_.-]*(?: +[A-Za-z0-9_.-]+){0,2}) +(?P<count>[0-9]+) +",
    r"(?P<values>(?:[0-9]+(?:\.[0-9]+)?%|-?nan%?)(?: +|$)",
    r"(?:(?:\+-? *)?(?:[0-9]+(?:\.[0-9]+)?|-?nan)(?:%|us|ns|ms|s)?(?: +|$))*)",
));
/// A value of a row, with the sign before an error.
static VALUE: Pattern = Pattern::new(r"(?P<sign>\+- *)?(?P<number>[0-9.]+|-?nan)(?P<unit>%|us|ns|ms|s)?");
static COLUMN: Pattern = Pattern::new(r"(?i-u)samples?%|time%|(?:min|max|avg|mean) +time|time *ns");

impl PrintedTable {
    /// The samples of its rows.
    pub fn samples(&self) -> u64 {
        self.rows.iter().fold(0, |sum, row| sum.saturating_add(row.count))
    }
}

/// Lines that may come before the first table: comments, perf's warning about lost events, and the heading of its
/// terminal browser.
const PREAMBLE: [&str; 5] = ["# ", "Warning:", "Processed ", "Check IO/CPU overload!", "KVM event statistics"];

/// Whether a text begins as such a table, or with the clock above one.
pub(crate) fn begins(text: &str) -> bool {
    let is_before = |line: &str| line.is_empty() || PREAMBLE.iter().any(|begin| line.starts_with(begin));
    let mut lines = text.lines().map(str::trim).filter(|line| !is_before(line)).map(plain);
    let is_one_of = |line: &str, groups: &[&str]| {
        LINE.captures(line).is_some_and(|found| groups.iter().any(|group| found.name(group).is_some()))
    };
    let Some(first) = lines.next() else { return false };
    is_one_of(&first, &["heading", "title"])
        || is_one_of(&first, &["clock"]) && lines.next().is_some_and(|line| is_one_of(&line, &["heading", "title"]))
}

/// A line without the parentheses of `pid(s)` and `( +- 0.28% )`, and without the marks of a comment.
fn plain(line: &str) -> String {
    sanitize(line, MAX_LINE).replace(['(', ')'], " ").trim_start_matches([' ', '#']).trim_end().to_owned()
}

/// Finds the tables of a text. Also returns whether rows or tables beyond the limits were left out.
pub(crate) fn find_tables(text: &str) -> (Vec<PrintedTable>, bool) {
    let mut reader = TableReader::default();
    for line in text.lines().map(plain) {
        if let Some(found) = LINE.captures(&line) {
            reader.line(&found);
        }
    }
    reader.end_table();
    (reader.tables, reader.cut)
}

#[derive(Debug, Default)]
struct TableReader {
    tables: Vec<PrintedTable>,
    cut: bool,
    /// Rows in all tables.
    rows: usize,
    /// What the lines above the next table say of it.
    next: PrintedTable,
    /// The current table.
    table: Option<PrintedTable>,
    /// The code that a line above stated for the next row.
    code: Option<u32>,
}

impl TableReader {
    fn line(&mut self, part: &Captures<'_>) {
        if part.name("heading").is_some() {
            self.end_table();
            (self.next.pids, self.next.vcpu) = (group(part, "pids").map(str::to_owned), number(part, "vcpu"));
        } else if let Some(clock) = group(part, "clock") {
            self.end_table();
            self.next.clock = kvm::clock_seconds(clock);
        } else if let Some(title) = group(part, "title") {
            let space = match title.to_ascii_lowercase().get(..2) {
                Some("io") => Some(Space::Pio),
                Some("mm") => Some(Space::Mmio),
                Some("ms") => Some(Space::Msr),
                _ => None,
            };
            let titles = group(part, "columns").unwrap_or_default();
            let columns = COLUMN.regex().into_iter().flat_map(|column| column.find_iter(titles));
            self.begin_table(space, columns.map(|title| PrintedColumn::of_title(title.as_str())).collect());
        } else if let (Some(total), Some(table)) = (number(part, "total"), &mut self.table) {
            table.total = Some((total, group(part, "handled").and_then(time)));
        } else if let Some(lost) = number(part, "lost") {
            if let Some(table) = self.table.as_mut().or(self.tables.last_mut()) {
                table.lost = table.lost.saturating_add(lost);
            }
        } else if let Some(code) = number(part, "code") {
            self.code = Some(code);
        } else if let (Some(name), Some(count), Some(values)) =
            (group(part, "name"), number(part, "count"), group(part, "values"))
        {
            self.row(name, count, values);
        }
    }

    fn row(&mut self, name: &str, count: u64, values: &str) {
        let code = self.code.take().filter(|_| name == "UNKNOWN");
        if self.table.as_ref().is_none_or(|table| table.total.is_some()) {
            // A row without titles above it: with a known name and a time it can be nothing else.
            let is_known = space_of(name).is_some() || guess_isa([name]) != Isa::Other(0);
            if !is_known || !values.contains('s') {
                return;
            }
            self.begin_table(None, Vec::new());
        }
        let Some(table) = &mut self.table else { return };
        // perf's terminal browser has the same title for all kinds of rows.
        if table.rows.is_empty() {
            table.space = table.space.or_else(|| space_of(name));
        }
        let key = match table.space {
            Some(space) => address(name).map(|(address, direction, _)| RowKey::Address(space, address, direction)),
            None => Some(RowKey::Reason(sanitize(name, MAX_NAME), code)),
        };
        let Some(key) = key else { return };
        self.rows += 1;
        if self.rows <= MAX_ROWS {
            let figures = figures(&table.columns, values);
            table.rows.push(PrintedRow { key, count, figures });
        } else {
            self.cut = true;
        }
    }

    fn begin_table(&mut self, space: Option<Space>, columns: Vec<PrintedColumn>) {
        self.end_table();
        self.table = Some(PrintedTable { space, columns, ..self.next.clone() });
        self.next.clock = None;
    }

    fn end_table(&mut self) {
        self.code = None;
        if let Some(table) = self.table.take() {
            if self.tables.len() < MAX_TABLES { self.tables.push(table) } else { self.cut = true }
        }
    }
}

impl PrintedColumn {
    fn of_title(title: &str) -> Self {
        let title = title.to_ascii_lowercase();
        match title.get(..3) {
            Some("sam") => Self::SamplesPercent,
            Some("min") => Self::Min,
            Some("max") => Self::Max,
            Some("avg" | "mea") => Self::Mean,
            _ if title.ends_with('%') => Self::TimePercent,
            _ => Self::Total,
        }
    }
}

/// Assigns a row's values by their form, in the order of the titles.
fn figures(columns: &[PrintedColumn], values: &str) -> BTreeMap<PrintedColumn, f64> {
    use PrintedColumn::{Error, Max, Mean, Min, SamplesPercent, TimePercent};
    let mut figures = BTreeMap::new();
    let (mut shares, mut times) = (Vec::new(), Vec::new());
    for value in VALUE.captures_iter(values).take(MAX_VALUES) {
        // A share of no time at all is C's `-nan%`.
        let number = number(&value, "number").filter(|number: &f64| number.is_finite());
        match group(&value, "unit") {
            _ if value.name("sign").is_some() => figures.extend(number.map(|error| (Error, error))),
            Some("%") => shares.push(number.filter(|share| *share <= 1e6)),
            _ => times.extend(time(&value[0])),
        }
    }
    let (mut of_shares, of_times): (Vec<PrintedColumn>, Vec<PrintedColumn>) =
        columns.iter().partition(|column| matches!(column, SamplesPercent | TimePercent));
    if of_shares.len() < shares.len() {
        of_shares = vec![SamplesPercent, TimePercent];
    }
    let of_times: &[PrintedColumn] = match (times.len(), of_times.as_slice()) {
        // A narrow terminal cuts off the last columns.
        (n, all) if n == all.len() => all,
        (3, _) => &[Min, Max, Mean],
        (1, all) if figures.contains_key(&Error) || all == [Mean] => &[Mean],
        // A row that was cut off: the position of the remaining values identifies them.
        (_, [_, _, _]) => &[Min, Max],
        _ => &[],
    };
    figures.extend(of_shares.into_iter().zip(shares).filter_map(|(column, share)| Some((column, share?))));
    figures.extend(of_times.iter().copied().zip(times));
    figures
}

/// `12.34us` and the like, in nanoseconds, which have no unit in perf's terminal browser.
fn time(text: &str) -> Option<f64> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
    let factor = match unit {
        "us" => 1e3,
        "" | "ns" => 1.0,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    digits.parse().ok().map(|number: f64| number * factor).filter(|ns| *ns < 1e19)
}

/// `0x608:PIN`, `0xfee00300:W`: the address, the direction, and the space where the word implies it.
fn address(word: &str) -> Option<(u64, Direction, Option<Space>)> {
    let (digits, access) = word.split_once(':')?;
    let hex = digits.get(2..).filter(|hex| !hex.is_empty()).unwrap_or(digits);
    let (direction, space) = match access {
        "PIN" => (Direction::Read, Some(Space::Pio)),
        "POUT" => (Direction::Write, Some(Space::Pio)),
        "R" => (Direction::Read, None),
        "W" => (Direction::Write, None),
        _ => return None,
    };
    Some((u64::from_str_radix(hex, 16).ok()?, direction, space))
}

/// The space that an address word belongs to. Memory and MSRs look the same: there it counts whether the number is a
/// known MSR.
fn space_of(word: &str) -> Option<Space> {
    let (address, _, space) = address(word)?;
    let is_msr = || u32::try_from(address).ok().and_then(msr::name).is_some();
    Some(space.unwrap_or_else(|| if is_msr() { Space::Msr } else { Space::Mmio }))
}
