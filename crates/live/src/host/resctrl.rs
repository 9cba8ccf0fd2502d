//! What guests have of the last-level cache and of the memory's bandwidth, by the groups of resctrl that others made,
//! such as libvirt for `<cachetune>` with `<monitor>` (Documentation/filesystems/resctrl.rst). kvmtop makes none: each
//! takes one of the CPU's few ids.

use crate::proc::file::{read_text, read_word};
use crate::proc::paths::SystemPaths;
use crate::proc::stat::value;
use sample::{CacheUse, DomainSample, SourceId, SourceStatus};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Time between two readings: for each list of tasks the kernel looks at all threads of the host, and for each figure
/// it interrupts a CPU.
const PERIOD_NS: u64 = 5_000_000_000;
/// A CPU has some hundred ids of monitoring groups.
const MAX_GROUPS: usize = 512;
/// The most caches of a group.
const MAX_CACHES: usize = 64;

/// Bytes of a group, of which bandwidth is cumulative. In the order of [`FILES`].
type Counts = [Option<u64>; 3];

/// The files of each cache. They say `Unavailable` or `Error` where the hardware gives nothing.
const FILES: [&str; 3] = ["llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"];

/// The groups as last read.
#[derive(Debug)]
pub(crate) struct Resctrl {
    paths: SystemPaths,
    last: HashMap<PathBuf, Counts>,
    read_ns: Option<u64>,
    /// By the process of the guest.
    guests: HashMap<i32, CacheUse>,
}

impl Resctrl {
    pub(crate) fn new(paths: &SystemPaths) -> Self {
        Self { paths: paths.clone(), last: HashMap::new(), read_ns: None, guests: HashMap::new() }
    }

    /// Sets what each guest has, as last read.
    pub(crate) fn set(&mut self, domains: &mut [DomainSample], now_ns: u64) {
        if self.read_ns.is_none_or(|read| now_ns >= read + PERIOD_NS) {
            let over_ns = self.read_ns.map_or(0, |read| now_ns - read);
            self.read_ns = Some(now_ns);
            self.read(domains, over_ns);
        }
        for domain in domains {
            domain.cache = domain.facts.pid.and_then(|pid| self.guests.get(&pid)).copied();
        }
    }

    fn read(&mut self, domains: &[DomainSample], over_ns: u64) {
        let threads = |d: &DomainSample| d.threads.iter().map(|t| t.tid).zip(std::iter::repeat(d.facts.pid)).collect();
        let owners: HashMap<i32, Option<i32>> = domains.iter().flat_map::<Vec<_>, _>(threads).collect();
        let before = std::mem::take(&mut self.last);
        self.guests.clear();
        for (pid, group) in self.groups(&owners) {
            let now = counts(&group);
            let [_, total, local] = grown(now, before.get(&group));
            let guest = self.guests.entry(pid).or_insert(CacheUse {
                over_ns,
                occupied: Some(0),
                total_bytes: Some(0),
                local_bytes: Some(0),
            });
            let sums = [&mut guest.occupied, &mut guest.total_bytes, &mut guest.local_bytes];
            for (sum, more) in sums.into_iter().zip([now[0], total, local]) {
                *sum = sum.zip(more).map(|(sum, more)| sum.saturating_add(more));
            }
            self.last.insert(group, now);
        }
    }

    /// The groups that belong to one guest each. A control group counts what its monitoring groups count too, so these
    /// are looked at where several guests share it. The root, the group of all other tasks, belongs to nobody.
    fn groups(&self, owners: &HashMap<i32, Option<i32>>) -> Vec<(i32, PathBuf)> {
        let root = root(&self.paths);
        let monitored = |of: &Path| folders(&of.join("mon_groups"));
        let mut groups: Vec<_> = monitored(&root);
        let mut all = Vec::new();
        for control in folders(&root) {
            match self.owner(&control, owners) {
                Some(pid) => all.push((pid, control)),
                None => groups.extend(monitored(&control)),
            }
        }
        groups.truncate(MAX_GROUPS);
        all.extend(groups.into_iter().filter_map(|group| Some((self.owner(&group, owners)?, group))));
        all
    }

    /// The guest whose threads alone are in a group.
    fn owner(&self, group: &Path, owners: &HashMap<i32, Option<i32>>) -> Option<i32> {
        let tasks = read_text(&group.join("tasks"), 1 << 20).ok()?;
        let mut owner = None;
        for tid in tasks.lines().filter_map(|line| line.parse().ok()) {
            let of_task = match owners.get(&tid) {
                Some(pid) => *pid,
                // It began after the guest's threads were read; or it ended and its line is old.
                None => match read_text(&self.paths.process(tid, "status"), 1 << 14) {
                    Ok(status) => value(&status, "Tgid").and_then(|pid| *owners.get(&pid.parse().ok()?)?),
                    Err(_) => continue,
                },
            };
            if *owner.get_or_insert(of_task?) != of_task? {
                return None;
            }
        }
        owner
    }

    /// Whether there are groups of guests, and else why not.
    pub(crate) fn status(&self) -> SourceStatus {
        const ID: SourceId = SourceId::Resctrl;
        const MONITOR: &str = "libvirt makes them: <cachetune vcpus='0-3'><monitor level='3' vcpus='0-3'/></cachetune>";
        let root = root(&self.paths);
        if !root.exists() {
            return SourceStatus::missing(
                ID,
                "this host has no resctrl: its CPU or kernel measures no task's cache and memory bandwidth",
                "nothing to do; `grep -wo -e cqm_llc -e cqm_mbm_total /proc/cpuinfo` shows what an x86 CPU measures",
            );
        }
        if !root.join("tasks").exists() {
            let fix = format!("`mount -t resctrl resctrl /sys/fs/resctrl`; then groups of guests are read; {MONITOR}");
            return SourceStatus::missing(ID, "resctrl is not mounted", fix);
        }
        if self.guests.is_empty() {
            return SourceStatus::missing(ID, "no group of resctrl holds the threads of one guest alone", MONITOR);
        }
        SourceStatus::ok(ID)
    }
}

fn root(paths: &SystemPaths) -> PathBuf {
    paths.sys.join("fs/resctrl")
}

/// The folders in a folder, in order of their names.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).take(MAX_GROUPS).collect();
    all.sort_unstable();
    all
}

/// The sums of a group's caches; `None` where one of them is not known.
fn counts(group: &Path) -> Counts {
    // Other folders are of other monitors than the last-level cache.
    let of_cache =
        |folder: &PathBuf| folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"mon_L3_"));
    let mut caches: Vec<_> = folders(&group.join("mon_data")).into_iter().filter(of_cache).collect();
    caches.truncate(MAX_CACHES);
    FILES.map(|file| {
        let of = |cache: &PathBuf| read_word(&cache.join(file))?.parse::<u64>().ok();
        let all: Vec<u64> = caches.iter().map(of).collect::<Option<_>>()?;
        all.into_iter().reduce(u64::saturating_add)
    })
}

/// Growth since the reading before; `None` where there was none, or the group was made again.
fn grown(now: Counts, before: Option<&Counts>) -> Counts {
    let mut grown = now;
    for (count, before) in grown.iter_mut().zip(before.copied().unwrap_or_default()) {
        *count = count.zip(before).and_then(|(now, before)| now.checked_sub(before));
    }
    grown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;
    use sample::{DomainFacts, SourceState, ThreadSample};
    use std::sync::Arc;

    const SECOND: u64 = 1_000_000_000;

    /// Guests of two vCPUs each, and their threads.
    fn guests() -> Vec<DomainSample> {
        [100, 200]
            .map(|pid| {
                let threads = (pid..pid + 3).map(|tid| ThreadSample { tid, ..ThreadSample::default() }).collect();
                let facts = Arc::new(DomainFacts { pid: Some(pid), ..DomainFacts::default() });
                DomainSample { facts, threads, ..DomainSample::default() }
            })
            .into()
    }

    /// A group with two caches, as the kernel lays it out.
    fn group(fake: &FakeProc, path: &str, tasks: &[i32], [llc, total, local]: [&str; 3]) {
        let folder = format!("sys/fs/resctrl/{path}");
        fake.write(&format!("{folder}tasks"), &tasks.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
        for cache in ["mon_L3_00", "mon_L3_01"] {
            for (file, text) in FILES.into_iter().zip([llc, total, local]) {
                fake.write(&format!("{folder}mon_data/{cache}/{file}"), &format!("{text}\n"));
            }
        }
    }

    fn read(resctrl: &mut Resctrl, second: u64) -> [Option<CacheUse>; 2] {
        let mut domains = guests();
        resctrl.set(&mut domains, second * SECOND);
        [domains[0].cache, domains[1].cache]
    }

    #[test]
    fn a_group_of_one_guest_counts_once() {
        let fake = FakeProc::new();
        let mut resctrl = Resctrl::new(&fake.paths());
        assert_eq!(read(&mut resctrl, 0), [None, None]);
        assert!(resctrl.status().cause.unwrap().contains("has no resctrl"));
        std::fs::create_dir_all(fake.paths().sys.join("fs/resctrl")).unwrap();
        assert!(resctrl.status().fix.unwrap().contains("mount -t resctrl"));

        let write = |total: &str| {
            fake.write("sys/fs/resctrl/info/L3_MON/num_rmids", "144\n");
            group(&fake, "", &[1, 300], ["9000", "9000", "9000"]);
            // libvirt's for <cachetune vcpus='0-1'>, with a monitor of vCPU 0: its counts are in the group's.
            group(&fake, "qemu-1-web-vcpus_0-1/", &[101, 102], ["1000", total, "Unavailable"]);
            group(&fake, "qemu-1-web-vcpus_0-1/mon_groups/qemu-1-web-vcpus_0/", &[101], ["600", total, "1"]);
            // A monitor without an allocation is below the root; a user's group is another's too.
            group(&fake, "mon_groups/qemu-2-db-vcpus_0-1/", &[201, 202], ["50", total, "7"]);
            group(&fake, "both/", &[100, 200], ["1", "1", "1"]);
            group(&fake, "both/mon_groups/db/", &[200], ["5", total, "8"]);
            group(&fake, "mon_groups/host/", &[100, 300], ["1", "1", "1"]);
            fake.write("proc/300/status", "Name:\tbash\nTgid:\t300\n");
            group(&fake, "mon_groups/none/", &[], ["1", "1", "1"]);
        };
        write("1000");
        let cache = |over_ns, occupied, total_bytes, local_bytes| {
            Some(CacheUse { over_ns, occupied: Some(occupied), total_bytes, local_bytes })
        };
        assert_eq!(read(&mut resctrl, 5), [cache(5 * SECOND, 2000, None, None), cache(5 * SECOND, 110, None, None)]);
        assert_eq!(resctrl.status().state, SourceState::Ok);
        write("1500");
        assert_eq!(read(&mut resctrl, 9)[0], cache(5 * SECOND, 2000, None, None), "not due");
        let [web, db] = read(&mut resctrl, 11);
        assert_eq!(web, cache(6 * SECOND, 2000, Some(1000), None));
        assert_eq!(db, cache(6 * SECOND, 110, Some(2000), Some(0)));
        write("200");
        let [web, _] = read(&mut resctrl, 16);
        assert_eq!(web, cache(5 * SECOND, 2000, None, None), "its counts began again");
    }

    #[test]
    fn a_thread_that_is_new_is_of_its_process() {
        let fake = FakeProc::new();
        let mut resctrl = Resctrl::new(&fake.paths());
        group(&fake, "", &[1], ["9", "9", "9"]);
        // 150 is a new worker of the first guest; 151 has ended.
        fake.write("proc/150/status", "Name:\tworker\nTgid:\t100\n");
        group(&fake, "mon_groups/web/", &[100, 150, 151], ["50", "1", "1"]);
        assert_eq!(read(&mut resctrl, 0)[0].unwrap().occupied, Some(100));
        fake.write("sys/fs/resctrl/mon_groups/web/tasks", "100\n200\n");
        assert_eq!(read(&mut resctrl, 5), [None, None]);
        assert!(resctrl.status().cause.unwrap().contains("of one guest alone"));
    }
}
