//! `kvm_stat -1`, its log (`-l`, also `-L` and as CSV) and its screen, pasted (`tools/kvm/kvm_stat/kvm_stat` of the
//! kernel's sources: `batch`, `StdFormat`, `CSVFormat`, `Tui._refresh_body`).

use super::EventCounts;
use crate::clock_seconds;
use crate::pattern::{self, Pattern};
use crate::unread::UnreadLines;

/// Statistics whose names show that a row is one of KVM's.
const TELLING: &[&str] =
    &["exits", "halt_exits", "io_exits", "irq_injections", "halt_wakeup", "mmio_exits", "insn_emulation"];

fn is_name(word: &str) -> bool {
    word.len() <= 64
        && word.starts_with(|c: char| c.is_ascii_lowercase())
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_()-".contains(&b))
}

fn is_kvms(name: &str) -> bool {
    super::is_tracepoint(name) || TELLING.contains(&name)
}

/// The names of a log's heading. Prose about KVM has words of any kind.
fn banner(words: &[&str]) -> Option<Vec<String>> {
    let names: Vec<&str> = words.iter().copied().filter(|word| *word != "timestamp").collect();
    let is_heading = names.len() > 1 && names.len() <= super::MAX_NAMES && names.iter().all(|name| is_name(name));
    let of_kvm = names.iter().filter(|name| is_kvms(name)).count();
    let plain = names.iter().filter(|name| !name.contains('_') && !is_kvms(name)).count();
    (is_heading && of_kvm > 0 && 2 * plain <= names.len()).then(|| names.into_iter().map(str::to_owned).collect())
}

/// A row of `kvm_stat -1`, `kvm_exit 1234 56` with total and change within a second, or of its screen,
/// `kvm_exit 1234 12.3 56` with total, percent and average; the last is missing where it is zero. The output of
/// `kvm_stat | grep kvm_exit` lacks a heading.
static ROW: Pattern = Pattern::new(concat!(
    "^(?P<indent>[ \t]*)(?P<name>[^ \t]+)[ \t]+(?P<total>[0-9]+)",
    r"(?:[ \t]+(?P<change>[0-9]+)|[ \t]+[0-9]+\.[0-9]+(?:[ \t]+(?P<average>[0-9]+))?)[ \t]*$",
));
static PROCESS: Pattern = Pattern::new("kvm statistics - pid (?P<pid>[0-9]+)");

#[derive(Default)]
struct RowReader {
    /// What each screen, or batch, shows of a second.
    screens: Vec<EventCounts>,
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
    /// The names of a log, and the times of its lines.
    logged: Vec<String>,
    clocks: Vec<Option<f64>>,
}

impl RowReader {
    fn line(&mut self, number: usize, line: &str) {
        let words: Vec<&str> =
            line.split([' ', '\t', ',']).filter(|word| !word.is_empty()).take(super::MAX_NAMES + 4).collect();
        if let Some(names) = banner(&words) {
            (self.logged, self.known) = (names, true);
        } else if !self.logged.is_empty() {
            self.logged_line(number, line, &words);
        } else if matches!(words.as_slice(), ["Event", "Total", ..]) {
            (self.known, self.screen, self.begins) = (true, true, true);
        } else if line.contains("kvm statistics - ") {
            (self.pid, self.begins) = (PROCESS.captures(line).and_then(|found| pattern::number(&found, "pid")), true);
        } else if let Some(found) = ROW.captures(line) {
            let count = pattern::number(&found, "change").or_else(|| pattern::number(&found, "average")).unwrap_or(0);
            self.row(number, found["indent"].len(), &found["name"], count);
        } else if self.screen && words.get(1).is_some_and(|word| word.parse::<u64>().is_ok()) && words[0] != "Total" {
            self.unread.add(number, line);
        }
    }

    fn row(&mut self, line: usize, indent: usize, name: &str, count: u64) {
        // Reasons are listed below their event.
        let is_reason = self.screen && !self.parent.is_empty() && indent > self.indent && !is_kvms(name);
        self.known |= is_kvms(name);
        if !is_reason && !is_name(name) {
            return;
        }
        if !is_reason && !name.contains('(') {
            (self.parent, self.indent) = (name.to_owned(), indent);
        }
        let name = if is_reason { format!("{}({name})", self.parent) } else { name.to_owned() };
        // Without its heading, a name that comes again begins a screen.
        let is_again = self.screens.last().is_none_or(|screen| screen.counts.contains_key(&name));
        if std::mem::take(&mut self.begins) || is_again {
            let seconds = Some(1.0);
            self.screens.push(EventCounts { line, pid: self.pid, seconds, ..EventCounts::default() });
        }
        if let Some(screen) = self.screens.last_mut() {
            screen.add(&name, count);
        }
    }

    fn logged_line(&mut self, number: usize, line: &str, words: &[&str]) {
        let first = words.len().saturating_sub(self.logged.len());
        let values: Vec<u64> = words.iter().skip(first).filter_map(|word| word.parse().ok()).collect();
        if values.len() != self.logged.len() || first > 2 {
            if words.first().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
                self.unread.add(number, line);
            }
            return;
        }
        self.log.line = if self.clocks.is_empty() { number } else { self.log.line };
        self.logged.iter().zip(values).for_each(|(name, value)| self.log.add(name, value));
        // `2020-04-01 10:00:05` comes before the values.
        self.clocks.push(words.iter().take(first).find_map(|word| clock_seconds(word)));
    }
}

/// The counts of each screen or log of a text.
pub(super) fn parse(text: &str) -> Vec<EventCounts> {
    let mut reader = RowReader::default();
    for (number, line) in text.lines().enumerate().take(super::MAX_LINES) {
        reader.line(number + 1, line);
    }
    let RowReader { screens, mut log, unread, known, clocks, .. } = reader;
    log.seconds = span(&clocks);
    let mut all: Vec<EventCounts> =
        screens.into_iter().chain([log]).filter(|found| !found.is_empty() && known).collect();
    // Quoted again.
    all.dedup_by(|next, one| (next.pid, &next.counts, &next.exits) == (one.pid, &one.counts, &one.exits));
    all.iter_mut().take(1).for_each(|first| first.unread = unread.clone());
    all
}

/// The time of a log's lines: by their clock, else a second each, the default of `-s`.
fn span(clocks: &[Option<f64>]) -> Option<f64> {
    let (Some(first), Some(last)) = (clocks.first()?, clocks.last()?) else { return Some(clocks.len() as f64) };
    let steps = (clocks.len() - 1) as f64;
    let seconds = (last - first).rem_euclid(86_400.0);
    Some(clocks.len() as f64 * if seconds > 0.0 { seconds / steps } else { 1.0 })
}
