//! Reads what `kvm_stat` prints with `-1`, and its log (`-l`, with `-c` as CSV):
//! `tools/kvm/kvm_stat/kvm_stat` of the kernel's sources (`batch`, `StdFormat`, `CSVFormat`).

use super::guest::measured;
use kvm::exit_reason::{code, guess_isa};
use kvm::isa::Isa;
use kvm::pattern::{self, Pattern};
use kvm::{clock_seconds, sanitize};
use sample::{DomainSample, ExitCell, Timing};
use std::collections::BTreeMap;

/// Limit of different names; kernels have about 200.
const MAX_NAMES: usize = 4096;

/// A row of `kvm_stat -1`, `kvm_exit 1234 56`, with total and change within a second.
static ROW: Pattern = Pattern::new("^(?P<name>[a-z][^ ]*) +[0-9]+ +(?P<change>[0-9]+)$");
/// The heading of a log.
static HEADING: Pattern = Pattern::new(r"^(?:[a-z][a-z0-9_]*(?:\([A-Z0-9_]+\))?[ ,]*){2,}$");

/// KVM's own statistics and tracepoints by name: `exits`, `kvm_exit(HLT)`.
type Counts = BTreeMap<String, u64>;

/// Whether a text begins as one of these outputs does.
pub(crate) fn begins(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default().trim_end();
    let is_table = ROW.is_match(first) || HEADING.is_match(first);
    let mut words = ["kvm_", "exits", "halt_"].iter();
    is_table && words.any(|word| first.contains(word))
}

/// What a text counts.
#[derive(Debug)]
pub(crate) struct KvmStatCounts {
    /// The time that the counts cover.
    pub seconds: f64,
    /// `kvm_stat` adds up all guests.
    pub guest: DomainSample,
}

/// Reads a text.
pub(crate) fn read(text: &str) -> KvmStatCounts {
    let first = text.lines().next().unwrap_or_default().trim_end();
    let (seconds, counts) = if HEADING.is_match(first) {
        read_log(text, first)
    } else {
        (1.0, read_batch(text))
    };
    KvmStatCounts {
        seconds,
        guest: counted_guest(counts),
    }
}

fn words_of(line: &str) -> impl Iterator<Item = &str> {
    line.split([' ', ',']).filter(|word| !word.is_empty())
}

/// Adds up the lines of a log. They cover the time between their time stamps, else a second each,
/// the default of `-s`.
fn read_log(text: &str, heading: &str) -> (f64, Counts) {
    let names: Vec<&str> = words_of(heading)
        .filter(|word| *word != "timestamp")
        .take(MAX_NAMES)
        .collect();
    let mut counts = Counts::new();
    let mut lines = 0.0;
    let mut first_clock = None;
    let mut last_clock = None;
    for line in text.lines() {
        let words: Vec<&str> = words_of(line).collect();
        // The values, read from the end: a time like `2020-04-01 10:00:05` may precede them.
        let row: Vec<u64> = words
            .iter()
            .rev()
            .map_while(|word| word.parse().ok())
            .collect();
        if row.len() == names.len() {
            for (name, count) in names.iter().rev().zip(row) {
                add_count(&mut counts, name, count);
            }
            lines += 1.0;
            last_clock = clock_seconds(line);
            first_clock = first_clock.or(last_clock);
        }
    }
    let mut seconds = lines;
    if let (Some(first), Some(last)) = (first_clock, last_clock) {
        let between: f64 = (last - first).rem_euclid(86_400.0);
        if between > 0.0 {
            // The first line covers as much time before it as the others do on average.
            seconds = between * lines / (lines - 1.0);
        }
    }
    (seconds, counts)
}

fn read_batch(text: &str) -> Counts {
    let mut counts = Counts::new();
    for line in text.lines() {
        if let Some(row) = ROW.captures(line.trim_end()) {
            let change = pattern::number(&row, "change").unwrap_or(0);
            add_count(&mut counts, &row["name"], change);
        }
    }
    counts
}

fn add_count(counts: &mut Counts, name: &str, count: u64) {
    if counts.len() < MAX_NAMES || counts.contains_key(name) {
        let sum = counts.entry(sanitize(name, 64)).or_default();
        *sum = sum.saturating_add(count);
    }
}

/// The guest of event counts.
fn counted_guest(counts: Counts) -> DomainSample {
    let mut guest = measured(None);
    let mut exits: Vec<(String, u64)> = Vec::new();
    for (name, count) in counts {
        match name.split_once('(') {
            Some(("kvm_exit", reason)) if count > 0 => {
                exits.push((reason.trim_end_matches(')').to_owned(), count));
            }
            Some(_) => {}
            None if name.starts_with("kvm_") => _ = guest.kvm_events.insert(name, count),
            None => _ = guest.counters.insert(name, count),
        }
    }
    // The tracepoint fires once for each exit, so its count stands in for the statistic.
    if let Some(all) = guest.kvm_events.get("kvm_exit") {
        guest.counters.entry("exits".to_owned()).or_insert(*all);
    }
    let isa = guess_isa(exits.iter().map(|(name, _)| name.as_str()));
    for (number, (name, count)) in (0..).zip(exits) {
        // Reasons without a known code get numbers, so that they stay apart.
        let known = code(isa, &name);
        guest.unattributed.exits.push(ExitCell {
            isa: if known.is_some() { isa } else { Isa::UNKNOWN },
            code: known.unwrap_or(number),
            name: Some(name),
            time: Timing {
                count,
                ..Timing::default()
            },
            ..ExitCell::default()
        });
    }
    guest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As the kernel's script prints it: `%-42s%10d%10d`.
    const BATCH: &str = "exits                                           351826     \
        51826\nhalt_exits                                        1105       \
        105\nkvm_exit                                        351826     \
        51826\nkvm_exit(HLT)                                     1105       \
        105\nkvm_exit(IO_INSTRUCTION)                        256738     \
        25673\nkvm_userspace_exit(IO)                          256738     25673\n";
    const LOG: &str = "exits halt_exits kvm_exit(HLT) \n       100        10        10\n       \
            300        20        20\n";
    const CSV: &str = "timestamp,exits,halt_exits\n2020-04-01 10:00:00,100,10\n2020-04-01 \
        10:00:02,300,20\n";

    fn counted(text: &str) -> (f64, DomainSample) {
        assert!(begins(text), "{text}");
        let KvmStatCounts { seconds, guest } = read(text);
        (seconds, guest)
    }

    #[test]
    fn all_its_forms_are_read() {
        let (seconds, batch) = counted(BATCH);
        assert_eq!(
            (
                seconds,
                batch.counters["exits"],
                batch.kvm_events["kvm_exit"]
            ),
            (1.0, 51826, 51826)
        );
        let exits: Vec<_> = batch
            .unattributed
            .exits
            .iter()
            .map(|exit| (exit.code, exit.time.count))
            .collect();
        assert_eq!(exits, [(12, 105), (30, 25673)]);
        let (seconds, log) = counted(LOG);
        assert_eq!(
            (
                seconds,
                log.counters["exits"],
                log.unattributed.exits[0].time.count
            ),
            (2.0, 400, 30)
        );
        let (seconds, csv) = counted(CSV);
        assert_eq!((seconds, csv.counters["halt_exits"]), (4.0, 30));
    }

    #[test]
    fn other_text_is_none() {
        for text in [
            "",
            "HLT 123 456\n",
            "foo 1 2\nbar 3 4\n",
            "the kvm_stat command is a script.\n",
            "cores 4 2\n",
        ] {
            assert!(!begins(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn damaged_output_is_survived(cut in any::<proptest::sample::Index>(), at in any::<proptest::sample::Index>(),
            byte in any::<u8>(), noise in any::<String>()) {
            for text in [BATCH, LOG, CSV] {
                let mut bytes = text.as_bytes().to_vec();
                let place = at.index(bytes.len());
                bytes[place] = byte;
                bytes.truncate(cut.index(bytes.len()) + 1);
                let text = String::from_utf8_lossy(&bytes);
                let _ = (begins(&text), read(&text));
            }
            read(&format!("exits halt_exits\n{noise}"));
        }
    }
}
