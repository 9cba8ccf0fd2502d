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
pub use host::prerequisites::{HeldRights, Prerequisite, prerequisites};
pub use metadata::libvirt_and_qmp::LibvirtAndQmp;
pub use metadata::source::{CounterReading, GuestMetadata, MetadataSource, NamedCounters, UuidClaim, WatchedGuest};
pub use proc::discovery::vcpus;
pub use proc::paths::SystemPaths;
pub use timestamps::Timestamps;

/// The host's CPU topology, as an engine needs it before the first sample.
pub fn topology(paths: &SystemPaths) -> kvm::topology::HostTopology {
    host::topology::read(&paths.sys)
}
