//! `perf stat -e 'kvm:*'`: as a table, per core, CPU or thread, in intervals (`-I`), as CSV (`-x`) and as JSON (`-j`)
//! (tools/perf/util/stat-display.c).

use super::{EventCounts, MAX_LINES};

pub(super) fn looks_like(text: &str) -> bool {
    text.lines().take(5000).any(|line| row(line).is_some())
}

/// One line: the event without its group, its count (`None`: not counted), and the seconds since the start with `-I`.
struct StatRow<'a> {
    event: &'a str,
    count: Option<u64>,
    time: Option<f64>,
}

/// The event in a word: `kvm:kvm_exit`, `kvm:kvm_exit:u`.
fn event(word: &str) -> Option<&str> {
    let name = word.trim_matches('"').strip_prefix("kvm:")?.split(':').next()?;
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (plain && name.starts_with("kvm_") && name.len() <= 64).then_some(name)
}

/// A count as any locale groups it: `1,234`, `1.234`, `1'234`. Counts of tracepoints are whole numbers.
fn count(word: &str) -> Option<u64> {
    let mut groups = word.split([',', '.', '\'', '\u{202f}', '\u{a0}', '’']);
    let first = groups.next()?;
    let rest: Vec<&str> = groups.collect();
    if first.is_empty() || first.len() > 20 || rest.iter().any(|group| group.len() != 3) {
        return None;
    }
    let digits: String = std::iter::once(first).chain(rest).collect();
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// The time of an interval: `1.000123456`.
fn time(word: &str) -> Option<f64> {
    let (whole, fraction) = word.split_once(['.', ','])?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (digits(whole) && digits(fraction) && fraction.len() == 9).then(|| format!("{whole}.{fraction}").parse().ok())?
}

fn row(line: &str) -> Option<StatRow<'_>> {
    if !line.contains("kvm:kvm_") || line.len() > 4096 {
        return None;
    }
    if line.trim_start().starts_with('{') {
        return json(line);
    }
    // CSV has the value before an empty unit: `1.000123456,1234,,kvm:kvm_exit,…`, or with another separator.
    let separator = [',', ';', '|', '\t', ':'].into_iter().find(|c| line.contains(&format!("{c}{c}kvm:")));
    let words: Vec<&str> = match separator {
        Some(separator) => line.split(separator).filter(|word| !word.is_empty()).collect(),
        None => line.split_whitespace().collect(),
    };
    let (at, event) = match separator {
        // The separator `:` splits the event's name too.
        Some(':') => words.windows(2).enumerate().find(|(_, w)| w[0] == "kvm").map(|(at, w)| (at, w[1]))?,
        _ => words.iter().enumerate().find_map(|(at, word)| Some((at, event(word)?)))?,
    };
    let before = words.get(at.checked_sub(1)?)?;
    let count = count(before);
    let skipped = before.contains("counted>") || before.contains("supported>");
    // perf script and other tools print `kvm:kvm_exit:` after a time, not after a count.
    if count.is_none() && !skipped {
        return None;
    }
    Some(StatRow { event, count, time: words.first().filter(|_| at > 1).and_then(|word| time(word)) })
}

/// `{"interval": 1.0001, "counter-value": "1234.000000", "event": "kvm:kvm_exit", …}`. The name has to outlive the
/// document, so it is taken from the line.
fn json(line: &str) -> Option<StatRow<'_>> {
    let document: serde_json::Value = serde_json::from_str(line.trim().trim_end_matches(',')).ok()?;
    document.get("counter-value")?;
    let value = document["counter-value"].as_str().and_then(|text| text.parse::<f64>().ok());
    let at = line.find("\"kvm:kvm_")?;
    let name = event(line.get(at + 1..)?.split('"').next()?)?;
    Some(StatRow {
        event: name,
        count: value.filter(|value| *value >= 0.0).map(|value| value as u64),
        time: document["interval"].as_f64(),
    })
}

pub(super) fn parse(text: &str) -> EventCounts {
    let mut found = EventCounts::default();
    let (mut elapsed, mut last) = (None, None);
    for line in text.lines().take(MAX_LINES) {
        if let Some(row) = row(line) {
            // An event that was not counted is unknown, not 0.
            row.count.into_iter().for_each(|count| found.add(row.event, count));
            last = row.time.or(last);
            continue;
        }
        let line = line.trim();
        if let Some(seconds) = line.strip_suffix("seconds time elapsed").or_else(|| {
            // With `-r`: `10.0012 +- 0.0003 seconds time elapsed  ( +-  0.00% )`.
            line.split_once("seconds time elapsed").map(|(before, _)| before)
        }) {
            let seconds = seconds.split_whitespace().next().map(|word| word.replace(',', "."));
            let seconds = seconds.and_then(|word| word.parse::<f64>().ok()).filter(|seconds| *seconds > 0.0);
            elapsed = seconds.map(|seconds| elapsed.unwrap_or(0.0) + seconds).or(elapsed);
        } else if let Some((_, ids)) = line.split_once("stats for process id '") {
            found.pid = ids.split('\'').next().and_then(|id| id.parse().ok());
        }
    }
    found.seconds = elapsed.or(last);
    found
}
