//! `perf stat -e 'kvm:*'`: as a table, per core, CPU or thread, and in intervals (`-I`; stat-display.c of tools/perf).

use super::{EventCounts, MAX_LINES};
use crate::pattern::{Pattern, group};

/// A row: the event without its group, its count (none: not counted), and the seconds since the start with `-I`.
/// Locales group the digits differently: `1,234`, `1.234`, `1'234`. Counts of tracepoints are whole numbers. perf
/// script and other tools print `kvm:kvm_exit:` after a time, not after a count.
static ROW: Pattern = Pattern::new(concat!(
    r"^ *(?:(?P<time>[0-9]+[.,][0-9]{9}) +)?(?:.*? )??",
    "(?:(?P<count>[0-9]{1,20}(?:[,.'’\u{202f}\u{a0}][0-9]{3})*)|<not (?:counted|supported)>) +",
    "kvm:(?P<event>kvm_[A-Za-z0-9_]+)(?::[A-Za-z]+)?(?: |$)",
));

/// The counts of each run: a text may show one before a change and one after it.
pub(super) fn parse(text: &str) -> Vec<EventCounts> {
    let mut runs = Vec::new();
    let (mut found, mut pid) = (EventCounts::default(), None);
    for (number, line) in text.lines().enumerate().take(MAX_LINES) {
        let is_row = line.contains("kvm:kvm_") && line.len() <= 4096;
        if let Some(row) = is_row.then(|| ROW.captures(line)).flatten() {
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
            let seconds =
                seconds.trim_start_matches(['#', ' ']).split_whitespace().next().map(|word| word.replace(',', "."));
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
