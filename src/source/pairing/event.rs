//! One decoded event.

use crate::kvm::Space;
use crate::kvm::isa::Isa;
use crate::sample::Direction;

/// Something that happened on a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The thread it happened to: for the scheduler's events not always the one that was running.
    pub tid: i32,
    /// Its process; used when the thread is new.
    pub pid: i32,
    /// When, nanoseconds of one clock throughout.
    pub time: u64,
    /// The CPU that reported it.
    pub cpu: u32,
    /// What.
    pub kind: Kind,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `kvm_exit`: the vCPU left guest mode.
    Exit {
        /// What the code belongs to.
        isa: Isa,
        /// The reason with its flag bits; arm64 by `exit_reason::arm64_code`.
        code: u32,
        /// vCPU number, where the event has it.
        vcpu: Option<u32>,
    },
    /// `kvm_entry`: it is about to enter guest mode again.
    Entry {
        /// vCPU number, where the event has it.
        vcpu: Option<u32>,
    },
    /// `kvm_pio`, `kvm_mmio` (types 1 and 2) or `kvm_msr`.
    Access(Access),
    /// `kvm_userspace_exit`: the VMM gets to work.
    Userspace {
        /// `kvm_run.exit_reason`, or the negative errno.
        reason: i32,
    },
    /// `kvm_vcpu_wakeup`: the vCPU ends its sleep (or its polling) in the kernel.
    Halted {
        /// How long it was.
        ns: u64,
    },
    /// `sched_migrate_task`.
    Migrated {
        /// The pCPU it left.
        from: u32,
        /// Where it goes.
        to: u32,
    },
    /// `sched_waking`: it became runnable.
    Waking {
        /// By whom.
        by: Task,
    },
    /// `sched_switch`: it left its pCPU.
    SwitchOut {
        /// It wanted to go on (preempted).
        runnable: bool,
        /// Who runs instead.
        next: Task,
    },
    /// `sched_switch`: it runs.
    SwitchIn,
}

impl Kind {
    /// Whether it comes from the scheduler and not from KVM.
    pub fn is_scheduling(self) -> bool {
        matches!(self, Self::Migrated { .. } | Self::Waking { .. } | Self::SwitchOut { .. } | Self::SwitchIn)
    }
}

/// An access of the guest that KVM or the VMM serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Port, memory or MSR.
    pub space: Space,
    /// Port, guest-physical address or MSR number.
    pub address: u64,
    /// Read or write.
    pub direction: Direction,
    /// Whether it raised a fault in the guest.
    pub fault: bool,
}

/// Another task: its thread id (0 for an interrupt or idle) and its name as the kernel stores it, NUL-padded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Task {
    /// Thread id.
    pub tid: i32,
    /// Name.
    pub comm: [u8; 16],
}

impl Access {
    /// With the address as `AccessCell` has it: of a memory address, the lowest two bits cleared.
    #[must_use]
    pub(super) fn aligned(self) -> Self {
        if self.space == Space::Mmio { Self { address: self.address & !3, ..self } } else { self }
    }
}
