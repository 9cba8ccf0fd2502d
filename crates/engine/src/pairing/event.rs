//! One decoded event of a tracepoint.

use kvm::Space;
use kvm::isa::Isa;
use sample::Direction;

/// Something that happened on a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedEvent {
    /// Thread id of the thread that the event is about. In scheduler events that is not always the
    /// running thread.
    pub tid: i32,
    /// Its process id, used when the thread is new.
    pub pid: i32,
    /// Time in nanoseconds; all events use the same clock.
    pub time: u64,
    /// The CPU that reported it.
    pub cpu: u32,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// `kvm_exit`: the vCPU left guest mode.
    Exit {
        /// The instruction set that the code belongs to.
        isa: Isa,
        /// The reason with its flag bits; arm64 by `exit_reason::arm64_code`.
        code: u32,
        /// vCPU number, if the event has it.
        vcpu: Option<u32>,
    },
    /// `kvm_entry`: the vCPU is about to enter guest mode.
    Entry {
        /// vCPU number, if the event has it.
        vcpu: Option<u32>,
    },
    /// `kvm_pio`, `kvm_mmio` (types 1 and 2) or `kvm_msr`.
    Access(TracedAccess),
    /// `kvm_userspace_exit`: the VMM continues the exit.
    Userspace {
        /// `kvm_run.exit_reason`, or a negative errno.
        reason: i32,
    },
    /// `kvm_vcpu_wakeup`: the vCPU's sleep or polling in the kernel ends.
    Halted {
        /// Its duration, nanoseconds.
        ns: u64,
    },
    /// `sched_migrate_task`: the thread moves to another pCPU.
    Migrated {
        /// The pCPU it left.
        from: u32,
        /// The pCPU it moves to.
        to: u32,
    },
    /// `sched_waking`: the thread becomes runnable.
    Waking {
        /// The task that wakes it.
        by: Task,
    },
    /// `sched_switch`: the thread leaves its pCPU.
    SwitchOut {
        /// What it does next.
        to: LeftFor,
        /// The task that runs next.
        next: Task,
    },
    /// `sched_switch`: the thread starts to run.
    SwitchIn,
    /// `sched_process_exit`: the thread ends; another thread may soon have its id.
    Ended,
}

impl EventKind {
    /// An access; `write` is false for a read.
    pub fn access(space: Space, address: u64, write: bool, fault: bool) -> Self {
        let direction = if write {
            Direction::Write
        } else {
            Direction::Read
        };
        Self::Access(TracedAccess {
            space,
            address,
            direction,
            fault,
        })
    }

    /// The port access of an exit whose `info1` names one: VMX's exit qualification (Intel SDM,
    /// volume 3, "Exit Qualification for I/O Instructions") or SVM's EXITINFO1 (AMD APM, volume 2,
    /// "IOIO Intercept Information"). Both hold the port in bits 31:16. `None` for other exits, and
    /// where tools print 0 for what they do not know.
    pub fn port_of_exit(isa: Isa, code: u32, info: u64) -> Option<Self> {
        // The codes are EXIT_REASON_IO_INSTRUCTION and SVM_EXIT_IOIO. Each has a bit that is set
        // for an input.
        let input_bit = match (isa, code) {
            (Isa::Vmx, 30) => 1 << 3,
            (Isa::Svm, 0x7b) => 1,
            _ => return None,
        };
        if info == 0 {
            return None;
        }
        let port = info >> 16 & 0xffff;
        let write = info & input_bit == 0;
        Some(Self::access(Space::Pio, port, write, false))
    }

    /// Whether this is an event of the scheduler, not of KVM.
    pub fn is_scheduling(self) -> bool {
        use EventKind::{Ended, Migrated, SwitchIn, SwitchOut, Waking};
        matches!(
            self,
            Migrated { .. } | Waking { .. } | SwitchOut { .. } | SwitchIn | Ended
        )
    }
}

/// Why a thread leaves its pCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftFor {
    /// To wait for a pCPU: it was preempted.
    Waiting,
    /// To sleep until something wakes it.
    Sleeping,
    /// To stand still: SIGSTOP or a debugger stopped it.
    Stopped,
}

impl LeftFor {
    /// By the kernel's task states: 0 is a runnable one, and `__TASK_STOPPED` and `__TASK_TRACED`
    /// are a stopped one (include/linux/sched.h).
    pub fn from_state(state: u64) -> Self {
        match state {
            0 => Self::Waiting,
            _ if state & 0xc != 0 => Self::Stopped,
            _ => Self::Sleeping,
        }
    }

    /// By the letters that tools print: `R+`, `S`, `T`, `t`.
    pub fn from_letters(state: &str) -> Self {
        match state.as_bytes().first() {
            Some(b'R') => Self::Waiting,
            Some(b'T' | b't') => Self::Stopped,
            _ => Self::Sleeping,
        }
    }
}

/// An access of the guest that KVM or the VMM emulates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedAccess {
    /// Port, memory or MSR.
    pub space: Space,
    /// Port, guest-physical address or MSR number.
    pub address: u64,
    /// Read or write.
    pub direction: Direction,
    /// Whether it raised a fault in the guest.
    pub fault: bool,
}

/// Another task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Task {
    /// Thread id; 0 for an interrupt or the idle task.
    pub tid: i32,
    /// Name as the kernel stores it, padded with NUL.
    pub comm: [u8; 16],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_vendors_hold_the_port() {
        let port = |port, write| Some(EventKind::access(Space::Pio, port, write, false));
        // A 32-bit read of the ACPI PM timer, a byte written to the RTC's index and one to QEMU's
        // debug port.
        assert_eq!(
            EventKind::port_of_exit(Isa::Vmx, 30, 0x0608_000b),
            port(0x608, false)
        );
        assert_eq!(
            EventKind::port_of_exit(Isa::Vmx, 30, 0x0070_0040),
            port(0x70, true)
        );
        assert_eq!(
            EventKind::port_of_exit(Isa::Svm, 0x7b, 0x0608_0041),
            port(0x608, false)
        );
        assert_eq!(
            EventKind::port_of_exit(Isa::Svm, 0x7b, 0x0402_0010),
            port(0x402, true)
        );
        assert_eq!(EventKind::port_of_exit(Isa::Vmx, 30, 0), None);
        assert_eq!(EventKind::port_of_exit(Isa::Vmx, 48, 0x0608_000b), None);
        assert_eq!(EventKind::port_of_exit(Isa::Svm, 30, 0x0608_000b), None);
    }
}
