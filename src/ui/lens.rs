//! What the list of guests is looked at for.

use serde::Deserialize;
use strum::IntoStaticStr;

/// A set of columns of the list, and of tables below it.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, Deserialize,
)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Lens {
    /// CPU time, waits and exits.
    #[default]
    Cpu,
    /// Memory.
    Memory,
    /// Disks.
    Disks,
    /// Network interfaces.
    Network,
}

impl Lens {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Cpu, Self::Memory, Self::Disks, Self::Network];

    /// Its name.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Names of the columns of the list, left to right.
    pub fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Cpu => &[
                "name", "cpu", "load", "wait", "exits", "mem", "disk", "net", "cost", "problem",
            ],
            Self::Memory => &[
                "name",
                "mem",
                "mem_percent",
                "allotted",
                "balloon",
                "guest_used",
                "guest_faults",
                "swap",
                "swap_in",
                "mem_stall",
                "local",
                "uptime",
                "problem",
            ],
            Self::Disks => &[
                "name",
                "reads",
                "writes",
                "read_bytes",
                "write_bytes",
                "disk_us",
                "outside_us",
                "disk_of",
                "storage",
                "storage_free",
                "in_flight",
                "io_stall",
                "problem",
            ],
            Self::Network => &[
                "name", "rx", "tx", "rx_bytes", "tx_bytes", "drops", "rx_drops", "vhost", "problem",
            ],
        }
    }

    /// Name of the column that the list is sorted by at first; `None`: the worst guest first.
    pub fn sorted_by(self) -> Option<&'static str> {
        match self {
            Self::Cpu => None,
            Self::Memory => Some("mem"),
            Self::Disks => Some("disk"),
            Self::Network => Some("net"),
        }
    }
}
