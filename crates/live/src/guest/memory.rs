//! A guest's memory on the host: how much is resident and swapped out, and on which NUMA nodes it lies. The nodes are
//! read rarely, as the kernel walks the page tables for them.

use super::stagger::stagger;
use crate::proc::file;
use crate::proc::paths::SystemPaths;
use crate::proc::slow_files::{LateFile, PATIENCE, SlowFiles};
use crate::proc::stat::kilobytes;
use sample::MemoryUse;
use std::collections::BTreeMap;

/// Time between two readings of `status` where the host swaps: short enough to see whether `VmSwap` keeps growing.
const SWAPPING_NS: u64 = 2_000_000_000;
/// The same where the host has nothing swapped out.
const STATUS_NS: u64 = 10_000_000_000;
/// Time between two readings of `numa_maps`, of one guest per tick.
const NODES_NS: u64 = 30_000_000_000;
/// At most this many bytes of `numa_maps` are read.
const MAX_MAPS: usize = 4 << 20;

/// The last reading.
#[derive(Debug, Default)]
pub(crate) struct GuestMemory {
    /// `VmSwap`, bytes.
    pub swap_bytes: Option<u64>,
    /// What is resident.
    pub used: MemoryUse,
    /// Bytes by node.
    pub nodes: BTreeMap<u32, u64>,
    /// Monotonic nanoseconds of the last reading of `status`.
    status_ns: Option<u64>,
    nodes_due_ns: u64,
    maps: LateFile,
}

/// What a tick lets the reading of a guest's memory cost.
#[derive(Debug)]
pub(crate) struct MemoryBudget<'t> {
    /// The user of the guest's process.
    pub uid: Option<u32>,
    /// Whether the host has anything swapped out; if not, no guest has.
    pub swapped: bool,
    /// The permission to read one `numa_maps`; using it clears it.
    pub may_walk: &'t mut bool,
    /// Reads it.
    pub slow_files: &'t mut SlowFiles,
}

impl GuestMemory {
    /// Reads what is due.
    pub(crate) fn read(&mut self, paths: &SystemPaths, pid: i32, now_ns: u64, budget: &mut MemoryBudget<'_>) {
        let swapped = budget.swapped;
        let every_ns = if swapped { SWAPPING_NS + stagger(pid) / 8 } else { STATUS_NS };
        if self.status_ns.is_none_or(|at| now_ns.saturating_sub(at) >= every_ns) {
            self.status_ns = Some(now_ns);
            let status = file::read_text(&paths.process(pid, "status"), 8192).unwrap_or_default();
            let bytes = |name| kilobytes(&status, name);
            self.swap_bytes = bytes("VmSwap");
            self.used = MemoryUse {
                resident: bytes("VmRSS"),
                hugetlb: bytes("HugetlbPages"),
                balloon: None,
                transparent: None,
            };
        }
        if !swapped {
            self.swap_bytes = Some(0);
        }
        if !self.maps.is_awaited() {
            if !*budget.may_walk || now_ns < self.nodes_due_ns {
                return;
            }
            *budget.may_walk = false;
            self.nodes_due_ns = now_ns + NODES_NS;
        }
        let path = paths.process(pid, "numa_maps");
        if let Some(maps) = self.maps.read(budget.slow_files, path, MAX_MAPS, budget.uid, PATIENCE) {
            self.nodes = by_node(&String::from_utf8_lossy(&maps.unwrap_or_default()));
        }
    }
}

/// Sums the pages of `numa_maps` by node: each mapping has `N0=pages N1=pages … kernelpagesize_kB=4` (proc(5)). The
/// program and its libraries are no memory of the guest: pages of a file that nobody has written, which lie where some
/// process read them first. A guest's memory in a file (memfd, /dev/shm) is `dirty`, in huge pages `huge`
/// (`fs/proc/task_mmu.c`, `gather_stats`).
fn by_node(maps: &str) -> BTreeMap<u32, u64> {
    let mut sums = BTreeMap::new();
    for line in maps.lines() {
        let mut page_kb = 4;
        let mut pages = Vec::new();
        let has = |word: &str| line.split_ascii_whitespace().any(|w| w.starts_with(word));
        if has("file=") && !["dirty=", "anon=", "huge"].into_iter().any(has) {
            continue;
        }
        for word in line.split_ascii_whitespace() {
            let Some((name, value)) = word.split_once('=') else { continue };
            let Ok(value) = value.parse::<u64>() else { continue };
            if name == "kernelpagesize_kB" {
                page_kb = value;
            } else if let Some(node) = name.strip_prefix('N').and_then(|n| n.parse::<u32>().ok()) {
                pages.push((node, value));
            }
        }
        for (node, n) in pages {
            let sum: &mut u64 = sums.entry(node).or_default();
            *sum = sum.saturating_add(n.saturating_mul(page_kb).saturating_mul(1024));
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::fake::FakeProc;

    const MAPS: &str = "7f0000000000 default anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4\n\
        7f1000000000 bind:0 file=/dev/hugepages/N9=1 huge anon=2 N0=2 kernelpagesize_kB=2048\n7f2 default\n";

    #[test]
    fn pages_of_all_sizes_add_up() {
        assert_eq!(by_node(MAPS), [(0, 4096 + 2 * (2 << 20)), (1, 8192)].into());
    }

    #[test]
    fn program_and_libraries_are_no_memory_of_the_guest() {
        let maps = "5500 default file=/usr/bin/qemu-system-x86_64 mapped=900 N1=900 kernelpagesize_kB=4\n\
            5600 default file=/usr/bin/qemu-system-x86_64 anon=2 dirty=2 N0=2 kernelpagesize_kB=4\n\
            7f00 bind:0 file=/memfd:ram\\040(deleted) dirty=100 active=0 N0=100 kernelpagesize_kB=4\n";
        assert_eq!(by_node(maps), [(0, 102 * 4096)].into());
    }

    #[test]
    fn reading_is_rare_and_one_at_a_time() {
        let fake = FakeProc::new();
        let p = fake
            .process(10, "qemu")
            .process_file("status", b"VmRSS:\t 1000 kB\nVmSwap:\t    12 kB\nHugetlbPages:\t 2048 kB\n")
            .process_file("numa_maps", MAPS.as_bytes());
        let mut memory = GuestMemory::default();
        let mut slow_files = SlowFiles::default();
        let mut read = |memory: &mut GuestMemory, now_ns: u64, swapped: bool, may_walk: bool| {
            let mut may = may_walk;
            let mut budget = MemoryBudget { uid: None, swapped, may_walk: &mut may, slow_files: &mut slow_files };
            memory.read(&fake.paths(), 10, now_ns, &mut budget);
            may
        };
        read(&mut memory, 0, true, false);
        assert_eq!((memory.swap_bytes, memory.nodes.len()), (Some(12_288), 0));
        assert_eq!((memory.used.resident, memory.used.hugetlb), (Some(1_024_000), Some(2 << 20)));
        let may = read(&mut memory, 1, true, true);
        assert_eq!((memory.nodes.len(), may), (2, false));
        let p = p.process_file("status", b"VmSwap:\t    13 kB\n");
        let may = read(&mut memory, 2, true, true);
        assert_eq!((memory.swap_bytes, may), (Some(12_288), true));
        read(&mut memory, 2 * SWAPPING_NS, true, false);
        assert_eq!((memory.swap_bytes, memory.used.resident), (Some(13_312), None));
        p.process_file("status", b"VmSwap:\t    14 kB\n");
        read(&mut memory, 2 * SWAPPING_NS + 1, false, false);
        assert_eq!(memory.swap_bytes, Some(0), "nothing of it where the host has nothing swapped out");
        read(&mut memory, 4 * SWAPPING_NS, true, false);
        assert_eq!(memory.swap_bytes, Some(14_336));
    }
}
