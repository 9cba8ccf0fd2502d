//! The tables of the screen.

/// A table of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableId {
    /// The guests, and the host's other work.
    Guests,
    /// Exits by reason.
    Exits,
    /// Exits to the VMM by reason.
    Userspace,
    /// KVM's own counters and tracepoints.
    Counters,
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

impl TableId {
    /// All with their titles, in the order of the help.
    pub const ALL: [(Self, &str); 15] = [
        (Self::Guests, "guests"),
        (Self::Exits, "exits"),
        (Self::Userspace, "exits to the VMM"),
        (Self::Counters, "KVM's counters"),
        (Self::Accesses, "devices"),
        (Self::Threads, "threads"),
        (Self::Interrupts, "interrupts"),
        (Self::Jobs, "jobs"),
        (Self::Disks, "disks"),
        (Self::Nics, "network interfaces"),
        (Self::HostDisks, "block devices of the host"),
        (Self::Memory, "memory"),
        (Self::Cpus, "CPUs"),
        (Self::Latency, "latency"),
        (Self::Tasks, "tasks outside guests"),
    ];

    /// Its title.
    pub fn title(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_its_title() {
        assert!(TableId::ALL.iter().enumerate().all(|(n, (id, _))| *id as usize == n));
    }
}
