//! The running host: a collector that ticks.

pub mod events;
