//! What a tracing engine counted on one thread. All counters are cumulative since the engine first saw the thread, which is
//! since the engine started: a thread that is new in a sample did all of it within the interval.

use crate::kvm::Space;
use crate::kvm::isa::Isa;
use serde::{Deserialize, Serialize};

/// Number of buckets of a [`Histogram`].
pub const BUCKETS: usize = 32;

/// A histogram of durations: bucket 0 counts 0..128 ns, bucket i counts `64 * 2^i .. 64 * 2^(i+1)` ns, the last all above.
/// Trailing empty buckets are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram(pub Vec<u64>);

impl Histogram {
    /// The bucket of a duration.
    pub fn bucket(ns: u64) -> usize {
        ((ns >> 6).max(1).ilog2() as usize).min(BUCKETS - 1)
    }

    /// The first duration that a bucket does not hold, nanoseconds.
    pub fn upper(bucket: usize) -> u64 {
        64 << (bucket + 1)
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

/// Durations of one kind: count, sum, spread, extremes, distribution.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// How many.
    pub count: u64,
    /// Sum, nanoseconds; `None` where only counts are kept.
    pub total_ns: Option<u64>,
    /// Sum of squares, ns²; single durations clipped at 2^30 ns. `None` where not kept.
    pub sum_sq: Option<u128>,
    /// Shortest of the interval that ends with this sample, nanoseconds.
    pub min_ns: Option<u64>,
    /// Longest of the interval that ends with this sample, nanoseconds.
    pub max_ns: Option<u64>,
    /// Distribution; `None` where not kept.
    pub histogram: Option<Histogram>,
}

/// Longest single duration that enters `Timing::sum_sq`.
pub const SPREAD_CLIP_NS: u64 = 1 << 30;

impl Timing {
    /// Counts one duration, its extremes and spread included.
    pub fn add(&mut self, ns: u64) {
        self.add_clipped(ns, SPREAD_CLIP_NS);
    }

    /// As [`Timing::add`], the spread without its clip, as perf has it.
    pub fn add_exact(&mut self, ns: u64) {
        self.add_clipped(ns, u64::MAX);
    }

    fn add_clipped(&mut self, ns: u64, clip: u64) {
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

/// What one thread did, as the engine counted it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadEvents {
    /// Exits by reason: the time from `kvm_exit` to the next `kvm_entry` of the same thread.
    pub exits: Vec<ExitCell>,
    /// Ports, addresses and MSRs touched.
    pub accesses: Vec<AccessCell>,
    /// Exits that the VMM served, by `KVM_EXIT_*` number.
    pub userspace: Vec<UserspaceCell>,
    /// Moves from one pCPU to another.
    pub migrations: Migrations,
    /// From woken to running.
    pub wakeups: Option<Timing>,
    /// Who woke it, in no particular order. Where an engine's table is full, the rarest is counted in [`OtherTask::REST`].
    pub woken_by: Vec<OtherTask>,
    /// Who ran on its pCPU while it was runnable; otherwise as `woken_by`.
    pub preempted_by: Vec<OtherTask>,
}

/// Exits of one reason on one thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitCell {
    /// The instruction set that the code belongs to.
    pub isa: Isa,
    /// The exit reason as the kernel gave it, flag bits included.
    pub code: u32,
    /// The name by this host's kernel or by the file; `None`: the built-in table knows.
    pub name: Option<String>,
    /// Exit to entry.
    pub time: Timing,
    /// Of that time: outside the kernel, in the VMM. `None` where not told apart.
    pub userspace_ns: Option<u64>,
    /// Of that time: halted (asleep in the kernel with nothing to run).
    pub halted_ns: Option<u64>,
    /// Of that time: runnable, while another task had the pCPU.
    pub preempted_ns: Option<u64>,
}

/// Direction of an access.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// The guest read.
    #[default]
    Read,
    /// The guest wrote.
    Write,
}

impl Direction {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// Accesses to one port, address or MSR on one thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessCell {
    /// Port, memory or MSR.
    pub space: Space,
    /// Port number, guest-physical address (lowest two bits cleared) or MSR number; `None`: the cell of all that did not fit.
    pub address: Option<u64>,
    /// Read or write.
    pub direction: Direction,
    /// The whole exit that held the access, exit to entry; count only where the kernel fires no `kvm_exit`.
    pub time: Timing,
    /// How many of them raised a fault in the guest (MSRs).
    pub faults: u64,
    /// The longest run of the interval with gaps below 1 ms; `None` where not watched.
    pub burst: Option<Burst>,
}

/// A run of accesses close together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burst {
    /// Accesses in it.
    pub count: u64,
    /// From the first to the last, nanoseconds.
    pub ns: u64,
}

/// Exits to the VMM for one `KVM_EXIT_*`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserspaceCell {
    /// `kvm_run.exit_reason`, or -4 for a return on a signal.
    pub reason: i32,
    /// How many.
    pub count: u64,
}

/// Moves between pCPUs, cumulative. The crossings count only what the host's topology could tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migrations {
    /// All moves; `None` where no source counts them.
    pub total: Option<u64>,
    /// To another core.
    pub cross_core: u64,
    /// To another last-level cache.
    pub cross_llc: u64,
    /// To another NUMA node.
    pub cross_node: u64,
    /// The pCPU of before the last move.
    pub from: Option<u32>,
}

/// Another task in this thread's story.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherTask {
    /// Its thread id; 0 for an interrupt or idle, [`OtherTask::REST`] for all that found no place.
    pub tid: i32,
    /// Its name, made harmless.
    pub comm: String,
    /// How often.
    pub count: u64,
    /// For how long, nanoseconds, where it has a meaning.
    pub ns: u64,
}

impl OtherTask {
    /// The thread id of all those together for which a bounded table had no place.
    pub const REST: i32 = -1;

    /// Those for which there was no place; `None` where each had one.
    pub fn rest(count: u64, ns: u64) -> Option<Self> {
        (count > 0).then(|| Self { tid: Self::REST, comm: "other".into(), count, ns })
    }
}
