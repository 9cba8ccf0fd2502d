//! The running host: a collector that ticks.

pub mod metadata;

mod collector;
mod guest;
mod host;
mod proc;
mod source_status;
mod timestamps;

pub use collector::{Collector, CollectorCommand, CollectorOptions};
pub use metadata::libvirt_and_qmp::LibvirtAndQmp;
pub use metadata::source::{CounterReading, GuestMetadata, MetadataSource, NamedCounters, WatchedGuest};
pub use proc::paths::SystemPaths;
pub use timestamps::Timestamps;

/// The host's CPUs as an engine needs them, before the first sample.
pub fn topology(paths: &SystemPaths) -> crate::kvm::topology::HostTopology {
    host::topology::read(&paths.sys)
}

/// How many vCPUs there are now, by the open files of all guests: what an engine's tables are sized by.
pub fn vcpus(paths: &SystemPaths) -> usize {
    proc::discovery::vcpus(paths, Timestamps::now())
}
