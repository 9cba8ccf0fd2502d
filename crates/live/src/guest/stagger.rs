//! Spreads the guests' rare readings over time, so that they do not all fall due in one tick.

/// A delay by process id: up to 8 s, in steps of 250 ms.
pub(crate) fn stagger(pid: i32) -> u64 {
    u64::from(pid.unsigned_abs() % 32) * 250_000_000
}
