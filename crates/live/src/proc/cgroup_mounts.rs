//! Where the cgroup hierarchies are mounted.

use super::file;
use super::paths::SystemPaths;
use procfs::ProcessCGroups;
use procfs::process::{MountInfo, MountInfos};
use std::path::PathBuf;

/// The mounted hierarchies, those of version 1 first: where both versions are mounted, version 1
/// holds a controller if it has it at all.
#[derive(Debug, Default)]
pub(crate) struct Hierarchies(Vec<MountInfo>);

impl Hierarchies {
    /// Reads the mount table.
    pub(crate) fn read(paths: &SystemPaths) -> Self {
        let table = file::read_as::<MountInfos>(&paths.proc.join("self/mountinfo"), 1 << 20);
        let mut mounts = table.map(|table| table.0).unwrap_or_default();
        mounts.retain(|mount| mount.fs_type == "cgroup" || is_unified(mount));
        mounts.sort_by_key(is_unified);
        Self(mounts)
    }

    /// The folder of the group that a process is in, in the hierarchy of a controller, by a file of
    /// that controller; and whether it is of cgroup v2.
    pub(crate) fn folder(
        &self,
        groups: &ProcessCGroups,
        controller: &str,
        files: &[&str],
    ) -> Option<(PathBuf, bool)> {
        for mount in &self.0 {
            let is_unified = is_unified(mount);
            if !is_unified && !mount.super_options.contains_key(controller) {
                continue;
            }
            let group = groups.0.iter().find(|group| {
                if is_unified {
                    group.hierarchy == 0
                } else {
                    group.controllers.iter().any(|name| name == controller)
                }
            });
            let Some(group) = group else { continue };
            // Inside a container a part of the hierarchy is mounted.
            let below = group
                .pathname
                .strip_prefix(mount.root.trim_end_matches('/'))
                .unwrap_or(&group.pathname);
            let below = below.trim_start_matches('/');
            // The root group cannot have a limit; `..` is a group outside of this namespace.
            if below.is_empty() || below.split('/').any(|part| part == "..") {
                continue;
            }
            let folder = mount.mount_point.join(below);
            if files.iter().any(|file| folder.join(file).exists()) {
                return Some((folder, is_unified));
            }
        }
        None
    }
}

/// Whether it is of cgroup v2.
fn is_unified(mount: &MountInfo) -> bool {
    mount.fs_type == "cgroup2"
}
