//! The groups of processes that leave a guest fewer CPUs than the host has, such as a `machine.slice` with
//! `AllowedCPUs=` (systemd.resource-control(5)). No pin reaches beyond them: the kernel refuses it, or keeps the part
//! that they have (kernel/sched/syscalls.c, `__sched_setaffinity`).

use super::cgroups::{Hierarchies, libvirt_groups};
use crate::proc::file;
use kvm::{CpuSet, sanitize};
use procfs::ProcessCGroups;
use sample::{GroupCpus, MAX_FOLDER, MAX_GROUPS};
use std::path::Path;

/// The CPUs that a group really has: in cgroup v2, in v1 since Linux 3.17, and in v1 before.
const FILES: [&str; 3] = ["cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"];
/// Groups are nested less deep than this.
const MAX_LEVELS: usize = 64;

/// Those of a process, from the root downwards. Below the group of a domain libvirt sets the pins themselves.
pub(super) fn read(hierarchies: &Hierarchies, groups: &ProcessCGroups) -> Vec<GroupCpus> {
    let Some((own, _)) = hierarchies.folder(groups, "cpuset", &FILES) else { return Vec::new() };
    let domain = libvirt_groups(&own).map_or(own.as_path(), |(domain, _)| domain);
    let mut all: Vec<GroupCpus> = domain.ancestors().take(MAX_LEVELS).map_while(group).collect();
    all.reverse();
    let (mut bounds, mut above) = (Vec::new(), None::<CpuSet>);
    for group in all {
        if above.as_ref().is_some_and(|above| *above != group.cpus) {
            bounds.push(group.clone());
        }
        above = Some(group.cpus);
    }
    bounds.truncate(MAX_GROUPS);
    bounds
}

fn group(folder: &Path) -> Option<GroupCpus> {
    let text = FILES.iter().find_map(|name| file::read_bytes(&folder.join(name), 64 * 1024).ok())?;
    let cpus = CpuSet::parse(String::from_utf8_lossy(&text).trim()).ok()?;
    Some(GroupCpus { folder: sanitize(&folder.to_string_lossy(), MAX_FOLDER), cpus })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;
    use procfs::FromBufRead;

    fn bounds(fake: &FakeProc, kind: &str, cgroup: &str) -> Vec<(String, String)> {
        let mount = fake.paths().sys.join("fs/cgroup");
        fake.write("proc/self/mountinfo", &format!("30 25 0:26 / {} rw shared:4 - {kind}\n", mount.display()));
        let groups = ProcessCGroups::from_buf_read(cgroup.as_bytes()).unwrap();
        let below = |folder: &str| folder.strip_prefix(&*mount.to_string_lossy()).unwrap().to_owned();
        let found = read(&Hierarchies::read(&fake.paths()), &groups);
        found.into_iter().map(|g| (below(&g.folder), g.cpus.to_string())).collect()
    }

    #[test]
    fn a_slice_that_leaves_less_is_named_and_pins_are_not() {
        let fake = FakeProc::new();
        let scope = "/machine.slice/machine-qemu.scope";
        for (group, cpus) in [
            ("", "0-7"),
            ("/machine.slice", "0-3"),
            (scope, "0-3"),
            (&*format!("{scope}/libvirt"), "0-3"),
            (&*format!("{scope}/libvirt/emulator"), "1"),
        ] {
            fake.write(&format!("sys/fs/cgroup{group}/cpuset.cpus.effective"), &format!("{cpus}\n"));
        }
        let found = bounds(&fake, "cgroup2 none rw", &format!("0::{scope}/libvirt/emulator\n"));
        assert_eq!(found, [("/machine.slice".to_owned(), "0-3".to_owned())]);
    }

    #[test]
    fn the_controller_of_version_1_has_its_own_groups() {
        let fake = FakeProc::new();
        for (group, cpus) in [("", "0-3"), ("/vm", "0"), ("/x", "1")] {
            fake.write(&format!("sys/fs/cgroup{group}/cpuset.effective_cpus"), cpus);
        }
        let found = bounds(&fake, "cgroup none rw,cpuset", "7:cpuset:/vm\n4:cpu,cpuacct:/x\n0::/y\n");
        assert_eq!(found, [("/vm".to_owned(), "0".to_owned())]);
    }

    #[test]
    fn without_the_controller_nothing_is_known() {
        let fake = FakeProc::new();
        fake.write("sys/fs/cgroup/a/cpu.stat", "usage_usec 1\n");
        assert_eq!(bounds(&fake, "cgroup2 none rw", "0::/a\n"), []);
    }
}
