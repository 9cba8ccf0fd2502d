//! A guest's memory on the host: how much is resident, swapped out and in transparent huge pages,
//! and on which NUMA nodes it lies. The kernel walks the VMM's page tables for the last two, so
//! they are read rarely and of one guest at a time.

use super::stagger;
use crate::proc::file;
use crate::proc::read_context::ReadContext;
use crate::proc::slow_files::{FILE_TIMEOUT, LateFile, NO_WAIT, SlowFile};
use procfs::FromRead as _;
use procfs::process::{SmapsRollup, Status};
use sample::MemoryUse;
use std::collections::BTreeMap;

/// Time between two readings of `status` where the host swaps: short enough to see whether `VmSwap`
/// keeps growing.
const SWAPPING_NS: u64 = 2_000_000_000;
/// The same where the host has nothing swapped out.
const STATUS_NS: u64 = 10_000_000_000;
/// Time between two readings of `numa_maps`, of one guest per tick.
const NODES_NS: u64 = 30_000_000_000;
/// Maximum length of `numa_maps`, bytes.
const MAX_MAPS: usize = 4 << 20;
/// Time before the first reading of huge pages: a short look does without.
const HUGE_PAGES_FIRST_NS: u64 = 15_000_000_000;
/// Time between two readings of huge pages.
const HUGE_PAGES_NS: u64 = 300_000_000_000;

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
    huge_pages_due_ns: Option<u64>,
    rollup: LateFile,
}

impl GuestMemory {
    /// Reads what is due of a process that runs as user `uid`.
    pub(crate) fn read(&mut self, (pid, uid): (i32, Option<u32>), reader: &mut ReadContext) {
        let ReadContext {
            memory: budget,
            paths,
            slow_files,
            ..
        } = reader;
        let now_ns = reader.now_ns;
        let every_ns = if budget.swapped {
            SWAPPING_NS + stagger(pid) / 8
        } else {
            STATUS_NS
        };
        if self
            .status_ns
            .is_none_or(|at| now_ns.saturating_sub(at) >= every_ns)
        {
            self.status_ns = Some(now_ns);
            let status: Option<Status> =
                file::read_as(&paths.process(pid, "status"), file::MAX_STATUS);
            let bytes = |of: fn(&Status) -> Option<u64>| of(status.as_ref()?)?.checked_mul(1024);
            self.swap_bytes = bytes(|status| status.vmswap);
            self.used.resident = bytes(|status| status.vmrss);
            self.used.hugetlb = bytes(|status| status.hugetlbpages);
        }
        if !budget.swapped {
            self.swap_bytes = Some(0);
        }
        let is_turn = budget.may_walk && now_ns >= self.nodes_due_ns;
        if self.maps.is_awaited() || is_turn {
            if !self.maps.is_awaited() {
                (budget.may_walk, self.nodes_due_ns) = (false, now_ns + NODES_NS);
            }
            let maps = SlowFile {
                path: paths.process(pid, "numa_maps"),
                max: MAX_MAPS,
                uid,
            };
            if let Some(maps) = self.maps.read(slow_files, maps, FILE_TIMEOUT) {
                self.nodes = by_node(&String::from_utf8_lossy(&maps.unwrap_or_default()));
            }
        }
        let due_ns = *self
            .huge_pages_due_ns
            .get_or_insert(now_ns + HUGE_PAGES_FIRST_NS + stagger(pid));
        let is_turn = budget.may_sum && now_ns >= due_ns;
        if self.rollup.is_awaited() || is_turn {
            if !self.rollup.is_awaited() {
                (budget.may_sum, self.huge_pages_due_ns) = (false, Some(now_ns + HUGE_PAGES_NS));
            }
            let rollup = SlowFile {
                path: paths.process(pid, "smaps_rollup"),
                max: 8192,
                uid,
            };
            if let Some(rollup) = self.rollup.read(slow_files, rollup, NO_WAIT) {
                let rollup = rollup
                    .ok()
                    .and_then(|text| SmapsRollup::from_read(text.as_slice()).ok());
                let sums = rollup
                    .as_ref()
                    .and_then(|rollup| rollup.memory_map_rollup.iter().next());
                self.used.transparent =
                    sums.and_then(|sums| sums.extension.map.get("AnonHugePages").copied());
            }
        }
    }
}

/// Sums the pages of `numa_maps` by node: each mapping has `N0=pages N1=pages …
/// kernelpagesize_kB=4` (proc(5)). The program and its libraries do not count: they are unwritten
/// pages of files, which lie where some process read them first. A guest's memory in a file (memfd,
/// /dev/shm) is `dirty`, in huge pages `huge` (`fs/proc/task_mmu.c`, `gather_stats`).
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
            let Some((name, value)) = word.split_once('=') else {
                continue;
            };
            let Ok(value) = value.parse::<u64>() else {
                continue;
            };
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
    use crate::proc::read_context::MemoryBudget;
    use crate::tests::fake_proc::{FakeProc, status};

    const MAPS: &str = "7f0000000000 default anon=3 dirty=3 N0=1 N1=2 \
        kernelpagesize_kB=4\n7f1000000000 bind:0 file=/dev/hugepages/N9=1 huge anon=2 N0=2 \
        kernelpagesize_kB=2048\n7f2 default\n";

    #[test]
    fn pages_of_all_sizes_add_up() {
        assert_eq!(by_node(MAPS), [(0, 4096 + 2 * (2 << 20)), (1, 8192)].into());
    }

    #[test]
    fn program_and_libraries_are_no_memory_of_the_guest() {
        let maps = "5500 default file=/usr/bin/qemu-system-x86_64 mapped=900 N1=900 \
            kernelpagesize_kB=4\n5600 default file=/usr/bin/qemu-system-x86_64 anon=2 dirty=2 N0=2 \
            kernelpagesize_kB=4\n7f00 bind:0 file=/memfd:ram\\040(deleted) dirty=100 active=0 \
            N0=100 kernelpagesize_kB=4\n";
        assert_eq!(by_node(maps), [(0, 102 * 4096)].into());
    }

    #[test]
    fn reading_is_rare_and_one_at_a_time() {
        let fake = FakeProc::new();
        let p = fake
            .process(10, "qemu")
            .process_file(
                "status",
                status(&[
                    ("VmRSS", "1000 kB"),
                    ("VmSwap", "12 kB"),
                    ("HugetlbPages", "2048 kB"),
                ]),
            )
            .process_file("numa_maps", MAPS.as_bytes());
        let mut memory = GuestMemory::default();
        let mut reader = ReadContext::new(&fake.paths());
        let mut read = |memory: &mut GuestMemory, now_ns: u64, swapped: bool, may_walk: bool| {
            reader.memory = MemoryBudget {
                swapped,
                may_walk,
                may_sum: false,
            };
            reader.now_ns = now_ns;
            memory.read((10, None), &mut reader);
            reader.memory.may_walk
        };
        read(&mut memory, 0, true, false);
        assert_eq!((memory.swap_bytes, memory.nodes.len()), (Some(12_288), 0));
        assert_eq!(
            (memory.used.resident, memory.used.hugetlb),
            (Some(1_024_000), Some(2 << 20))
        );
        let may = read(&mut memory, 1, true, true);
        assert_eq!((memory.nodes.len(), may), (2, false));
        let p = p.process_file("status", status(&[("VmSwap", "13 kB")]));
        let may = read(&mut memory, 2, true, true);
        assert_eq!((memory.swap_bytes, may), (Some(12_288), true));
        read(&mut memory, 2 * SWAPPING_NS, true, false);
        assert_eq!(
            (memory.swap_bytes, memory.used.resident),
            (Some(13_312), None)
        );
        p.process_file("status", status(&[("VmSwap", "14 kB")]));
        read(&mut memory, 2 * SWAPPING_NS + 1, false, false);
        assert_eq!(
            memory.swap_bytes,
            Some(0),
            "nothing of it where the host has nothing swapped out"
        );
        read(&mut memory, 4 * SWAPPING_NS, true, false);
        assert_eq!(memory.swap_bytes, Some(14_336));
    }

    #[test]
    fn huge_pages_are_read_of_one_guest_at_a_time_and_rarely() {
        let fake = FakeProc::new();
        let rollup =
            b"7f00-7fff ---p 00000000 00:00 0 [rollup]\nRss: 9 kB\nAnonHugePages:    2048 kB\n";
        fake.process(32, "qemu")
            .process_file("smaps_rollup", rollup);
        let mut memory = GuestMemory::default();
        let mut reader = ReadContext::new(&fake.paths());
        let mut read = |memory: &mut GuestMemory, now_ns, may_sum| {
            reader.now_ns = now_ns;
            reader.memory = MemoryBudget {
                may_sum,
                ..MemoryBudget::default()
            };
            memory.read((32, None), &mut reader);
            reader.memory.may_sum
        };
        assert!(
            read(&mut memory, 0, true) && !memory.rollup.is_awaited(),
            "not at once"
        );
        read(&mut memory, HUGE_PAGES_FIRST_NS, false);
        assert!(
            !memory.rollup.is_awaited(),
            "it is the turn of another guest"
        );
        let begin = HUGE_PAGES_FIRST_NS + 1;
        assert!(!read(&mut memory, begin, true), "others wait");
        while memory.used.transparent.is_none() {
            read(&mut memory, begin, false);
        }
        assert_eq!(memory.used.transparent, Some(2 << 20));
        assert!(
            read(&mut memory, begin + HUGE_PAGES_NS - 1, true),
            "not again soon"
        );
    }
}
