//! Exits by reason as `kvmexit` of bcc prints them, by process and thread or of one process (bcc's tools/kvmexit.py),
//! and its arm64 sister (`kvmexit-aarch64.py`), which adds the thread's name and a mean time.

use super::{EventCounts, MAX_LINES};
use std::collections::BTreeMap;

/// Processes of one text.
const MAX_PROCESSES: usize = 4096;

/// A row: the process where it is printed, the reason and the count.
struct KvmexitRow<'a> {
    pid: Option<i32>,
    reason: &'a str,
    count: u64,
}

fn is_heading(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "KVM_EXIT_REASON");
    at.is_some_and(|at| matches!(words.get(at + 1), Some(&("COUNT" | "STAT"))))
}

/// `1273551  1273568  EXIT_REASON_HLT  12`, `24877  24901  b'CPU 3/KVM'  EC_WFx  7  503369309.4`.
fn row(line: &str, has_pid: bool) -> Option<KvmexitRow<'_>> {
    let line = line.trim().trim_start_matches("^C");
    let words: Vec<&str> = line.split_whitespace().take(16).collect();
    let is_reason = |word: &&str| {
        word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && word.len() <= 64
    };
    let at = words.windows(2).rposition(|w| is_reason(&w[0]) && w[1].parse::<u64>().is_ok())?;
    let reason = words[at].trim_start_matches("EXIT_REASON_").trim_start_matches("EC_");
    // A row without the process that its heading announces is another tool's.
    let pid = if has_pid { Some(words[0].parse().ok()?) } else { None };
    Some(KvmexitRow { pid, reason, count: words[at + 1].parse().ok()? })
}

/// The seconds of `./kvmexit -p 3195281 5`: its last word, where that is no option's value.
fn seconds(line: &str) -> Option<f64> {
    let (_, arguments) = line.split_once("kvmexit")?;
    let mut words = arguments.split_whitespace().rev();
    let last = words.next()?;
    let of_option = words.next().is_some_and(|word| matches!(word, "-p" | "-v" | "-t" | "-T"));
    last.parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && !of_option)
}

/// The counts of each process.
pub(super) fn parse(text: &str) -> Vec<EventCounts> {
    let mut found: BTreeMap<Option<i32>, EventCounts> = BTreeMap::new();
    let (mut open, mut time) = (None, None);
    for line in text.lines().take(MAX_LINES) {
        if is_heading(line) {
            open = Some(line.split_whitespace().next().is_some_and(|word| word.ends_with("PID") || word == "TGID"));
        } else if let Some(has_pid) = open {
            let Some(row) = row(line, has_pid) else { continue };
            if found.len() < MAX_PROCESSES || found.contains_key(&row.pid) {
                let counts =
                    found.entry(row.pid).or_insert_with(|| EventCounts { pid: row.pid, ..EventCounts::default() });
                counts.add(&format!("kvm_exit({})", row.reason), row.count);
            }
        }
        time = seconds(line).or(time);
    }
    let timed = |mut counts: EventCounts| {
        counts.seconds = time;
        counts
    };
    found.into_values().map(timed).collect()
}
