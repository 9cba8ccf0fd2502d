//! Where cgroup v2 is mounted.

use super::file;
use super::paths::SystemPaths;
use procfs::ProcessCGroups;
use procfs::process::{MountInfo, MountInfos};
use std::path::PathBuf;

/// The mounted hierarchy, if there is one.
#[derive(Debug, Default)]
pub(crate) struct CgroupMount(Option<MountInfo>);

impl CgroupMount {
    /// Reads the mount table.
    pub(crate) fn read(paths: &SystemPaths) -> Self {
        let table: Option<MountInfos> = file::read_as(&paths.proc.join("self/mountinfo"), 1 << 20);
        let mounts = table.map(|table| table.0).unwrap_or_default();
        Self(mounts.into_iter().find(|mount| mount.fs_type == "cgroup2"))
    }

    /// The folder of the group that a process is in. The root group cannot have a limit, and `..`
    /// is a group outside of this namespace.
    pub(crate) fn folder(&self, groups: &ProcessCGroups) -> Option<PathBuf> {
        let mount = self.0.as_ref()?;
        let group = groups.0.iter().find(|group| group.hierarchy == 0)?;
        // Inside a container a part of the hierarchy is mounted.
        let below = group
            .pathname
            .strip_prefix(mount.root.trim_end_matches('/'))
            .unwrap_or(&group.pathname)
            .trim_start_matches('/');
        if below.is_empty() || below.split('/').any(|part| part == "..") {
            return None;
        }
        Some(mount.mount_point.join(below))
    }
}
