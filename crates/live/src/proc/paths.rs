//! Where the host's files are: /proc, /sys, /run, /dev and /etc of the host, or a tree made for a test.

use super::file;
use procfs::process::Status;
use std::path::{Path, PathBuf};

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
    /// `/etc`.
    pub etc: PathBuf,
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
    /// A tree with `proc`, `sys`, `run`, `dev` and `etc` below `root`; its PIDs are never passed to system
    /// calls.
    pub fn under(root: &Path) -> Self {
        Self {
            proc: root.join("proc"),
            sys: root.join("sys"),
            run: root.join("run"),
            dev: root.join("dev"),
            etc: root.join("etc"),
            real: false,
        }
    }

    /// Whether /proc hides the processes of other users. With the mount option `hidepid` it shows a
    /// process only to a group and to those who may trace the process
    /// (Documentation/filesystems/proc.rst; fs/proc/base.c, `has_pid_permissions`). Process 1,
    /// init, is then missing.
    pub(crate) fn hides_processes(&self) -> bool {
        self.real && self.proc.join("self").exists() && !self.proc.join("1").exists()
    }

    /// Whether kvmtop has the right to look into every process. If it is refused a process all the
    /// same, a security module refuses it.
    pub(crate) fn may_trace_all(&self) -> bool {
        // Of the calling thread, since the process's first thread may have given its rights up.
        let status: Option<Status> =
            file::read_as(&self.proc.join("thread-self/status"), file::MAX_STATUS);
        // `CAP_SYS_PTRACE`, and for /proc/PID/fd, a folder that only the process's user may open
        // (fs/proc/base.c, `tgid_base_stuff`), `CAP_DAC_READ_SEARCH`.
        let wanted = rights::for_reading().bits();
        status.is_some_and(|status| status.capeff & wanted == wanted)
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
