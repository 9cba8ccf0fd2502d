//! The tables of the screen; `views::heads` has their columns.

/// A table of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
    /// The guests of each owner together.
    Owners,
    /// What guests do to each storage.
    Storage,
    /// Disks of guests.
    Disks,
    /// Network interfaces of guests.
    Nics,
    /// Block devices of the host.
    HostDisks,
    /// NUMA nodes of the host.
    Nodes,
    /// Memory of guests.
    Memory,
    /// CPUs of the host.
    Cpus,
    /// Disks and network links of the host, whoever uses them.
    HostDevices,
    /// How long vCPUs wait for a CPU.
    Latency,
    /// Tasks of the host outside guests.
    Tasks,
}

impl TableId {
    /// All tables, in the order of the help.
    pub const ALL: [Self; 18] = [
        Self::Guests,
        Self::Exits,
        Self::Userspace,
        Self::Accesses,
        Self::Threads,
        Self::Interrupts,
        Self::Jobs,
        Self::Owners,
        Self::Storage,
        Self::Disks,
        Self::Nics,
        Self::HostDisks,
        Self::Nodes,
        Self::Memory,
        Self::Cpus,
        Self::HostDevices,
        Self::Latency,
        Self::Tasks,
    ];

    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Guests => "guests",
            Self::Exits => "exits",
            Self::Userspace => "exits to the VMM",
            Self::Accesses => "devices",
            Self::Threads => "threads",
            Self::Interrupts => "interrupts",
            Self::Jobs => "jobs",
            Self::Owners => "owners",
            Self::Storage => "storage of guests",
            Self::Disks => "disks",
            Self::Nics => "network interfaces",
            Self::HostDisks => "block devices of the host",
            Self::Nodes => "NUMA nodes",
            Self::Memory => "memory",
            Self::Cpus => "CPUs",
            Self::HostDevices => "disks and links of the host",
            Self::Latency => "latency",
            Self::Tasks => "tasks outside guests",
        }
    }
}

/// A column's place in its table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ColumnId(pub usize);
