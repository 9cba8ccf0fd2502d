//! Counts of KVM's events without times: the output of `kvm_stat` and `perf stat -e 'kvm:*'`.

mod kvm_stat;
mod perf_stat;

use super::sanitize;
use super::unread::UnreadLines;
use std::collections::BTreeMap;

/// Limit of different names; kernels have about 200.
const MAX_NAMES: usize = 4096;
/// Recordings that are left out by name.
const MAX_LEFT_OUT: usize = 8;
/// Lines of a text that are examined.
const MAX_LINES: usize = 500_000;

/// Counts over a time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventCounts {
    /// KVM's own statistics and tracepoints by name: `exits`, `kvm_exit`.
    pub counts: BTreeMap<String, u64>,
    /// `kvm_exit` by reason, as `kvm_stat -t` splits it.
    pub exits: BTreeMap<String, u64>,
    /// `kvm_userspace_exit` by reason without `KVM_EXIT_`.
    pub userspace: BTreeMap<String, u64>,
    /// The time, seconds.
    pub seconds: Option<f64>,
    /// The process that they are restricted to.
    pub pid: Option<i32>,
    /// The number of its first line, from 1.
    pub line: usize,
    /// Lines within the output that could not be read.
    pub unread: UnreadLines,
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

    /// How much happened: exits per second, or all events where exits were not counted. Without a time it is less than
    /// any rate.
    fn rate(&self) -> (u64, &'static str) {
        let exits = ["kvm_exit", "exits"].into_iter().find_map(|name| Some((*self.counts.get(name)?, name)));
        let all = || self.counts.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let (count, what) = exits.unwrap_or_else(|| (all(), "events"));
        (self.seconds.map_or(0, |seconds| (count as f64 / seconds) as u64), what)
    }

    fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.exits.is_empty()
    }
}

/// Whether a name has the form of a KVM tracepoint's; KVM's modules and its tool are named alike.
pub fn is_tracepoint(name: &str) -> bool {
    name.starts_with("kvm_") && !matches!(name, "kvm_intel" | "kvm_amd" | "kvm_hv" | "kvm_pr" | "kvm_stat")
}

/// Whether a text holds one of these outputs.
pub fn looks_like(text: &str) -> bool {
    !parse(text).0.is_empty()
}

/// Reads a text. Of several recordings of one guest, such as one before a change and one after it, that with most exits
/// stays; a sentence says of each of the others that it is left out.
pub fn parse(text: &str) -> (Vec<EventCounts>, Vec<String>) {
    let mut all = perf_stat::parse(text);
    all.extend(kvm_stat::parse(text));
    // Events of any kind are no measure beside exits: a quoted line may have more of them than a whole table.
    let is_vague = |found: &EventCounts| found.rate().1 == "events";
    all.sort_by_key(|found| (found.pid, is_vague(found), std::cmp::Reverse(found.rate().0), found.line));
    let (mut most, mut left_out): (Vec<EventCounts>, Vec<String>) = (Vec::new(), Vec::new());
    for found in all {
        let Some(judged) = most.last().filter(|last| last.pid == found.pid) else {
            most.push(found);
            continue;
        };
        let said =
            |counts: &EventCounts| format!("line {} on, with {} {}/s", counts.line, counts.rate().0, counts.rate().1);
        left_out.push(format!(
            "several recordings of counts: the one from {} is judged, the one from {} is left out (compare two files \
             with 'kvmtop diff')",
            said(judged),
            said(&found)
        ));
    }
    left_out.truncate(MAX_LEFT_OUT);
    (most, left_out)
}

#[cfg(test)]
mod tests;
