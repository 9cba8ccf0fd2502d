//! Tables of `perf-prof kvm-exit`, written as `perf kvm stat live` prints them.

use kvm::pattern::Pattern;
use std::collections::HashMap;

/// A title with columns in microseconds, for some versions with a column for the quantiles.
const TITLES: [&str; 4] = ["exit_reason", "calls", "total(us)", "min(us)"];
static CLOCK: Pattern = Pattern::new(r"^[0-9]{4}-[0-9]{2}-[0-9]{2} (?P<clock>[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]+) *$");

/// The text with each of its tables as one of `perf kvm stat live`. A thread stands for a vCPU, by its place in the
/// text.
pub(super) fn as_live(text: &str) -> String {
    let (mut clock, mut threads, mut columns, mut live) = ("", HashMap::new(), None, String::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(found) = CLOCK.captures(line.trim()).and_then(|found| found.name("clock")) {
            clock = found.as_str();
        } else if let ["kvm-exit", "latency", rest @ ..] = words.as_slice() {
            live += "Analyze events for all VMs";
            if let [.., thread] = rest {
                let next = threads.len();
                live += &format!(", VCPU {}", threads.entry(*thread).or_insert(next));
            }
            live += &format!("\n{clock}\n");
        } else if words.starts_with(&TITLES) {
            live += "VM-EXIT Samples Samples% Time% Min Time Max Time Avg time\n";
            let place = |title| words.iter().position(|word| *word == title);
            columns = place("avg(us)").zip(place("max(us)"));
        } else if let Some((mean, max)) = columns.and_then(|(mean, max)| words.get(mean).zip(words.get(max)))
            && let [name, count, _, min, ..] = words.as_slice()
            && count.parse::<u64>().is_ok()
        {
            live += &format!("{name} {count} -nan% -nan% {min}us {max}us {mean}us\n");
        } else {
            columns = columns.filter(|_| line.starts_with('-'));
            live += line;
            live.push('\n');
        }
    }
    live
}
