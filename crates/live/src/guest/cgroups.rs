//! The cgroups of processes: where their hierarchies are mounted, and which groups libvirt makes for a domain.

use crate::proc::file;
use crate::proc::paths::SystemPaths;
use kvm::{CpuSet, sanitize};
use procfs::process::MountInfos;
use procfs::{FromBufRead, ProcessCGroups};
use sample::{GroupCpus, MAX_FOLDER, MAX_GROUPS};
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// A mounted cgroup hierarchy with the `cpu` or `cpuset` controller, or one that may have them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    mount: PathBuf,
    /// The part of the hierarchy that is mounted there: `/`, or a group inside a container.
    root: String,
    /// cgroup v2.
    unified: bool,
    /// Its controllers, in cgroup v1.
    controllers: Vec<&'static str>,
}

/// The mounted hierarchies.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hierarchies(Vec<Hierarchy>);

impl Hierarchies {
    /// Reads the mount table.
    pub(crate) fn read(paths: &SystemPaths) -> Self {
        let table = file::read_bytes(&paths.proc.join("self/mountinfo"), 1 << 20).unwrap_or_default();
        let Ok(mounts) = MountInfos::from_buf_read(Cursor::new(table)) else { return Self::default() };
        let found = mounts.0.into_iter().filter_map(|m| {
            let unified = m.fs_type == "cgroup2";
            let in_v1 = |name: &&str| m.fs_type == "cgroup" && m.super_options.contains_key(*name);
            let controllers: Vec<_> = ["cpu", "cpuset"].into_iter().filter(in_v1).collect();
            let is_of_use = unified || !controllers.is_empty();
            is_of_use.then_some(Hierarchy { mount: m.mount_point, root: m.root, unified, controllers })
        });
        // Where both versions are mounted, version 1 holds the controller if it has it at all.
        let mut found: Vec<_> = found.collect();
        found.sort_by_key(|h| h.unified);
        Self(found)
    }

    /// The folder of the group that a process is in, in the hierarchy of a controller, by a file of that controller;
    /// and whether it is of cgroup v2.
    pub(super) fn folder(&self, groups: &ProcessCGroups, controller: &str, files: &[&str]) -> Option<(PathBuf, bool)> {
        self.0.iter().filter(|h| h.unified || h.controllers.contains(&controller)).find_map(|h| {
            let is_here = |name: &String| name == controller;
            let group = groups
                .0
                .iter()
                .find(|g| if h.unified { g.hierarchy == 0 } else { g.controllers.iter().any(is_here) })?;
            let below = group.pathname.strip_prefix(h.root.trim_end_matches('/')).unwrap_or(&group.pathname);
            let below = below.trim_start_matches('/');
            // The root group cannot have a limit; `..` is a group outside of this namespace.
            if below.is_empty() || below.split('/').any(|part| part == "..") {
                return None;
            }
            let folder = h.mount.join(below);
            files.iter().any(|file| folder.join(file).exists()).then_some((folder, h.unified))
        })
    }
}

/// The group of a domain and the one that holds its parts, where this one is the emulator's.
pub(super) fn libvirt_groups(own: &Path) -> Option<(&Path, &Path)> {
    let parts = own.parent().filter(|_| own.file_name().is_some_and(|name| name == "emulator"))?;
    let is_between = parts.file_name().is_some_and(|name| name == "libvirt");
    Some((parts.parent().filter(|_| is_between).unwrap_or(parts), parts))
}

/// The CPUs that a group really has: in cgroup v2, in v1 since Linux 3.17, and in v1 before.
const FILES: [&str; 3] = ["cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"];
/// Groups are nested less deep than this.
const MAX_LEVELS: usize = 64;

/// The groups of processes that leave a guest fewer CPUs than the host has, such as a `machine.slice` with
/// `AllowedCPUs=` (systemd.resource-control(5)), from the root downwards. No pin reaches beyond them: the kernel
/// refuses it, or keeps the part that they have (kernel/sched/syscalls.c, `__sched_setaffinity`). Below the group of a
/// domain libvirt sets the pins themselves.
pub(super) fn cpu_bounds(hierarchies: &Hierarchies, groups: &ProcessCGroups) -> Vec<GroupCpus> {
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
        let found = cpu_bounds(&Hierarchies::read(&fake.paths()), &groups);
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
