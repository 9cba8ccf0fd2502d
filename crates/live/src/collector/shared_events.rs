//! Counts by process where two guests had the same process id.

use std::collections::BTreeMap;

/// Counts by process (`--kvm-events`) in an interval in which two guests had its id.
#[derive(Debug, Default)]
pub(super) struct SharedEvents {
    /// How many there were: nobody knows whose they are.
    pub(super) lost: u64,
}

impl SharedEvents {
    /// The counts of a guest, cumulative; none if it was not `alone`. `before`: their sum in the sample before.
    pub(super) fn of_one(&mut self, counted: BTreeMap<String, u64>, alone: bool, before: u64) -> BTreeMap<String, u64> {
        if alone {
            return counted;
        }
        let all = counted.values().fold(0, |sum: u64, n| sum.saturating_add(*n));
        self.lost = self.lost.saturating_add(all.saturating_sub(before));
        BTreeMap::new()
    }
}
