//! The buffer and the budgets that one tick shares between all readings of guests.

use super::cgroup_mounts::CgroupMounts;
use super::file;
use super::network_tables::NetworkTables;
use super::paths::SystemPaths;
use super::slow_files::SlowFiles;
use std::time::Duration;

/// At most this many debugfs files are read in one tick, for all guests together.
const DEBUGFS_BUDGET: usize = 1400;

/// The buffer and the limits that all readings of a tick share.
#[derive(Debug, Default)]
pub(crate) struct ReadContext {
    /// The buffer that files are read into.
    pub buf: Vec<u8>,
    /// Files are kept open below this descriptor.
    pub keep_below: i32,
    /// How many `sched` files may still be read in this tick.
    pub sched_budget: usize,
    /// How many files of debugfs may still be read in this tick.
    pub debugfs_budget: usize,
    /// The permission to read one `numa_maps`; using it clears it.
    pub may_walk: bool,
    /// The permission to ask for the huge pages of one guest; using it clears it.
    pub may_sum: bool,
    /// The host's network namespaces.
    pub networks: NetworkTables,
    /// The mounted cgroups.
    pub cgroups: CgroupMounts,
    /// Number of the tick.
    pub tick: u32,
    /// Begin of the tick, monotonic nanoseconds.
    pub now_ns: u64,
    /// Where the kernel's files are.
    pub paths: SystemPaths,
    /// Reads what a process can hold back.
    pub slow_files: SlowFiles,
}

impl ReadContext {
    pub fn new(paths: &SystemPaths) -> Self {
        Self {
            buf: vec![0; 8192],
            keep_below: if paths.real { file::keep_below() } else { 512 },
            cgroups: CgroupMounts::read(paths),
            paths: paths.clone(),
            ..Self::default()
        }
    }

    /// Begins a tick that may read `sched_budget` files named `sched`.
    pub fn begin(&mut self, now_ns: u64, sched_budget: usize) {
        self.now_ns = now_ns;
        self.tick = self.tick.wrapping_add(1);
        self.sched_budget = sched_budget;
        self.debugfs_budget = DEBUGFS_BUDGET;
        self.slow_files.waited = Duration::ZERO;
        self.networks.begin(now_ns);
    }
}
