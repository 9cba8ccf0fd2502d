//! Memory, MSRs, errors, QEMU's main thread, nesting.

mod host;
mod incident_texts;
mod incidents;
mod main_loop;
mod memory_faults;
mod nested;
pub(super) mod rules;
mod texts;
mod unhandled_msrs;
