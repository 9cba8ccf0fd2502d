//! The filter, and what passes it.
#![expect(
    unsafe_code,
    reason = "system calls that no crate wraps, because kvmtop must not make them"
)]

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
        has_program(LaterCalls::default()).is_err_and(|e| e.kind() == ErrorKind::PermissionDenied)
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
