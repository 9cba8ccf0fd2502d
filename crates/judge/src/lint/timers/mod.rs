//! Timers and clocks: which of them the guest uses, and which it should use instead.

mod enlightenments;
mod hpet;
mod hyperv_clock;
mod idle;
mod pc_timers;
pub(super) mod rules;
mod texts;
