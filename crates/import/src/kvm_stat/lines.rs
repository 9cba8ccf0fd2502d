//! Tables as printed: the lines around the rows (headings, column titles, totals), and the words of one row (a count,
//! percentages, times, addresses).

use kvm::{Space, msr};
use sample::Direction;
use std::collections::BTreeMap;

/// Longest name of a reason, in characters. perf's own names are shorter than 30.
const MAX_NAME: usize = 64;

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

/// The words of a line without brackets and table rules: `( +- 0.5% )` becomes `+-`, `0.5%`.
pub(super) fn words(line: &str) -> Vec<String> {
    let plain = line.replace(['(', ')', '|', '[', ']', '`', '*'], " ").replace("+-", " +- ").replace("+/-", " +- ");
    let mut words: Vec<String> = plain.split_whitespace().map(str::to_owned).collect();
    let marks = |w: &String| *w != "+-" && w.chars().all(|c| LEADING_MARKS.contains(&c));
    let leading = words.iter().take_while(|w| marks(w)).count();
    words.split_off(leading)
}

/// The space that an address word belongs to. Memory and MSRs look the same: there it counts whether the number is a
/// known MSR.
pub(super) fn space_of(word: &str) -> Option<Space> {
    let (address, _, space) = address(word)?;
    let is_msr = || u32::try_from(address).ok().and_then(msr::name).is_some();
    Some(space.unwrap_or_else(|| if is_msr() { Space::Msr } else { Space::Mmio }))
}

/// Splits words into a row's name and the rest, which starts with the count.
pub(super) fn split(words: &[String]) -> Option<(&[String], &[String])> {
    let at = words.iter().position(|w| count(w).is_some())?;
    (1..=3).contains(&at).then(|| words.split_at(at))
}

/// Parses a complete row. Values are recognised by their form and assigned in the order of the titles.
pub(super) fn parse(
    space: Option<Space>,
    columns: &[PrintedColumn],
    words: &[String],
    code: Option<u32>,
) -> Option<PrintedRow> {
    use PrintedColumn::{Bare, Error, Max, Mean, Min, SamplesPercent, TimePercent};
    let (name, values) = split(words)?;
    let (number, values) = values.split_first()?;
    let key = if let Some(space) = space {
        let (address, direction, _) = address(&name.concat())?;
        RowKey::Address(space, address, direction)
    } else {
        let name = name.join(" ");
        let plain = name.chars().count() <= MAX_NAME && name.starts_with(|c: char| c.is_alphanumeric());
        plain.then(|| RowKey::Reason(name.clone(), code.filter(|_| name == "UNKNOWN")))?
    };
    let bare = columns.contains(&Bare);
    let mut row = PrintedRow { key, count: count(number)?, figures: BTreeMap::new() };
    let (mut percents, mut times) = (Vec::new(), Vec::new());
    let mut after_sign = false;
    for word in values {
        match value(word, bare)? {
            Value::Percent(error) if after_sign => row.figures.extend(error.map(|error| (Error, error))),
            Value::Percent(share) => percents.push(share),
            Value::Time(ns) => times.push(ns),
            Value::Sign => {}
        }
        after_sign = word == "+-";
    }
    if percents.is_empty() && times.is_empty() {
        return None;
    }
    let (mut of_percents, of_times): (Vec<PrintedColumn>, Vec<PrintedColumn>) =
        columns.iter().filter(|c| **c != Bare).partition(|c| matches!(c, SamplesPercent | TimePercent));
    if of_percents.len() < percents.len() {
        of_percents = vec![SamplesPercent, TimePercent];
    }
    let of_times: &[PrintedColumn] = match (times.len(), of_times.as_slice()) {
        // A narrow terminal cuts off the last columns.
        (n, all) if n == all.len() || bare => all,
        (3, _) => &[Min, Max, Mean],
        (1, all) if row.figures.contains_key(&Error) || all == [Mean] => &[Mean],
        // A row that was cut off: the position of the remaining values identifies them.
        (_, [_, _, _]) => &[Min, Max],
        _ => &[],
    };
    row.figures.extend(of_percents.into_iter().zip(percents).filter_map(|(column, p)| Some((column, p?))));
    row.figures.extend(of_times.iter().copied().zip(times));
    Some(row)
}

/// A word after a row's count.
pub(super) enum Value {
    /// `12.34%`; `None` is a share of no time at all.
    Percent(Option<f64>),
    /// Nanoseconds.
    Time(f64),
    /// `+-`, before the relative standard error.
    Sign,
}

/// Reads a word after a row's count. `bare`: times are printed without a unit.
pub(super) fn value(word: &str, bare: bool) -> Option<Value> {
    let ns = || time(word).or_else(|| count(word).filter(|_| bare).map(|ns| ns as f64));
    match word {
        "+-" => Some(Value::Sign),
        // As C prints it.
        "-nan%" | "nan%" | "-nan" | "nan" => Some(Value::Percent(None)),
        _ => match word.strip_suffix('%') {
            Some(digits) => decimal(digits).filter(|p| *p <= 1e6).map(|p| Value::Percent(Some(p))),
            None => ns().map(Value::Time),
        },
    }
}

/// A count, with or without thousands separators.
pub(super) fn count(word: &str) -> Option<u64> {
    let plain = word.bytes().all(|b| b.is_ascii_digit() || b == b',') && word.starts_with(|c: char| c.is_ascii_digit());
    if plain { word.replace(',', "").parse().ok() } else { None }
}

/// `12.34us` and the like, in nanoseconds.
pub(super) fn time(word: &str) -> Option<f64> {
    let units = [("us", 1e3), ("µs", 1e3), ("ns", 1.0), ("ms", 1e6), ("s", 1e9)];
    let (digits, factor) = units.iter().find_map(|(unit, factor)| Some((word.strip_suffix(unit)?, *factor)))?;
    decimal(digits).map(|n| n * factor).filter(|ns| *ns < 1e19)
}

/// `12.34`, without a sign or an exponent.
pub(super) fn decimal(digits: &str) -> Option<f64> {
    let plain =
        digits.starts_with(|c: char| c.is_ascii_digit()) && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if plain { digits.parse().ok() } else { None }
}

/// `0x608:PIN`, `0xfee00300:W`: the address, the direction, and the space where the word implies it.
fn address(word: &str) -> Option<(u64, Direction, Option<Space>)> {
    let (digits, access) = word.split_once(':')?;
    // C's "%#llx" writes no prefix for zero.
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")).or(Some(digits).filter(|d| *d == "0"))?;
    let address = u64::from_str_radix(hex, 16).ok().filter(|_| hex.bytes().all(|b| b.is_ascii_hexdigit()))?;
    let (direction, space) = match access {
        "PIN" => (Direction::Read, Some(Space::Pio)),
        "POUT" => (Direction::Write, Some(Space::Pio)),
        "R" => (Direction::Read, None),
        "W" => (Direction::Write, None),
        _ => return None,
    };
    Some((address, direction, space))
}

/// A column after `Samples`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PrintedColumn {
    SamplesPercent,
    TimePercent,
    /// Not a column but the word `(ns)` in the titles, as in the text that perf's terminal browser shows since 6.4:
    /// times are nanoseconds without a unit.
    Bare,
    /// `Time (ns)`: sum of the row's durations.
    Total,
    Min,
    Max,
    Mean,
    /// The number after `+-`: relative standard error of the mean, percent.
    Error,
}

/// Marks of comments and lists before a pasted row.
pub(super) const LEADING_MARKS: &[char] = &['#', '*', '+', '-', '/', '|'];

/// A line of column titles: what the rows count, and the columns so far (a wrapped line continues in the next one).
pub(super) fn titles(line: &str) -> Option<(Option<Space>, Vec<PrintedColumn>)> {
    let (name, rest) = line.split_once("Samples")?;
    let name = name.trim_matches(|c| c == ' ' || LEADING_MARKS.contains(&c)).to_ascii_lowercase();
    let space = match name.as_str() {
        "vm-exit" | "event name" | "hcall-event" | "vmexit" | "kvm-exit" => None,
        "io port access" | "ioport access" => Some(Space::Pio),
        "mmio access" => Some(Space::Mmio),
        "msr access" => Some(Space::Msr),
        _ => return None,
    };
    Some((space, columns(rest)?))
}

/// Column titles alone: the rest of a wrapped line. `None` if any word is not part of a title.
pub(super) fn columns(line: &str) -> Option<Vec<PrintedColumn>> {
    let mut columns = Vec::new();
    let line = line.to_ascii_lowercase().replace("(ns)", " (ns)");
    let mut before = "";
    for word in line.split([' ', '|', '*', ':']).filter(|w| !w.is_empty()) {
        match word {
            "samples%" | "sample%" => columns.push(PrintedColumn::SamplesPercent),
            "time%" => columns.push(PrintedColumn::TimePercent),
            "min" => columns.push(PrintedColumn::Min),
            "max" => columns.push(PrintedColumn::Max),
            "avg" | "mean" => columns.push(PrintedColumn::Mean),
            "(ns)" => {
                if before == "time" {
                    columns.push(PrintedColumn::Total);
                }
                columns.push(PrintedColumn::Bare);
            }
            "time" if matches!(before, "min" | "max" | "avg" | "mean") => {
                before = "";
                continue;
            }
            "time" | "samples" => {}
            _ => return None,
        }
        before = word;
    }
    Some(columns)
}

/// `Analyze events for all VMs, VCPU 1:`: the processes and the vCPU of the tables after it.
pub(super) fn heading(line: &str) -> Option<(Option<String>, Option<u32>)> {
    let rest = line.split_once("Analyze events for")?.1;
    let listed = rest.split_once("pid(s)").and_then(|(_, after)| after.split([' ', ':']).find(|w| !w.is_empty()));
    let vcpu = rest.split_once("VCPU ").and_then(|(_, after)| after.trim().trim_end_matches(':').parse().ok());
    let pids = listed.map(|p| p.trim_end_matches(',')).filter(|p| p.starts_with(|c: char| c.is_ascii_digit()));
    Some((pids.map(|p| p.chars().take(64).collect()), vcpu))
}

/// `Total Samples:309, Total events handled time:42782518.51us.`: the count and nanoseconds.
pub(super) fn total(line: &str) -> Option<(u64, Option<f64>)> {
    let rest = line.split_once("Total Samples:")?.1.trim_start();
    let count = rest.split(|c: char| !c.is_ascii_digit() && c != ',').next()?;
    Some((count.replace(',', "").parse().ok()?, handled_time(line)))
}

/// The time in `Total events handled time:42782518.51us.`, nanoseconds. A mail program can wrap `time:` onto a separate
/// line.
pub(super) fn handled_time(line: &str) -> Option<f64> {
    let text = line.split_once("handled time:").map(|(_, after)| after).or_else(|| line.strip_prefix("time:"))?;
    time(text.trim().trim_end_matches('.'))
}

/// `Lost events: 12`.
pub(super) fn lost(line: &str) -> Option<u64> {
    line.split_once("Lost events:")?.1.trim().parse().ok()
}

/// Seconds of the day from a line with nothing but the time of day, as `live` prints above each frame.
pub(super) fn clock(line: &str) -> Option<f64> {
    let mut parts = line.trim().split(':');
    let (h, m, seconds) = (parts.next()?, parts.next()?, decimal(parts.next()?)?);
    let (hours, minutes): (u32, u32) = (h.parse().ok()?, m.parse().ok()?);
    let is_clock = parts.next().is_none() && h.len() == 2 && m.len() == 2;
    (is_clock && hours < 24 && minutes < 60 && seconds < 61.0).then(|| f64::from(hours * 3600 + minutes * 60) + seconds)
}

/// `unknown kvm exit code:131072 on VMX`, printed above the row `UNKNOWN`.
pub(super) fn unknown_code(line: &str) -> Option<u32> {
    let rest = line.split_once("unknown kvm exit code:")?.1;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}
