//! `perf stat -e 'kvm:*'`: as a table, per core, CPU or thread, in intervals (`-I`), as CSV (`-x`) and as JSON (`-j`)
//! (tools/perf/util/stat-display.c).

use super::{EventCounts, MAX_LINES};
use crate::pattern::{Pattern, group};
use regex::Captures;

/// Lines of CSV, JSON and tables: the event without its group, its count (none: not counted), and the seconds since the
/// start with `-I`. perf script and other tools print `kvm:kvm_exit:` after a time, not after a count.
static ROWS: [Pattern; 3] = [
    // `1.000123456,1234,,kvm:kvm_exit,…`, or with another separator: the unit is empty.
    Pattern::new(concat!(
        r"^(?:(?P<time>[0-9]+\.[0-9]{9})[,;|\t:])?(?:.*[,;|\t:])?(?:(?P<count>[0-9]+)|<not (?:counted|supported)>)",
        r"[,;|\t:]{2}kvm:(?P<event>kvm_[A-Za-z0-9_]+)",
    )),
    Pattern::new(concat!(
        r#"^\{(?:.*"interval" *: *(?P<time>[0-9.]+))?.*"counter-value" *: *"(?P<count>[0-9]+)?[^"]*".*"#,
        r#""event" *: *"kvm:(?P<event>kvm_[A-Za-z0-9_]+)"#,
    )),
    // Locales group the digits differently: `1,234`, `1.234`, `1'234`. Counts of tracepoints are whole numbers.
    Pattern::new(concat!(
        r"^ *(?:(?P<time>[0-9]+[.,][0-9]{9}) +)?(?:.*? )??",
        "(?:(?P<count>[0-9]{1,20}(?:[,.'’\u{202f}\u{a0}][0-9]{3})*)|<not (?:counted|supported)>) +",
        "kvm:(?P<event>kvm_[A-Za-z0-9_]+)(?::[A-Za-z]+)?(?: |$)",
    )),
];

pub(super) fn looks_like(text: &str) -> bool {
    text.lines().take(5000).any(|line| row(line).is_some())
}

fn row(line: &str) -> Option<Captures<'_>> {
    let is_row = line.contains("kvm:kvm_") && line.len() <= 4096;
    ROWS.iter().filter(|_| is_row).find_map(|pattern| pattern.captures(line))
}

/// The counts of each run: a text may show one before a change and one after it.
pub(super) fn parse(text: &str) -> Vec<EventCounts> {
    let mut runs = Vec::new();
    let (mut found, mut pid) = (EventCounts::default(), None);
    for (number, line) in text.lines().enumerate().take(MAX_LINES) {
        if let Some(row) = row(line) {
            found.line = if found.is_empty() { number + 1 } else { found.line };
            found.pid = pid;
            let digits: String =
                row.name("count").map_or("", |n| n.as_str()).split(|c: char| !c.is_ascii_digit()).collect();
            // An event that was not counted is unknown, not 0.
            digits.parse().into_iter().for_each(|count| found.add(&row["event"], count));
            let time = group(&row, "time").and_then(|time| time.replace(',', ".").parse().ok());
            found.seconds = time.or(found.seconds);
            continue;
        }
        // With `-r`: `10.0012 +- 0.0003 seconds time elapsed  ( +-  0.00% )`.
        if let Some((seconds, _)) = line.split_once("seconds time elapsed") {
            let seconds = seconds.split_whitespace().next().map(|word| word.replace(',', "."));
            let seconds = seconds.and_then(|word| word.parse::<f64>().ok()).filter(|seconds| *seconds > 0.0);
            found.seconds = seconds.or(found.seconds);
            runs.push(std::mem::take(&mut found));
        } else if let Some((_, whose)) = line.split_once("counter stats for ") {
            pid = whose.strip_prefix("process id '").and_then(|ids| ids.split('\'').next()?.parse().ok());
            // `'sleep 10'`, until a line below states the time.
            let command = whose.strip_prefix("'sleep ").and_then(|rest| rest.split('\'').next());
            found.seconds = command.and_then(|seconds| seconds.parse().ok()).filter(|seconds: &f64| *seconds > 0.0);
        }
    }
    runs.push(found);
    runs.retain(|run| !run.is_empty());
    runs
}
