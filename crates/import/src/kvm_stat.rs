//! `kvm_stat -1`, a copy of its screen, and its log (`-l`, with `-c` as CSV): `tools/kvm/kvm_stat/kvm_stat` of the
//! kernel's sources (`batch`, `Tui._refresh_body`, `StdFormat`, `CSVFormat`).

use super::files::Files;
use super::guest::facts;
use super::unread::UnreadLines;
use kvm::exit_reason::{NOT_SHOWN, code, guess_isa};
use kvm::isa::Isa;
use kvm::pattern::{self, Pattern};
use kvm::{clock_seconds, sanitize, userspace_exit};
use sample::{DomainSample, ExitCell, ThreadEvents, Timing, UserspaceCell};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Limit of different names; kernels have about 200.
const MAX_NAMES: usize = 4096;
/// Lines of a text that are examined.
const MAX_LINES: usize = 500_000;
/// Statistics whose names show that a row is one of KVM's.
const KNOWN: [&str; 7] =
    ["exits", "halt_exits", "io_exits", "irq_injections", "halt_wakeup", "mmio_exits", "insn_emulation"];

/// A row of `kvm_stat -1`, `kvm_exit 1234 56` with total and change within a second, or of its screen,
/// `kvm_exit 1234 12.3 56` with total, percent and average; the last is missing where it is zero.
static ROW: Pattern = Pattern::new(concat!(
    "^(?P<indent>[ \t]*)(?P<name>[^ \t]+)[ \t]+(?P<total>[0-9]+)",
    r"(?:[ \t]+(?P<change>[0-9]+)|[ \t]+[0-9]+\.[0-9]+(?:[ \t]+(?P<average>[0-9]+))?)[ \t]*$",
));
static PROCESS: Pattern = Pattern::new("^kvm statistics - pid (?P<pid>[0-9]+)");

/// Counts over a time.
#[derive(Debug, Default)]
struct EventCounts {
    /// KVM's own statistics and tracepoints by name: `exits`, `kvm_exit`.
    counts: BTreeMap<String, u64>,
    /// `kvm_exit` by reason.
    exits: BTreeMap<String, u64>,
    /// `kvm_userspace_exit` by reason without `KVM_EXIT_`.
    userspace: BTreeMap<String, u64>,
    /// The process that they are restricted to.
    pid: Option<i32>,
}

/// Whether a text begins as one of these outputs does.
pub(crate) fn begins(text: &str) -> bool {
    let Some(first) = text.lines().map(str::trim_end).find(|line| !line.is_empty()) else { return false };
    let is_row = || ROW.captures(first).is_some_and(|row| is_kvms(&row["name"]));
    let first_words: Vec<&str> = first.split_whitespace().take(2).collect();
    first.trim_start().starts_with("kvm statistics")
        || first_words == ["Event", "Total"]
        || heading(first).is_some()
        || is_row()
}

/// Reads a text; returns remarks.
pub(crate) fn read(text: &str, files: &mut Files) -> Vec<String> {
    let mut unread = UnreadLines::default();
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let (counts, seconds) = match heading(first) {
        Some(names) => log(text, &names, &mut unread),
        None => (screen(text, &mut unread), 1.0),
    };
    if !counts.counts.is_empty() || !counts.exits.is_empty() {
        files.counted.push((seconds, guest(counts)));
    }
    unread.notes()
}

/// Whether a name is a KVM tracepoint's or one of its best known statistics'.
fn is_kvms(name: &str) -> bool {
    name.starts_with("kvm_") || KNOWN.contains(&name)
}

/// The names in the heading of a log.
fn heading(line: &str) -> Option<Vec<String>> {
    let names: Vec<&str> = values(line).filter(|word| *word != "timestamp").take(MAX_NAMES).collect();
    let is_name = |name: &&str| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_()-".contains(&b))
    };
    let is_heading = names.len() > 1 && names.iter().all(is_name) && names.iter().any(|name| is_kvms(name));
    is_heading.then(|| names.into_iter().map(str::to_owned).collect())
}

fn values(line: &str) -> impl Iterator<Item = &str> {
    line.split([' ', '\t', ',']).filter(|word| !word.is_empty())
}

/// Adds up the lines of a log; also returns the seconds that they cover: by their clock, else a second each, the
/// default of `-s`.
fn log(text: &str, names: &[String], unread: &mut UnreadLines) -> (EventCounts, f64) {
    let mut counts = EventCounts::default();
    let mut clocks: Vec<Option<f64>> = Vec::new();
    for (number, line) in (1..).zip(text.lines()).take(MAX_LINES) {
        let words: Vec<&str> = values(line).collect();
        // `2020-04-01 10:00:05` comes before the values.
        let first = words.len().saturating_sub(names.len());
        let row: Vec<u64> = words.iter().skip(first).filter_map(|word| word.parse().ok()).collect();
        if row.len() == names.len() && first <= 2 {
            for (name, count) in names.iter().zip(row) {
                counts.add(name, count);
            }
            clocks.push(words.iter().take(first).find_map(|word| clock_seconds(word)));
        } else if words.first().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
            unread.add(number, line);
        }
    }
    let lines = clocks.len() as f64;
    let between = clocks.first().copied().flatten().zip(clocks.last().copied().flatten());
    let covered = between.map(|(first, last)| (last - first).rem_euclid(86_400.0)).filter(|covered| *covered > 0.0);
    (counts, covered.map_or(lines, |covered| covered * lines / (lines - 1.0)))
}

/// Reads the rows of a batch or a screen; of several screens the first.
fn screen(text: &str, unread: &mut UnreadLines) -> EventCounts {
    let mut counts = EventCounts::default();
    // The last event and its indentation: its reasons are listed below it.
    let (mut event, mut event_indent) = (String::new(), 0);
    for (number, line) in (1..).zip(text.lines()).take(MAX_LINES) {
        if let Some(found) = PROCESS.captures(line.trim_start()) {
            counts.pid = pattern::number(&found, "pid");
            continue;
        }
        let Some(row) = ROW.captures(line) else {
            if line.starts_with(' ') && line.split_whitespace().nth(1).is_some_and(|word| word.parse::<u64>().is_ok()) {
                unread.add(number, line);
            }
            continue;
        };
        let (name, indent) = (&row["name"], row["indent"].len());
        let count = pattern::number(&row, "change").or_else(|| pattern::number(&row, "average")).unwrap_or(0);
        if name == "Total" {
            break;
        }
        if !event.is_empty() && indent > event_indent {
            counts.add(&format!("{event}({name})"), count);
        } else if counts.counts.contains_key(name) {
            break;
        } else {
            if !name.contains('(') {
                (event, event_indent) = (name.to_owned(), indent);
            }
            counts.add(name, count);
        }
    }
    counts
}

impl EventCounts {
    /// Adds to an event's count; `kvm_exit(HLT)` is a part of another event.
    fn add(&mut self, name: &str, count: u64) {
        let (map, key) = match name.split_once('(') {
            Some(("kvm_exit", reason)) => (&mut self.exits, reason.trim_end_matches(')')),
            Some(("kvm_userspace_exit", reason)) => (&mut self.userspace, reason.trim_end_matches(')')),
            Some(_) => return,
            None => (&mut self.counts, name),
        };
        if map.len() < MAX_NAMES || map.contains_key(key) {
            let sum = map.entry(sanitize(key, 64)).or_default();
            *sum = sum.saturating_add(count);
        }
    }
}

/// The guest of event counts.
fn guest(counted: EventCounts) -> DomainSample {
    let EventCounts { counts, exits, userspace, pid } = counted;
    let isa = guess_isa(exits.keys().map(String::as_str));
    let listed = exits.values().fold(0u64, |sum, count| sum.saturating_add(*count));
    let others = counts.get("kvm_exit").map_or(0, |all| all.saturating_sub(listed));
    let mut rows: Vec<(String, u64)> = exits.into_iter().collect();
    // The rates of reasons are rounded.
    if listed > 0 && others > rows.len() as u64 {
        rows.push((NOT_SHOWN.to_owned(), others));
    }
    let mut events = ThreadEvents::default();
    for (at, (name, count)) in (0..).zip(rows).filter(|(_, (_, count))| *count > 0) {
        let known = code(isa, &name);
        events.exits.push(ExitCell {
            isa: if known.is_some() { isa } else { Isa::Other(0) },
            code: known.unwrap_or(at),
            name: Some(name),
            time: Timing { count, ..Timing::default() },
            ..ExitCell::default()
        });
    }
    for (name, count) in userspace.into_iter().filter(|(_, count)| *count > 0) {
        let full = format!("KVM_EXIT_{name}");
        if let Some(reason) = (0..64).find(|reason| userspace_exit::name(*reason) == Some(full.as_str())) {
            events.userspace.push(UserspaceCell { reason: reason as i32, count });
        }
    }
    let (kvm_events, mut counters): (BTreeMap<_, _>, BTreeMap<_, _>) =
        counts.into_iter().partition(|(name, _)| name.starts_with("kvm_"));
    // The tracepoint fires once for each exit.
    if let Some(exits) = kvm_events.get("kvm_exit") {
        counters.entry("exits".to_owned()).or_insert(*exits);
    }
    let facts = Arc::new(facts(pid, None));
    DomainSample { facts, unattributed: events, kvm_events, counters, ..DomainSample::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As the kernel's script prints it: `%-42s%10d%10d`.
    const BATCH: &str = "exits                                           351826     51826\n\
        halt_exits                                        1105       105\n\
        kvm_exit                                        351826     51826\n\
        kvm_exit(HLT)                                     1105       105\n\
        kvm_exit(IO_INSTRUCTION)                        256738     25673\n\
        kvm_userspace_exit(IO)                          256738     25673\n";
    const LOG: &str =
        "exits halt_exits kvm_exit(HLT) \n       100        10        10\n       300        20        20\n";
    const CSV: &str = "timestamp,exits,halt_exits\n2020-04-01 10:00:00,100,10\n2020-04-01 10:00:02,300,20\n";
    const SCREEN: &str = "kvm statistics - pid 77 (web)\n\n Event                             Total %Total CurAvg/s\n\
        \x20kvm_exit                         90000   60.0     9000\n\
        \x20  HLT                            30000   33.3     3000\n\
        \x20kvm_entry                        60000   40.0     9000\n\
        \x20Total                           150000           18000\n";

    fn counted(text: &str) -> (EventCounts, f64, Vec<(usize, String)>) {
        assert!(begins(text), "{text}");
        let mut unread = UnreadLines::default();
        let (counts, seconds) = match heading(text.lines().next().unwrap()) {
            Some(names) => log(text, &names, &mut unread),
            None => (screen(text, &mut unread), 1.0),
        };
        (counts, seconds, unread.first)
    }

    #[test]
    fn all_its_forms_are_read() {
        let (batch, seconds, _) = counted(BATCH);
        assert_eq!((batch.counts["exits"], batch.exits["HLT"], batch.userspace["IO"]), (51826, 105, 25673));
        let (log, logged_seconds, _) = counted(LOG);
        assert_eq!((log.counts["exits"], log.exits["HLT"], logged_seconds), (400, 30, 2.0));
        let (csv, csv_seconds, _) = counted(CSV);
        assert_eq!((csv.counts["halt_exits"], csv_seconds, seconds), (30, 4.0, 1.0));
        let (first, _, unread) = counted(&format!("{SCREEN}{}", SCREEN.replace("9000\n", "1\n")));
        assert_eq!((first.counts["kvm_exit"], first.exits["HLT"], first.counts["kvm_entry"]), (9000, 3000, 9000));
        assert_eq!((first.pid, unread), (Some(77), Vec::new()));
    }

    #[test]
    fn a_line_of_a_log_with_missing_values_is_named() {
        assert_eq!(counted("exits halt_exits\n 1 2\n 3\n").2, [(3, "3".to_owned())]);
    }

    #[test]
    fn other_text_is_none() {
        for text in ["", "HLT 123 456\n", "foo 1 2\nbar 3 4\n", "the kvm_stat command is a script.\n", "cores 4 2\n"] {
            assert!(!begins(text), "{text}");
        }
    }

    #[test]
    fn reasons_that_a_list_lacks_are_a_row_of_their_own() {
        let exits = |all: u64| {
            let counts = BTreeMap::from([("kvm_exit".to_owned(), all)]);
            let exits = BTreeMap::from([("HLT".to_owned(), 11)]);
            let cells = guest(EventCounts { counts, exits, ..EventCounts::default() }).unattributed.exits;
            cells.into_iter().map(|cell| (cell.name.unwrap_or_default(), cell.time.count)).collect::<Vec<_>>()
        };
        assert_eq!(exits(66), [("HLT".to_owned(), 11), (NOT_SHOWN.to_owned(), 55)]);
        assert_eq!(exits(12).len(), 1, "each reason's count is rounded");
    }

    proptest! {
        #[test]
        fn damaged_output_is_survived(cut in any::<proptest::sample::Index>(), at in any::<proptest::sample::Index>(),
            byte in any::<u8>(), noise in any::<String>()) {
            for text in [BATCH, LOG, CSV, SCREEN] {
                let mut bytes = text.as_bytes().to_vec();
                let place = at.index(bytes.len());
                bytes[place] = byte;
                bytes.truncate(cut.index(bytes.len()) + 1);
                let text = String::from_utf8_lossy(&bytes);
                let _ = (begins(&text), read(&text, &mut Files::default()));
            }
            let _ = read(&format!("exits halt_exits\n{noise}"), &mut Files::default());
        }
    }
}
