//! Which CPUs are online, and since when: an event of perf ends with its CPU and does not come back with it
//! (kernel/events/core.c, `perf_event_exit_cpu_context`).

use crate::clock::clock_ns;
use crate::monotonic_ns;
use kvm::CpuSet;
use rustix::time::ClockId;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The host slept between two readings of its sleep time that differ by more, nanoseconds.
const SLEPT_NS: u64 = 10_000_000;
/// Passes over the rings from one look at every CPU to the next; the list of all is one file and read each time.
const EVERY: u32 = 5;

/// Follows CPUs that go offline and come online.
#[derive(Debug)]
pub(super) struct OnlineCpus {
    folder: PathBuf,
    /// What was read last: CPU by number, and the inode of its folder `topology`, which the kernel makes at each start
    /// of the CPU (drivers/base/topology.c, `topology_add_dev`).
    seen: BTreeMap<u32, Option<u64>>,
    text: String,
    passes: u32,
    /// How long the host slept up to the last look: all CPUs but one go offline for that, and no thread sees it.
    asleep_ns: u64,
}

/// CPUs that changed since the look before.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CpuChanges {
    /// Went offline, or were offline in between.
    pub stopped: Vec<u32>,
    /// Came online, or are again.
    pub started: Vec<u32>,
    /// Whether each CPU was looked at, and not only the list of all.
    pub looked: bool,
}

impl CpuChanges {
    /// Whether a CPU went and came back, so that the list of all is the same.
    pub fn came_back(&self) -> bool {
        self.started.iter().any(|cpu| self.stopped.contains(cpu))
    }
}

/// How long the host has slept since it was booted, nanoseconds.
pub(super) fn asleep_ns() -> u64 {
    // In this order: the time between the two readings makes it longer, by less than a sleep.
    let awake = monotonic_ns();
    clock_ns(ClockId::Boottime).saturating_sub(awake)
}

impl OnlineCpus {
    /// All that are online now.
    pub fn here() -> Self {
        Self::below(Path::new("/sys/devices/system/cpu"))
    }

    fn below(folder: &Path) -> Self {
        let mut cpus =
            Self { folder: folder.into(), seen: BTreeMap::new(), text: String::new(), passes: 0, asleep_ns: 0 };
        cpus.text = cpus.list();
        cpus.seen = cpus.look();
        cpus
    }

    /// Their numbers.
    pub fn numbers(&self) -> Vec<u32> {
        self.seen.keys().copied().collect()
    }

    /// What changed since the last call. `asleep_ns`: [`asleep_ns`].
    pub fn changes(&mut self, asleep_ns: u64) -> CpuChanges {
        let text = self.list();
        self.passes = self.passes.wrapping_add(1);
        let slept = asleep_ns.abs_diff(self.asleep_ns) > SLEPT_NS;
        if text.is_empty() || (text == self.text && !slept && !self.passes.is_multiple_of(EVERY)) {
            return CpuChanges::default();
        }
        self.asleep_ns = asleep_ns;
        self.text = text;
        let now = self.look();
        let differs = |a: &BTreeMap<u32, Option<u64>>, b: &BTreeMap<u32, Option<u64>>| {
            a.iter().filter(|(cpu, since)| b.get(cpu) != Some(since)).map(|(cpu, _)| *cpu).collect()
        };
        let changes =
            CpuChanges { stopped: differs(&self.seen, &now), started: differs(&now, &self.seen), looked: true };
        self.seen = now;
        changes
    }

    fn list(&self) -> String {
        std::fs::read_to_string(self.folder.join("online")).unwrap_or_default()
    }

    fn look(&self) -> BTreeMap<u32, Option<u64>> {
        let inode = |cpu| std::fs::metadata(self.folder.join(format!("cpu{cpu}/topology"))).ok().map(|m| m.ino());
        CpuSet::parse(self.text.trim()).unwrap_or_default().iter().map(|cpu| (cpu, inode(cpu))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_cpu_that_was_offline_is_another_one() {
        let root = tempfile::tempdir().unwrap();
        let topology = |cpu: u32| root.path().join(format!("cpu{cpu}/topology"));
        fs::write(root.path().join("online"), "0-2\n").unwrap();
        (0..3).for_each(|cpu| fs::create_dir_all(topology(cpu)).unwrap());
        let mut cpus = OnlineCpus::below(root.path());
        assert_eq!((cpus.numbers(), cpus.changes(0)), (vec![0, 1, 2], CpuChanges::default()));
        // Off: seen at once.
        fs::write(root.path().join("online"), "0,2\n").unwrap();
        let changes = |stopped: &[u32], started: &[u32]| CpuChanges {
            stopped: stopped.to_vec(),
            started: started.to_vec(),
            looked: true,
        };
        assert_eq!(cpus.changes(0), changes(&[1], &[]));
        fs::write(root.path().join("online"), "0-2\n").unwrap();
        assert_eq!(cpus.changes(0), changes(&[], &[1]));
        // Off and on between two looks: the list is the same. The new folder is made first: it must be another inode.
        let restart = |old: &str| {
            fs::rename(topology(2), root.path().join(old)).unwrap();
            fs::create_dir(topology(2)).unwrap();
        };
        restart("old");
        let looks = (0..EVERY).map(|_| cpus.changes(0)).filter(|c| c.looked).collect::<Vec<_>>();
        assert_eq!(looks, [changes(&[2], &[2])]);
        assert!(looks[0].came_back());
        // The host slept: seen at once.
        restart("older");
        assert_eq!(cpus.changes(5_000_000_000), changes(&[2], &[2]));
        fs::remove_file(root.path().join("online")).unwrap();
        assert_eq!(cpus.changes(5_000_000_000), CpuChanges::default(), "unknown is no change");
    }
}
