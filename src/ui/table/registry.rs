//! The tables of the screen: `views::TABLES` has their titles and columns.

/// A table of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableId {
    /// The guests, and the host's other work.
    Guests,
    /// Exits by reason.
    Exits,
    /// Exits to the VMM by reason.
    Userspace,
    /// Ports, addresses and MSRs.
    Accesses,
    /// Threads of guests.
    Threads,
    /// What interrupts vCPUs.
    Interrupts,
    /// Migrations, block jobs and the like of guests.
    Jobs,
    /// Disks of guests.
    Disks,
    /// Network interfaces of guests.
    Nics,
    /// Block devices of the host.
    HostDisks,
    /// Memory of guests.
    Memory,
    /// CPUs of the host.
    Cpus,
    /// How long vCPUs wait for a CPU.
    Latency,
    /// Tasks of the host outside guests.
    Tasks,
}
