//! The host itself: its CPUs, memory and topology, the tasks of no guest, the kernel's log, kvmtop's own cost.

pub(crate) mod kernel_log;
pub(crate) mod reader;
pub(crate) mod self_usage;
pub(crate) mod tasks;
pub(crate) mod topology;

mod interrupts;
