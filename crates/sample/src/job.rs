//! What the VMM does with a whole guest or a disk for a while: migrations, block jobs, dumps.

use super::figures::bounded;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// What a job does.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum JobKind {
    /// Moves the guest to another host.
    Migration,
    /// Writes its memory to a file (`virsh save`, a snapshot with memory).
    Save,
    /// Writes its memory to a file for a debugger.
    Dump,
    /// Copies a disk as it was when the job began; before a write of the guest it copies the old
    /// content.
    Backup,
    /// Copies a disk, and repeats its writes.
    Mirror,
    /// Writes an overlay's content into the image below.
    Commit,
    /// Reads the content of the images below into an overlay.
    Stream,
    /// Any other job of QEMU.
    #[default]
    Other,
}

/// A job, as last read. Readings are less frequent than samples.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Job {
    /// What it does.
    pub kind: JobKind,
    /// The disk or the job's id; empty if it is about the whole guest.
    pub name: String,
    /// QEMU's word for its state, such as `active`, `postcopy-active`, `running`, `ready`;
    /// libvirt's is `active`.
    pub status: String,
    /// Why it failed or stopped.
    pub error: Option<String>,
    /// Time since its start; `None` if not reported.
    pub elapsed_ns: Option<u64>,
    /// Time since it was first seen.
    pub watched_ns: u64,
    /// Time since it last moved a byte: the readings between which `done` did not grow.
    pub still_ns: u64,
    /// Bytes that it moved so far, those included that it moved again.
    pub done: Option<u64>,
    /// Bytes in all.
    pub total: Option<u64>,
    /// Bytes left.
    pub remaining: Option<u64>,
    /// Bytes moved per second, as the VMM says or between the last two readings.
    pub rate: Option<u64>,
    /// The most bytes per second that it may move; `None`: no limit, or not reported.
    pub limit: Option<u64>,
    /// Passes over the memory, with the first (`dirty-sync-count`).
    pub rounds: Option<u64>,
    /// Bytes of memory that the guest wrote per second in the last pass, each page once; `None`
    /// before a second pass.
    pub dirtied: Option<u64>,
    /// How long the guest may pause at the end.
    pub downtime_limit_ns: Option<u64>,
    /// How long it would pause if the job ended now.
    pub downtime_ns: Option<u64>,
    /// The part of the time in which vCPUs are held back so that they write less (auto-converge),
    /// percent.
    pub throttle_percent: Option<u64>,
    /// Whether auto-converge may do so.
    pub auto_converge: Option<bool>,
    /// Whether a switch to post-copy was allowed at the start.
    pub postcopy: Option<bool>,
}

bounded!(Job {
    elapsed_ns, watched_ns, still_ns, done, total, remaining, rate, limit, rounds, dirtied,
    downtime_limit_ns, downtime_ns, throttle_percent,
} kind, name, status, error, auto_converge, postcopy);

impl Job {
    /// Whether it failed: it is over, and its last state says so.
    pub fn has_failed(&self) -> bool {
        self.status == "failed"
    }

    /// Adds what an earlier reading, `ns` ago, says of the same job.
    pub fn continues(&mut self, before: &Self, ns: u64) {
        self.watched_ns = before.watched_ns.saturating_add(ns);
        if self.done.is_some() && self.done <= before.done {
            self.still_ns = before.still_ns.saturating_add(ns);
        }
        let grown = self
            .done
            .zip(before.done)
            .map(|(now, before)| now.saturating_sub(before));
        let rate = grown.and_then(|bytes| bytes.saturating_mul(1000).checked_div(ns / 1_000_000));
        self.rate = rate.or(self.rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_goes_on_or_stands_still() {
        let first = Job {
            done: Some(1000),
            rate: Some(7),
            ..Job::default()
        };
        let mut second = Job {
            done: Some(3000),
            ..Job::default()
        };
        second.continues(&first, 2_000_000_000);
        assert_eq!(
            (second.rate, second.still_ns, second.watched_ns),
            (Some(1000), 0, 2_000_000_000)
        );
        let mut third = Job {
            done: Some(3000),
            ..Job::default()
        };
        third.continues(&second, 2_000_000_000);
        assert_eq!(
            (third.rate, third.still_ns, third.watched_ns),
            (Some(0), 2_000_000_000, 4_000_000_000)
        );
        // Two readings of which the figures are missing.
        let mut unknown = Job {
            rate: Some(9),
            ..Job::default()
        };
        unknown.continues(&Job::default(), 1_000_000_000);
        assert_eq!((unknown.rate, unknown.still_ns), (Some(9), 0));
    }
}
