//! What `kvmtop export` serves: counters of a host and its guests that only grow, and how they are
//! written. Pure: no I/O, no clock, no thread.
//!
//! A sample's own counters restart when the engine restarts, and end with their thread.
//! [`HostMetrics`] adds up how they grew from sample to sample, so that a counter of a guest never
//! falls while the guest lives. All begin at zero when kvmtop first sees the guest.
//!
//! How many series a guest can make is bounded: `ranked` holds what a guest can name at will.

mod families;
mod guest;
mod host;
mod ranked;
mod vcpu;
mod write;

pub use families::openmetrics;
pub use host::HostMetrics;

#[cfg(test)]
mod tests;
