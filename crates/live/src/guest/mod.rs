//! One guest: its identity, the roles of its threads, its counters, CPU limits and memory, and what
//! remains after its end.

pub(crate) mod attendants;
pub(crate) mod description;
pub(crate) mod live_guest;
pub(crate) mod lives;
pub(crate) mod stop;
pub(crate) mod storage;

mod cgroups;
mod counters;
mod kvm_stats;
mod memory;
mod nics;
mod proxmox;
mod resources;
mod roles;

/// Spreads the guests' rare readings over time: a delay by process id, up to 8 s in steps of 250
/// ms.
fn stagger(pid: i32) -> u64 {
    u64::from(pid.unsigned_abs() % 32) * 250_000_000
}
