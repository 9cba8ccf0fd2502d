//! `kvm_stat -1`, its log (`-l`, also `-L` and as CSV) and its screen, pasted (`tools/kvm/kvm_stat/kvm_stat` of the
//! kernel's sources: `batch`, `StdFormat`, `CSVFormat`, `Tui._refresh_body`).

use super::EventCounts;
use crate::clock_ms;
use crate::pattern::{self, Pattern};
use crate::unread::UnreadLines;
use std::collections::BTreeMap;

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
    "^(?P<indent>[ \t]*)(?P<name>[^ \t]+)[ \t]+(?P<total>[0-9]+)",
    r"(?:[ \t]+(?P<change>[0-9]+)|[ \t]+[0-9]+\.[0-9]+(?:[ \t]+(?P<average>[0-9]+))?)[ \t]*$",
));
static PROCESS: Pattern = Pattern::new("kvm statistics - pid (?P<pid>[0-9]+)");

/// What a screen, or a batch, shows of a second.
#[derive(Default)]
struct Screen {
    /// The line of its first row.
    line: usize,
    pid: Option<i32>,
    /// By name the total and the count within the second.
    rows: BTreeMap<String, (u64, u64)>,
}

impl Screen {
    /// Whether `next` shows the same recording later: a row that was there stays, totals only grow, and their growth
    /// over their rates is about the same time for all.
    fn continues_in(&self, next: &Self) -> bool {
        let grows = |(name, (total, _)): (&String, &(u64, u64))| next.rows.get(name).is_some_and(|row| row.0 >= *total);
        let frequent = next.rows.iter().filter(|(_, (_, rate))| *rate >= 10);
        let seconds = frequent.map(|(name, (total, rate))| {
            let before = self.rows.get(name).map_or(0, |row| row.0);
            total.saturating_sub(before) as f64 / *rate as f64
        });
        let (least, most) =
            seconds.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), s| (least.min(s), most.max(s)));
        self.pid == next.pid && self.rows.iter().all(grows) && least >= 0.5 && most <= 2.0 * least
    }
}

#[derive(Default)]
struct RowReader {
    screens: Vec<Screen>,
    /// What a log counted.
    log: EventCounts,
    unread: UnreadLines,
    /// Whether a row or a heading shows that these are KVM's.
    known: bool,
    /// Within the screen's table, the indentation of its events, and the last one.
    screen: bool,
    indent: usize,
    parent: String,
    /// The process that the next rows are restricted to.
    pid: Option<i32>,
    /// Whether the next row begins a screen.
    begins: bool,
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
            (self.known, self.screen, self.begins) = (true, true, true);
        } else if line.contains("kvm statistics - ") {
            (self.pid, self.begins) = (PROCESS.captures(line).and_then(|found| pattern::number(&found, "pid")), true);
        } else if let Some(found) = ROW.captures(line) {
            let count = pattern::number(&found, "change").or_else(|| pattern::number(&found, "average")).unwrap_or(0);
            let total = pattern::number(&found, "total").unwrap_or(0);
            self.row(number, found["indent"].len(), &found["name"], (total, count));
        } else if self.screen && words.get(1).is_some_and(|word| word.parse::<u64>().is_ok()) && words[0] != "Total" {
            self.unread.add(number, line);
        }
    }

    fn row(&mut self, line: usize, indent: usize, name: &str, count: (u64, u64)) {
        if is_kvms(name) {
            self.known = true;
        } else if self.screen && !self.parent.is_empty() && indent > self.indent {
            // Reasons are listed below their event.
            let name = format!("{}({name})", self.parent);
            self.add(line, &name, count);
            return;
        } else if !is_name(name) {
            return;
        }
        if !name.contains('(') {
            (self.parent, self.indent) = (name.to_owned(), indent);
        }
        self.add(line, name, count);
    }

    fn add(&mut self, line: usize, name: &str, count: (u64, u64)) {
        let last = self.screens.last();
        // Without its heading, a name that comes again begins a screen.
        if std::mem::take(&mut self.begins) || last.is_none_or(|screen| screen.rows.contains_key(name)) {
            self.screens.push(Screen { line, pid: self.pid, ..Screen::default() });
        }
        if let Some(screen) = self.screens.last_mut().filter(|screen| screen.rows.len() < super::MAX_NAMES) {
            screen.rows.insert(name.to_owned(), count);
        }
    }

    fn logged_line(&mut self, number: usize, line: &str, words: &[&str], names: &[String]) {
        let first = words.len().saturating_sub(names.len());
        let values: Vec<u64> = words.iter().skip(first).filter_map(|word| word.parse().ok()).collect();
        if values.len() != names.len() || first > 2 {
            if words.first().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
                self.unread.add(number, line);
            }
            return;
        }
        self.log.line = if self.lines == 0 { number } else { self.log.line };
        names.iter().zip(values).for_each(|(name, value)| self.log.add(name, value));
        self.lines = self.lines.saturating_add(1);
        // `2020-04-01 10:00:05` comes before the values.
        self.clocks.extend(words.iter().take(first).find_map(|word| clock_ms(word)).map(|ms| ms as f64 / 1000.0));
    }
}

/// Reads the first lines of a text: the counts of each recording.
pub(super) fn parse(text: &str, lines: usize) -> Vec<EventCounts> {
    let mut reader = RowReader::default();
    for (number, line) in text.lines().enumerate().take(lines) {
        reader.line(number + 1, line);
    }
    let RowReader { mut screens, mut log, unread, known, lines, clocks, .. } = reader;
    if !known {
        return Vec::new();
    }
    log.seconds = span(&clocks, lines);
    // Quoted again.
    screens.dedup_by(|next, screen| next.pid == screen.pid && next.rows == screen.rows);
    let recordings = screens.chunk_by(Screen::continues_in).map(|screens| {
        let mut found = EventCounts { seconds: Some(screens.len() as f64), ..EventCounts::default() };
        (found.line, found.pid) = screens.first().map_or((0, None), |screen| (screen.line, screen.pid));
        let rows = screens.iter().flat_map(|screen| &screen.rows);
        rows.for_each(|(name, (_, count))| found.add(name, *count));
        found
    });
    let mut all: Vec<EventCounts> = recordings.chain([log]).filter(|found| !found.is_empty()).collect();
    all.iter_mut().take(1).for_each(|first| first.unread = unread.clone());
    all
}

/// The time of a log's lines: by their clock, else a second each, the default of `-s`.
fn span(clocks: &[f64], lines: u32) -> Option<f64> {
    let by_clock = clocks.first().zip(clocks.last()).map(|(first, last)| (last - first).rem_euclid(86_400.0));
    match by_clock.filter(|seconds| *seconds > 0.0 && clocks.len() > 1) {
        Some(seconds) => Some(seconds * clocks.len() as f64 / (clocks.len() - 1) as f64),
        None => (lines > 0).then(|| f64::from(lines)),
    }
}
