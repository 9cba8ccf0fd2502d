//! How much memory kvmtop may use.

use std::fs::read_to_string;
use std::path::Path;

/// The lowest limit of the cgroups that this process is in, bytes; `None` without a limit. The
/// kernel kills a process of a group that needs more.
pub fn memory_limit() -> Option<u64> {
    limit_below(
        Path::new("/sys/fs/cgroup"),
        &read_to_string("/proc/self/cgroup").ok()?,
    )
}

/// `groups`: lines of a hierarchy's number, its controllers and the group's path (cgroups(7)). A
/// container may not see its group, but the mounted folder is then its own.
fn limit_below(mounts: &Path, groups: &str) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (mount, file) = match controllers {
            "" => (mounts.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (mounts.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let folder = mount.join(path.trim_start_matches('/'));
        let folders = folder
            .ancestors()
            .take_while(|folder| folder.starts_with(&mount));
        folders
            .filter_map(|folder| super::read_number::<u64>(&folder.join(file)))
            .min()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_lowest_limit_above_counts_in_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let limit = |groups| limit_below(dir.path(), groups);
        file("system.slice/kvmtop.service/memory.max", "max\n");
        assert_eq!(limit("0::/system.slice/kvmtop.service\n"), None);
        file("system.slice/memory.max", "41943040\n");
        assert_eq!(limit("0::/system.slice/kvmtop.service\n"), Some(41_943_040));
        assert_eq!(limit("0::/\n3:cpu:/system.slice\n"), None);
        file("memory/memory.limit_in_bytes", "1048576\n");
        assert_eq!(
            limit("4:cpu,memory:/docker/not-seen-here\n0::/\n"),
            Some(1_048_576)
        );
    }
}
