//! `kvm_stat -1`, its log (`-l`, also `-L` and as CSV) and its screen, pasted (`tools/kvm/kvm_stat/kvm_stat` of the
//! kernel's sources: `batch`, `StdFormat`, `CSVFormat`, `Tui._refresh_body`).

use super::EventCounts;
use crate::clock_ms;
use crate::pattern::{self, Pattern};
use std::collections::HashMap;

/// Statistics whose names show that a row is one of KVM's.
const TELLING: &[&str] =
    &["exits", "halt_exits", "io_exits", "irq_injections", "halt_wakeup", "mmio_exits", "insn_emulation"];

fn is_name(word: &str) -> bool {
    word.len() <= 64
        && word.starts_with(|c: char| c.is_ascii_lowercase())
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_()-".contains(&b))
}

fn is_kvms(name: &str) -> bool {
    name.starts_with("kvm_") || TELLING.contains(&name)
}

/// The names of a log's heading.
fn banner(words: &[&str]) -> Option<Vec<String>> {
    let names: Vec<&str> = words.iter().copied().filter(|word| *word != "timestamp").collect();
    let is_heading = names.len() > 1 && names.len() <= super::MAX_NAMES && names.iter().all(|name| is_name(name));
    (is_heading && names.iter().any(|name| is_kvms(name))).then(|| names.into_iter().map(str::to_owned).collect())
}

/// A row of `kvm_stat -1`, `kvm_exit 1234 56` with total and change within a second, or of its screen,
/// `kvm_exit 1234 12.3 56` with total, percent and average; the last is missing where it is zero. The output of
/// `kvm_stat | grep kvm_exit` lacks a heading.
static ROW: Pattern = Pattern::new(concat!(
    "^(?P<indent>[ \t]*)(?P<name>[^ \t]+)[ \t]+[0-9]+",
    r"(?:[ \t]+(?P<change>[0-9]+)|[ \t]+[0-9]+\.[0-9]+(?:[ \t]+(?P<average>[0-9]+))?)[ \t]*$",
));
static PROCESS: Pattern = Pattern::new("kvm statistics - pid (?P<pid>[0-9]+)");

#[derive(Default)]
struct RowReader {
    found: EventCounts,
    /// Whether a row or a heading shows that these are KVM's.
    known: bool,
    /// Within the screen's table, the indentation of its events, and the last one.
    screen: bool,
    indent: usize,
    parent: String,
    /// How often each name came: a text can hold several screens.
    seen: HashMap<String, u32>,
    /// The names of a log.
    logged: Option<Vec<String>>,
    lines: u32,
    clocks: Vec<f64>,
}

impl RowReader {
    fn line(&mut self, number: usize, line: &str) {
        let words: Vec<&str> =
            line.split([' ', '\t', ',']).filter(|word| !word.is_empty()).take(super::MAX_NAMES + 4).collect();
        if let Some(names) = banner(&words) {
            self.logged = Some(names);
            self.known = true;
            return;
        }
        if let Some(names) = self.logged.take() {
            self.logged_line(number, line, &words, &names);
            self.logged = Some(names);
        } else if matches!(words.as_slice(), ["Event", "Total", ..]) {
            (self.known, self.screen) = (true, true);
        } else if let Some(found) = PROCESS.captures(line) {
            self.found.pid = pattern::number(&found, "pid");
        } else if let Some(found) = ROW.captures(line) {
            let count = pattern::number(&found, "change").or_else(|| pattern::number(&found, "average")).unwrap_or(0);
            self.row(found["indent"].len(), &found["name"], count);
        } else if self.screen && words.get(1).is_some_and(|word| word.parse::<u64>().is_ok()) && words[0] != "Total" {
            self.found.unread.add(number, line);
        }
    }

    fn row(&mut self, indent: usize, name: &str, count: u64) {
        if is_kvms(name) {
            self.known = true;
        } else if self.screen && !self.parent.is_empty() && indent > self.indent {
            // Reasons are listed below their event.
            let name = format!("{}({name})", self.parent);
            self.add(&name, count);
            return;
        } else if !is_name(name) {
            return;
        }
        if !name.contains('(') {
            (self.parent, self.indent) = (name.to_owned(), indent);
        }
        self.add(name, count);
    }

    fn add(&mut self, name: &str, count: u64) {
        self.found.add(name, count);
        if self.seen.len() < super::MAX_NAMES {
            *self.seen.entry(name.to_owned()).or_default() += 1;
        }
    }

    fn logged_line(&mut self, number: usize, line: &str, words: &[&str], names: &[String]) {
        let first = words.len().saturating_sub(names.len());
        let values: Vec<u64> = words.iter().skip(first).filter_map(|word| word.parse().ok()).collect();
        if values.len() != names.len() || first > 2 {
            if words.first().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
                self.found.unread.add(number, line);
            }
            return;
        }
        names.iter().zip(values).for_each(|(name, value)| self.found.add(name, value));
        self.lines = self.lines.saturating_add(1);
        // `2020-04-01 10:00:05` comes before the values.
        self.clocks.extend(words.iter().take(first).find_map(|word| clock_ms(word)).map(|ms| ms as f64 / 1000.0));
    }
}

/// Reads the first lines of a text.
pub(super) fn parse(text: &str, lines: usize) -> EventCounts {
    let mut reader = RowReader::default();
    for (number, line) in text.lines().enumerate().take(lines) {
        reader.line(number + 1, line);
    }
    let RowReader { mut found, known, seen, logged, lines, clocks, .. } = reader;
    if !known {
        return EventCounts::default();
    }
    found.seconds = match logged {
        Some(_) => span(&clocks, lines),
        // Each screen shows the events of a second.
        None => Some(f64::from(seen.into_values().max().unwrap_or(1))),
    };
    found
}

/// The time of a log's lines: by their clock, else a second each, the default of `-s`.
fn span(clocks: &[f64], lines: u32) -> Option<f64> {
    let by_clock = clocks.first().zip(clocks.last()).map(|(first, last)| (last - first).rem_euclid(86_400.0));
    match by_clock.filter(|seconds| *seconds > 0.0 && clocks.len() > 1) {
        Some(seconds) => Some(seconds * clocks.len() as f64 / (clocks.len() - 1) as f64),
        None => (lines > 0).then(|| f64::from(lines)),
    }
}
