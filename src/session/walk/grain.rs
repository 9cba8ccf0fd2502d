//! How coarse the figures of a file are, by its schema version.

use crate::session::precision;

/// What [`precision`] said when a version was written. Figures that are finer are told in full.
#[derive(Debug, Clone, Copy)]
pub struct Grain {
    /// Significant bits of the growth of a sum of so many durations.
    pub total_bits: fn(u64) -> u32,
    /// Significant bits of the growth of the squares about their mean.
    pub spread_bits: fn(u64) -> u32,
    /// Significant bits of the shortest and longest duration.
    pub extreme_bits: u32,
    /// Grid of a thread's CPU and waiting time, nanoseconds.
    pub cpu_ns: u64,
    /// Grid of waiting within an exit, nanoseconds.
    pub preempted_ns: u64,
}

impl Grain {
    /// Of a schema version from 2 on.
    pub fn of(schema: u32) -> Self {
        if schema < 4 {
            return Self {
                total_bits: |_| 8,
                spread_bits: |_| 4,
                extreme_bits: 5,
                cpu_ns: 100_000,
                preempted_ns: 10_000,
            };
        }
        Self {
            total_bits: precision::total_bits,
            spread_bits: precision::spread_bits,
            extreme_bits: precision::EXTREME_BITS,
            cpu_ns: precision::CPU_GRID_NS,
            preempted_ns: precision::CPU_GRID_NS,
        }
    }
}
