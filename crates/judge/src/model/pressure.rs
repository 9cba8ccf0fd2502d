//! How long tasks waited for what they needed.

use sample::{Pressure, sums};
use schemars::JsonSchema;
use serde::Serialize;

/// The part of the time in which at least one task of the host or of a guest waited, or (`full`)
/// all that had work to do; percent, as the kernel's mean of the last 10 s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct PressureModel {
    /// For a CPU.
    pub cpu: f64,
    /// For a disk.
    pub io: f64,
    /// All of them for a disk.
    pub io_full: f64,
    /// For memory: pages from swap or from a file, or pages that others have to give up first.
    pub memory: f64,
    /// All of them for memory.
    pub memory_full: f64,
}

sums!(PressureModel {
    cpu,
    io,
    io_full,
    memory,
    memory_full
});

impl PressureModel {
    pub(super) fn new(of: &Pressure) -> Self {
        Self {
            cpu: of.cpu as f64 / 100.0,
            io: of.io as f64 / 100.0,
            io_full: of.io_full as f64 / 100.0,
            memory: of.memory as f64 / 100.0,
            memory_full: of.memory_full as f64 / 100.0,
        }
    }
}
