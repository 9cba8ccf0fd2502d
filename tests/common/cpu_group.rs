//! A cgroup of the test's own: its share of the CPUs and its quota.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// The default period of quotas, microseconds.
const PERIOD_US: u128 = 100_000;

/// The group. Its processes go to the root when this is dropped.
pub struct CpuGroup {
    folder: PathBuf,
    unified: bool,
}

impl CpuGroup {
    /// Makes a group with the usual share of the CPUs and no quota.
    pub fn new(name: &str) -> Result<Self, String> {
        let old = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"].map(Path::new);
        let old = old.into_iter().find(|p| p.join("tasks").exists());
        let root = old.unwrap_or(Path::new("/sys/fs/cgroup"));
        if old.is_none() {
            // In version 2 a group hands its controllers down.
            std::fs::write(root.join("cgroup.subtree_control"), "+cpu")
                .map_err(|e| format!("cgroup v2: {e}"))?;
        }
        let folder = root.join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Self {
            folder,
            unified: old.is_none(),
        })
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.folder.join(file);
        std::fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    /// Takes a process in.
    pub fn take(&self, pid: u32) {
        self.write("cgroup.procs", &pid.to_string());
    }

    /// Lets the group go before everyone else.
    pub fn first(&self) {
        if self.unified {
            self.write("cpu.weight", "10000");
        } else {
            self.write("cpu.shares", "262144");
        }
    }

    /// So much CPU time every 100 ms; `None` lifts the limit.
    pub fn quota(&self, quota: Option<Duration>) {
        let us = quota.map(|q| q.as_micros());
        if self.unified {
            self.write(
                "cpu.max",
                &format!(
                    "{} {PERIOD_US}",
                    us.map_or_else(|| "max".into(), |n| n.to_string())
                ),
            );
        } else {
            self.write(
                "cpu.cfs_quota_us",
                &us.map_or_else(|| "-1".into(), |n| n.to_string()),
            );
        }
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        let root = self
            .folder
            .parent()
            .unwrap_or(&self.folder)
            .join("cgroup.procs");
        for pid in std::fs::read_to_string(self.folder.join("cgroup.procs"))
            .unwrap_or_default()
            .lines()
        {
            let _ = std::fs::write(&root, pid);
        }
        let _ = std::fs::remove_dir(&self.folder);
    }
}
