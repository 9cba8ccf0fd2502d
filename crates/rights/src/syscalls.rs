//! Forbids system calls that kvmtop never makes, and that an attacker's code would make.

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads};
use std::collections::BTreeMap;

/// They take over other processes, change the kernel, its clock or its mounts, become another user, open files past
/// their folders, or make other system calls that no filter sees.
const FORBIDDEN: [libc::c_long; 38] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_settimeofday,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    // A monitor's thread takes its user's identity by setfsuid and setfsgid.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_keyctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
];
const PROGRAMS: [libc::c_long; 2] = [libc::SYS_execve, libc::SYS_execveat];

/// From here on, such a call of any thread fails with EPERM. `programs`: kvmtop may still start programs.
///
/// Kernels without seccomp, and architectures that its filters are not made for, do without.
pub fn forbid_system_calls(programs: bool) {
    if let Some(filter) = filter(programs) {
        let _ = apply_filter_all_threads(&filter);
    }
}

fn filter(programs: bool) -> Option<BpfProgram> {
    let started = PROGRAMS.iter().filter(|_| !programs);
    let calls: BTreeMap<_, _> = FORBIDDEN.iter().chain(started).map(|call| (*call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let architecture = std::env::consts::ARCH.try_into().ok()?;
    SeccompFilter::new(calls, SeccompAction::Allow, refused, architecture).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{UnshareFlags, set_no_new_privs};
    use std::io::ErrorKind;
    use std::process::Command;

    /// On separate threads, each with its own filter: other tests start programs.
    fn refuses(programs: bool) -> (bool, bool) {
        let test = move || {
            set_no_new_privs(true).unwrap();
            seccompiler::apply_filter(&filter(programs).unwrap()).unwrap();
            #[allow(deprecated, reason = "of one thread of this test")]
            let unshared = rustix::thread::unshare(UnshareFlags::FS);
            let is_refused = |e: std::io::Error| e.kind() == ErrorKind::PermissionDenied;
            (unshared.is_err(), Command::new("/bin/true").status().is_err_and(is_refused))
        };
        std::thread::spawn(test).join().unwrap()
    }

    #[test]
    fn what_kvmtop_never_calls_is_refused() {
        assert_eq!(refuses(false), (true, true));
        assert_eq!(refuses(true), (true, false), "ssh of a libvirt URI may start");
    }
}
