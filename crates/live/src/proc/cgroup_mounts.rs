//! Where cgroups are mounted.

use super::file;
use super::paths::SystemPaths;
use procfs::ProcessCGroups;
use procfs::process::{MountInfo, MountInfos};
use std::path::PathBuf;

/// The mounted hierarchies that kvmtop needs.
#[derive(Debug, Default)]
pub(crate) struct CgroupMounts {
    /// The hierarchy of version 2.
    unified: Option<MountInfo>,
    /// The controller `cpu` of version 1: where both versions are mounted, it is not in version 2.
    cpu: Option<MountInfo>,
}

impl CgroupMounts {
    /// Reads the mount table.
    pub fn read(paths: &SystemPaths) -> Self {
        let table: Option<MountInfos> = file::read_as(&paths.proc.join("self/mountinfo"), 1 << 20);
        let mut found = Self::default();
        for mount in table.map(|table| table.0).unwrap_or_default() {
            if mount.fs_type == "cgroup2" {
                found.unified.get_or_insert(mount);
            } else if mount.fs_type == "cgroup" && mount.super_options.contains_key("cpu") {
                found.cpu.get_or_insert(mount);
            }
        }
        found
    }

    /// The folder of the group that a process is in, in version 2.
    pub fn unified(&self, groups: &ProcessCGroups) -> Option<PathBuf> {
        let group = groups.0.iter().find(|group| group.hierarchy == 0)?;
        folder(self.unified.as_ref()?, &group.pathname)
    }

    /// The folder of the group that limits the CPU time of a process.
    pub fn cpu(&self, groups: &ProcessCGroups) -> Option<PathBuf> {
        let Some(mount) = &self.cpu else {
            return self.unified(groups);
        };
        let group = groups
            .0
            .iter()
            .find(|group| group.controllers.iter().any(|name| name == "cpu"))?;
        folder(mount, &group.pathname)
    }
}

/// The folder of a group; `None` for the root group, which cannot have a limit, and for a group
/// outside of this namespace, whose path has `..`.
fn folder(mount: &MountInfo, group: &str) -> Option<PathBuf> {
    // Inside a container only the part of the hierarchy below `root` is mounted.
    let below = group
        .strip_prefix(mount.root.trim_end_matches('/'))
        .unwrap_or(group)
        .trim_start_matches('/');
    if below.is_empty() || below.split('/').any(|part| part == "..") {
        return None;
    }
    Some(mount.mount_point.join(below))
}
