//! Forbids system calls that kvmtop never makes, and that an attacker's code would make.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter_all_threads, sock_filter,
};
use std::collections::BTreeMap;

/// They take over other processes, change the kernel, its clock or its mounts, become another user,
/// open files past their folders, or make other system calls that no filter sees.
const FORBIDDEN: &[libc::c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
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
/// A thread that asks a guest's monitor takes the identity of the guest's user by these.
const IDENTITY: [libc::c_long; 3] = [libc::SYS_setgroups, libc::SYS_setfsuid, libc::SYS_setfsgid];
/// They give a process the machine's ports.
#[cfg(target_arch = "x86_64")]
const PORTS: [libc::c_long; 2] = [libc::SYS_iopl, libc::SYS_ioperm];
#[cfg(not(target_arch = "x86_64"))]
const PORTS: [libc::c_long; 0] = [];

/// With one of these, a new process has a namespace of its own; in one of users it has all
/// capabilities.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// x86's second table of the same calls begins here (`__X32_SYSCALL_BIT` in
/// arch/x86/include/uapi/asm/unistd.h). No table of another architecture is as long.
const X32_BEGIN: u32 = 0x4000_0000;

/// What kvmtop may still do once the other system calls are forbidden.
#[derive(Debug, Clone, Copy, Default)]
pub struct LaterCalls {
    /// Start programs: libvirt starts ssh for some URIs.
    pub programs: bool,
    /// Ask guests' monitors, each as the user of its guest.
    pub monitors: bool,
}

/// From here on, such a call of any thread fails with EPERM.
///
/// Kernels without seccomp, and architectures that its filters are not made for, do without.
pub fn forbid_system_calls(later: LaterCalls) {
    if let Some(filter) = filter(later) {
        let _ = apply_filter_all_threads(&filter);
    }
}

fn filter(later: LaterCalls) -> Option<BpfProgram> {
    let mut rules: BTreeMap<libc::c_long, Vec<SeccompRule>> = BTreeMap::new();
    // Calls without a rule are refused whatever their arguments are.
    rules.extend(
        FORBIDDEN
            .iter()
            .chain(&PORTS)
            .map(|call| (*call, Vec::new())),
    );
    if !later.programs {
        rules.extend(PROGRAMS.map(|call| (call, Vec::new())));
    }
    if !later.monitors {
        rules.extend(IDENTITY.map(|call| (call, Vec::new())));
    }
    let mut new_namespace = Vec::new();
    for flag in NAMESPACES {
        let flag = u64::from(flag.cast_unsigned());
        let has_flag = SeccompCondition::new(
            0,
            SeccompCmpArgLen::Qword,
            SeccompCmpOp::MaskedEq(flag),
            flag,
        )
        .ok()?;
        new_namespace.push(SeccompRule::new(vec![has_flag]).ok()?);
    }
    rules.insert(libc::SYS_clone, new_namespace);
    let architecture = std::env::consts::ARCH.try_into().ok()?;
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let by_number = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture).ok()?;
    let mut program = numbers_without_rules();
    program.extend(BpfProgram::try_from(by_number).ok()?);
    Some(program)
}

/// Refuses the x32 table, and clone3, whose flags are in memory that no filter sees: with ENOSYS,
/// after which the C library calls clone. What it lets pass goes on to the instruction after it.
fn numbers_without_rules() -> BpfProgram {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const IS_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
    const IS_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    /// Where `struct seccomp_data` has the number of the call.
    const NUMBER_AT: u32 = 0;
    vec![
        instruction(LOAD, NUMBER_AT),
        test(IS_AT_LEAST, X32_BEGIN),
        refuse_with(libc::EPERM),
        test(IS_EQUAL, libc::SYS_clone3 as u32),
        refuse_with(libc::ENOSYS),
    ]
}

fn instruction(code: u32, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

/// A comparison. If it is false, it skips the next instruction.
fn test(code: u32, k: u32) -> sock_filter {
    sock_filter {
        jf: 1,
        ..instruction(code, k)
    }
}

fn refuse_with(errno: i32) -> sock_filter {
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    instruction(RETURN, SeccompAction::Errno(errno.cast_unsigned()).into())
}

#[cfg(test)]
#[expect(
    unsafe_code,
    reason = "system calls that no crate wraps, because kvmtop must not make them"
)]
mod tests {
    use super::*;
    use rustix::thread::set_no_new_privs;
    use std::io::{Error, ErrorKind};
    use std::process::Command;

    /// Runs `test` on a thread that has the filter; other tests start programs.
    fn with_filter<T: Send + 'static>(
        later: LaterCalls,
        test: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let filtered = move || {
            set_no_new_privs(true).unwrap();
            seccompiler::apply_filter(&filter(later).unwrap()).unwrap();
            test()
        };
        std::thread::spawn(filtered).join().unwrap()
    }

    /// The error of a system call; 0 without one.
    fn error_of(number: libc::c_long, arguments: [libc::c_long; 3]) -> i32 {
        let [a, b, c] = arguments;
        // SAFETY: the calls of these tests take numbers and bad pointers, which the kernel refuses.
        let result = unsafe { libc::syscall(number, a, b, c, 0, 0) };
        if result < 0 {
            Error::last_os_error().raw_os_error().unwrap()
        } else {
            0
        }
    }

    /// The error of a clone(2) or clone3(2) with these flags, whose process ends at once.
    fn error_of_clone(number: libc::c_long, flags: u64) -> i32 {
        // struct clone_args of include/uapi/linux/sched.h: flags, pidfd, child_tid, parent_tid,
        // exit_signal and others.
        let args: [u64; 8] = [flags, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
        let (first, second) = match number {
            libc::SYS_clone3 => (
                args.as_ptr() as libc::c_long,
                size_of_val(&args) as libc::c_long,
            ),
            _ => ((flags | libc::SIGCHLD as u64) as libc::c_long, 0),
        };
        // SAFETY: without CLONE_VM, the new process has a copy of all memory, and does nothing with
        // it.
        let pid = unsafe { libc::syscall(number, first, second, 0, 0, 0) };
        if pid < 0 {
            return Error::last_os_error().raw_os_error().unwrap();
        }
        if pid == 0 {
            // SAFETY: ends the process without running what was registered for its end.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: waits for the process that was started above, and wants nothing to be written.
        unsafe { libc::waitpid(pid as libc::pid_t, std::ptr::null_mut(), 0) };
        0
    }

    #[test]
    fn what_kvmtop_never_calls_is_refused() {
        // With arguments that the kernel refuses for another reason, if the filter does not.
        const NONE: [libc::c_long; 3] = [-1, -1, -1];
        let named = [
            libc::SYS_ptrace,
            libc::SYS_kexec_file_load,
            libc::SYS_setgroups,
        ];
        let calls: Vec<_> = named
            .iter()
            .chain(FORBIDDEN)
            .chain(&PORTS)
            .chain(&IDENTITY)
            .copied()
            .collect();
        let passed = with_filter(LaterCalls::default(), move || {
            calls
                .into_iter()
                .filter(|call| error_of(*call, NONE) != libc::EPERM)
                .collect::<Vec<_>>()
        });
        assert!(passed.is_empty(), "not refused: {passed:?}");
        let has_program = |later| with_filter(later, || Command::new("/bin/true").status());
        assert!(
            has_program(LaterCalls::default())
                .is_err_and(|e| e.kind() == ErrorKind::PermissionDenied)
        );
        assert!(
            has_program(LaterCalls {
                programs: true,
                monitors: false
            })
            .unwrap()
            .success(),
            "ssh may start"
        );
    }

    #[test]
    fn a_monitors_thread_may_take_the_identity_of_its_guests_user() {
        let own_groups = || {
            let groups = rustix::process::getgroups().unwrap();
            rustix::thread::set_thread_groups(&groups)
        };
        let without_right = std::thread::spawn(own_groups).join().unwrap();
        let later = LaterCalls {
            programs: false,
            monitors: true,
        };
        assert_eq!(with_filter(later, own_groups), without_right);
    }

    #[test]
    fn no_process_in_another_namespace_is_started() {
        for flag in NAMESPACES {
            let flag = u64::from(flag.cast_unsigned());
            let errors = with_filter(LaterCalls::default(), move || {
                [libc::SYS_clone, libc::SYS_clone3].map(|call| error_of_clone(call, flag))
            });
            assert_eq!(errors, [libc::EPERM, libc::ENOSYS], "{flag:#x}");
        }
        assert_eq!(
            with_filter(LaterCalls::default(), || error_of_clone(libc::SYS_clone, 0)),
            0,
            "a plain fork"
        );
    }

    #[test]
    fn threads_start_after_the_filter() {
        let sum = with_filter(LaterCalls::default(), || {
            let threads: Vec<_> = (1..=4).map(|n| std::thread::spawn(move || n)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum::<i32>()
        });
        assert_eq!(sum, 10);
    }

    /// Kernels without x32 answer ENOSYS.
    #[test]
    fn no_call_passes_by_its_number_in_another_table() {
        for call in [libc::SYS_getpid, libc::SYS_ptrace, libc::SYS_setuid] {
            let error = with_filter(LaterCalls::default(), move || {
                error_of(libc::c_long::from(X32_BEGIN) | call, [0; 3])
            });
            assert_eq!(error, libc::EPERM, "{call}");
        }
    }
}
