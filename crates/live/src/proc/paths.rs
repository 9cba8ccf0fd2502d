//! Where the kernel's files are: /proc, /sys, /run and /dev of the host, or a tree made for a test.

use super::file;
use procfs::process::Status;
use std::path::{Path, PathBuf};

/// `CAP_SYS_PTRACE`, and `CAP_DAC_READ_SEARCH` for /proc/PID/fd, which is a folder that only its
/// user may open (include/uapi/linux/capability.h; fs/proc/base.c, `tgid_base_stuff`).
const LOOK_INTO_ALL: u64 = 1 << 19 | 1 << 2;

/// The folders that the live sources read.
#[derive(Debug, Clone)]
pub struct SystemPaths {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// `/run`.
    pub run: PathBuf,
    /// `/dev`.
    pub dev: PathBuf,
    /// Whether these are the running kernel's own: only then may a PID found there be passed to a
    /// system call.
    pub real: bool,
}

impl Default for SystemPaths {
    fn default() -> Self {
        Self {
            real: true,
            ..Self::under(Path::new("/"))
        }
    }
}

impl SystemPaths {
    /// A tree with `proc`, `sys`, `run` and `dev` below `root`; its PIDs are never passed to system
    /// calls.
    pub fn under(root: &Path) -> Self {
        Self {
            proc: root.join("proc"),
            sys: root.join("sys"),
            run: root.join("run"),
            dev: root.join("dev"),
            real: false,
        }
    }

    /// Whether /proc hides the processes of other users: the mount option `hidepid` hides them,
    /// init too, from everyone but a group and those who may trace them
    /// (Documentation/filesystems/proc.rst; fs/proc/base.c, `has_pid_permissions`).
    pub(crate) fn hides_processes(&self) -> bool {
        self.real && self.proc.join("self").exists() && !self.proc.join("1").exists()
    }

    /// Whether kvmtop has the right to look into every process: what is refused then, a security
    /// module refuses.
    pub(crate) fn may_trace_all(&self) -> bool {
        // Of the calling thread: the first one may have given its rights up.
        let status: Option<Status> =
            file::read_as(&self.proc.join("thread-self/status"), file::MAX_STATUS);
        status.is_some_and(|status| status.capeff & LOOK_INTO_ALL == LOOK_INTO_ALL)
    }

    /// The user who owns what system daemons write: root, or the user of a test for a tree of his
    /// own.
    pub(crate) fn system_owner(&self) -> u32 {
        if self.real {
            0
        } else {
            rustix::process::geteuid().as_raw()
        }
    }

    /// `/proc/PID/NAME`.
    pub(crate) fn process(&self, pid: i32, name: &str) -> PathBuf {
        self.proc.join(pid.to_string()).join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_initial_pid_namespace_is_known_by_its_inode() {
        let root = tempfile::tempdir().unwrap();
        let paths = SystemPaths::under(root.path());
        assert!(!rights::in_own_pid_namespace(&paths.proc), "unknown");
        let link = paths.proc.join("self/ns/pid");
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("pid:[4026532999]", &link).unwrap();
        assert!(rights::in_own_pid_namespace(&paths.proc));
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("pid:[4026531836]", &link).unwrap();
        assert!(!rights::in_own_pid_namespace(&paths.proc));
    }
}
