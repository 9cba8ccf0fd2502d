//! The reasons why `KVM_RUN` returns to the VMM: the `KVM_EXIT_*` numbers of `uapi/linux/kvm.h`, as
//! in tracepoint `kvm_userspace_exit`.

const MSR: &str = "The VMM handled a model specific register that the kernel left to it";

/// Number, name, and the meaning for an admin; empty where the name says enough.
type ReasonRow = (u32, &'static str, &'static str);

/// Reasons on x86 and arm64.
const REASONS: &[ReasonRow] = &[
    (0, "KVM_EXIT_UNKNOWN", ""),
    (1, "KVM_EXIT_EXCEPTION", ""),
    (
        2,
        "KVM_EXIT_IO",
        "The VMM emulated an I/O port access of the guest",
    ),
    (3, "KVM_EXIT_HYPERCALL", ""),
    (4, "KVM_EXIT_DEBUG", ""),
    (
        5,
        "KVM_EXIT_HLT",
        "The guest halted and the VMM, not the kernel, waits for its next interrupt",
    ),
    (
        6,
        "KVM_EXIT_MMIO",
        "The VMM emulated an access to device memory",
    ),
    (7, "KVM_EXIT_IRQ_WINDOW_OPEN", ""),
    (8, "KVM_EXIT_SHUTDOWN", "The guest crashed or reset itself"),
    (
        9,
        "KVM_EXIT_FAIL_ENTRY",
        "The CPU refused to enter the guest",
    ),
    (
        10,
        "KVM_EXIT_INTR",
        "A signal pulled the vCPU out of the guest",
    ),
    (11, "KVM_EXIT_SET_TPR", ""),
    (
        12,
        "KVM_EXIT_TPR_ACCESS",
        "The VMM patches 32-bit Windows code that writes the task priority register",
    ),
    (16, "KVM_EXIT_NMI", ""),
    (
        17,
        "KVM_EXIT_INTERNAL_ERROR",
        "KVM could not continue, usually because it cannot emulate an instruction",
    ),
    (
        24,
        "KVM_EXIT_SYSTEM_EVENT",
        "The guest asked to shut down, reset or suspend",
    ),
    (
        26,
        "KVM_EXIT_IOAPIC_EOI",
        "The guest acknowledged an interrupt that the VMM's own IOAPIC has to see",
    ),
    (
        27,
        "KVM_EXIT_HYPERV",
        "The guest changed a Hyper-V interrupt controller page that the VMM keeps",
    ),
    (28, "KVM_EXIT_ARM_NISV", ""),
    (29, "KVM_EXIT_X86_RDMSR", MSR),
    (30, "KVM_EXIT_X86_WRMSR", MSR),
    (
        31,
        "KVM_EXIT_DIRTY_RING_FULL",
        "The ring of dirty pages is full, which happens while the guest migrates",
    ),
    (32, "KVM_EXIT_AP_RESET_HOLD", ""),
    (
        33,
        "KVM_EXIT_X86_BUS_LOCK",
        "The guest locked the whole memory bus with one instruction",
    ),
    (34, "KVM_EXIT_XEN", ""),
    (
        37,
        "KVM_EXIT_NOTIFY",
        "The guest blocked event delivery for too long",
    ),
    (39, "KVM_EXIT_MEMORY_FAULT", ""),
    (40, "KVM_EXIT_TDX", ""),
    (41, "KVM_EXIT_ARM_SEA", ""),
    (42, "KVM_EXIT_ARM_LDST64B", ""),
    (43, "KVM_EXIT_SNP_REQ_CERTS", ""),
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

/// Whether this negative errno is normal for `KVM_RUN`: EINTR for a signal, and EAGAIN for a vCPU
/// that waits to be started (`kvm_arch_vcpu_ioctl_run` in `arch/x86/kvm/x86.c`). QEMU continues
/// after both (`accel/kvm/kvm-all.c`).
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

fn find_row(reason: u32) -> Option<&'static ReasonRow> {
    REASONS.iter().find(|(number, ..)| *number == reason)
}

/// The name of a reason, with its `KVM_EXIT_` prefix.
pub fn name(reason: u32) -> Option<&'static str> {
    find_row(reason).map(|(_, name, _)| *name)
}

/// The name to show for a reason, or for an errno, which is negative: `restart` for EINTR, `error
/// N` for another.
pub fn display(reason: i32) -> String {
    match u32::try_from(reason) {
        Err(_) if reason == -4 => RESTART.to_owned(),
        Err(_) => format!("error {}", reason.unsigned_abs()),
        Ok(reason) => name(reason).map_or_else(|| format!("KVM_EXIT_{reason}"), str::to_owned),
    }
}

/// The meaning of a reason for an admin, if it needs a sentence.
pub fn meaning(reason: u32) -> Option<&'static str> {
    find_row(reason)
        .map(|(.., meaning)| *meaning)
        .filter(|text| !text.is_empty())
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
        assert_eq!(display(2), "KVM_EXIT_IO");
        assert_eq!(display(-4), "restart");
        assert_eq!(display(-14), "error 14");
        assert_eq!(display(99), "KVM_EXIT_99");
    }
}
