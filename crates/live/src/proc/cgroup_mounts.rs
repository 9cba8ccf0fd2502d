//! Where the cgroup hierarchies are mounted.

use super::file;
use super::paths::SystemPaths;
use procfs::ProcessCGroups;
use procfs::process::MountInfos;
use std::path::PathBuf;

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
        let mounts = file::read_as::<MountInfos>(&paths.proc.join("self/mountinfo"), 1 << 20);
        let Some(mounts) = mounts else { return Self::default() };
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
    pub(crate) fn folder(&self, groups: &ProcessCGroups, controller: &str, files: &[&str]) -> Option<(PathBuf, bool)> {
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
