//! Which processes kvmtop may look at.

use super::file;
use super::paths::SystemPaths;
use super::stat::value;

/// `CAP_SYS_PTRACE`, and `CAP_DAC_READ_SEARCH` for /proc/PID/fd, which is a folder that only its user may open
/// (include/uapi/linux/capability.h; fs/proc/base.c, `tgid_base_stuff`).
const LOOK_INTO_ALL: u64 = 1 << 19 | 1 << 2;

/// Whether /proc hides the processes of other users: the mount option `hidepid` hides them, init too, from everyone but
/// a group and those who may trace them (Documentation/filesystems/proc.rst; fs/proc/base.c, `has_pid_permissions`).
pub(crate) fn is_hidden(paths: &SystemPaths) -> bool {
    paths.real && paths.proc.join("self").exists() && !paths.proc.join("1").exists()
}

/// Whether kvmtop has the right to look into every process: what is refused then, a security module refuses.
pub(crate) fn may_trace_all(paths: &SystemPaths) -> bool {
    // Of the calling thread: the first one may have given its rights up.
    let status = file::read_text(&paths.proc.join("thread-self/status"), 64 * 1024).unwrap_or_default();
    let held = value(&status, "CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    held.is_some_and(|held| held & LOOK_INTO_ALL == LOOK_INTO_ALL)
}
