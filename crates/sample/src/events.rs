//! The events that a tracing engine counted on one thread.
//!
//! Counters are cumulative since the engine started
//! ([`EngineStatus::generation`](super::EngineStatus::generation)). All events of a thread that is
//! new in a sample happened since the previous sample. Extremes and bursts are those of the
//! interval that ends with the sample.

use super::figures::{Bounded, bounded, counters, growing};
use kvm::Space;
use kvm::isa::Isa;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// Number of buckets of a [`Histogram`].
pub const BUCKETS: usize = 32;

/// A histogram of durations. Bucket 0 counts durations below 128 ns, bucket i those from `64 * 2^i`
/// to below `64 * 2^(i+1)` ns, the last one all longer ones. Empty buckets at the end are omitted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram(pub Vec<u64>);

impl Bounded for Histogram {
    fn bound(&mut self) {
        self.0.truncate(BUCKETS);
        self.0.bound();
    }
}

impl Histogram {
    /// The bucket of a duration.
    pub fn bucket(ns: u64) -> usize {
        ((ns >> 6).max(1).ilog2() as usize).min(BUCKETS - 1)
    }

    /// The upper limit of a bucket, nanoseconds: the shortest duration that belongs to the next
    /// one.
    pub fn upper(bucket: usize) -> u64 {
        64 << (bucket + 1)
    }

    /// From all buckets: drops the empty ones at the end.
    pub fn trimmed(buckets: [u64; BUCKETS]) -> Self {
        let used = buckets
            .iter()
            .rposition(|n| *n != 0)
            .map_or(0, |last| last + 1);
        Self(buckets[..used].to_vec())
    }

    /// Counts one duration.
    pub fn add(&mut self, ns: u64) {
        let b = Self::bucket(ns);
        if self.0.len() <= b {
            self.0.resize(b + 1, 0);
        }
        self.0[b] += 1;
    }
}

/// Durations of one kind: count, sum, sum of squares, extremes, distribution.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timing {
    /// Number of durations, cumulative.
    pub count: u64,
    /// Sum, nanoseconds, cumulative; `None` if durations are only counted.
    pub total_ns: Option<u64>,
    /// Sum of squares, ns², cumulative. Each duration is clipped to [`SPREAD_CLIP_NS`]. `None` if
    /// not measured.
    pub sum_sq: Option<u128>,
    /// Shortest duration of the interval that ends with this sample, nanoseconds; `None` if there
    /// is none or it is not measured.
    pub min_ns: Option<u64>,
    /// Longest duration of the interval that ends with this sample, nanoseconds; `None` as for
    /// `min_ns`.
    pub max_ns: Option<u64>,
    /// Distribution, cumulative; `None` if not measured.
    pub histogram: Option<Histogram>,
}

bounded!(Timing { count, total_ns, min_ns, max_ns, histogram } sum_sq);

/// Longest duration in [`Timing::sum_sq`]: longer ones count as this one, nanoseconds.
pub const SPREAD_CLIP_NS: u64 = 1 << 30;

impl Timing {
    /// Adds one duration.
    pub fn add(&mut self, ns: u64) {
        self.add_clipped(ns, SPREAD_CLIP_NS);
    }

    /// As [`Timing::add`]; in the sum of squares a longer duration counts as `clip`.
    pub fn add_clipped(&mut self, ns: u64, clip: u64) {
        self.count += 1;
        let total = self.total_ns.get_or_insert(0);
        *total = total.saturating_add(ns);
        let clipped = u128::from(ns.min(clip));
        let squares = self.sum_sq.get_or_insert(0);
        *squares = squares.saturating_add(clipped * clipped);
        self.min_ns = Some(self.min_ns.map_or(ns, |m| m.min(ns)));
        self.max_ns = Some(self.max_ns.map_or(ns, |m| m.max(ns)));
        self.histogram.get_or_insert_default().add(ns);
    }
}

/// The events of one thread.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadEvents {
    /// Exits by reason. An exit lasts from `kvm_exit` to the next `kvm_entry` of the same thread.
    pub exits: Vec<ExitCell>,
    /// Accesses by port, address or MSR.
    pub accesses: Vec<AccessCell>,
    /// Exits to the VMM by `KVM_EXIT_*` number.
    pub userspace: Vec<UserspaceCell>,
    /// Migrations from one pCPU to another.
    pub migrations: Migrations,
    /// Time from each wake-up until the thread runs (`sched_waking` to `sched_switch`); `None` if
    /// not measured. Boxed, as `run_delays`: most threads of a large trace have neither.
    pub wakeups: Option<Box<Timing>>,
    /// Tasks that woke it, in no particular order. If the engine's table is full, the least
    /// important ones count in [`OtherTask::REST`].
    pub woken_by: Vec<OtherTask>,
    /// Tasks that had its pCPU while it was runnable; otherwise as `woken_by`.
    pub preempted_by: Vec<OtherTask>,
    /// Time from each instant at which the thread could run until it runs: woken, or pre-empted.
    /// `wakeups` are a part of them. `None` if not measured.
    pub run_delays: Option<Box<Timing>>,
}

bounded!(ThreadEvents {
    exits,
    accesses,
    userspace,
    migrations,
    wakeups,
    woken_by,
    preempted_by,
    run_delays
});

/// Exits of one reason on one thread.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExitCell {
    /// The instruction set that the code belongs to.
    pub isa: Isa,
    /// The exit reason of `kvm_exit`, including flag bits.
    pub code: u32,
    /// The name from this host's kernel or from the file; `None`: the built-in table has it, if
    /// anyone does.
    pub name: Option<String>,
    /// The duration of the exits.
    pub time: Timing,
    /// The part of `time` outside the kernel, in the VMM, nanoseconds, cumulative; `None` if not
    /// measured.
    pub userspace_ns: Option<u64>,
    /// The part of `time` halted (asleep in the kernel with nothing to run); otherwise as
    /// `userspace_ns`.
    pub halted_ns: Option<u64>,
    /// The part of `time` runnable while another task had the pCPU; otherwise as `userspace_ns`.
    pub preempted_ns: Option<u64>,
}

bounded!(ExitCell { time, userspace_ns, halted_ns, preempted_ns } isa, code, name);

/// Direction of an access.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Direction {
    /// The guest read.
    #[default]
    Read,
    /// The guest wrote.
    Write,
}

/// Accesses to one port, address or MSR on one thread.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccessCell {
    /// Port, memory or MSR.
    pub space: Space,
    /// Port number, guest-physical address (lowest two bits cleared) or MSR number; `None`: the
    /// cell of all addresses without room in the engine's table.
    pub address: Option<u64>,
    /// Read or write.
    pub direction: Direction,
    /// The duration of the exits with the access; several accesses in one exit share its time. Only
    /// a count if the kernel fires no `kvm_exit`.
    pub time: Timing,
    /// Number of accesses that raised a fault in the guest (MSRs), cumulative.
    pub faults: u64,
    /// The longest burst of the interval that ends with this sample; `None` if not measured.
    pub burst: Option<Burst>,
}

bounded!(AccessCell { time, faults, burst } space, address, direction);

/// Consecutive accesses with gaps below 1 ms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Burst {
    /// Number of accesses.
    pub count: u64,
    /// Time from the first to the last access, nanoseconds.
    pub ns: u64,
}

bounded!(Burst { count, ns });

/// Exits to the VMM for one `KVM_EXIT_*`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserspaceCell {
    /// `kvm_run.exit_reason`, or a negative errno: -4 (EINTR) for a return on a signal.
    pub reason: i32,
    /// Number of exits, cumulative.
    pub count: u64,
}

counters!(UserspaceCell { count } reason);

/// Migrations between pCPUs, cumulative. The crossings count only migrations between CPUs of known
/// topology.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Migrations {
    /// All migrations; `None` if no source counts them.
    pub total: Option<u64>,
    /// To another core.
    pub cross_core: u64,
    /// To another last-level cache.
    pub cross_llc: u64,
    /// To another NUMA node.
    pub cross_node: u64,
}

growing!(Migrations {
    total,
    cross_core,
    cross_llc,
    cross_node
});

/// Another task that woke or pre-empted this thread.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OtherTask {
    /// Its thread id; 0 for an interrupt or the idle task, [`OtherTask::REST`] for all tasks
    /// without room.
    pub tid: i32,
    /// Its name, sanitized.
    pub comm: String,
    /// Number of times, cumulative.
    pub count: u64,
    /// Time, nanoseconds, cumulative; 0 for wake-ups, which have none.
    pub ns: u64,
}

counters!(OtherTask { count, ns } tid, comm);

impl OtherTask {
    /// The thread id of the sum of all tasks without room in a bounded table.
    pub const REST: i32 = -1;

    /// The sum of the tasks without room; `None` if there are none.
    pub fn rest(count: u64, ns: u64) -> Option<Self> {
        if count == 0 {
            return None;
        }
        Some(Self {
            tid: Self::REST,
            comm: "other".into(),
            count,
            ns,
        })
    }
}
