//! The running host: a collector that ticks.

pub mod devices;
pub mod libvirt;
pub mod qmp;

mod accounts;
mod cgroup;
mod collector;
mod counters;
mod discovery;
mod ended;
mod facts;
mod fds;
mod file;
mod guest;
mod guest_memory;
mod host;
mod informant;
mod interrupts;
mod kmsg;
mod kvm_stats;
mod outside;
mod own;
mod places;
mod resampled;
mod resident;
mod retired;
mod roles;
mod sources;
mod stat;
mod status_xml;
mod tasks;
mod threads;
mod topology;

#[cfg(test)]
mod fake;

pub use collector::{Collector, CollectorOptions, Command};
pub use informant::{Informant, Told, Watched};
pub use outside::Outside;
pub use own::Instant;
pub use places::Places;
pub use resampled::{CounterReading, Counters};

/// The host's CPUs as an engine needs them, before the first sample.
pub fn topology(places: &Places) -> crate::kvm::topology::HostTopology {
    topology::read(&places.sys)
}

/// How many vCPUs there are now, by the open files of all guests: what an engine's tables are sized by.
pub fn vcpus(places: &Places) -> usize {
    discovery::vcpus(places, Instant::now())
}
