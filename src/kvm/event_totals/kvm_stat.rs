//! `kvm_stat -1`, its log (`-l`, also `-L` and as CSV) and its screen, pasted (`tools/kvm/kvm_stat/kvm_stat` of the
//! kernel's sources: `batch`, `StdFormat`, `CSVFormat`, `Tui._refresh_body`).

use super::{EventCounts, MAX_LINES};

/// Statistics whose names show that a row is one of KVM's.
const TELLING: &[&str] =
    &["exits", "halt_exits", "io_exits", "irq_injections", "halt_wakeup", "mmio_exits", "insn_emulation"];

/// How rows are to be read.
#[derive(Default)]
enum Rows {
    /// Name, total, change within a second (`-1`).
    #[default]
    Batch,
    /// Name, total, percent, average per second.
    Screen,
    /// Values under these names.
    Log(Vec<String>),
}

pub(super) fn looks_like(text: &str) -> bool {
    !read(text, 5000).is_empty()
}

pub(super) fn parse(text: &str) -> EventCounts {
    read(text, MAX_LINES)
}

fn is_name(word: &str) -> bool {
    word.len() <= 64
        && word.starts_with(|c: char| c.is_ascii_lowercase())
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_()-".contains(&b))
}

fn is_kvms(name: &str) -> bool {
    name.starts_with("kvm_") || TELLING.contains(&name)
}

/// The names of a log's heading.
fn banner(line: &str) -> Option<Vec<String>> {
    let csv = line.contains(',');
    let words: Vec<&str> =
        if csv { line.split(',').map(str::trim).collect() } else { line.split_whitespace().collect() };
    let names: Vec<&str> = words.iter().copied().filter(|word| *word != "timestamp").collect();
    let known = names.iter().filter(|name| is_kvms(name)).count();
    let all = names.iter().all(|name| is_name(name));
    (known > 0 && names.len() > 1 && names.len() <= super::MAX_NAMES && all)
        .then(|| names.into_iter().map(str::to_owned).collect())
}

/// Seconds of the day of `2020-04-01 10:00:05`, the words before a log's values.
fn clock(words: &[&str]) -> Option<f64> {
    let time = words.iter().find(|word| word.matches(':').count() == 2)?;
    let mut parts = time.split(':').map(|part| part.parse::<f64>().ok());
    Some(parts.next()?? * 3600.0 + parts.next()?? * 60.0 + parts.next()??)
}

fn read(text: &str, lines: usize) -> EventCounts {
    let mut found = EventCounts::default();
    let mut rows = Rows::default();
    let (mut logged, mut clocks, mut known) = (0u32, Vec::new(), false);
    let mut parent = String::new();
    for (number, line) in text.lines().enumerate().take(lines) {
        if let Some(names) = banner(line) {
            rows = Rows::Log(names);
            known = true;
            continue;
        }
        let words: Vec<&str> = line.split([' ', '\t', ',']).filter(|word| !word.is_empty()).collect();
        if matches!(words.as_slice(), ["Event", "Total", "%Total", ..]) {
            rows = Rows::Screen;
            continue;
        }
        let count = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        match &rows {
            Rows::Log(names) => {
                let first = words.len().saturating_sub(names.len());
                let values: Vec<u64> = words.iter().skip(first).filter_map(|word| word.parse().ok()).collect();
                if values.len() != names.len() || first > 2 {
                    if words.first().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
                        found.unread.add(number + 1, line);
                    }
                    continue;
                }
                names.iter().zip(values).for_each(|(name, value)| found.add(name, value));
                logged = logged.saturating_add(1);
                clocks.extend(clock(words.get(..first).unwrap_or_default()));
            }
            Rows::Batch => {
                if let ([name, ..], Some(_), Some(change), 3) = (words.as_slice(), count(1), count(2), words.len())
                    && is_name(name)
                {
                    known |= is_kvms(name);
                    found.add(name, change);
                }
            }
            Rows::Screen => {
                let (Some(name), Some(rate)) = (words.first(), words.get(3).map_or(Some(0), |word| word.parse().ok()))
                else {
                    continue;
                };
                if count(1).is_none() || *name == "Total" {
                    continue;
                }
                known |= is_kvms(name);
                if is_kvms(name) || is_name(name) && !line.starts_with("  ") {
                    (*name).clone_into(&mut parent);
                    found.add(name, rate);
                } else {
                    // Reasons are listed below their event.
                    found.add(&format!("{parent}({name})"), rate);
                }
            }
        }
    }
    if !known {
        return EventCounts::default();
    }
    found.seconds = match rows {
        Rows::Log(_) => span(&clocks, logged),
        _ => Some(1.0),
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
