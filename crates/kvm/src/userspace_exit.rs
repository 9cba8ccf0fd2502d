//! The reasons why `KVM_RUN` returns to the VMM: the `KVM_EXIT_*` numbers of `uapi/linux/kvm.h`, as in tracepoint
//! `kvm_userspace_exit`.

use std::borrow::Cow;

/// Names by number. Kernels print only the first 31.
const NAMES: [&str; 44] = [
    "KVM_EXIT_UNKNOWN",
    "KVM_EXIT_EXCEPTION",
    "KVM_EXIT_IO",
    "KVM_EXIT_HYPERCALL",
    "KVM_EXIT_DEBUG",
    "KVM_EXIT_HLT",
    "KVM_EXIT_MMIO",
    "KVM_EXIT_IRQ_WINDOW_OPEN",
    "KVM_EXIT_SHUTDOWN",
    "KVM_EXIT_FAIL_ENTRY",
    "KVM_EXIT_INTR",
    "KVM_EXIT_SET_TPR",
    "KVM_EXIT_TPR_ACCESS",
    "KVM_EXIT_S390_SIEIC",
    "KVM_EXIT_S390_RESET",
    "KVM_EXIT_DCR",
    "KVM_EXIT_NMI",
    "KVM_EXIT_INTERNAL_ERROR",
    "KVM_EXIT_OSI",
    "KVM_EXIT_PAPR_HCALL",
    "KVM_EXIT_S390_UCONTROL",
    "KVM_EXIT_WATCHDOG",
    "KVM_EXIT_S390_TSCH",
    "KVM_EXIT_EPR",
    "KVM_EXIT_SYSTEM_EVENT",
    "KVM_EXIT_S390_STSI",
    "KVM_EXIT_IOAPIC_EOI",
    "KVM_EXIT_HYPERV",
    "KVM_EXIT_ARM_NISV",
    "KVM_EXIT_X86_RDMSR",
    "KVM_EXIT_X86_WRMSR",
    "KVM_EXIT_DIRTY_RING_FULL",
    "KVM_EXIT_AP_RESET_HOLD",
    "KVM_EXIT_X86_BUS_LOCK",
    "KVM_EXIT_XEN",
    "KVM_EXIT_RISCV_SBI",
    "KVM_EXIT_RISCV_CSR",
    "KVM_EXIT_NOTIFY",
    "KVM_EXIT_LOONGARCH_IOCSR",
    "KVM_EXIT_MEMORY_FAULT",
    "KVM_EXIT_TDX",
    "KVM_EXIT_ARM_SEA",
    "KVM_EXIT_ARM_LDST64B",
    "KVM_EXIT_SNP_REQ_CERTS",
];

/// Numbers that stand for a guest that ended or broke.
pub const UNKNOWN: i32 = 0;
/// See [`UNKNOWN`].
pub const EXCEPTION: i32 = 1;
/// A triple fault on x86.
pub const SHUTDOWN: i32 = 8;
/// The CPU refused to enter the guest.
pub const FAIL_ENTRY: i32 = 9;
/// KVM could not continue.
pub const INTERNAL_ERROR: i32 = 17;
/// A bus lock that the VMM wants to know of.
pub const BUS_LOCK: i32 = 33;
/// The guest blocked events.
pub const NOTIFY: i32 = 37;
/// Guest memory that the host cannot provide.
pub const MEMORY_FAULT: i32 = 39;
/// A memory error that an arm64 guest met.
pub const ARM_SEA: i32 = 41;

/// Whether this negative errno is normal for `KVM_RUN`: EINTR for a signal, and EAGAIN for a vCPU that waits to be
/// started (`kvm_arch_vcpu_ioctl_run` in `arch/x86/kvm/x86.c`). QEMU continues after both (`accel/kvm/kvm-all.c`).
pub fn is_ordinary_errno(errno: i32) -> bool {
    matches!(errno, -4 | -11)
}

/// The name and the meaning of a negative errno of `KVM_RUN`.
pub fn errno_meaning(errno: i32) -> Option<&'static str> {
    Some(match errno {
        -1 => "EPERM, Operation not permitted",
        -5 => "EIO: KVM gave the VM up after an internal bug",
        -7 => "E2BIG",
        -8 => "ENOEXEC: the vCPU is not initialised",
        -12 => "ENOMEM: no memory in the kernel",
        -14 => "EFAULT, Bad address: guest memory that the host cannot provide",
        -16 => "EBUSY",
        -22 => "EINVAL, Invalid argument",
        -38 => "ENOSYS, Function not implemented",
        -95 => "EOPNOTSUPP",
        -133 => "EHWPOISON: the memory's page has a hardware error",
        _ => return None,
    })
}

/// The kernel's name for a run that a signal interrupted.
pub const RESTART: &str = "restart";

/// The name of a reason, with its `KVM_EXIT_` prefix.
pub fn name(reason: u32) -> Option<&'static str> {
    NAMES.get(reason as usize).copied()
}

/// The name to show for an event: `restart` for errno EINTR, `error N` for another errno, else the reason.
pub fn display(reason: u32, errno: i32) -> Cow<'static, str> {
    match errno {
        -4 => Cow::Borrowed(RESTART),
        errno if errno < 0 => Cow::Owned(format!("error {}", errno.unsigned_abs())),
        _ => name(reason).map_or_else(|| Cow::Owned(format!("KVM_EXIT_{reason}")), Cow::Borrowed),
    }
}

/// The meaning of a reason for an admin, if it needs a sentence.
pub fn meaning(reason: u32) -> Option<&'static str> {
    Some(match reason {
        2 => "The VMM emulated an I/O port access of the guest",
        5 => "The guest halted and the VMM, not the kernel, waits for its next interrupt",
        6 => "The VMM emulated an access to device memory",
        8 => "The guest crashed or reset itself",
        9 => "The CPU refused to enter the guest",
        10 => "A signal pulled the vCPU out of the guest",
        12 => "The VMM patches 32-bit Windows code that writes the task priority register",
        17 => "KVM could not continue, usually because it cannot emulate an instruction",
        24 => "The guest asked to shut down, reset or suspend",
        26 => "The guest acknowledged an interrupt that the VMM's own IOAPIC has to see",
        27 => "The guest changed a Hyper-V interrupt controller page that the VMM keeps",
        29 | 30 => "The VMM handled a model specific register that the kernel left to it",
        31 => "The ring of dirty pages is full, which happens while the guest migrates",
        33 => "The guest locked the whole memory bus with one instruction",
        37 => "The guest blocked event delivery for too long",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_the_numbers_of_the_header() {
        for (number, expected) in [
            (0, "UNKNOWN"),
            (2, "IO"),
            (6, "MMIO"),
            (10, "INTR"),
            (24, "SYSTEM_EVENT"),
            (30, "X86_WRMSR"),
            (43, "SNP_REQ_CERTS"),
        ] {
            assert_eq!(name(number).unwrap(), format!("KVM_EXIT_{expected}"));
        }
        assert_eq!(name(44), None);
    }

    #[test]
    fn errors_are_not_reasons() {
        assert_eq!(display(2, 0), "KVM_EXIT_IO");
        assert_eq!(display(10, -4), "restart");
        assert_eq!(display(0, -14), "error 14");
        assert_eq!(display(99, 0), "KVM_EXIT_99");
    }
}
