//! One decoded event of a tracepoint.

use kvm::Space;
use kvm::isa::Isa;
use kvm::port_exit::PortExit;
use sample::Direction;

/// Something that happened on a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedEvent {
    /// Thread id of the thread that the event is about. In scheduler events that is not always the running thread.
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
        /// Whether it is still runnable, so that it was preempted.
        runnable: bool,
        /// The task that runs next.
        next: Task,
    },
    /// `sched_switch`: the thread starts to run.
    SwitchIn,
    /// `sched_process_exit`: the thread ends; its id may soon be another's.
    Ended,
}

impl EventKind {
    /// An access.
    pub fn access(space: Space, address: u64, write: bool, fault: bool) -> Self {
        let direction = if write { Direction::Write } else { Direction::Read };
        Self::Access(TracedAccess { space, address, direction, fault })
    }

    /// The port access of an exit whose qualification (`info1`) names one.
    pub fn port_of_exit(isa: Isa, code: u32, info: u64) -> Option<Self> {
        PortExit::of(isa, code, info).map(|exit| Self::access(Space::Pio, exit.port.into(), exit.write, false))
    }

    /// Whether it is an event of the scheduler, not of KVM.
    pub fn is_scheduling(self) -> bool {
        use EventKind::{Ended, Migrated, SwitchIn, SwitchOut, Waking};
        matches!(self, Migrated { .. } | Waking { .. } | SwitchOut { .. } | SwitchIn | Ended)
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
