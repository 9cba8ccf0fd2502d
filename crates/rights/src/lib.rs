//! What kvmtop has to be allowed to do, and what it gives up as soon as it no longer needs it.

mod capabilities;
mod environment;
mod files;
mod identity;
mod kept;
mod locked_memory;
mod memory;
mod regular_file;
mod syscalls;

pub use capabilities::{effective, keep, keep_none, renounce};
pub use environment::start_clean;
pub use files::{for_files, keep_to_read};
pub use identity::{NO_ACCOUNT, give_up_root, own_user};
pub use kept::{
    for_hint, for_profile, for_reading, for_rings, for_sampling, for_start, hint, named,
};
pub use locked_memory::{charges_locked_memory, with_locked_memory};
pub use memory::memory_limit;
pub use regular_file::{not_ours, open_input, open_regular};
pub use syscalls::{LaterCalls, forbid_system_calls};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;
use std::path::Path;
use std::str::FromStr;

/// Whether this process is in a PID namespace other than the initial one, whose inode is fixed
/// (`PROC_PID_INIT_INO` in `include/linux/proc_ns.h`), by this `/proc`. False where that cannot be
/// seen.
pub fn in_own_pid_namespace(proc: &Path) -> bool {
    std::fs::read_link(proc.join("self/ns/pid"))
        .is_ok_and(|link| link.as_os_str() != "pid:[4026531836]")
}

/// Raises the soft limit of open files up to the hard one, which needs no privilege (setrlimit(2)).
/// Returns the limit; `None`: there is none.
pub fn allow_files() -> Option<u64> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // After a failure the old limit stays.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    );
    getrlimit(Resource::Nofile).current
}

/// Whether a kernel of this release (`uname -r`) is older than this version. False for a release
/// without numbers.
pub fn is_before(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|part| part.parse::<u32>().ok());
    let Some(major) = numbers.next() else {
        return false;
    };
    (major, numbers.next().unwrap_or(0)) < version
}

/// Whether the kernel splits BPF and tracing off `CAP_SYS_ADMIN` (Linux 5.8,
/// include/uapi/linux/capability.h).
fn has_cap_bpf() -> bool {
    let last: Option<u32> = read_number(Path::new("/proc/sys/kernel/cap_last_cap"));
    last.is_none_or(|last| last >= CapabilitySet::BPF.bits().trailing_zeros())
}

/// The highest `kernel.perf_event_paranoid` with which `CAP_PERFMON` opens events. The kernels of
/// Debian and Ubuntu have more levels, in which `perf_event_open` wants `CAP_SYS_ADMIN`
/// (`perf_paranoid_any` of their `kernel/events/core.c`).
const PARANOID_OF_MAINLINE: i32 = 2;

/// `kernel.perf_event_paranoid`; `None` where it cannot be read.
pub fn paranoid() -> Option<i32> {
    read_number(Path::new("/proc/sys/kernel/perf_event_paranoid"))
}

/// The number that a file holds.
fn read_number<T: FromStr>(path: &Path) -> Option<T> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Why a thread with `CAP_PERFMON` cannot open an event at this level, and the cure; `None` where
/// it can.
pub fn paranoid_refusal(level: Option<i32>, effective: CapabilitySet) -> Option<(String, String)> {
    let level = level.filter(|level| *level > PARANOID_OF_MAINLINE)?;
    if !effective.contains(CapabilitySet::PERFMON) || effective.contains(CapabilitySet::SYS_ADMIN) {
        return None;
    }
    let why =
        format!("kernel.perf_event_paranoid is {level}, with which CAP_PERFMON is not enough");
    Some((why, "sysctl kernel.perf_event_paranoid=2".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_initial_pid_namespace_is_known_by_its_inode() {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc");
        assert!(!in_own_pid_namespace(&proc), "unknown");
        let link = proc.join("self/ns/pid");
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("pid:[4026532999]", &link).unwrap();
        assert!(in_own_pid_namespace(&proc));
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("pid:[4026531836]", &link).unwrap();
        assert!(!in_own_pid_namespace(&proc));
    }
}
