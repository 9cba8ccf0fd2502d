//! The host's memory and swap: how much is used, and how much could be had.

use crate::proc::file::{self, read_number, read_word};
use crate::proc::paths::SystemPaths;
use crate::proc::stat::{count, value};
use kvm::CpuSet;
use procfs::Meminfo;
use sample::{HostMemory, HostNode};
use std::path::Path;

/// At most this many sizes of huge pages are read.
const MAX_HUGE_SIZES: usize = 16;

/// Reads the host's memory; `None` where /proc/meminfo cannot be read.
pub(crate) fn read(paths: &SystemPaths) -> Option<HostMemory> {
    let info: Meminfo = file::read_as(&paths.proc.join("meminfo"), 16 * 1024)?;
    // `Cached` leaves out the pages of block devices, which are `Buffers`, and includes shared
    // memory, which cannot be dropped (fs/proc/meminfo.c).
    let files = info.cached.saturating_sub(info.shmem.unwrap_or(0));
    let slabs = info.s_reclaimable.unwrap_or(0);
    let kernel = paths.sys.join("kernel/mm");
    let huge = HugePages::read(&kernel.join("hugepages"));
    Some(HostMemory {
        total: info.mem_total,
        available: info.mem_available?,
        free: Some(info.mem_free),
        cache: Some(files.saturating_add(info.buffers).saturating_add(slabs)),
        arc: arc(&paths.proc),
        huge_total: huge.as_ref().map(|pages| pages.total),
        huge_free: huge.as_ref().map(|pages| pages.free),
        swap_used: info.swap_total.saturating_sub(info.swap_free),
        ksm_running: read_word(&kernel.join("ksm/run")).as_deref() == Some("1"),
        ksm_saved: read_number::<u64>(&kernel.join("ksm/pages_sharing"))
            .map(|pages| pages.saturating_mul(rustix::param::page_size() as u64)),
    })
}

/// Memory of NUMA nodes (Documentation/ABI/stable/sysfs-devices-node).
pub(crate) fn nodes(paths: &SystemPaths, nodes: &CpuSet) -> Vec<HostNode> {
    let mut read = Vec::new();
    for node in nodes.iter() {
        let folder = paths.sys.join(format!("devices/system/node/node{node}"));
        let meminfo = file::read_text(&folder.join("meminfo"), 16 * 1024).unwrap_or_default();
        // `Node 0 MemFree:         123 kB`.
        let meminfo = meminfo.replace(&format!("Node {node} "), "");
        let kib = |name: &str| {
            let figure = value(&meminfo, name)?.strip_suffix("kB")?;
            figure.trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        let (Some(total), Some(free)) = (kib("MemTotal"), kib("MemFree")) else {
            continue;
        };
        let statistics = file::read_text(&folder.join("numastat"), 4096).unwrap_or_default();
        read.push(HostNode {
            node,
            total,
            free,
            huge_free: HugePages::read(&folder.join("hugepages")).map_or(0, |pages| pages.free),
            missed: count(&statistics, "numa_miss").unwrap_or(0),
        });
    }
    read
}

/// Explicit huge pages of all sizes, bytes.
struct HugePages {
    total: u64,
    free: u64,
}

impl HugePages {
    /// `None` for a kernel without them.
    fn read(folder: &Path) -> Option<Self> {
        let mut sum = Self { total: 0, free: 0 };
        for size in std::fs::read_dir(folder)
            .ok()?
            .flatten()
            .take(MAX_HUGE_SIZES)
        {
            let name = size.file_name();
            let kib = name.to_str().and_then(|name| {
                let digits = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
                digits.parse::<u64>().ok()
            });
            let Some(bytes) = kib.and_then(|kib| kib.checked_mul(1024)) else {
                continue;
            };
            let folder = size.path();
            let total: u64 = read_number(&folder.join("nr_hugepages")).unwrap_or(0);
            let free: u64 = read_number(&folder.join("free_hugepages")).unwrap_or(0);
            sum.total = sum.total.saturating_add(total.saturating_mul(bytes));
            sum.free = sum.free.saturating_add(free.saturating_mul(bytes));
        }
        Some(sum)
    }
}

/// What ZFS caches beyond its minimum; `None` without ZFS. Lines are `name type value`
/// (`spl-kstat.c` of the ZFS module).
fn arc(proc: &Path) -> Option<u64> {
    let text = file::read_text(&proc.join("spl/kstat/zfs/arcstats"), 64 * 1024).ok()?;
    let mut size = None;
    let mut min = None;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let name = words.next();
        let value = words.nth(1).and_then(|word| word.parse::<u64>().ok());
        match name {
            Some("size") => size = value,
            Some("c_min") => min = value,
            _ => {}
        }
    }
    Some(size?.saturating_sub(min?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;

    fn host() -> FakeProc {
        let fake = FakeProc::new();
        let mut meminfo = "MemTotal: 100 kB\nMemAvailable: 40 kB\nMemFree: 10 kB\nBuffers: 3 \
                           kB\nCached: 30 kB\nShmem: 9 kB\nSReclaimable: 4 kB\nSwapTotal: 9 \
                           kB\nSwapFree: 2 kB\n"
            .to_owned();
        // Each kernel has these.
        let others = "SwapCached Active Inactive Dirty Writeback Mapped Slab Committed_AS \
                      VmallocTotal VmallocUsed VmallocChunk";
        for name in others.split(' ') {
            meminfo.push_str(&format!("{name}: 1 kB\n"));
        }
        fake.write("proc/meminfo", &meminfo);
        fake
    }

    #[test]
    fn caches_are_what_can_be_had_back_and_free_is_what_nothing_uses() {
        let fake = host();
        let expected = HostMemory {
            total: 102_400,
            available: 40_960,
            free: Some(10_240),
            cache: Some(28 * 1024),
            swap_used: 7168,
            ..HostMemory::default()
        };
        assert_eq!(read(&fake.paths()), Some(expected));
    }

    #[test]
    fn zfs_huge_pages_and_ksm_where_the_host_has_them() {
        let fake = host();
        let arcstats = "13 1 0x01 123 33456 17 99\nname                            type \
                        data\nhits                            4    7\nsize                            \
                        4    9000\nc_min                           4    2000\n";
        fake.write("proc/spl/kstat/zfs/arcstats", arcstats);
        let folder = "sys/kernel/mm/hugepages/hugepages";
        for (size, total, free) in [("2048", "8", "3"), ("1048576", "2", "1")] {
            fake.write(&format!("{folder}-{size}kB/nr_hugepages"), total);
            fake.write(&format!("{folder}-{size}kB/free_hugepages"), free);
        }
        fake.write("sys/kernel/mm/ksm/run", "1\n");
        fake.write("sys/kernel/mm/ksm/pages_sharing", "5\n");
        let memory = read(&fake.paths()).unwrap();
        assert_eq!(memory.arc, Some(7000));
        assert_eq!(memory.caches(), Some(28 * 1024 + 7000));
        assert_eq!(memory.huge_total, Some((8 << 21) + (2 << 30)));
        assert_eq!(memory.huge_free, Some((3 << 21) + (1 << 30)));
        assert!(memory.ksm_running);
        let page = rustix::param::page_size() as u64;
        assert_eq!(memory.ksm_saved, Some(5 * page));
        fake.write("proc/spl/kstat/zfs/arcstats", "size 4 1\nc_min 4 5\n");
        let small = read(&fake.paths()).unwrap();
        assert_eq!(small.arc, Some(0), "below its minimum");
    }

    #[test]
    fn nodes_have_their_own_memory() {
        let fake = FakeProc::new();
        let node = "sys/devices/system/node/node1";
        fake.write(
            &format!("{node}/meminfo"),
            "Node 1 MemTotal:       100 kB\nNode 1 MemFree:         40 kB\n",
        );
        fake.write(&format!("{node}/numastat"), "numa_hit 9\nnuma_miss 7\n");
        let pages = format!("{node}/hugepages/hugepages-2048kB");
        fake.write(&format!("{pages}/nr_hugepages"), "3\n");
        fake.write(&format!("{pages}/free_hugepages"), "2\n");
        // The first node cannot be read.
        let nodes = nodes(&fake.paths(), &CpuSet::from_iter([0, 1]));
        let expected = HostNode {
            node: 1,
            total: 100 << 10,
            free: 40 << 10,
            huge_free: 4 << 20,
            missed: 7,
        };
        assert_eq!(nodes, [expected]);
    }
}
