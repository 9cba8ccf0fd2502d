//! A guest's memory on the host: how much is resident, swapped out and in transparent huge pages,
//! and on which NUMA nodes it lies. The kernel walks the VMM's page tables for the last two, so
//! they are read rarely and of one guest at a time.

use super::stagger;
use crate::proc::file;
use crate::proc::read_context::ReadContext;
use crate::proc::slow_files::{LateFile, SlowFile};
use procfs::FromRead as _;
use procfs::process::{SmapsRollup, Status};
use sample::DomainSample;
use std::collections::BTreeMap;

/// Time between two readings of `status`: short enough to see whether `VmSwap` keeps growing.
const STATUS_NS: u64 = 2_000_000_000;
/// Time between two readings of `numa_maps`, of one guest per tick.
const NODES_NS: u64 = 30_000_000_000;
/// Maximum length of `numa_maps`, bytes.
const MAX_MAPS: usize = 4 << 20;

/// Time before the first reading of huge pages: a short look does without.
const HUGE_PAGES_FIRST_NS: u64 = 15_000_000_000;
/// Time between two readings of huge pages.
const HUGE_PAGES_NS: u64 = 300_000_000_000;

/// When to read again.
#[derive(Debug, Default)]
pub(crate) struct GuestMemory {
    status_due_ns: u64,
    nodes_due_ns: u64,
    maps: LateFile,
    huge_pages_due_ns: Option<u64>,
    rollup: LateFile,
}

impl GuestMemory {
    /// Reads what is due of a process that runs as user `uid` into the guest's sample.
    pub fn read(
        &mut self,
        (pid, uid): (i32, Option<u32>),
        reader: &mut ReadContext,
        sample: &mut DomainSample,
    ) {
        let now_ns = reader.now_ns;
        if now_ns >= self.status_due_ns {
            self.status_due_ns = now_ns + STATUS_NS + stagger(pid) / 8;
            let status: Option<Status> =
                file::read_as(&reader.paths.process(pid, "status"), file::MAX_STATUS);
            let in_kib = status.map(|s| [s.vmswap, s.vmrss, s.hugetlbpages]);
            let in_bytes = in_kib.unwrap_or_default().map(|kib| kib?.checked_mul(1024));
            [
                sample.swap_bytes,
                sample.memory.resident,
                sample.memory.hugetlb,
            ] = in_bytes;
        }
        let is_turn = reader.may_walk && now_ns >= self.nodes_due_ns;
        if self.maps.is_awaited() || is_turn {
            if !self.maps.is_awaited() {
                (reader.may_walk, self.nodes_due_ns) = (false, now_ns + NODES_NS);
            }
            let maps = SlowFile {
                path: reader.paths.process(pid, "numa_maps"),
                max: MAX_MAPS,
                uid,
            };
            if let Some(maps) = self.maps.read(&mut reader.slow_files, maps) {
                sample.node_memory = by_node(&String::from_utf8_lossy(&maps.unwrap_or_default()));
            }
        }
        self.read_huge_pages((pid, uid), reader, sample);
    }

    /// Asks for the huge pages and takes over what was asked for before: no tick waits for it.
    fn read_huge_pages(
        &mut self,
        (pid, uid): (i32, Option<u32>),
        reader: &mut ReadContext,
        sample: &mut DomainSample,
    ) {
        if self.rollup.is_awaited() {
            if let Some(rollup) = self.rollup.take() {
                sample.memory.transparent = transparent(&rollup.unwrap_or_default());
            }
            return;
        }
        let first_ns = reader.now_ns + HUGE_PAGES_FIRST_NS + stagger(pid);
        let due_ns = *self.huge_pages_due_ns.get_or_insert(first_ns);
        if reader.may_sum && reader.now_ns >= due_ns {
            reader.may_sum = false;
            self.huge_pages_due_ns = Some(reader.now_ns + HUGE_PAGES_NS);
            self.rollup.0 = reader.slow_files.start(SlowFile {
                path: reader.paths.process(pid, "smaps_rollup"),
                max: 8192,
                uid,
            });
        }
    }
}

fn has_word(line: &str, start: &str) -> bool {
    line.split_ascii_whitespace()
        .any(|word| word.starts_with(start))
}

/// Bytes in transparent huge pages of all mappings together.
fn transparent(rollup: &[u8]) -> Option<u64> {
    let rollup = SmapsRollup::from_read(rollup).ok()?;
    let all = rollup.memory_map_rollup.iter().next()?;
    all.extension.map.get("AnonHugePages").copied()
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
        let is_written = ["dirty=", "anon=", "huge"]
            .into_iter()
            .any(|start| has_word(line, start));
        if has_word(line, "file=") && !is_written {
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
            .process(32, "qemu")
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
        let mut read = |sample: &mut DomainSample, now_ns: u64, may_walk: bool| {
            (reader.now_ns, reader.may_walk) = (now_ns, may_walk);
            memory.read((32, None), &mut reader, sample);
            reader.may_walk
        };
        let mut sample = DomainSample::default();
        read(&mut sample, 0, false);
        assert_eq!(sample.swap_bytes, Some(12_288));
        assert!(sample.node_memory.is_empty());
        assert_eq!(
            (sample.memory.resident, sample.memory.hugetlb),
            (Some(1_024_000), Some(2 << 20))
        );
        let may = read(&mut sample, 1, true);
        assert_eq!((sample.node_memory.len(), may), (2, false));
        p.process_file("status", status(&[("VmSwap", "13 kB")]));
        let may = read(&mut sample, 2, true);
        assert_eq!((sample.swap_bytes, may), (Some(12_288), true));
        read(&mut sample, STATUS_NS, false);
        assert_eq!(
            (sample.swap_bytes, sample.memory.resident),
            (Some(13_312), None)
        );
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
        let mut sample = DomainSample::default();
        let mut read = |sample: &mut DomainSample, now_ns, may_sum| {
            (reader.now_ns, reader.may_sum) = (now_ns, may_sum);
            memory.read((32, None), &mut reader, sample);
            (reader.may_sum, memory.rollup.is_awaited())
        };
        assert_eq!(read(&mut sample, 1, true), (true, false), "not at once");
        let begin = HUGE_PAGES_FIRST_NS + 1;
        let others = read(&mut sample, begin, false);
        assert_eq!(others, (false, false), "it is the turn of another guest");
        assert!(!read(&mut sample, begin, true).0, "others wait");
        while sample.memory.transparent.is_none() {
            read(&mut sample, begin, false);
        }
        assert_eq!(sample.memory.transparent, Some(2 << 20));
        let soon = read(&mut sample, begin + HUGE_PAGES_NS - 1, true);
        assert_eq!(soon, (true, false), "not again soon");
    }
}
