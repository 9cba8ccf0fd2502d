//! Parses the lines around the rows: headings, column titles, totals, command lines.

use super::row::{decimal, time};
use kvm::Space;

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
