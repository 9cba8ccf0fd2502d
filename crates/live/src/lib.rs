//! The running host: a collector that ticks.

#[doc(hidden)]
pub mod fuzzing;
pub mod metadata;

mod backoff;
mod collector;
mod guest;
mod host;
mod proc;
mod source_status;
#[cfg(test)]
mod tests;
mod timestamps;
mod user_slots;

pub use collector::{Collector, CollectorCommand, CollectorOptions};
pub use host::prerequisites::{HeldRights, prerequisites};
pub use metadata::libvirt_and_qmp::LibvirtAndQmp;
pub use metadata::source::{CounterReading, GuestMetadata, MetadataSource, NamedCounters, UuidClaim, WatchedGuest};
pub use proc::paths::SystemPaths;
pub use timestamps::Timestamps;

/// The host's CPU topology, as an engine needs it before the first sample.
pub fn topology(paths: &SystemPaths) -> kvm::topology::HostTopology {
    host::topology::read(&paths.sys)
}

/// The number of vCPUs of all guests now, by their open files: engines size their tables by it.
pub fn vcpus(paths: &SystemPaths) -> usize {
    proc::discovery::vcpus(paths, Timestamps::now())
}
