//! One guest: its identity, the roles of its threads, its counters, CPU limits and memory, and what remains after its
//! end.

pub(crate) mod counters;
pub(crate) mod live_guest;
pub(crate) mod lives;
pub(crate) mod resources;

mod cgroups;
mod counter_interpolation;
mod cpu_groups;
mod cpu_limits;
mod description;
mod identity;
mod kvm_stats;
mod memory;
mod nics;
mod roles;
mod stagger;
