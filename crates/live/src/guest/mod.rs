//! One guest: its identity, the roles of its threads, its counters, CPU limits and memory, and what remains after its
//! end.

pub(crate) mod counters;
pub(crate) mod live_guest;
pub(crate) mod resources;
pub(crate) mod traced_process;
pub(crate) mod vanished;

mod cgroups;
mod command_line;
mod counter_interpolation;
mod cpu_groups;
mod cpu_limits;
mod exited_threads;
mod huge_pages;
mod identity;
mod kvm_stats;
mod memory;
mod nics;
mod roles;
mod stagger;
