//! The host: its CPUs, memory and topology, the tasks outside of guests, the kernel's log, kvmtop's
//! own cost.

pub(crate) mod block_devices;
pub(crate) mod devices;
pub(crate) mod kernel_log;
pub(crate) mod memory;
pub(crate) mod prerequisites;
pub(crate) mod reader;
pub(crate) mod tasks;
pub(crate) mod topology;

mod interrupts;
mod kvm_offers;
mod power;
