//! Memory, MSRs, errors, QEMU's main thread, nesting.

mod abnormal;
mod host_memory;
mod incident;
mod incident_texts;
mod killed;
mod lockups;
mod main_loop;
mod memory_faults;
mod nested;
pub(super) mod rules;
mod steal;
mod texts;
mod unhandled_msrs;
