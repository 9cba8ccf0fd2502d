//! Memory, MSRs, errors, QEMU's main thread, nesting.

mod abnormal;
mod host_memory;
mod main_loop;
mod memory_faults;
mod nested;
pub(super) mod rules;
mod steal;
mod texts;
mod unhandled_msrs;
