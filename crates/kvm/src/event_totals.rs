//! Counts of KVM's events without times: the output of `kvm_stat` and `perf stat -e 'kvm:*'`.

mod kvm_stat;
mod perf_stat;

use super::sanitize;
use super::unread::UnreadLines;
use std::collections::BTreeMap;

/// Limit of different names; kernels have about 200.
const MAX_NAMES: usize = 4096;
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

    fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.exits.is_empty()
    }
}

/// Whether a text holds one of these outputs.
pub fn looks_like(text: &str) -> bool {
    !kvm_stat::parse(text, 5000).is_empty() || perf_stat::looks_like(text)
}

/// Reads a text.
pub fn parse(text: &str) -> Option<EventCounts> {
    [perf_stat::parse(text), kvm_stat::parse(text, MAX_LINES)].into_iter().find(|found| !found.is_empty())
}

#[cfg(test)]
mod tests;
