//! Where the kernel's files are: /proc, /sys, /run of the host, or a tree made for a test.

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
    /// Whether these are the running kernel's own: only then may a PID found there be handed to a system call.
    pub real: bool,
}

impl Default for SystemPaths {
    fn default() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into(), run: "/run".into(), dev: "/dev".into(), real: true }
    }
}

impl SystemPaths {
    /// A tree with `proc`, `sys`, `run` and `dev` below `root`; nothing in it is taken for a living process.
    pub fn under(root: &Path) -> Self {
        Self {
            proc: root.join("proc"),
            sys: root.join("sys"),
            run: root.join("run"),
            dev: root.join("dev"),
            real: false,
        }
    }

    /// `/proc/PID/NAME`.
    pub(crate) fn process(&self, pid: i32, name: &str) -> PathBuf {
        self.proc.join(pid.to_string()).join(name)
    }
}
