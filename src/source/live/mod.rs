//! The running host: a collector that ticks.

pub mod devices;
pub mod events;
pub mod libvirt;
pub mod qmp;
