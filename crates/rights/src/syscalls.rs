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
    let mut refused_calls = [FORBIDDEN, &PORTS].concat();
    if !later.programs {
        refused_calls.extend(PROGRAMS);
    }
    if !later.monitors {
        refused_calls.extend(IDENTITY);
    }
    // Calls without a rule are refused whatever their arguments are.
    let mut rules: BTreeMap<libc::c_long, Vec<SeccompRule>> = refused_calls
        .into_iter()
        .map(|call| (call, Vec::new()))
        .collect();
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
mod tests;
