//! The host's CPU topology from /sys.

use crate::proc::file::read_number;
use kvm::CpuSet;
use kvm::topology::{CpuTopo, HostTopology};
use std::path::Path;

/// Deepest cache level read: `index0` is L1 data, `index3` is L3 on every CPU that runs KVM today.
const MAX_CACHES: u32 = 8;

/// Reads sockets, dies, cores, siblings, last-level caches, nodes and isolated CPUs from this
/// `/sys`.
pub fn read(sys: &Path) -> HostTopology {
    let base = sys.join("devices/system/cpu");
    let online = set_file(&base.join("online")).unwrap_or_default();
    let nodes = nodes(sys);
    let mut topology = HostTopology {
        cpus: online
            .iter()
            .map(|cpu| {
                let node = nodes
                    .iter()
                    .find(|(_, cpus)| cpus.contains(cpu))
                    .map(|(node, _)| *node);
                CpuTopo {
                    node,
                    ..cpu_topology(&base.join(format!("cpu{cpu}")), cpu)
                }
            })
            .collect(),
        isolated: isolated(sys, &base),
        nohz_full: set_file(&base.join("nohz_full")),
    };
    topology.normalise();
    topology
}

fn cpu_topology(dir: &Path, cpu: u32) -> CpuTopo {
    let topology = dir.join("topology");
    CpuTopo {
        cpu,
        core: read_number(&topology.join("core_id")),
        // The file says -1, which is no number here, where the firmware gives no socket.
        socket: read_number(&topology.join("physical_package_id")),
        die: read_number(&topology.join("die_id")),
        node: None,
        llc: last_level_cache(&dir.join("cache")),
        // The first name is that of Linux 5.3 and later, the second the old one
        // (Documentation/admin-guide/cputopology.rst).
        siblings: set_file(&topology.join("core_cpus_list"))
            .or_else(|| set_file(&topology.join("thread_siblings_list")))
            .unwrap_or_default(),
    }
}

/// The last-level cache, identified by the lowest CPU that shares it.
fn last_level_cache(dir: &Path) -> Option<u32> {
    (0..MAX_CACHES)
        .filter_map(|i| {
            let index = dir.join(format!("index{i}"));
            let level: u32 = read_number(&index.join("level"))?;
            Some((level, set_file(&index.join("shared_cpu_list"))?.first()?))
        })
        .max_by_key(|(level, _)| *level)
        .map(|(_, lowest_cpu)| lowest_cpu)
}

/// The NUMA nodes that are online, each with its CPUs.
fn nodes(sys: &Path) -> Vec<(u32, CpuSet)> {
    let base = sys.join("devices/system/node");
    let online = set_file(&base.join("online")).unwrap_or_default();
    online
        .iter()
        .filter_map(|n| Some((n, set_file(&base.join(format!("node{n}/cpulist")))?)))
        .collect()
}

/// The slower CPUs of a hybrid host; `None` where all CPUs are equal. Intel's kinds have separate
/// PMUs (arch/x86/events/intel/core.c, `hybrid_pmu`).
pub(crate) fn efficiency(sys: &Path) -> Option<CpuSet> {
    set_file(&sys.join("devices/cpu_atom/cpus"))
}

/// `isolcpus=` and the isolated partitions of cgroup v2 (Documentation/admin-guide/cgroup-v2.rst,
/// `cpuset.cpus.isolated`).
fn isolated(sys: &Path, base: &Path) -> Option<CpuSet> {
    let boot = set_file(&base.join("isolated"));
    let partitions = set_file(&sys.join("fs/cgroup/cpuset.cpus.isolated"));
    boot.into_iter()
        .chain(partitions)
        .reduce(|boot, partitions| boot.union(&partitions))
}

/// A file with a CPU list. An empty file, or `(null)` (in `nohz_full` without the boot option), is
/// the empty set.
fn set_file(path: &Path) -> Option<CpuSet> {
    let text = crate::proc::file::read_text(path, 64 * 1024).ok()?;
    match text.trim() {
        "(null)" => Some(CpuSet::new()),
        list => CpuSet::parse(list).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;

    #[test]
    fn two_sockets_with_threads() {
        let fake = FakeProc::new();
        let cpu = "sys/devices/system/cpu";
        fake.write(&format!("{cpu}/online"), "0-3\n");
        fake.write(&format!("{cpu}/isolated"), "2-3\n");
        fake.write(&format!("{cpu}/nohz_full"), "(null)\n");
        fake.write("sys/fs/cgroup/cpuset.cpus.isolated", "1\n");
        fake.write("sys/devices/system/node/online", "0-1\n");
        fake.write("sys/devices/system/node/node0/cpulist", "0,2\n");
        fake.write("sys/devices/system/node/node1/cpulist", "1,3\n");
        for n in 0..4 {
            let pair = if n % 2 == 0 { "0,2" } else { "1,3" };
            fake.write(&format!("{cpu}/cpu{n}/topology/core_id"), "0\n");
            fake.write(
                &format!("{cpu}/cpu{n}/topology/physical_package_id"),
                &format!("{}\n", n % 2),
            );
            fake.write(
                &format!("{cpu}/cpu{n}/topology/thread_siblings_list"),
                &format!("{pair}\n"),
            );
            fake.write(&format!("{cpu}/cpu{n}/cache/index0/level"), "1\n");
            fake.write(
                &format!("{cpu}/cpu{n}/cache/index0/shared_cpu_list"),
                &format!("{n}\n"),
            );
            fake.write(&format!("{cpu}/cpu{n}/cache/index3/level"), "3\n");
            fake.write(
                &format!("{cpu}/cpu{n}/cache/index3/shared_cpu_list"),
                &format!("{pair}\n"),
            );
        }
        let t = read(&fake.paths().sys);
        assert_eq!(t.cpus.len(), 4);
        let three = t.cpu(3).unwrap();
        assert_eq!(
            (three.core, three.socket, three.node, three.llc),
            (Some(0), Some(1), Some(1), Some(1))
        );
        assert_eq!(t.siblings(3).to_string(), "1,3");
        assert_eq!(t.isolated.unwrap().to_string(), "1-3");
        assert_eq!(t.nohz_full, Some(CpuSet::new()));
    }

    #[test]
    fn the_slower_cpus_of_a_hybrid_host() {
        let fake = FakeProc::new();
        fake.write("sys/devices/system/cpu/online", "0-3\n");
        let slower = |fake: &FakeProc| {
            let sys = fake.paths().sys;
            efficiency(&sys).map(|set| set.to_string())
        };
        assert_eq!(slower(&fake), None);
        fake.write("sys/devices/cpu_atom/cpus", "1-2\n");
        assert_eq!(slower(&fake).as_deref(), Some("1-2"));
    }

    #[test]
    fn nothing_known_is_none() {
        let fake = FakeProc::new();
        fake.write("sys/devices/system/cpu/online", "0\n");
        let t = read(&fake.paths().sys);
        assert_eq!(
            (t.cpus[0].core, t.cpus[0].node, t.cpus[0].llc),
            (None, None, None)
        );
        assert_eq!((t.isolated, t.nohz_full), (None, None));
    }
}
