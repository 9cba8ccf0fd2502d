//! The running host: a collector that ticks.

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
pub use host::prerequisites::{Prerequisite, prerequisites};
pub use host::topology::read as topology;
pub use metadata::libvirt_and_qmp::{LibvirtAndQmp, MonitorUse};
#[doc(hidden)]
pub use metadata::qmp::ask_all;
pub use metadata::source::{GuestMetadata, WatchedGuest};
pub use proc::discovery::Discovery;
pub use proc::paths::SystemPaths;
pub use timestamps::Timestamps;
