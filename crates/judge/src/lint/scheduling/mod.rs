//! How the guest's vCPUs get their CPUs, and what the host does meanwhile.

mod halt_polling;
mod host_interrupts;
mod migrations;
pub(super) mod rules;
mod texts;
mod wait;
mod wakeup_latency;
